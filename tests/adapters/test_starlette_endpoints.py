"""`rate_limit` on the endpoints of Starlette: functions and methods of either colour, with the middleware and without."""

import asyncio
import inspect
import logging
import pickle
import threading
from functools import partial
from typing import Annotated, Any

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint, WebSocketEndpoint
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from starlette.websockets import WebSocket

from adapters import starlette_postponed
from adapters.starlette_client import get, hello, make_app, make_exceeded, statuses
from jwtlimit_core import ConfigError, Limit, LimiterUnavailable
from jwtlimit_core.http import refusal
from jwtlimit_starlette import rate_limit
from jwtlimit_starlette.passage import as_http

REFUSED = [200, 429, 429]


async def annotated(anything: Request) -> PlainTextResponse:
    return PlainTextResponse("annotated")


async def generic(anything: Annotated[HTTPConnection, "the request"]) -> PlainTextResponse:
    return PlainTextResponse("generic")


async def bare(req) -> PlainTextResponse:  # type: ignore[no-untyped-def]
    return PlainTextResponse("bare")


async def anything(*args):  # type: ignore[no-untyped-def]
    return PlainTextResponse("anything")


def threaded(request: Request) -> PlainTextResponse:
    return PlainTextResponse("threaded")


class Views:
    async def view(self, request) -> PlainTextResponse:  # type: ignore[no-untyped-def]
        return PlainTextResponse("method")


@pytest.mark.parametrize(
    "endpoint",
    [
        annotated,
        generic,
        bare,
        anything,
        threaded,
        Views().view,
        partial(annotated),
        starlette_postponed.connected,
        starlette_postponed.checked,
        starlette_postponed.dotted,
    ],
    ids=repr,
)
@pytest.mark.parametrize("middleware", [True, False])
def test_endpoint_over_its_limit_is_answered_with_429(endpoint: Any, middleware: bool) -> None:
    route = Route("/", rate_limit("1/m", name="view")(endpoint))
    app = make_app(route) if middleware else Starlette(routes=[route])
    assert statuses(app, count=3) == REFUSED
    refused = get(app)
    assert refused.ours == [["no-store"], ["60"], ['"view";q=1;w=60'], ['"view";r=0;t=60']]
    assert refused.json["violated-policies"] == ["view"]
    assert statuses(app, count=1, peer="192.0.2.2") == [200]


@pytest.mark.parametrize("endpoint", [annotated, bare, threaded, starlette_postponed.checked])
def test_wrapper_is_as_the_endpoint_is(endpoint: Any) -> None:
    wrapper = rate_limit("1/m")(endpoint)
    assert inspect.signature(wrapper) == inspect.signature(endpoint)
    assert inspect.iscoroutinefunction(wrapper) is inspect.iscoroutinefunction(endpoint)
    assert (wrapper.__name__, wrapper.__wrapped__) == (endpoint.__name__, endpoint)


def test_plain_endpoint_stays_in_the_pool_and_is_charged_on_the_loop() -> None:
    threads: dict[str, int] = {}

    def key(request: Request) -> str:
        threads["key"] = threading.get_ident()
        return "k"

    def view(request: Request) -> PlainTextResponse:
        threads["view"] = threading.get_ident()
        return PlainTextResponse("")

    assert statuses(make_app(Route("/", rate_limit("1/m", key=key)(view))), count=3) == REFUSED
    assert threads["key"] == threading.get_ident() != threads["view"]


def test_methods_of_a_class_have_limits_of_their_own() -> None:
    class Both(HTTPEndpoint):
        @rate_limit("1/m")
        async def get(self, asked):  # type: ignore[no-untyped-def]
            return PlainTextResponse("get")

        @rate_limit("2/m")
        def post(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("post")

    app = make_app(Route("/", Both))
    assert statuses(app, count=3) == REFUSED
    assert statuses(app, method="POST", count=3) == [200, 200, 429]


def test_stacked_limits_are_charged_together_or_not_at_all() -> None:
    view = rate_limit("1/m", name="outer")(rate_limit("3/m", name="inner")(hello))
    app = make_app(Route("/", view), Route("/other", rate_limit("3/m", name="inner")(hello)))
    assert statuses(app, count=4) == [200, 429, 429, 429]
    assert statuses(app, "/other") == [200, 200, 429, 429]  # the refusals took nothing of it


def test_answer_tells_of_the_limits_of_middleware_and_endpoint() -> None:
    app = make_app(Route("/", rate_limit("9/m", name="view")(hello)), limits=[Limit("api", "2/m")])
    assert get(app).ours[2] == ['"api";q=2;w=60, "view";q=9;w=60']
    assert statuses(app, count=2) == [200, 429]


def test_refusal_by_the_endpoint_gives_back_what_was_charged_before_but_by_address() -> None:
    limits = [Limit("ip", "9/m"), Limit("all", "9/m", key="global")]
    app = make_app(Route("/", rate_limit("1/m")(hello)), Route("/free", hello), limits=limits)
    assert statuses(app, count=4) == [200, 429, 429, 429]
    assert get(app, "/free").headers["ratelimit"] == '"ip";r=4;t=7, "all";r=7;t=7'


def test_endpoint_in_a_mounted_application_is_under_the_outer_middleware() -> None:
    inner = Starlette(routes=[Route("/view", rate_limit("1/m", name="view")(hello))])
    app = make_app(Mount("/in", inner))
    answers = [get(app, "/in/view") for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[0].ours[2] == ['"view";q=1;w=60']


def test_state_is_there_without_the_middleware_too() -> None:
    @rate_limit("3/m")
    async def view(request: Request) -> JSONResponse:
        return JSONResponse(request.state.jwtlimit.decision.remaining)

    assert get(Starlette(routes=[Route("/", view)])).json == 2


def test_missing_middleware_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    app = Starlette(routes=[Route("/", rate_limit("3/m", name="view")(hello))])
    assert statuses(app) == [200, 200, 200, 429]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["limit 'view' has the default settings: there is no RateLimitMiddleware"]


@pytest.mark.parametrize("make", [make_app, lambda route: Starlette(routes=[route])])
def test_limit_by_subject_without_a_key_is_told_of(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"(?i)is by subject: set SECRET_KEY"):
        get(make(Route("/", rate_limit("1/m", key="subject")(hello))))


@pytest.mark.parametrize("option", [{"key": "field:user"}, {"refund_when": lambda status, headers: True}])
def test_what_only_the_middleware_can_do_asks_for_it(option: Any) -> None:
    app = Starlette(routes=[Route("/", rate_limit("3/m", **option)(hello), methods=["POST"])])
    with pytest.raises(ConfigError, match="RateLimitMiddleware"):
        get(app, method="POST", headers={"content-type": "application/json"})


def test_disabled_middleware_disables_limits_on_endpoints() -> None:
    assert statuses(make_app(Route("/", rate_limit("1/m")(hello)), enabled=False), count=3) == [200] * 3


def test_limit_above_the_route_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def wrong(request: Request) -> PlainTextResponse:
        return PlainTextResponse("")

    async def right(request: Request) -> PlainTextResponse:
        return PlainTextResponse("")

    rate_limit("1/m")(wrong)
    routes = [Route("/", wrong), Route("/a", right), Route("/b", rate_limit("1/m")(right)), Mount("/c", routes=[])]
    app = make_app(*routes)
    assert statuses(app, count=2) == [200, 200]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "wrong limits nothing: put it below the decorator of the route" in warnings[0]


# What cannot be limited ------------------------------------------------------------------------------------------


async def socket(socket: WebSocket) -> None: ...


async def unrequested(name: str) -> str:
    return name


def yielding(request: Request) -> Any:
    yield "x"


async def yielding_async(request: Request) -> Any:
    yield "x"


class Unrequested:
    def __call__(self) -> str:
        return "x"


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        (
            socket,
            rf"no WebSocket endpoints: for {__name__}.socket use dependencies=\[Depends\(RateLimit\(...\)\)\]",
        ),
        (starlette_postponed.socket, "no WebSocket endpoints"),
        (HTTPEndpoint, "put it on the methods of HTTPEndpoint"),
        (WebSocketEndpoint, "takes functions"),
        (unrequested, r"unrequested has no parameter for its request: add a parameter request: Request, or use"),
        (lambda: "x", "no parameter for its request"),
        (partial(lambda: "x"), "no parameter for its request"),
        (Unrequested(), "Unrequested has no parameter for its request"),
        ("x", "takes functions, not 'x'"),
        (None, "takes functions, not None"),
        (yielding, f"cannot refuse what {__name__}.yielding yields"),
        (yielding_async, f"cannot refuse what {__name__}.yielding_async yields"),
    ],
)
def test_endpoint_that_cannot_be_limited_is_refused_at_once(endpoint: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        rate_limit("1/m")(endpoint)


def test_parameter_that_turns_out_to_be_no_request_is_told_of() -> None:
    with pytest.raises(ConfigError, match=rf"req of {__name__}.bare is no request"):
        asyncio.run(rate_limit("1/m")(bare)("ann"))
    with pytest.raises(ConfigError, match="takes no WebSocket endpoints"):
        asyncio.run(rate_limit("1/m")(bare)(WebSocket({"type": "websocket"}, None, None)))  # type: ignore[arg-type]


def test_bad_rate_is_refused_at_the_decorator() -> None:
    with pytest.raises(ConfigError):
        rate_limit("often")
    with pytest.raises(ConfigError):
        rate_limit(hello)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [make_exceeded(), LimiterUnavailable("down", retry_after=2.5)])
def test_exceptions_are_both_kinds_and_can_be_pickled(error: Any) -> None:
    raised = as_http(error, refusal(error))
    again = pickle.loads(pickle.dumps(raised))
    for each in (raised, again):
        assert isinstance(each, type(error))
        assert (each.status_code, each.retry_after) == (raised.status_code, error.retry_after)
        assert each.headers["Retry-After"] == str(-(-int(error.retry_after * 10) // 10))
        assert "Try again in" in each.detail
        assert str(each)
    assert as_http(raised, raised.answer) is raised
