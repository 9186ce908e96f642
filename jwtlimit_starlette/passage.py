"""A request on its way, as limits look at it, and what the middleware keeps of it."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Scope

from jwtlimit_core import ConfigError, Engine, LimiterUnavailable, RateLimitExceeded, RequestView, Response
from jwtlimit_core.asgi import ScopeView, with_headers
from jwtlimit_core.flow import Call, run_async
from jwtlimit_core.http import Refusal, status_of

__all__ = ["PASSAGE", "Passage", "View", "is_on_loop"]

PASSAGE = "jwtlimit"  # in the scope of a request: its passage through the middleware


class View(ScopeView):
    """A request, as the engine looks at it."""

    __slots__ = ()

    @property
    def raw(self) -> Any:
        """The framework's own, made when somebody asks for it; None when the request is over."""
        if self._raw is None and self.scope is not None and self.messages is not None:
            self._raw = Request(self.scope, self.messages.reader())
        return self._raw

    def user(self) -> Call:
        """Return how to get the identity of the user that AuthenticationMiddleware found."""
        return Call(_user, (self.scope,))


class Passage:
    """What is kept of a request, for all limits below.

    Attributes:
        engine: Whose limits hold.
        view: The request as it came.
        admission: What it was charged; ``request.state.jwtlimit`` is the same.
    """

    __slots__ = ("_noted", "admission", "engine", "view")

    def __init__(self, engine: Engine, scope: Scope, view: View) -> None:
        self.engine = engine
        self.view = view
        self.admission = engine.admission(view)
        self._noted: Refusal | None = None
        scope.setdefault("state", {})["jwtlimit"] = self.admission

    @staticmethod
    def of(connection: HTTPConnection) -> "Passage | None":
        """Return the passage that *connection* is on, None where there is no middleware."""
        return connection.scope.get(PASSAGE)

    def refuse(self, error: Refusal, view: RequestView) -> Response:
        """Return the answer to *error*; whoever gives it, it gets our headers."""
        answer = self.engine.refuse(error, view)
        self.admission.refused = answer.headers
        return answer

    async def settle(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Put back what limits want put back, now that the answer is known."""
        await run_async(self.engine.settle(self.view, self.admission, status, Headers(raw=list(headers))))

    def note(self, error: Refusal) -> None:
        """Remember what a processor refused; whether that becomes the answer, the application decides."""
        # Not the error itself: the frames that it was raised in hold this.
        if isinstance(error, RateLimitExceeded):
            self._noted = RateLimitExceeded(error.decision)
        else:
            self._noted = LimiterUnavailable("the limiter gave no answer", retry_after=error.retry_after)

    def leave(self, message: Message) -> Message:
        """Return the *message* with which the answer begins, with our headers."""
        if self.admission.refused is None:
            error = self._refusal_behind(message)
            if error is not None:
                self.refuse(error, self.view)
        return with_headers(message, self.engine.headers(self.admission, message["status"]))

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
