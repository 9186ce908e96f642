"""A request on its way, as limits look at it, and what the middleware keeps of it."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Scope

from jwtlimit_core import ConfigError, Engine, RequestView, Response
from jwtlimit_core.asgi import Body, ScopeView, with_headers
from jwtlimit_core.flow import Call, run_async
from jwtlimit_core.http import Refusal

__all__ = ["Passage", "View", "is_on_loop"]

_PASSAGE = "jwtlimit"  # in the scope of a request


class View(ScopeView):
    """A request, as the engine looks at it.

    Args:
        scope: What the server says of it, and for an endpoint what the applications above do.
        messages: The rest of it; None without the middleware.
        raw: The framework's own object; made when somebody asks for it where it is left out.
    """

    __slots__ = ("_raw", "_scope", "messages")

    def __init__(self, scope: Scope, messages: Body | None, raw: HTTPConnection | None = None) -> None:
        super().__init__(scope)
        self._scope: Scope | None = scope
        self._raw = raw
        self.messages = messages

    @property
    def raw(self) -> Any:
        """The framework's own; None when the request is over."""
        if self._raw is None and self._scope is not None and self.messages is not None:
            self._raw = Request(self._scope, self.messages.reader())
        return self._raw

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body."""
        if self.messages is None:
            raise ConfigError(
                "a limit by a field needs RateLimitMiddleware, which sees the body first: add it to the application"
            )
        return Call(self.messages.read, (most_bytes,), awaits=True)

    def user(self) -> Call:
        """Return how to get the identity of the user that AuthenticationMiddleware found."""
        return Call(_user, (self._scope,))

    def release(self) -> None:
        """Let go of what holds this, too, now that the request is over: memory is free at once, without garbage collection."""
        self._scope = self.messages = self._raw = None


class Passage:
    """What is kept of a request, for all limits below.

    Attributes:
        engine: Whose limits hold.
        view: The request as it came.
        admission: What it was charged; ``request.state.jwtlimit`` is the same.
    """

    __slots__ = ("admission", "engine", "view")

    def __init__(self, engine: Engine, scope: Scope, view: View) -> None:
        self.engine = engine
        self.view = view
        self.admission = engine.admission(view)
        scope.setdefault("state", {})["jwtlimit"] = self.admission

    def open(self, scope: Scope) -> None:
        """Let limits below *scope* find this."""
        scope[_PASSAGE] = self

    @staticmethod
    def of(connection: HTTPConnection) -> "Passage | None":
        """Return the passage that *connection* is on, None where there is no middleware."""
        return connection.scope.get(_PASSAGE)

    def refuse(self, error: Refusal, view: RequestView) -> Response:
        """Return the answer to *error*; whoever gives it, it gets our headers."""
        answer = self.engine.refuse(error, view)
        self.admission.refused = answer.headers
        return answer

    async def settle(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Put back what limits want put back, now that the answer is known."""
        await run_async(self.engine.settle(self.view, self.admission, status, Headers(raw=list(headers))))

    def leave(self, message: Message) -> Message:
        """Return the *message* with which the answer begins, with our headers."""
        handled = sys.exception()
        if self.admission.refused is None and isinstance(handled, Refusal):
            # What a processor refused, in a handler of the application's own: nobody but Starlette has told us.
            self.refuse(handled, self.view)
        return with_headers(message, self.engine.headers(self.admission, message["status"]))


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
