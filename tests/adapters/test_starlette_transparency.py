"""The Starlette middleware as a neighbour: what passes through it passes as it is."""

import asyncio
import contextvars
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from adapters.starlette_client import SECRET, Answer, Sent, ask, get, hello, make_app, make_exceeded, scope_of
from jwtlimit_core import Admission, Limit, RateLimitExceeded
from jwtlimit_core.asgi import Body
from jwtlimit_core.asgi_passage import _EndpointView
from jwtlimit_core.testing import ManualClock
from jwtlimit_starlette import RateLimitMiddleware, get_processor, rate_limit
from jwtlimit_starlette.passage import Passage

ONE = [Limit("api", "1/m")]
BY_FUNCTION = Limit("api", "9/m", key=str)
BY_FIELD = Limit("api", "9/m", key="field:user")
TEN = [Limit("api", "10/m")]
STATE = contextvars.ContextVar("STATE", default="outside")


def test_streaming_answer_is_sent_as_it_is_made() -> None:
    made: list[int] = []
    seen: list[int] = []

    async def chunks() -> AsyncIterator[str]:
        for number in range(3):
            made.append(number)
            yield f"{number}\n"

    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(chunks())

    async def send(message: Any) -> None:
        if message.get("body"):
            seen.append(len(made))

    asyncio.run(make_app(Route("/", stream), limits=ONE)(scope_of(), Sent().receive, send))
    assert seen == [1, 2, 3]


def test_background_task_runs_after_the_answer() -> None:
    happened: list[str] = []
    answer = Answer()

    async def endpoint(request: Request) -> Response:
        return Response("", background=BackgroundTask(lambda: happened.append(f"background after {len(answer.messages)}")))

    asyncio.run(make_app(Route("/", endpoint), limits=ONE)(scope_of(), Sent().receive, answer.send))
    assert happened == ["background after 2"]


def test_context_variables_pass_in_both_directions() -> None:
    seen: list[str] = []

    async def endpoint(request: Request) -> Response:
        seen.append(STATE.get())
        STATE.set("inside")
        return Response("")

    app = make_app(Route("/", endpoint), limits=ONE)

    async def around(scope: Any, receive: Any, send: Any) -> None:
        STATE.set("around")
        await app(scope, receive, send)
        seen.append(STATE.get())

    asyncio.run(ask(around))
    assert seen == ["around", "inside"]


@pytest.mark.parametrize("limits", [[], TEN, [Limit("api", "9/m", key="field:user")]])
def test_client_that_leaves_is_noticed_by_the_application(limits: Any) -> None:
    seen: list[str] = []

    async def endpoint(request: Request) -> Response:
        try:
            await request.body()
        except ClientDisconnect:
            seen.append("gone")
        return Response("")

    app = make_app(Route("/", endpoint, methods=["POST"]), limits=limits)
    get(app, method="POST", chunks=[b'{"user"'], leaves=True, headers={"content-type": "application/json"})
    assert seen == ["gone"]


def test_messages_of_extensions_pass_as_they_are() -> None:
    trailers = {"type": "http.response.trailers", "headers": [(b"x", b"y")], "more_trailers": False}
    path = {"type": "http.response.pathsend", "path": "/tmp/x"}
    start = {"type": "http.response.start", "status": 200, "headers": ((b"X-A", b"1"),), "trailers": True}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in (start, path, trailers):
            await send(message)

    answer = get(RateLimitMiddleware(app, limits=ONE, clock=ManualClock()))
    assert answer.messages[1:] == [path, trailers]
    assert answer.messages[1] is path
    assert answer.messages[0]["trailers"] is True
    assert answer.messages[0]["headers"][0] == (b"X-A", b"1")
    assert start["headers"] == ((b"X-A", b"1"),)  # the application's own is not written to


def test_each_of_our_headers_has_one_value_whoever_set_it_before() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"ratelimit", b"theirs"), (b"ratelimit", b"again"), (b"ratelimit-policy", b"theirs")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    answer = get(RateLimitMiddleware(app, limits=ONE, clock=ManualClock()))
    assert sorted(name for name, _ in answer.messages[0]["headers"]) == [b"ratelimit", b"ratelimit-policy"]
    assert answer.ours[2:] == [['"api";q=1;w=60'], ['"api";r=0;t=60']]


def test_answer_without_headers_gets_ours() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})

    assert get(RateLimitMiddleware(app, limits=ONE, clock=ManualClock())).ours[3] == ['"api";r=0;t=60']


def test_websocket_passes_untouched_and_uncharged() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((receive, send, {key for key in scope if key not in before}))

    seen: list[Any] = []
    middleware = RateLimitMiddleware(app, limits=ONE)
    for _ in range(3):
        scope = scope_of() | {"type": "websocket"}
        del scope["method"]
        before = set(scope)
        answer, sent = Answer(), Sent()
        receive, send = sent.receive, answer.send
        asyncio.run(middleware(scope, receive, send))
        assert seen.pop() == (receive, send, {"jwtlimit"})


# Neighbours ------------------------------------------------------------------------------------------------------

ORIGIN = {"Origin": "https://example.com"}


def test_refusal_inside_of_cors_can_be_read_by_the_browser() -> None:
    cors = Middleware(CORSMiddleware, allow_origins=["https://example.com"], expose_headers=["Retry-After"])
    app = make_app(limits=ONE, around=[cors])
    for _ in range(3):
        assert get(app, method="OPTIONS", headers=ORIGIN | {"Access-Control-Request-Method": "GET"}).status == 200
    answers = [get(app, headers=ORIGIN) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "https://example.com"
        assert answer.headers["access-control-expose-headers"] == "Retry-After"


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Response:
        await request.body()
        response: Response = await call_next(request)
        response.headers["X-Passed"] = "yes"
        return response


@pytest.mark.parametrize("neighbour", [Passing, GZipMiddleware])
@pytest.mark.parametrize("side", ["around", "inside"])
def test_other_middleware_may_be_on_either_side(neighbour: Any, side: str) -> None:
    async def echo(request: Request) -> Response:
        return PlainTextResponse(await request.body())

    limits = [Limit("api", "1/m", key="field:user")]
    app = make_app(Route("/", echo, methods=["POST"]), limits=limits, **{side: [Middleware(neighbour)]})
    options: Any = {"method": "POST", "headers": {"content-type": "application/json"}, "chunks": [b'{"user":', b'"ann"}']}
    answers = [get(app, **options) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[0].text == '{"user":"ann"}'
    assert answers[0].ours[2] == ['"api";q=1;w=60']


def test_nested_middleware_charges_each_its_own_and_the_headers_are_of_the_outer() -> None:
    inner = make_app(Route("/", rate_limit("9/m", name="view")(hello)), limits=[Limit("inner", "2/m")])
    app = make_app(Mount("/in", inner), Route("/out", hello), limits=[Limit("outer", "3/m")])
    answers = [get(app, "/in/") for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert answers[0].ours[2] == ['"outer";q=3;w=60']
    assert [answer.json["violated-policies"] for answer in answers[2:]] == [["inner"], ["outer"]]
    assert answers[2].ours[2] == ['"inner";q=2;w=60']


def test_outer_middleware_without_limits_leaves_the_headers_of_the_inner() -> None:
    app = make_app(Mount("/", Starlette(routes=[Mount("/in", make_app(limits=ONE))])))
    assert get(app, "/in/").ours[2] == ['"api";q=1;w=60']


def test_refusal_that_leaves_through_other_middleware_is_answered() -> None:
    async def refuse(request: Request) -> Response:
        raise make_exceeded()

    app = make_app(Route("/", refuse), inside=[Middleware(Passing), Middleware(GZipMiddleware)])
    assert (get(app).status, get(app).ours[1]) == (429, ["20"])


class Cycle:
    """One request as uvicorn keeps it: what receives and sends has the scope, in which applications leave things."""

    def __init__(self) -> None:
        self.scope = scope_of(method="POST")
        self.receive_more = Sent([b"a", b"b"]).receive

    async def receive(self) -> Any:
        return await self.receive_more()

    async def send(self, message: Any) -> None: ...


async def too_many(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(type(error).__name__, 429)


async def read(request: Request) -> Response:
    return PlainTextResponse(await request.body())


@pytest.mark.parametrize(
    "settings",
    [
        {"limits": ONE},
        {"enabled": False},
        {"limits": [Limit("api", "9/m", key=str)]},
        {"limits": [Limit("api", "9/m", key="field:user")]},
        None,
    ],
    ids=str,
)
@pytest.mark.parametrize("handlers", [{}, {RateLimitExceeded: too_many}])
def test_request_leaves_no_garbage(settings: Any, handlers: Any) -> None:
    app = Starlette(routes=[Route("/", rate_limit("2/m")(read), methods=["POST"])], exception_handlers=handlers)
    if settings is not None:
        app.add_middleware(RateLimitMiddleware, **settings)

    def kept() -> set[int]:
        kinds = (_EndpointView, Passage, Body, Admission, Cycle, RateLimitExceeded)
        return {id(each) for each in gc.get_objects() if type(each) in kinds}

    async def drive() -> None:
        gc.collect()
        gc.disable()
        before = kept()
        try:
            for _ in range(4):
                cycle = Cycle()
                await app(cycle.scope, cycle.receive, cycle.send)
            del cycle
            assert kept() <= before  # other tests may have left some
        finally:
            gc.enable()

    asyncio.run(drive())


@pytest.mark.parametrize("handlers", [{}, {RateLimitExceeded: too_many}, {429: too_many}])
def test_refund_when_sees_the_headers_of_a_refusal_whoever_answers_it(handlers: Any) -> None:
    async def token(request: Request) -> Response:
        return PlainTextResponse(await get_processor(request).create({"sub": "ann"}))

    limit = Limit("api", "2/d", refund_when=lambda status, headers: status == 429 and "retry-after" in headers)
    app = Starlette(routes=[Route("/", token)], exception_handlers=handlers)
    app.add_middleware(RateLimitMiddleware, limits=[limit], secret_key=SECRET, issue_rate="1/d")
    answers = [get(app) for _ in range(5)]
    assert [answer.ours[2] for answer in answers[1:]] == [['"issue";q=1;w=86400']] * 4


def test_task_that_outlives_its_request_goes_on_with_the_server() -> None:
    async def drive() -> None:
        kept: list[Any] = []

        async def app(_scope: Any, receive: Any, send: Any) -> None:
            kept.extend([receive, send])

        sent, answer = Sent([b"late"]), Answer()
        await RateLimitMiddleware(app, limits=ONE)(scope_of(), sent.receive, answer.send)
        assert (await kept[0]())["body"] == b"late"
        await kept[1]({"type": "http.response.start", "status": 200, "headers": []})
        assert (answer.status, answer.ours[2]) == (200, ['"api";q=1;w=60'])

    asyncio.run(drive())
