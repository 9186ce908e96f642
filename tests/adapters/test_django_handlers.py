"""What a refusal looks like: `handler429` and `handler503` of the application, or problem details; and our headers on both."""

import asyncio
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncRequestFactory, RequestFactory

from adapters.django_project import OURS, SESSIONS, Site, hello, hello_async
from jwtlimit_core import Limit, LimiterUnavailable, RateLimiter, RateLimitExceeded
from jwtlimit_django import arender_refusal, get_processor, rate_limit, render_refusal

LIMITS = [Limit("all", "1/m")]


class Down:
    """A limiter that gives no answer."""

    def allow(self, key: str) -> bool:
        raise OSError("down")

    def reset(self, key: str) -> None: ...

    def close(self) -> None: ...


def page(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse(f"{request.path} {exception}", status=429, headers={"Retry-After": "mine", "X-Own": "kept"})


async def page_async(request: HttpRequest, exception: Exception) -> HttpResponse:
    return page(request, exception)


def template_page(request: HttpRequest, exception: RateLimitExceeded) -> TemplateResponse:
    template = engines["django"].from_string("wait {{ exception.retry_after }}")
    return TemplateResponse(request, template, {"exception": exception}, status=429)


def refusal() -> RateLimitExceeded:
    limiter = RateLimiter(1, 60, name="mine")
    limiter.acquire("k")
    return RateLimitExceeded(limiter.acquire("k"))


def token(request: HttpRequest) -> HttpResponse:
    return HttpResponse(get_processor().create({"sub": "ann"}))


@pytest.fixture(params=["settings", "view", "async view", "decorator alone", "async decorator alone", "processor"])
def refuses(request: pytest.FixtureRequest, site: Site) -> Any:
    """Serve, with the handlers that it is given, a page that is refused at its second request; each in another place."""

    def serve(**handlers: Any) -> None:
        if request.param == "settings":
            site.serve(hello, handlers=handlers, LIMITS=LIMITS)
        elif request.param == "processor":
            site.serve(token, handlers=handlers, ISSUE_RATE="1/m")
        else:
            view = rate_limit("1/m", name="all")(hello_async if "async" in request.param else hello)
            site.serve(view, handlers=handlers, middleware=() if "alone" in request.param else (OURS,))
        assert site.get().status_code == 200

    return serve


@pytest.mark.parametrize("handler", [page, page_async, "dotted"])
def test_django_handler429_makes_the_answer_and_gets_our_headers(site: Site, refuses: Any, handler: Any) -> None:
    if isinstance(handler, str):
        handler = f"{__name__}.page"
    refuses(handler429=handler)
    answer = site.get()
    assert answer.status_code == 429
    assert answer.content.startswith(b"/ rate limit '")
    assert answer.headers["X-Own"] == "kept"
    assert answer.headers["Retry-After"] == "60"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["RateLimit"].endswith(";r=0;t=60")


def test_django_handler429_may_answer_by_a_template(site: Site, refuses: Any) -> None:
    refuses(handler429=template_page)
    answer = site.get()
    assert (answer.status_code, answer.content, answer.headers["Retry-After"]) == (429, b"wait 60.0", "60")


def test_django_handler429_may_choose_another_status(site: Site, refuses: Any) -> None:
    refuses(handler429=lambda request, exception: HttpResponse(status=403))
    answer = site.get()
    assert answer.status_code == 403
    assert answer.headers["RateLimit"].endswith(";r=0;t=60")  # still that of the refusal


def test_django_refusal_with_another_status_is_not_told_as_if_it_had_passed(site: Site) -> None:
    handlers = {"handler429": lambda request, exception: HttpResponse(status=403)}
    site.serve(rate_limit("1/m", name="view")(hello), handlers=handlers, LIMITS=[Limit("all", "9/m")])
    site.get()
    answer = site.get()
    assert (answer.status_code, answer.headers["RateLimit"]) == (403, '"view";r=0;t=60')


def test_django_handler429_that_fails_is_a_fault_of_the_application(site: Site, refuses: Any) -> None:
    def fails(request: HttpRequest, exception: Exception) -> HttpResponse:
        raise LookupError("mine")

    refuses(handler429=fails)
    with pytest.raises(LookupError, match="mine"):
        site.get()


def test_django_sync_handler_is_called_where_it_may_ask_the_database(site: Site, refuses: Any) -> None:
    def asks(request: HttpRequest, exception: Exception) -> HttpResponse:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return HttpResponse(status=429)

    refuses(handler429=asks)
    assert site.get().status_code == 429


# A store that gives no answer ------------------------------------------------------------------------------------


def test_django_outage_is_503_never_429(site: Site) -> None:
    site.serve(token, STORE=Down())
    answer = site.get()
    assert (answer.status_code, answer.headers["Retry-After"], answer.headers["Cache-Control"]) == (503, "1", "no-store")
    assert answer.json()["type"].endswith("#temporary-reduced-capacity")
    assert "RateLimit" not in answer.headers


def test_django_handler503_makes_the_answer(site: Site) -> None:
    def unavailable(request: HttpRequest, exception: LimiterUnavailable) -> HttpResponse:
        return HttpResponse(f"{exception.retry_after:g}", status=503)

    site.serve(token, handlers={"handler503": unavailable, "handler429": page}, STORE=Down())
    answer = site.get()
    assert (answer.status_code, answer.content, answer.headers["Retry-After"]) == (503, b"1", "1")


# By hand ---------------------------------------------------------------------------------------------------------


def test_django_render_refusal_is_for_other_middleware(site: Site) -> None:
    site.serve(hello, handlers={"handler429": page})
    request = RequestFactory().get("/x")
    answer: Any = render_refusal(refusal(), request)
    assert (answer.content[:7], answer.headers["Retry-After"]) == (b"/x rate", "60")
    bare: Any = render_refusal(refusal())
    assert (bare.status_code, bare.headers["Content-Type"]) == (429, "application/problem+json")


@pytest.mark.parametrize("handler", [page, page_async])
def test_django_arender_refusal_is_the_same_on_an_event_loop(site: Site, handler: Any) -> None:
    site.serve(hello, handlers={"handler429": handler})
    answer: Any = async_to_sync(arender_refusal)(refusal(), AsyncRequestFactory().get("/x"))
    assert (answer.content[:7], answer.headers["Retry-After"]) == (b"/x rate", "60")
    assert async_to_sync(arender_refusal)(refusal()).status_code == 429


def test_django_middleware_above_ours_sees_refusals(site: Site) -> None:
    site.serve(hello, middleware=("adapters.django_project.middleware.only_sync", SESSIONS, OURS), LIMITS=LIMITS)
    assert site.statuses(count=2) == [200, 429]
    assert site.get().headers["X-Neighbour"] == "sync"
