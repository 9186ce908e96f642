"""`exempt` in Starlette: the middleware looks ahead at the routes, and only where something is exempt."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Match, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles

from adapters.starlette_client import hello, make_app, statuses
from jwtlimit_core import Limit
from jwtlimit_starlette import RateLimitMiddleware, exempt, rate_limit, reset_all

ONE = [Limit("api", "1/m")]
FREE, CHARGED = [200, 200, 200], [200, 429, 429]


@exempt
async def free(request: Request) -> PlainTextResponse:
    return PlainTextResponse("free")


@exempt
class Free(HTTPEndpoint):
    def get(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse("free")


async def charged(request: Request) -> PlainTextResponse:
    return PlainTextResponse("charged")


def nested() -> Starlette:
    return Starlette(routes=[Route("/free", free), Route("/charged", charged), Mount("/deep", routes=[Route("/free", free)])])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/free", FREE),
        ("/class", FREE),
        ("/charged", CHARGED),
        ("/mount/free", FREE),
        ("/mount/charged", CHARGED),
        ("/mount/deep/free", FREE),
        ("/wrapped/free", FREE),
        ("/wrapped/charged", CHARGED),
        ("/user/7", FREE),
        ("/user/me", CHARGED),
    ],
)
@pytest.mark.parametrize("root", ["", "/v1"])
@pytest.mark.parametrize("outside", [False, True])
def test_exempt_endpoint_is_passed_by_wherever_it_is(path: str, expected: list[int], root: str, outside: bool) -> None:
    routes = [
        Route("/free", free),
        Route("/class", Free),
        Route("/charged", charged),
        Mount("/mount", nested()),
        Mount("/wrapped", routes=[Route("/free", free), Route("/charged", charged)], middleware=[Middleware(GZipMiddleware)]),
        Route("/user/me", charged),
        Route("/user/{number}", free),
        WebSocketRoute("/socket", charged),
    ]
    if outside:
        app: Any = RateLimitMiddleware(Starlette(routes=routes, middleware=[Middleware(GZipMiddleware)]), limits=ONE)
    else:
        app = make_app(*routes, limits=ONE, inside=[Middleware(GZipMiddleware)])
    assert statuses(app, root + path, 3, root_path=root) == expected


def test_only_the_method_that_is_routed_to_it_is_exempt() -> None:
    app = make_app(Route("/", free), Route("/", charged, methods=["POST"]), limits=ONE)
    assert statuses(app, count=3) == FREE
    assert statuses(app, method="HEAD", count=3) == FREE
    assert statuses(app, method="POST", count=2) == [200, 429]
    assert statuses(app, method="PUT", count=1) == [429]
    assert statuses(app, "/nowhere", count=1) == [429]


def test_application_that_is_mounted_and_exempt_is_passed_by(tmp_path: Any) -> None:
    (tmp_path / "a.css").write_text("a")
    app = make_app(Mount("/static", exempt(StaticFiles(directory=tmp_path))), Route("/", hello), limits=ONE)
    assert statuses(app, "/static/a.css", 3) == FREE
    assert statuses(app, "/static/b.css", 1) == [404]
    assert statuses(app, count=3) == CHARGED


def test_exempt_below_a_host_is_found() -> None:
    app = make_app(Host("testserver", Router([Route("/free", free), Route("/charged", charged)])), limits=ONE)
    assert statuses(app, "/free", 3) == FREE
    assert statuses(app, "/charged", 3) == CHARGED


def test_mount_is_judged_by_its_own_routes_and_not_those_of_the_application_around() -> None:
    inner = RateLimitMiddleware(Router([Route("/x", charged)]), limits=ONE)
    app = Starlette(routes=[Route("/x", free), Mount("/in", inner)])
    assert statuses(app, "/in/x", 3) == CHARGED


def test_decorated_limit_on_an_exempt_endpoint_holds() -> None:
    for view in (exempt(rate_limit("2/m")(hello)), rate_limit("2/m")(free)):
        assert statuses(make_app(Route("/", view), limits=ONE), count=3) == [200, 200, 429]


def test_application_without_routes_is_charged() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("")(scope, receive, send)

    assert statuses(RateLimitMiddleware(app, limits=ONE), count=3) == CHARGED


@pytest.mark.parametrize(("matched", "looks"), [(free, True), (charged, False)])
def test_routes_are_matched_only_where_something_is_exempt(matched: Any, looks: bool) -> None:
    asked: list[str] = []

    class Watched(Route):
        def matches(self, scope: Any) -> tuple[Match, Any]:
            asked.append(scope["path"])
            return super().matches(scope)

    routes: list[BaseRoute] = [Watched("/", matched)]
    assert statuses(make_app(*routes, limits=ONE), count=1) == [200]
    assert len(asked) == (2 if looks else 1)


def test_application_of_another_framework_may_be_mounted() -> None:
    class Other:
        def __init__(self, routes: Any) -> None:
            self.routes = routes

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await PlainTextResponse("")(scope, receive, send)

    app = make_app(Mount("/a", Other(print)), Mount("/b", Other(["x"])), Route("/free", free), limits=ONE)
    assert [statuses(app, path, 1) for path in ("/a/x", "/free", "/b/x")] == [[200], [200], [429]]
    reset_all(app)
    assert statuses(app, "/b/x", 2) == [200, 429]
