"""A request on its way, as limits look at it, and what the middleware keeps of it."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Receive, Scope, Send

from jwtlimit_core import ConfigError, Engine, LimiterUnavailable, RateLimitExceeded, RequestView, Response
from jwtlimit_core.asgi import ScopeView, with_headers
from jwtlimit_core.flow import Call, run_async
from jwtlimit_core.http import STATUSES, Refusal, status_of

__all__ = ["PASSAGE", "EndpointView", "Passage", "is_on_loop"]

PASSAGE = "jwtlimit"  # in the scope of a request: its passage through the middleware


class Passage(ScopeView):
    """A request as it came, and what is kept of it for all limits below: its way in, its charges, and its way out.

    Args:
        engine: Whose limits hold.
        scope: What the server says of it.
        receive: Where its messages come from; None where no middleware has them.
        send: Where the answer goes.

    Attributes:
        engine: The same.
        admission: What it was charged; ``request.state.jwtlimit`` is the same.
        is_answered: Whether the answer has begun.
    """

    __slots__ = ("_noted", "_send", "admission", "engine", "is_answered")

    def __init__(self, engine: Engine, scope: Scope, receive: Receive | None, send: Send | None) -> None:
        ScopeView.__init__(self, scope, receive)
        self.engine = engine
        self.admission = engine.admission(self)
        self.is_answered = False
        self._send: Any = send
        self._noted: Refusal | None = None
        scope.setdefault("state", {})["jwtlimit"] = self.admission

    @staticmethod
    def of(connection: HTTPConnection) -> "Passage | None":
        """Return the passage that *connection* is on, None where there is no middleware."""
        return connection.scope.get(PASSAGE)

    @property
    def raw(self) -> Any:
        """The framework's own request, made when somebody asks for it; None when the request is over."""
        if self._raw is None and self.scope is not None and self._receive is not None:
            self._raw = Request(self.scope, self.messages.reader())
        return self._raw

    def user(self) -> Call:
        """Return how to get the identity of the user that AuthenticationMiddleware found."""
        return Call(_user, (self.scope,))

    def refuse(self, error: Refusal, view: RequestView) -> Response:
        """Return the answer to *error*; whoever gives it, it gets our headers."""
        answer = self.engine.refuse(error, view)
        self.admission.refused = answer.headers
        return answer

    async def send(self, message: Message) -> None:
        """Send a *message* of the answer, the first with our headers."""
        if message["type"] == "http.response.start":
            admission, status = self.admission, message["status"]
            if admission.refunds:
                await self.settle(status, message.get("headers", ()))
            if admission.refused is None and (status in STATUSES or self._noted is not None):
                error = self._refusal_behind(message)
                if error is not None:
                    self.refuse(error, self)
            message = with_headers(message, self.engine.headers(admission, status))
            self.is_answered = True
        await self._send(message)

    async def settle(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Put back what limits want put back, now that the answer is known."""
        await run_async(self.engine.settle(self, self.admission, status, Headers(raw=list(headers))))

    def release(self) -> None:
        """Let go of what holds this, too, now that the request is over."""
        self.scope = self._raw = None
        self.admission.release()

    def note(self, error: Refusal) -> None:
        """Remember what a processor refused; whether that becomes the answer, the application decides."""
        # Not the error itself: the frames that it was raised in hold this.
        if isinstance(error, RateLimitExceeded):
            self._noted = RateLimitExceeded(error.decision)
        else:
            self._noted = LimiterUnavailable("the limiter gave no answer", retry_after=error.retry_after)

    def _refusal_behind(self, message: Message) -> Refusal | None:
        """Return the refusal of a processor that the application answers with *message*, by a handler of its own."""
        handled, status = sys.exception(), message["status"]
        if self._noted is None:  # of a processor that we do not know of, or of something else that is none of ours
            return handled if isinstance(handled, Refusal) and status == status_of(handled) else None
        if isinstance(handled, Refusal):
            return self._noted
        # Nothing is handled where other middleware sends answers from a task of its own; one with a wait says something else.
        is_own = any(name.lower() == b"retry-after" for name, _ in message.get("headers", ()))
        return self._noted if status == status_of(self._noted) and not is_own else None


class EndpointView(ScopeView):
    """A request as an endpoint gets it, which may be mounted in another application than the middleware is around.

    Args:
        connection: What the endpoint gets.
        passage: What the middleware keeps of it.
    """

    __slots__ = ("_passage",)

    def __init__(self, connection: HTTPConnection, passage: Passage) -> None:
        ScopeView.__init__(self, connection.scope, None, connection)
        self._passage = passage

    @property
    def raw(self) -> Any:
        """What the endpoint gets; None when its limits were asked."""
        return self._raw

    def user(self) -> Call:
        """Return how to get the identity of its user."""
        return Call(_user, (self.scope,))

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body, of which something else may have read some."""
        return self._passage.body(most_bytes)


def is_on_loop() -> bool:
    """Say whether this runs on an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _user(scope: Scope) -> Any:
    user = scope.get("user")
    if user is None:
        raise ConfigError(
            "a limit is by user, but nobody says who that is: put AuthenticationMiddleware outside of RateLimitMiddleware, "
            "or set user_key to a function of the request"
        )
    if not user.is_authenticated:
        return None
    try:
        return user.identity
    except NotImplementedError as error:
        raise ConfigError(f"{type(user).__name__} has no identity: set user_key to a function of the request") from error
