"""A client that drives ASGI applications message by message, as a server does, and the applications that are asked."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from jwtlimit_core.testing import ManualClock
from jwtlimit_starlette import RateLimitMiddleware

SECRET = "s" * 32
OUR_HEADERS = ("Cache-Control", "Retry-After", "RateLimit-Policy", "RateLimit")
FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}


class Answer:
    """What an application sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> Headers:
        return Headers(raw=list(self.messages[0]["headers"]))

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.messages).decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def ours(self) -> list[list[str]]:
        """The values of each of our headers."""
        return [self.headers.getlist(name) for name in OUR_HEADERS]


class Sent:
    """What a client sends: the chunks of a body, and then nothing more until it leaves."""

    def __init__(self, chunks: Iterable[bytes] = (b"",), *, leaves: bool = False) -> None:
        chunks = list(chunks)
        self.left: list[dict[str, Any]] = [
            {"type": "http.request", "body": chunk, "more_body": number < len(chunks) or leaves}
            for number, chunk in enumerate(chunks, 1)
        ]
        if leaves:
            self.left.append({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        if self.left:
            return self.left.pop(0)
        await asyncio.get_running_loop().create_future()  # as a server does: until the client leaves
        raise AssertionError


def scope_of(path: str = "/", *, method: str = "GET", headers: Any = (), peer: str | None = "192.0.2.1", **more: Any) -> Any:
    raw = [(name.lower().encode(), value.encode()) for name, value in [("host", "testserver"), *dict(headers).items()]]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http",
        "server": ("testserver", 80),
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": raw,
        "client": None if peer is None else (peer, 50_000),
        "state": {},
    } | more


async def ask(app: Any, path: str = "/", *, chunks: Iterable[bytes] = (b"",), leaves: bool = False, **options: Any) -> Answer:
    """Ask *app* once, within 20 seconds."""
    answer = Answer()
    path, _, query = path.partition("?")
    scope = scope_of(path, query_string=query.encode(), **options)
    await asyncio.wait_for(app(scope, Sent(chunks, leaves=leaves).receive, answer.send), 20)
    return answer


def get(app: Any, path: str = "/", **options: Any) -> Answer:
    return asyncio.run(ask(app, path, **options))


def statuses(app: Any, path: str = "/", count: int = 4, **options: Any) -> list[int]:
    async def ask_all() -> list[int]:
        return [(await ask(app, path, **options)).status for _ in range(count)]

    return asyncio.run(ask_all())


def connect(app: Any, path: str, **options: Any) -> Answer:
    """Open a WebSocket, to an application that asks for nothing more."""
    path, _, query = path.partition("?")
    scope = scope_of(path, query_string=query.encode(), **options) | {"type": "websocket", "scheme": "ws", "subprotocols": []}
    del scope["method"]
    sent, answer = Sent(), Answer()
    sent.left = [{"type": "websocket.connect"}]
    asyncio.run(app(scope, sent.receive, answer.send))
    return answer


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def make_app(
    *routes: Any, clock: ManualClock | None = None, around: Any = (), inside: Any = (), app: Any = None, **settings: Any
) -> Starlette:
    """Make an application with the middleware between *around* and *inside*; options of `Starlette` in *app*."""
    ours = Middleware(RateLimitMiddleware, clock=clock or ManualClock(), **settings)
    return Starlette(routes=list(routes) or [Route("/", hello)], middleware=[*around, ours, *inside], **(app or {}))


def make_exceeded() -> Any:
    """Return the refusal of two tokens where there is one, for 20 seconds."""
    from jwtlimit_core import RateLimiter, RateLimitExceeded

    limiter = RateLimiter(1, 20, name="mine", clock=ManualClock())
    limiter.acquire("k")
    return RateLimitExceeded(limiter.acquire("k"))


OURS_EXCEEDED = [["no-store"], ["20"], ['"mine";q=1;w=20'], ['"mine";r=0;t=20']]
