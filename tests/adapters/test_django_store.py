"""Django over a shared store: one limit for all workers and colours, and what an outage looks like."""

import asyncio
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, Client, override_settings

from adapters.django_project import Site, hello, hello_async
from jwtlimit_core import Limit
from jwtlimit_django import areset, get_async_processor, get_processor, rate_limit, reset, reset_all
from outages import Stub
from servers import Server, free_port


@pytest.fixture
def shared(server: Server, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"STORE": server.url, "STORE_TIMEOUT": 20, "KEY_PREFIX": request.node.name.replace("[", "-"), "ISSUE_RATE": "3/h"}


LIMITS = [Limit("all", "4/h"), Limit("most", "9/h", key="global")]


@pytest.mark.parametrize("view", [hello, hello_async])
def test_django_workers_of_one_store_hold_one_limit(site: Site, shared: dict[str, Any], view: Any) -> None:
    site.serve(rate_limit("8/h", name="view")(view), LIMITS=LIMITS, **shared)
    assert site.statuses(count=2) == [200, 200]
    site.configure(LIMITS=LIMITS, **shared)  # another engine, as another worker has it
    site.client.handler._middleware_chain = None
    answer = site.get()
    assert answer.headers["RateLimit"].startswith('"all";r=1;t=')
    assert '"view";r=5' in answer.headers["RateLimit"]
    assert site.statuses(count=2) == [200, 429]
    reset("all", "ip=127.0.0.1") if not site.is_async else async_to_sync(areset)("all", "ip=127.0.0.1")
    assert site.statuses(count=1) == [200]
    reset_all()
    assert site.statuses(count=4) == [200] * 4


def test_django_async_views_under_wsgi_use_the_store_from_many_event_loops(site: Site, shared: dict[str, Any]) -> None:
    """Django runs each of them in a loop of its own, and nothing may be left behind in those that are gone."""
    site.serve(rate_limit("4/h", name="view")(hello_async), middleware=(), **shared)
    client = Client()
    assert [client.get("/").status_code for _ in range(6)] == [200] * 4 + [429] * 2


def test_django_colours_count_together(site: Site, shared: dict[str, Any]) -> None:
    site.serve(rate_limit("2/h", name="view")(hello), **shared)
    site.get()
    request = AsyncRequestFactory(REMOTE_ADDR="127.0.0.1").get("/")
    assert asyncio.run(rate_limit("2/h", name="view")(hello_async)(request)).status_code == 200
    assert site.statuses(count=1) == [429]

    async def create() -> str:
        return await get_async_processor().create({"sub": "ann"})

    get_processor().create({"sub": "ann"})
    asyncio.run(create())
    get_processor().create({"sub": "ann"})
    with pytest.raises(Exception, match="rate limit 'issue'"):
        asyncio.run(create())


@pytest.mark.parametrize("view", [hello, hello_async])
@pytest.mark.parametrize("where", ["settings", "decorator"])
def test_django_store_that_is_down_answers_503_never_429(site: Site, view: Any, where: str) -> None:
    store = {"STORE": f"redis://127.0.0.1:{free_port()}/0"}
    if where == "settings":
        site.serve(view, LIMITS=LIMITS, **store)
    else:
        site.serve(rate_limit("1/m")(view), middleware=(), **store)
    answer = site.get()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "RateLimit" not in answer.headers
    site.configure(LIMITS=LIMITS, ON_FAILURE="allow", **store)
    assert site.statuses() == [200] * 3
    site.configure(LIMITS=[Limit("all", "2/h")], ON_FAILURE="local", **store)
    if where == "settings":
        assert site.statuses() == [200, 200, 429]


def test_django_disabled_limits_ask_no_store(site: Site) -> None:
    site.serve(rate_limit("1/m")(hello), LIMITS=LIMITS, STORE=f"redis://127.0.0.1:{free_port()}/0", ENABLED=False)
    assert site.statuses() == [200] * 3
    assert get_processor().create({"sub": "ann"})


@pytest.mark.parametrize("view", [hello_async, rate_limit("9/h")(hello_async)])
def test_django_slow_store_does_not_stall_the_event_loop(site: Site, view: Any) -> None:
    from jwtlimit_django.middleware import RateLimitMiddleware

    async def ticks_while(request: HttpRequest, served: Any) -> int:
        task, ticks = asyncio.ensure_future(served(request)), 0
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        assert (await task).status_code == 503
        return ticks

    with Stub(None) as stub:
        site.configure(STORE=stub.url, LIMITS=LIMITS if view is hello_async else ())
        served: Any = RateLimitMiddleware(view)
        assert asyncio.run(ticks_while(AsyncRequestFactory().get("/"), served)) > 5


def test_django_refund_on_a_store_is_made(site: Site, shared: dict[str, Any]) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=204 if "good" in request.GET else 401)

    limit = rate_limit("2/h", name="login", refund_when=lambda status, headers: status == 204)
    site.serve(limit(view), **shared)
    assert [site.get("/?good").status_code for _ in range(4)] == [204] * 4
    assert site.statuses() == [401, 401, 429]


def test_django_engine_that_is_forgotten_leaves_nothing_open(site: Site, shared: dict[str, Any]) -> None:
    for _ in range(2):
        with override_settings(JWTLIMIT={"LIMITS": LIMITS, **shared}):
            site.client.handler._middleware_chain = None
            assert site.statuses(count=2) == [200, 200]
