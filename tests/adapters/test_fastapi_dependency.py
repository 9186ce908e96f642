"""`RateLimit` as a dependency of FastAPI."""

from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, WebSocket
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from adapters.fastapi_applications import make_app
from adapters.starlette_client import OURS_EXCEEDED, connect, get, statuses
from jwtlimit_core import ConfigError, Limit, LimiterUnavailable, RateLimitExceeded
from jwtlimit_starlette import (
    RateLimit,
    add_exception_handlers,
)

REFUSED = [200, 429, 429]


@pytest.mark.parametrize("middleware", [True, False])
def test_dependency_refuses_without_any_handler(middleware: bool) -> None:
    app = make_app(middleware=middleware)

    @app.get("/{number}", dependencies=[Depends(RateLimit("1/20s", name="mine"))])
    async def view(number: int) -> int:
        return number

    good, refused = get(app, "/1"), get(app, "/1")
    assert (good.status, good.ours[2]) == (200, ['"mine";q=1;w=20'] if middleware else [])
    assert (refused.status, refused.ours) == (429, OURS_EXCEEDED)
    assert refused.json == {"detail": "A limit on requests was exceeded. Try again in 20 seconds."}


@pytest.mark.parametrize("middleware", [True, False])
def test_dependency_with_handlers_of_ours_is_problem_details(middleware: bool) -> None:
    app = make_app(middleware=middleware)
    add_exception_handlers(app)

    @app.get("/", dependencies=[Depends(RateLimit("1/20s", name="mine"))])
    async def view() -> str:
        return ""

    assert statuses(app, count=3) == REFUSED
    refused = get(app)
    assert (refused.ours, refused.json["violated-policies"]) == (OURS_EXCEEDED, ["mine"])


@pytest.mark.parametrize("kind", [429, StarletteHTTPException, RateLimitExceeded])
@pytest.mark.parametrize("ours", [True, False])
def test_handler_of_the_application_answers_for_the_dependency_with_our_headers(kind: Any, ours: bool) -> None:
    seen: list[Any] = []
    app = make_app(on_refused=lambda decision, view: seen.append(decision.name))
    if ours:
        add_exception_handlers(app)

    @app.exception_handler(kind)
    async def mine(request: Request, error: Any) -> PlainTextResponse:
        return PlainTextResponse("mine", 429, headers={"Retry-After": "7"})

    @app.get("/", dependencies=[Depends(RateLimit("1/20s", name="mine"))])
    async def view() -> str:
        return ""

    get(app)
    refused = get(app)
    assert (refused.text, refused.ours, seen) == ("mine", OURS_EXCEEDED, ["mine"])


def test_answer_of_the_application_of_another_status_gets_the_headers_too() -> None:
    app = make_app()

    @app.exception_handler(RateLimitExceeded)
    async def lenient(request: Request, error: Any) -> PlainTextResponse:
        return PlainTextResponse("stale")

    @app.get("/", dependencies=[Depends(RateLimit("1/20s", name="mine"))])
    async def view() -> str:
        return ""

    get(app)
    answer = get(app)
    assert (answer.status, answer.text, answer.ours) == (200, "stale", OURS_EXCEEDED)


def test_dependency_of_a_router_gives_each_endpoint_a_limit_and_one_of_a_name_all_together() -> None:
    app = make_app()
    for path, dependency in (("/each", RateLimit("1/m")), ("/all", RateLimit("1/m", name="all"))):
        router = APIRouter(prefix=path, dependencies=[Depends(dependency)])

        @router.get("/a")
        async def a() -> str:
            return "a"

        @router.get("/b")
        async def b() -> str:
            return "b"

        app.include_router(router)
    assert [statuses(app, path, 2) for path in ("/each/a", "/each/b", "/all/a")] == [[200, 429]] * 3
    assert statuses(app, "/all/b", 1) == [429]
    assert get(app, "/each/a").json["detail"]
    assert ".a" in get(app, "/each/a").headers["ratelimit"]


def test_dependency_of_the_application_limits_handshakes_of_websockets_too() -> None:
    app = make_app(app={"dependencies": [Depends(RateLimit("2/m"))]})

    @app.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    types = [[message["type"] for message in connect(app, "/socket").messages] for _ in range(3)]
    assert types[0] == types[1] == ["websocket.accept", "websocket.close"]
    assert "websocket.accept" not in types[2]


def test_refusal_by_a_dependency_gives_back_what_was_charged_before_but_by_address() -> None:
    app = make_app(limits=[Limit("ip", "9/m"), Limit("all", "9/m", key="global")])

    @app.get("/", dependencies=[Depends(RateLimit("1/m"))])
    async def view() -> str:
        return ""

    @app.get("/free")
    async def free() -> str:
        return ""

    assert statuses(app, count=4) == [200, 429, 429, 429]
    assert get(app, "/free").headers["ratelimit"] == '"ip";r=4;t=7, "all";r=7;t=7'


def test_disabled_middleware_disables_dependencies() -> None:
    app = make_app(enabled=False)

    @app.get("/", dependencies=[Depends(RateLimit("1/m"))])
    async def view() -> str:
        return ""

    assert statuses(app, count=3) == [200] * 3


def test_dependency_for_a_store_that_is_down_is_503() -> None:
    async def fail(request: Request) -> str:
        raise LimiterUnavailable("down", retry_after=2)

    app = make_app()

    @app.get("/", dependencies=[Depends(RateLimit("1/m", key=fail))])
    async def view() -> str:
        return ""

    answer = get(app)
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")


def test_dependency_with_a_bad_rate_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        RateLimit("often")


def test_dependencies_of_generated_endpoints_count_apart_in_whatever_order_they_are_asked() -> None:
    def made(number: int) -> Any:
        async def view() -> int:
            return number

        return view

    def worker() -> FastAPI:
        app = make_app()
        router = APIRouter(dependencies=[Depends(RateLimit("2/m", key="global"))])
        for number in range(2):
            router.get(f"/{number}")(made(number))
        app.include_router(router)
        return app

    def names(*paths: str) -> dict[str, str]:
        app = worker()
        return {path: get(app, path).headers["ratelimit-policy"].partition(";")[0] for path in paths}

    assert names("/0", "/1") == names("/1", "/0")
    assert len(set(names("/0", "/1").values())) == 2


def test_dependencies_of_one_endpoint_count_apart() -> None:
    app = make_app()

    @app.get("/", dependencies=[Depends(RateLimit("9/m")), Depends(RateLimit("2/h"))])
    async def view() -> str:
        return ""

    assert [get(app).status for _ in range(3)] == [200, 200, 429]


def test_limit_by_a_field_takes_the_address_of_a_websocket_and_nothing_of_its_messages() -> None:
    app = make_app()

    @app.websocket("/socket", dependencies=[Depends(RateLimit("2/20s", key="field:user"))])
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    content = {"content-type": "application/json"}
    types = [[message["type"] for message in connect(app, "/socket", headers=content).messages] for _ in range(3)]
    assert types[0] == types[1] == ["websocket.accept", "websocket.close"]
    assert "websocket.accept" not in types[2]


def test_dependency_of_a_router_that_is_included_twice_counts_apart() -> None:
    app, router = make_app(), APIRouter(dependencies=[Depends(RateLimit("1/m"))])

    @router.get("/items")
    async def items() -> int:
        return 1

    for prefix in ("/v1", "/v2"):
        app.include_router(router, prefix=prefix)
    assert [statuses(app, f"/{version}/items", 2) for version in ("v1", "v2")] == [[200, 429]] * 2
    assert '.items /v2/items 1/m"' in get(app, "/v2/items").ours[2][0]


def test_dependencies_of_one_rate_count_apart() -> None:
    app = make_app()
    app.router.dependencies.append(Depends(RateLimit("3/m")))

    @app.get("/", dependencies=[Depends(RateLimit("3/m", key="header:x")), Depends(RateLimit("3/m"))])
    async def view() -> int:
        return 1

    assert statuses(app, count=4) == [200, 200, 200, 429]
