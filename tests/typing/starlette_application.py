"""User code that is checked and never run: a Starlette application. A marked line is wrong, and must stay an error."""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from jwtlimit_core import AsyncProcessor, Decision, Limit, Processor, Rate, RegisteredClaims, RequestView
from jwtlimit_core.testing import ManualClock
from jwtlimit_starlette import (
    RateLimitMiddleware,
    add_exception_handlers,
    exempt,
    get_processor,
    get_sync_processor,
    rate_limit,
    reset,
    reset_all,
)


async def refuse_disabled(claims: RegisteredClaims) -> None: ...


def count(decision: Decision, view: RequestView) -> None:
    assert_type((decision.name, view.peer), tuple[str, str | None])


async def user_of(request: Request) -> str | None:
    return request.headers.get("X-User")


@rate_limit("5/m", key="ip", methods=["POST"], name="login")
@rate_limit(Rate(1000, 3600), key=user_of, cost=2)
async def token(request: Request) -> JSONResponse:
    processor = get_processor(request)
    assert_type(processor, AsyncProcessor)
    assert_type(await processor.create({"sub": "ann"}), str)
    await reset("login", "ip=192.0.2.1", where=request)
    return JSONResponse({})


@rate_limit("5/m")
def page(request: Request, *, number: int = 1) -> PlainTextResponse:
    assert_type(get_sync_processor(request), Processor)
    return PlainTextResponse("")


@exempt
async def health(request: Request) -> Response:
    return Response()


class Pages(HTTPEndpoint):
    @rate_limit("5/m")
    async def get(self, request: Request) -> Response:
        return Response()


endpoints: tuple[Callable[[Request], Coroutine[Any, Any, JSONResponse]], Callable[[Request], Coroutine[Any, Any, Response]]]
endpoints = (token, health)


async def asks(request: Request) -> None:
    assert_type(await token(request), JSONResponse)
    assert_type(page(request, number=2), PlainTextResponse)
    assert_type(await Pages({}, request.receive, request._send).get(request), Response)
    page(request, number="2")  # type: ignore[arg-type]
    page()  # type: ignore[call-arg]
    await token("ann")  # type: ignore[arg-type]


app = Starlette(
    routes=[Route("/token", token, methods=["POST"]), Route("/page", page), Route("/health", health), Route("/pages", Pages)],
    middleware=[
        Middleware(CORSMiddleware, allow_origins=["https://example.com"]),
        Middleware(
            RateLimitMiddleware,
            secret_key="s" * 32,
            limits=[Limit("api", "100/m"), {"name": "all", "rate": "1000/m", "key": "global"}],
            exempt_paths=["/health"],
            enabled=lambda: True,
            before_issue=refuse_disabled,
            user_key=user_of,
            on_refused=count,
            clock=ManualClock(),
            store="redis://localhost:6379/0",
            on_failure="local",
        ),
    ],
)
app.add_middleware(RateLimitMiddleware, limits=[Limit("api", Rate(100, 60))], enabled=False)
assert_type(add_exception_handlers(app), None)
assert_type(reset_all(app), None)
assert_type(reset_all(RateLimitMiddleware(app, issue_rate="5/m")), None)

RateLimitMiddleware(app, limit=[])  # type: ignore[call-arg]
RateLimitMiddleware(app, limits=5)  # type: ignore[arg-type]
RateLimitMiddleware(app, on_failure="hope")  # type: ignore[arg-type]
RateLimitMiddleware(app, on_refused=lambda decision: None)  # type: ignore[arg-type, misc]
RateLimitMiddleware(app, [])  # type: ignore[call-arg, arg-type]
rate_limit(5)  # type: ignore[arg-type]
rate_limit("5/m", cost="2")  # type: ignore[arg-type]
rate_limit("5/m", key=lambda: "k")  # type: ignore[arg-type]
rate_limit("5/m")("no view")  # type: ignore[arg-type]
get_processor("request")  # type: ignore[arg-type]
