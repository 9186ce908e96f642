"""Refusals raised anywhere in a Starlette application, and its own handlers: each wins, and gets our headers once."""

import asyncio
import threading
from typing import Any

import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from adapters.starlette_client import OURS_EXCEEDED, ask, get, hello, make_app, make_exceeded
from jwtlimit_core import JWTLimitError, Limit, LimiterUnavailable, RateLimitExceeded
from jwtlimit_starlette import RateLimitMiddleware, add_exception_handlers, rate_limit


async def exceed(request: Request) -> Response:
    raise make_exceeded()


async def fail(request: Request) -> Response:
    raise LimiterUnavailable("the store is down", retry_after=2.5)


def plain(request: Request, error: Any) -> Response:
    """A handler that knows nothing of us, and sets headers of ours."""
    return PlainTextResponse(f"mine: {type(error).__name__}", 429, headers={"Retry-After": "7", "X-Mine": "1"})


async def awaited(request: Request, error: Any) -> Response:
    return plain(request, error)


class Callable:
    async def __call__(self, request: Request, error: Any) -> Response:
        return plain(request, error)


# Where a refusal comes from: the middleware itself, a decorated endpoint, or a view with or without handlers of ours.
SOURCES = ["middleware", "wrapped", "endpoint", "view", "view with handlers", "wrapped view with handlers"]


def refusing(source: str, handlers: dict[Any, Any], **settings: Any) -> Any:
    limits, routes = [], [Route("/", exceed)]
    if source in ("middleware", "wrapped"):
        limits, routes = [Limit("mine", "1/20s")], [Route("/", hello)]
    if source == "endpoint":
        routes = [Route("/", rate_limit("1/20s", name="mine")(hello))]
    if source == "wrapped view with handlers":
        wrapped = Starlette(routes=routes, exception_handlers=handlers)
        add_exception_handlers(wrapped)
        return RateLimitMiddleware(wrapped, **settings)
    if source == "wrapped":
        return RateLimitMiddleware(Starlette(routes=routes, exception_handlers=handlers), limits=limits, **settings)
    app = make_app(*routes, limits=limits, app={"exception_handlers": handlers}, **settings)
    if source == "view with handlers":
        add_exception_handlers(app)
        for kind, handler in handlers.items():
            app.add_exception_handler(kind, handler)
    return app


def refused(app: Any) -> Any:
    for _ in range(2):
        answer = get(app)
    return answer


@pytest.mark.parametrize("source", SOURCES)
def test_refusal_without_handlers_is_problem_details(source: str) -> None:
    answer = refused(refusing(source, {404: plain, Exception: plain}))
    assert (answer.status, answer.ours, answer.json["violated-policies"]) == (429, OURS_EXCEEDED, ["mine"])
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("handler", [plain, awaited, Callable()])
@pytest.mark.parametrize("kind", [429, HTTPException])
def test_handler_of_the_status_or_of_http_exceptions_answers_with_our_headers(source: str, handler: Any, kind: Any) -> None:
    answer = refused(refusing(source, {kind: handler}))
    assert (answer.status, answer.text, answer.ours) == (429, "mine: TooManyRequests", OURS_EXCEEDED)
    assert answer.headers["x-mine"] == "1"


@pytest.mark.parametrize("source", ["middleware", "wrapped", "endpoint"])
@pytest.mark.parametrize("kind", [RateLimitExceeded, JWTLimitError])
def test_handler_of_the_exception_comes_before_those_of_http(source: str, kind: Any) -> None:
    def never(request: Request, error: Any) -> Response:
        raise AssertionError("another one is nearer")

    answer = refused(refusing(source, {kind: awaited, 429: never, HTTPException: never}))
    assert (answer.status, answer.ours, answer.text[:6]) == (429, OURS_EXCEEDED, "mine: ")


def test_handler_of_the_status_comes_before_that_of_http_exceptions() -> None:
    async def never(request: Request, error: Any) -> Response:
        raise AssertionError("another one is nearer")

    assert refused(refusing("middleware", {HTTPException: never, 429: plain})).text == "mine: TooManyRequests"


def test_handler_gets_an_exception_with_status_detail_headers_and_cause() -> None:
    async def tell(request: Request, error: Any) -> Response:
        assert isinstance(error.__cause__, RateLimitExceeded)
        body = [error.status_code, error.detail, error.headers["Retry-After"], error.__cause__.limit, request.url.path]
        return JSONResponse(body, 429)

    answer = refused(refusing("middleware", {429: tell}))
    assert answer.json == [429, "A limit on requests was exceeded. Try again in 20 seconds.", "20", 1, "/"]


def test_handler_may_answer_with_another_status() -> None:
    def redirect(request: Request, error: Any) -> Response:
        return RedirectResponse("/slow-down")

    answer = refused(refusing("endpoint", {429: redirect}))
    assert (answer.status, answer.headers["location"], answer.ours) == (307, "/slow-down", OURS_EXCEEDED)


@pytest.mark.parametrize("source", ["middleware", "endpoint"])
def test_handler_that_fails_fails_the_request(source: str) -> None:
    async def broken(request: Request, error: Any) -> Response:
        raise RuntimeError("broken")

    app = refusing(source, {429: broken})
    get(app)
    with pytest.raises(RuntimeError, match="broken"):
        get(app)


@pytest.mark.parametrize("handlers", [False, True])
def test_store_that_is_down_is_503_with_a_wait(handlers: bool) -> None:
    app = make_app(Route("/", fail))
    if handlers:
        add_exception_handlers(app)
    answer = get(app)
    assert (answer.status, answer.ours) == (503, [["no-store"], ["3"], [], []])
    assert answer.json["type"].endswith("#temporary-reduced-capacity")
    app = make_app(Route("/", fail), app={"exception_handlers": {503: plain}})
    if handlers:
        add_exception_handlers(app)
    assert get(app).text == "mine: ServiceUnavailable"


def test_handlers_of_ours_answer_without_the_middleware() -> None:
    app = Starlette(routes=[Route("/", exceed)])
    add_exception_handlers(app)
    answer = get(app)
    assert (answer.status, answer.ours) == (429, OURS_EXCEEDED)


@pytest.mark.parametrize("source", ["middleware", "endpoint"])
def test_plain_handler_runs_in_the_pool(source: str) -> None:
    threads: list[int] = []

    def handler(request: Request, error: Any) -> Response:
        threads.append(threading.get_ident())
        return plain(request, error)

    refused(refusing(source, {429: handler}))
    assert threads != [threading.get_ident()]


def test_plain_endpoint_and_plain_handler_need_one_thread_of_the_pool() -> None:
    @rate_limit("1/m")
    def view(request: Request) -> Response:
        return PlainTextResponse("")

    app = make_app(Route("/", view), app={"exception_handlers": {429: plain}})

    async def drive() -> list[int]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        return sorted(answer.status for answer in await asyncio.gather(*(ask(app) for _ in range(3))))

    assert asyncio.run(drive()) == [200, 429, 429]


async def inner(request: Request, error: Any) -> Response:
    return PlainTextResponse("inner", 429)


async def outer(request: Request, error: Any) -> Response:
    return PlainTextResponse("outer", 429)


def test_handler_of_a_mounted_application_answers_for_what_is_in_it() -> None:
    view = Route("/view", rate_limit("1/20s", name="mine")(hello))
    mounted = Starlette(routes=[view, Route("/raises", exceed)], exception_handlers={429: inner})
    add_exception_handlers(mounted)  # else it has answered with 500 before the middleware hears of it
    app = make_app(Mount("/in", mounted), app={"exception_handlers": {429: outer}})
    assert [get(app, "/in/view").text for _ in range(2)] == ["hello", "inner"]
    answer = get(app, "/in/raises")
    assert (answer.text, answer.ours) == ("inner", OURS_EXCEEDED)


def test_handler_of_the_outer_application_answers_for_what_leaves_an_inner_one() -> None:
    async def leave(scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = Starlette(exception_handlers={429: inner})
        await exceed(Request(scope))

    app = make_app(Mount("/in", leave), Route("/", exceed), app={"exception_handlers": {429: outer}})
    assert [get(app, path).text for path in ("/in/", "/")] == ["outer", "outer"]


@pytest.mark.parametrize("source", SOURCES)
def test_hook_is_told_of_each_refusal_once(source: str) -> None:
    seen: list[Any] = []
    app = refusing(source, {429: plain}, on_refused=lambda decision, view: seen.append((decision.name, view.path)))
    refused(app)
    assert seen == [("mine", "/")] * (2 if "view" in source else 1)
