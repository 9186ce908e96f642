"""Sync and async: every mix of middleware and views is limited, no event loop is stalled, and none is left without need."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

from adapters.django_project import OURS, Site, hello, hello_async
from jwtlimit_core import Limit, RateLimitExceeded
from jwtlimit_django import get_async_processor, get_processor, rate_limit
from jwtlimit_django.engine import get_engine
from jwtlimit_django.middleware import RateLimitMiddleware
from jwtlimit_django.passage import Passage

SYNC = "adapters.django_project.middleware.only_sync"
ASYNC = "adapters.django_project.middleware.only_async"
CHAINS = [(OURS,), (SYNC, OURS), (OURS, SYNC), (ASYNC, OURS), (OURS, ASYNC), (SYNC, OURS, ASYNC), (ASYNC, OURS, SYNC)]
LIMITS = [Limit("all", "2/m")]


async def token_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse(await get_async_processor().create({"sub": "ann"}))


def token(request: HttpRequest) -> HttpResponse:
    return HttpResponse(get_processor().create({"sub": "ann"}))


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("view", [hello, hello_async])
def test_django_limits_hold_in_every_mix_of_neighbours(site: Site, chain: tuple[str, ...], view: Any) -> None:
    site.serve(rate_limit("9/m", name="view")(view), middleware=chain, LIMITS=LIMITS)
    answers = [site.get() for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["RateLimit"] == '"all";r=1;t=30, "view";r=8;t=7'
    assert answers[2].headers["Retry-After"] == "30"
    assert [answer.headers.get("X-Neighbour") is None for answer in answers[:2]] == [chain == (OURS,)] * 2


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("view", [token, token_async])
def test_django_what_a_processor_refuses_in_any_view_is_answered_with_429(site: Site, chain: Any, view: Any) -> None:
    site.serve(view, middleware=chain, ISSUE_RATE="1/m")
    answers = [site.get() for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert (answers[1].headers["Retry-After"], answers[1].headers["RateLimit"]) == ("60", '"issue";r=0;t=60')


@pytest.mark.parametrize("view", [token, token_async])
def test_django_without_the_middleware_refusals_of_a_processor_reach_the_application(site: Site, view: Any) -> None:
    site.serve(view, middleware=(), ISSUE_RATE="1/m")
    site.get()
    with pytest.raises(RateLimitExceeded):
        site.get()


def test_django_middleware_has_the_colour_of_its_neighbour(settings: Any) -> None:
    settings.JWTLIMIT = {}
    assert iscoroutinefunction(RateLimitMiddleware(hello_async))
    assert not iscoroutinefunction(RateLimitMiddleware(hello))


def test_django_async_chain_is_not_left_for_a_thread(site: Site) -> None:
    """Count what is run elsewhere, between the handler and the view, in an application that is async throughout."""
    site.serve(rate_limit("9/m")(hello_async), LIMITS=[*LIMITS, Limit("u", "9/m", key="subject")])
    handler = ASGIHandler()

    async def ask() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        run, elsewhere = loop.run_in_executor, []

        def run_in_executor(executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
            elsewhere.append(function)
            return run(executor, function, *arguments)

        loop.run_in_executor = run_in_executor
        response = await handler.get_response_async(AsyncRequestFactory().get("/"))
        return response.status_code, len(elsewhere)

    assert asyncio.run(ask()) == (200, 0)


def test_django_view_is_called_in_the_thread_where_it_would_be_without_us(settings: Any) -> None:
    threads: list[int] = []

    def view(request: HttpRequest) -> HttpResponse:
        threads.append(threading.get_ident())
        return HttpResponse()

    settings.JWTLIMIT = {"LIMITS": LIMITS}
    RateLimitMiddleware(rate_limit("9/m")(view))(RequestFactory().get("/"))
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("how", [method_decorator(rate_limit("9/m"), name="dispatch"), None])
def test_django_dispatch_of_an_async_class_is_limited_on_the_event_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    """It is a plain function that Django calls on the loop, where a store must not be waited for."""
    colours: list[bool] = []
    made = Passage.__init__

    def init(self: Passage, request: HttpRequest, *, awaits: bool) -> None:
        colours.append(awaits)
        made(self, request, awaits=awaits)

    class Page(View):
        async def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("page")

        if how is None:

            @rate_limit("9/m")
            def dispatch(self, request: HttpRequest) -> Any:
                return super().dispatch(request)

    monkeypatch.setattr(Passage, "__init__", init)
    site.serve((how(Page) if how else Page).as_view(), middleware=())
    assert site.get().content == b"page"
    assert site.request("PUT").status_code == 405
    assert colours == [True, True]


def test_django_cancelled_request_stays_charged_and_leaves_no_trace(site: Site) -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        await asyncio.get_running_loop().create_future()  # for ever
        return HttpResponse()

    site.configure(LIMITS=[Limit("all", "2/m", key="global")])
    middleware: Any = RateLimitMiddleware(rate_limit("9/m")(view))
    request = AsyncRequestFactory().get("/")

    async def cancel() -> None:
        task = asyncio.create_task(middleware(request))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(2):
        asyncio.run(cancel())
    assert "_jwtlimit" not in vars(request)
    assert asyncio.run(middleware(request)).status_code == 429


@pytest.mark.django_db  # the handler itself looks after connections, where there are some
def test_django_requests_at_once_pass_exactly_the_limit(site: Site) -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse()

    site.serve(view, LIMITS=[Limit("all", "4/m")])
    handler = ASGIHandler()

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(handler), base_url="http://test") as client:
            return [answer.status_code for answer in await asyncio.gather(*(client.get("/") for _ in range(20)))]

    assert sorted(async_to_sync(ask)()) == [200] * 4 + [429] * 16


def test_django_first_requests_at_once_are_counted_by_one_engine(settings: Any) -> None:
    start = threading.Barrier(8)

    class Slow(dict[str, Any]):
        """Settings that nobody has read before all have begun to."""

        def items(self) -> Any:
            start.wait()
            return super().items()

    settings.JWTLIMIT = Slow(LIMITS=[])
    engines: list[Any] = []
    threads = [threading.Thread(target=lambda: engines.append(get_engine())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(engines) == 8
    assert len(set(map(id, engines))) == 1
