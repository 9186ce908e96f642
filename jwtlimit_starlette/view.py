"""One HTTP request as limits look at it, and what the middleware keeps of it."""

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Receive, Scope

from jwtlimit_core import Admission, ConfigError, Engine, Response
from jwtlimit_core.body import MOST_BODY_BYTES
from jwtlimit_core.flow import Call, run_async
from jwtlimit_core.http import Refusal, overlaid

__all__ = ["Body", "View", "Visit"]

_VISIT = "jwtlimit"  # in the scope of a request


@lru_cache(1_000)
def _raw_name(header: str) -> bytes:
    """Return a name as ASGI has it, of a header of ours or of a limit."""
    return header.lower().encode("latin-1")


class Body:
    """The messages of one request, passed on one by one, and the start of its body, remembered for limits by a field.

    What is looked at before the application asked for it is kept for it, whatever it is.
    """

    __slots__ = ("_chunks", "_early", "_receive", "_size", "_whole")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._early: list[Message] = []  # seen by us, but not by the application yet
        self._chunks: list[bytes] = []
        self._size = 0
        self._whole = False

    async def receive(self) -> Message:
        """Return the next message for the application."""
        return self._early.pop(0) if self._early else await self._next()

    async def read(self, most_bytes: int) -> bytes | None:
        """Return the whole body; None where it is longer than *most_bytes*, or the client left."""
        while not self._whole and self._size <= most_bytes:
            message = await self._next()
            self._early.append(message)
            if message["type"] == "http.disconnect":
                return None
        return b"".join(self._chunks) if self._size <= most_bytes else None

    def reader(self) -> Receive:
        """Return a `receive` that takes nothing away from the application; to be used before that is called."""
        position = 0

        async def receive() -> Message:
            nonlocal position
            if position == len(self._early):
                self._early.append(await self._next())
            position += 1
            return self._early[position - 1]

        return receive

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            chunk = message.get("body", b"")
            self._size += len(chunk)
            self._chunks.append(chunk)
            if self._size > MOST_BODY_BYTES:
                self._chunks.clear()
            self._whole = not message.get("more_body", False)
        return message


class View:
    """A request, as the engine looks at it.

    Args:
        scope: What the server says of it. Applications below change it, so it is read now.
        body: Its messages; None without the middleware.
        raw: The framework's own object; made when somebody asks for it where it is left out.
    """

    __slots__ = ("_body", "_headers", "_raw", "_scope", "method", "path", "peer")

    awaits = True

    def __init__(self, scope: Scope, body: Body | None, raw: HTTPConnection | None = None) -> None:
        self._scope: Scope | None = scope
        self._headers = scope["headers"]
        self.method: str = scope.get("method", "GET").upper()  # as sent, from some servers; a WebSocket begins with a GET
        self.path = path = scope["path"]
        root = scope.get("root_path")
        if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
            self.path = path[len(root) :]
        client = scope.get("client")
        self.peer: str | None = client[0] if client else None
        self._body = body
        self._raw = raw

    @property
    def raw(self) -> Any:
        """The framework's own; None when the request is over."""
        if self._raw is None and self._scope is not None and self._body is not None:
            self._raw = Request(self._scope, self._body.reader())
        return self._raw

    def header(self, name: str) -> str | None:
        """Return the value of a header."""
        wanted = _raw_name(name)
        for key, value in self._headers:
            if key == wanted:
                text: str = value.decode("latin-1")
                return text
        return None

    def header_lines(self, name: str) -> list[str]:
        """Return the values of all its lines."""
        wanted = _raw_name(name)
        return [value.decode("latin-1") for key, value in self._headers if key == wanted]

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body."""
        if self._body is None:
            raise ConfigError(
                "a limit by a field needs RateLimitMiddleware, which sees the body first: add it to the application"
            )
        return Call(self._body.read, (most_bytes,), awaits=True)

    def user(self) -> Call:
        """Return how to get the identity of the user that AuthenticationMiddleware found."""
        return Call(_user, (self._scope,))

    def release(self) -> None:
        """Let go of what holds this, too, now that the request is over: memory is free at once, without garbage collection."""
        self._scope = self._body = self._raw = None


class Visit:
    """What the middleware keeps of a request, for all limits below it.

    Attributes:
        engine: Whose limits hold.
        enabled: Whether they do, for this request.
        body: Its messages.
        view: The request as it came.
        admission: What it was charged; ``request.state.jwtlimit`` is the same.
        refused: The answer to what was refused; the application may have words of its own for it.
    """

    __slots__ = ("admission", "body", "enabled", "engine", "refused", "view")

    def __init__(self, engine: Engine, scope: Scope, receive: Receive) -> None:
        self.engine = engine
        self.enabled = engine.enabled
        self.body = Body(receive)
        self.view = View(scope, self.body)
        self.admission: Admission = engine.admission(self.view)
        self.refused: Response | None = None
        scope.setdefault("state", {})["jwtlimit"] = self.admission
        scope[_VISIT] = self

    async def settle(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Put back what limits want put back, now that the answer is known."""
        await run_async(self.engine.settle(self.view, self.admission, status, Headers(raw=list(headers))))

    def leave(self, message: Message) -> Message:
        """Return the *message* with which the answer begins, with our headers."""
        handled = sys.exception()
        if self.refused is None and isinstance(handled, Refusal):
            # What a processor refused, in a handler of the application's own: nobody but Starlette has told us.
            self.refused = self.engine.refuse(handled, self.view)
        ours = self.engine.headers(self.admission, message["status"]) if self.refused is None else self.refused.headers
        if not ours:
            return message
        raw = [(_raw_name(name), value.encode("latin-1")) for name, value in ours]
        return {**message, "headers": overlaid(message.get("headers", ()), raw)}

    @staticmethod
    def of(connection: HTTPConnection) -> "Visit | None":
        """Return the visit that *connection* is on, None where there is no middleware."""
        return connection.scope.get(_VISIT)


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
