"""The Starlette middleware over a shared store: one limit for several workers, and no outage that stops the loop."""

import asyncio
import time
from contextlib import closing
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from adapters.starlette_client import SECRET, Sent, ask, get, hello, statuses
from jwtlimit_core import ConfigError, Limit
from jwtlimit_core.redis import RedisTokenBucket
from jwtlimit_starlette import RateLimitMiddleware, get_processor, get_sync_processor, rate_limit, reset, reset_all
from servers import Server, free_port


async def token(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await get_processor(request).create({"sub": "ann"}))


def sync_token(request: Request) -> PlainTextResponse:
    return PlainTextResponse(get_sync_processor(request).create({"sub": "ann"}))


def threaded(request: Request) -> PlainTextResponse:
    return PlainTextResponse("")


def worker(**settings: Any) -> Starlette:
    """Make one more application with the same code, as another worker process has it."""
    limits = [Limit("api", "3/h", paths=["/api"]), Limit("all", "3/h", key="global", paths=["/all"])]
    app = Starlette(
        routes=[
            Route("/api", hello),
            Route("/all", hello),
            Route("/view", rate_limit("3/h", name="view")(threaded)),
            Route("/token", token),
            Route("/sync", sync_token),
        ]
    )
    app.add_middleware(RateLimitMiddleware, limits=limits, secret_key=SECRET, issue_rate="3/h", **settings)
    return app


@pytest.fixture
def settings(server: Server, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"store": server.url, "store_timeout": 20, "key_prefix": request.node.name.replace("[", "-").replace("]", "")}


async def live(app: Any) -> None:
    """Begin and end *app*."""
    sent = Sent()
    sent.left = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def send(message: Any) -> None:
        assert message["type"].endswith("complete")

    await app({"type": "lifespan", "state": {}}, sent.receive, send)


PATHS = ["/api", "/all", "/view", "/token", "/sync"]


@pytest.mark.parametrize("path", PATHS)
def test_workers_of_one_store_hold_one_limit(settings: dict[str, Any], path: str) -> None:
    workers = [worker(**settings) for _ in range(2)]
    answers = [get(workers[turn % 2], path) for turn in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) in range(1190, 1201)
    reset_all(workers[1])
    assert [get(workers[1], path).status, get(workers[0], path).status] == [200, 200]
    for each in workers:
        asyncio.run(live(each))


def test_reset_gives_one_key_its_quota_back_in_the_store(settings: dict[str, Any]) -> None:
    app = worker(**settings)
    assert statuses(app, "/api") == [200, 200, 200, 429]
    asyncio.run(reset("api", "ip=192.0.2.1", where=worker(**settings)))
    assert statuses(worker(**settings), "/api", 1) == [200]


@pytest.mark.parametrize(("path", "other"), [("/token", "/sync"), ("/sync", "/token")])
def test_reset_is_known_to_the_processors_of_both_kinds(settings: dict[str, Any], path: str, other: str) -> None:
    app = worker(**settings)
    assert statuses(app, path) + statuses(app, other, 1) == [200, 200, 200, 429, 429]
    asyncio.run(reset("issue", "ann", where=app))
    assert statuses(app, other, 1) + statuses(app, path, 3) == [200, 200, 200, 429]


def test_connections_are_closed_with_the_application(server: Server) -> None:
    app = worker(store=f"{server.url}?client_name=st-closes", key_prefix="closes", store_timeout=20)

    async def serve() -> None:
        for path in ("/api", "/sync"):
            assert (await ask(app, path)).status == 200
        with server.client() as client:
            assert [each["name"] for each in client.client_list()].count("st-closes") == 2
        await live(app)

    asyncio.run(serve())
    server.await_clients("st-closes", 0)


@pytest.mark.parametrize("path", PATHS)
def test_store_that_is_down_is_503_never_429(path: str) -> None:
    answer = get(worker(store=f"redis://127.0.0.1:{free_port()}/0"), path)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.json["type"].endswith("#temporary-reduced-capacity")
    assert "ratelimit" not in answer.headers


@pytest.mark.parametrize(("policy", "expected"), [("local", [200, 200, 200, 429]), ("allow", [200] * 4)])
@pytest.mark.parametrize("path", PATHS)
def test_store_that_is_down_follows_the_policy(path: str, policy: str, expected: list[int]) -> None:
    assert statuses(worker(store=f"redis://127.0.0.1:{free_port()}/0", on_failure=policy), path) == expected


@pytest.mark.parametrize("path", ["/api", "/view", "/token"])
def test_store_that_hangs_stops_no_other_coroutine(stores: Any, path: str) -> None:
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    async def serve() -> list[int]:
        nonlocal longest
        assert (await ask(app, path)).status == 200
        ticking = asyncio.create_task(tick())
        paused.pause()
        try:
            await asyncio.sleep(0.01)
            longest = 0.0
            answers = await asyncio.gather(*(ask(app, path) for _ in range(5)))
        finally:
            paused.resume()
        ticking.cancel()
        return [answer.status for answer in answers]

    paused = Server(stores.server._command[0])
    with closing(paused):
        paused.start()
        app = worker(store=paused.url)
        started = time.perf_counter()
        assert asyncio.run(serve()) == [503] * 5
        assert time.perf_counter() - started < 5  # the deadline is a quarter of a second
        assert longest < 0.15


def test_cancelled_requests_leave_the_store_usable(settings: dict[str, Any]) -> None:
    app = worker(**settings)

    async def serve() -> int:
        tasks = [asyncio.create_task(ask(app, "/token")) for _ in range(50)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return (await ask(app, "/api")).status

    assert asyncio.run(serve()) == 200


def test_limiter_that_would_stall_the_loop_is_refused(server: Server) -> None:
    limiter: Any = RedisTokenBucket.from_url(server.url, 3, 60)
    with closing(limiter), pytest.raises(ConfigError, match="store must be a RateLimiter or have coroutine functions"):
        RateLimitMiddleware(hello, store=limiter, secret_key=SECRET)
