"""Applications below the middleware: mounted, wrapped from outside, or kept from starting."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from adapters.starlette_client import SECRET, Answer, Sent, connect, get, hello, make_app, make_exceeded, scope_of, statuses
from jwtlimit_core import ConfigError, Limit, LimiterUnavailable, RateLimitExceeded
from jwtlimit_core.testing import ManualClock
from jwtlimit_starlette import RateLimitMiddleware, get_processor, get_sync_processor, reset, reset_all
from outages import closed_url


async def issue(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await get_processor(request).create({"sub": "ann"}))


def test_method_in_lower_case_is_that_method_as_an_application_below_may_take_it() -> None:
    async def below(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(scope["method"].upper())(scope, receive, send)

    app = make_app(Mount("/", app=below), limits=[Limit("post", "2/m", methods=["POST"])])
    assert statuses(app, method="post") == [200, 200, 429, 429]


@pytest.mark.parametrize("where", ["mounted", "mounted in middleware", "wrapped"])
def test_what_a_processor_refuses_below_is_429(where: str) -> None:
    below = Starlette(routes=[Route("/", issue)])
    settings: Any = {"secret_key": SECRET, "issue_rate": "1/20s", "clock": ManualClock()}
    if where == "wrapped":
        app: Any = RateLimitMiddleware(below, **settings)
    else:
        app = make_app(Mount("/", app=below if where == "mounted" else GZipMiddleware(below)), **settings)
    assert statuses(app, count=3) == [200, 429, 429]
    refused = get(app)
    assert (refused.headers["retry-after"], refused.json["violated-policies"]) == ("20", ["issue"])


def test_own_handler_of_an_application_below_wins() -> None:
    async def mine(_request: Request, _error: Exception) -> PlainTextResponse:
        return PlainTextResponse("mine", 429)

    below = Starlette(routes=[Route("/", issue)], exception_handlers={RateLimitExceeded: mine})
    app = RateLimitMiddleware(below, secret_key=SECRET, issue_rate="1/20s")
    get(app)
    assert (get(app).status, get(app).text) == (429, "mine")


async def sleepy(_request: Request, _error: Exception) -> PlainTextResponse:
    await asyncio.sleep(0)
    return PlainTextResponse("mine", 418, headers={"Retry-After": "7"})


def plain(_request: Request, _error: Exception) -> PlainTextResponse:
    return PlainTextResponse("mine", 418)


@pytest.mark.parametrize("handler", [sleepy, plain])
def test_own_handler_of_what_a_processor_refused_gets_the_headers_and_the_hook_is_told(handler: Any) -> None:
    told: list[str] = []
    app = make_app(
        Route("/", issue),
        app={"exception_handlers": {RateLimitExceeded: handler}},
        secret_key=SECRET,
        issue_rate="1/20s",
        limits=[Limit("site", "9/m")],
        on_refused=lambda decision, view: told.append(decision.name),
    )
    get(app)
    refused = get(app)
    assert (refused.status, refused.text) == (418, "mine")
    assert refused.ours == [["no-store"], ["20"], ['"issue";q=1;w=20'], ['"issue";r=0;t=20']]
    assert told == ["issue"]


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Any:
        return await call_next(request)


def sync_issue(request: Request) -> PlainTextResponse:
    return PlainTextResponse(get_sync_processor(request).create({"sub": "ann"}))


@pytest.mark.parametrize("view", [issue, sync_issue])
@pytest.mark.parametrize("where", ["inside", "mounted"])
@pytest.mark.parametrize(("store", "status", "wait", "hooks"), [("memory", 429, "20", ["issue"]), ("down", 503, "1", [])])
def test_own_handler_inside_of_middleware_that_answers_from_a_task_gets_the_headers(
    view: Any, where: str, store: str, status: int, wait: str, hooks: list[str]
) -> None:
    async def mine(_request: Request, _error: Exception) -> PlainTextResponse:
        return PlainTextResponse("mine", status)

    told: list[str] = []
    own: Any = {"exception_handlers": {RateLimitExceeded: mine, LimiterUnavailable: mine}}
    settings: Any = {"secret_key": SECRET, "issue_rate": "1/20s", "on_refused": lambda decision, _: told.append(decision.name)}
    if store == "down":
        settings["store"] = closed_url()
    if where == "inside":
        app = make_app(Route("/", view), app=own, inside=[Middleware(Passing)], **settings)
    else:
        app = make_app(Mount("/", Starlette(routes=[Route("/", view)], middleware=[Middleware(Passing)], **own)), **settings)
    get(app)
    refused = get(app)
    assert (refused.status, refused.text, refused.headers.get("retry-after"), told) == (status, "mine", wait, hooks)


class Away(LimiterUnavailable):
    """What a limiter of an application raises, made its own way."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}", retry_after=7)


def test_refusal_of_a_kind_of_the_application_is_answered_as_any() -> None:
    class Store:
        async def allow(self, key: str) -> bool:
            raise Away(17, key)

        async def reset(self, key: str) -> None: ...

        async def close(self) -> None: ...

    answer = get(make_app(Route("/", issue), secret_key=SECRET, store=Store()))
    assert (answer.status, answer.headers["retry-after"]) == (503, "7")


def test_answer_with_a_wait_of_its_own_is_not_of_what_was_refused_before() -> None:
    async def view(request: Request) -> PlainTextResponse:
        with suppress(RateLimitExceeded):
            return await issue(request)
        status, wait = request.query_params["status"], {"Retry-After": "3600"} if "wait" in request.query_params else {}
        return PlainTextResponse("maintenance", int(status), headers=wait)

    app = make_app(Route("/", view), secret_key=SECRET, issue_rate="1/20s")
    get(app, "/?status=200")
    assert get(app, "/?status=429&wait").ours == [[], ["3600"], [], []]
    assert get(app, "/?status=503").ours == [[]] * 4


def test_request_that_is_made_while_another_refusal_is_handled_has_nothing_of_that() -> None:
    told: list[object] = []
    app = make_app(limits=[Limit("site", "9/m")], on_refused=lambda decision, _: told.append(decision))

    async def ask_meanwhile() -> list[list[str]]:
        try:
            raise make_exceeded()
        except RateLimitExceeded:
            answer = Answer()
            await app(scope_of(), Sent().receive, answer.send)  # in this very task
            return answer.ours

    assert asyncio.run(ask_meanwhile()) == [[], [], ['"site";q=9;w=60'], ['"site";r=8;t=7']]
    assert told == []


def test_refusal_that_a_view_handles_itself_leaves_no_trace() -> None:
    async def view(request: Request) -> PlainTextResponse:
        with suppress(RateLimitExceeded):
            return await issue(request)
        return PlainTextResponse("instead")

    app = make_app(Route("/", view), secret_key=SECRET, issue_rate="1/20s")
    get(app)
    assert (get(app).text, get(app).ours) == ("instead", [[]] * 4)


def opened(app: Any) -> None:
    connect(app, "/socket")


def disabled(app: Any) -> None:
    switch["enabled"] = False
    get(app, "/hello")
    switch["enabled"] = True


switch = {"enabled": True}


@pytest.mark.parametrize("first", [reset_all, opened, disabled, lambda app: asyncio.run(reset("issue", "ann", where=app))])
def test_what_a_processor_refuses_below_is_429_whatever_came_first(first: Any) -> None:
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    below = Starlette(routes=[Route("/", issue), Route("/hello", hello), WebSocketRoute("/socket", socket)])
    app = make_app(Mount("/", below), secret_key=SECRET, issue_rate="1/20s", enabled=lambda: switch["enabled"])
    first(app)
    assert statuses(app, count=3) == [200, 429, 429]


def test_application_that_serves_already_is_left_as_it_is() -> None:
    below = Starlette(routes=[Route("/", hello)])
    get(below)
    get(RateLimitMiddleware(below))
    assert RateLimitExceeded not in below.exception_handlers


def test_settings_that_cannot_work_fail_the_start_of_the_server() -> None:
    app = Starlette(middleware=[Middleware(RateLimitMiddleware, secret_key="short", limts=[])])  # type: ignore[call-arg]
    sent: list[Any] = []

    async def serve() -> None:
        async def receive() -> Any:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            sent.append(message)

        with pytest.raises(ConfigError):
            await app({"type": "lifespan", "state": {}}, receive, send)
        with pytest.raises(ConfigError, match="limts is no setting: did you mean limits"):
            await app(scope_of(), receive, send)

    asyncio.run(serve())
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "secret_key" in sent[0]["message"]
    assert "short" not in sent[0]["message"]


def test_settings_that_cannot_work_are_told_at_once_where_no_server_asks() -> None:
    with pytest.raises(ConfigError, match="secret_key"):
        RateLimitMiddleware(hello, secret_key="short")  # type: ignore[arg-type]
