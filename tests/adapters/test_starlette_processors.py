"""Tokens in Starlette applications: the processors, quotas given back, and the end of an application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from adapters.starlette_client import SECRET, connect, get, hello, make_app, statuses
from jwtlimit_core import Claims, Config, ConfigError, Limit, Processor, RegisteredClaims
from jwtlimit_core.testing import ManualClock
from jwtlimit_starlette import RateLimitMiddleware, get_processor, get_sync_processor, rate_limit, reset, reset_all

ISSUING: Any = {"secret_key": SECRET, "issue_rate": "2/m"}


async def token(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await get_processor(request).create(Claims(sub=request.query_params["sub"])))


def sync_token(request: Request) -> PlainTextResponse:
    return PlainTextResponse(get_sync_processor(request).create(Claims(sub=request.query_params["sub"])))


async def sync_on_loop(request: Request) -> PlainTextResponse:
    return PlainTextResponse(get_sync_processor(request).create(Claims(sub="ann")))


ROUTES = [Route("/token", token), Route("/sync", sync_token), Route("/wrong", sync_on_loop)]


@pytest.mark.parametrize("path", ["/token", "/sync"])
def test_issuance_is_limited_for_each_subject(path: str, clock: ManualClock) -> None:
    app = make_app(*ROUTES, clock=clock, **ISSUING)
    assert statuses(app, f"{path}?sub=ann") == [200, 200, 429, 429]
    refused = get(app, f"{path}?sub=ann")
    assert refused.ours == [["no-store"], ["30"], ['"issue";q=2;w=60'], ['"issue";r=0;t=30']]
    assert statuses(app, f"{path}?sub=bob", 1) == [200]
    clock.advance(30)
    assert statuses(app, f"{path}?sub=ann", 2) == [200, 429]


def test_tokens_of_both_processors_are_those_of_the_settings_and_charge_together(clock: ManualClock) -> None:
    app = make_app(*ROUTES, clock=clock, **ISSUING)
    texts = [get(app, f"{path}?sub=ann").text for path in ("/token", "/sync")]
    reader = Processor(Config(secret_key=SECRET, clock=clock))
    assert [reader.validate(text).sub for text in texts] == ["ann", "ann"]
    assert get(app, "/token?sub=ann").status == 429


def test_processors_do_not_limit_while_disabled() -> None:
    app = make_app(*ROUTES, enabled=False, **ISSUING)
    assert statuses(app, "/token?sub=ann") + statuses(app, "/sync?sub=ann") == [200] * 8


def test_sync_processor_on_the_loop_is_refused() -> None:
    with pytest.raises(ConfigError, match="on an event loop: use get_processor"):
        get(make_app(*ROUTES, **ISSUING), "/wrong")


@pytest.mark.parametrize(
    ("app", "problem"),
    [(Starlette(routes=ROUTES), "there is no RateLimitMiddleware"), (make_app(*ROUTES), "no key is set")],
)
@pytest.mark.parametrize("path", ["/token", "/sync"])
def test_processor_that_cannot_be_says_what_is_missing(app: Any, problem: str, path: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        get(app, f"{path}?sub=ann")


def test_before_issue_that_is_a_coroutine_function_is_awaited() -> None:
    async def refuse(claims: RegisteredClaims) -> None:
        if claims.sub == "eve":
            raise PermissionError

    app = make_app(*ROUTES, before_issue=refuse, **ISSUING)
    assert statuses(app, "/token?sub=ann", 3) == [200, 200, 429]
    with pytest.raises(PermissionError):
        get(app, "/token?sub=eve")


def test_websocket_has_a_processor() -> None:
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text((await get_processor(socket).validate(socket.query_params["token"])).sub)
        await socket.close()

    app = make_app(Route("/token", token), WebSocketRoute("/socket", socket), **ISSUING)
    answer = connect(app, f"/socket?token={get(app, '/token?sub=ann').text}")
    assert [message.get("text") for message in answer.messages] == [None, "ann", None]


# Quotas given back -----------------------------------------------------------------------------------------------


async def reset_here(request: Request) -> PlainTextResponse:
    await reset("api", "ip=192.0.2.1", where=request)
    return PlainTextResponse("")


def resetting(**settings: Any) -> Starlette:
    limits = [Limit("api", "1/m", paths=["/limited", "/token"])]
    return make_app(*ROUTES, Route("/limited", hello), Route("/reset", reset_here), limits=limits, **ISSUING, **settings)


def test_reset_gives_one_key_its_quota_back() -> None:
    app = resetting()
    for peer in ("192.0.2.1", "192.0.2.2"):
        assert statuses(app, "/limited", 2, peer=peer) == [200, 429]
    get(app, "/reset", peer="192.0.2.9")
    assert [statuses(app, "/limited", 1, peer=peer) for peer in ("192.0.2.1", "192.0.2.2")] == [[200], [429]]
    asyncio.run(reset("api", "ip=192.0.2.2", where=app))
    assert statuses(app, "/limited", 1, peer="192.0.2.2") == [200]


def test_reset_that_cannot_be_says_why() -> None:
    with pytest.raises(ValueError, match="key must be as it is counted"):
        asyncio.run(reset("api", "192.0.2.2", where=resetting()))
    with pytest.raises(ConfigError, match="there is no RateLimitMiddleware"):
        asyncio.run(reset("api", "ip=192.0.2.2", where=Starlette()))
    with pytest.raises(ConfigError, match="there is no RateLimitMiddleware"):
        asyncio.run(reset("api", "ip=192.0.2.2", where=HTTPConnection({"type": "http"})))


def test_reset_all_finds_the_middleware_of_the_application_and_what_is_mounted() -> None:
    mounted = make_app(Route("/view", rate_limit("1/m")(hello)))
    app = make_app(Mount("/in", mounted), Route("/", hello), limits=[Limit("api", "1/m", paths=["/out"])])
    for each in (app, RateLimitMiddleware(app)):
        assert statuses(each, "/in/view", 2) == [200, 429]
        assert statuses(each, "/out", 2) == [404, 429]
        reset_all(each)
        assert [statuses(each, path, 1) for path in ("/in/view", "/out")] == [[200], [404]]
        reset_all(each)


def test_reset_all_before_the_first_request_and_without_the_middleware() -> None:
    app = resetting()
    reset_all(app)
    assert statuses(app, "/limited", 2) == [200, 429]
    with pytest.raises(ConfigError, match="there is no RateLimitMiddleware"):
        reset_all(Starlette())


@pytest.mark.parametrize("run", [1, 2])
def test_counts_of_one_test_do_not_reach_the_next(run: int) -> None:
    assert statuses(resetting(), "/limited", 2) == [200, 429], f"run {run}"


# The end of an application ---------------------------------------------------------------------------------------


class Closed:
    """Sees in what order things end."""

    def __init__(self, app: Any) -> None:
        self.order: list[Any] = []
        self.middleware = RateLimitMiddleware(app)
        self.middleware.engine.close = self._close  # type: ignore[method-assign]

    def _close(self, *, on_loop: bool) -> Any:
        self.order.append("close on the loop" if on_loop else "close")
        yield from ()

    def live(self, *messages: str) -> list[Any]:
        pending = [{"type": f"lifespan.{name}"} for name in messages]

        async def receive() -> Any:
            return pending.pop(0)

        async def send(message: Any) -> None:
            self.order.append(message["type"].removeprefix("lifespan."))

        scope = {"type": "lifespan", "state": {}}
        asyncio.run(self.middleware(scope, receive, send))
        return self.order


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_opened_is_closed_once_before_the_server_hears_of_the_end(fails: bool) -> None:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
        yield {"of": "the application"}
        closed.order.append("their end")
        if fails:
            raise RuntimeError("theirs")

    closed = Closed(Starlette(lifespan=lifespan))
    if fails:
        with pytest.raises(RuntimeError, match="theirs"):
            closed.live("startup", "shutdown")
    else:
        closed.live("startup", "shutdown")
    end = "shutdown.failed" if fails else "shutdown.complete"
    assert closed.order == ["startup.complete", "their end", "close on the loop", "close", end]


def test_server_hears_of_the_end_even_if_closing_fails() -> None:
    def fail(*, on_loop: bool) -> Any:
        raise OSError("gone")

    closed = Closed(Starlette())
    closed.middleware.engine.close = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="gone"):
        closed.live("startup", "shutdown")
    assert "shutdown.complete" in closed.order


def test_application_that_fails_to_start_is_closed() -> None:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        raise RuntimeError("theirs")
        yield

    closed = Closed(Starlette(lifespan=lifespan))
    with pytest.raises(RuntimeError, match="theirs"):
        closed.live("startup")
    assert closed.order == ["close on the loop", "close", "startup.failed"]


def test_application_that_knows_no_lifespan_goes_on_being_limited() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError(scope["type"])

    closed = Closed(app)
    with pytest.raises(NotImplementedError, match="lifespan"):
        closed.live("startup")
    assert closed.order == []
