"""Requests and answers of ASGI: what is the same in every framework that is built on it."""

from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from jwtlimit_core.body import MOST_BODY_BYTES
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import Call
from jwtlimit_core.http import Headers, overlaid

__all__ = ["App", "Body", "Message", "Receive", "Scope", "ScopeView", "Send", "as_raw", "with_headers"]

_FORWARDING = (b"x-forwarded-for", b"forwarded")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


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
        self._whole: bool | None = None  # while it is not known; False where the client has left

    async def receive(self) -> Message:
        """Return the next message for the application."""
        return self._early.pop(0) if self._early else await self._next()

    async def read(self, most_bytes: int) -> bytes | None:
        """Return the whole body; None where it is longer than *most_bytes* or than is kept, or the client left."""
        most_bytes = min(most_bytes, MOST_BODY_BYTES)
        while self._whole is None and self._size <= most_bytes:
            self._early.append(await self._next())
        return b"".join(self._chunks) if self._whole and self._size <= most_bytes else None

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
            self._whole = None if message.get("more_body", False) else True
        else:
            self._whole = self._whole or False  # told only once, by some servers
        return message


class ScopeView:
    """A request as its scope has it: an HTTP request, or the handshake of a WebSocket.

    A framework adds the users that it knows.

    Args:
        scope: What the server says of it, and for an endpoint what the applications above do. Applications below change it, so
            it is read now.
        receive: Where its messages come from; None where no middleware has them.
        raw: The framework's own object, where it is known.

    Attributes:
        scope: The same; None when the request is over.
    """

    __slots__ = ("_headers", "_messages", "_raw", "_receive", "method", "path", "peer", "scope")

    awaits = True

    def __init__(self, scope: Scope, receive: Receive | None, raw: Any = None) -> None:
        self.scope: Scope | None = scope
        self._receive: Any = receive
        self._messages: Body | None = None
        self._raw = raw
        self._headers = scope["headers"]
        self.method: str = scope.get("method", "GET").upper()  # as sent, from some servers; a WebSocket begins with a GET
        self.path = path = scope["path"]
        root = scope.get("root_path")
        if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
            self.path = path[len(root) :]
        client = scope.get("client")
        self.peer: str | None = client[0] if client else None

    @property
    def raw(self) -> Any:
        """The framework's own object; None where nobody knows one, and when the request is over."""
        return self._raw

    @property
    def is_forwarded(self) -> bool:
        """Whether it has an X-Forwarded-For or Forwarded header."""
        for name, _ in self._headers:  # noqa: SIM110  half of what any() takes
            if name in _FORWARDING:
                return True
        return False

    def call(self, function: Callable[[Any], Any], *, awaits: bool) -> Call:
        """Return how to call a function of the application with `raw`."""
        return Call(function, (self.raw,), awaits)

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

    def user(self) -> Call:
        """Return how to get the key of its user."""
        return Call(self.user_in, (self.scope,))

    def user_in(self, scope: Scope) -> Any:  # noqa: ARG002
        """Return the key of the user that applications above have put into *scope*, None for one who is nobody.

        Raises:
            ConfigError: Nobody here knows users, unless the framework does.
        """
        raise ConfigError("a limit is by user: set user_key to a function of the request that returns its user")

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body; a WebSocket has none.

        Raises:
            ConfigError: There is no middleware.
        """
        if self.scope is not None and self.scope.get("type", "http") != "http":
            return Call(lambda: None)
        if self._receive is None:
            raise ConfigError(
                "a limit by a field needs RateLimitMiddleware, which sees the body first: add it to the application"
            )
        return Call(self.messages.read, (most_bytes,), awaits=True)

    @property
    def messages(self) -> Body:
        """What is received, kept from the first look on; not made where nobody looks, as of a WebSocket."""
        if self._messages is None:
            self._messages = Body(self._receive)
        return self._messages

    def release(self) -> None:
        """Let go of what holds this, too, now that the request is over: memory is free at once, without garbage collection."""
        self.scope = self._raw = self._receive = self._messages = None


def with_headers(message: Message, headers: Headers) -> Message:
    """Return the *message* with which an answer begins, with *headers* in place of those of the same names."""
    if not headers:
        return message
    return dict(message, headers=overlaid(message.get("headers", ()), as_raw(headers)))


def as_raw(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return *headers* as ASGI has them."""
    return [(_raw_name(name), value.encode("latin-1")) for name, value in headers]


@lru_cache(1_000)
def _raw_name(header: str) -> bytes:
    """Return a name as ASGI has it, of a header of ours or of a limit."""
    return header.lower().encode("latin-1")
