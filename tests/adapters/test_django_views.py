"""`rate_limit` on every kind of Django view: it limits, and else it cannot be told from the view."""

from __future__ import annotations  # the annotations of the views here are text, as in many applications

import inspect
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.test import RequestFactory, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import cache_page, never_cache
from django.views.generic import TemplateView

from adapters.django_project import OURS, Site, hello
from jwtlimit_core import ConfigError, Limit
from jwtlimit_django import rate_limit

numbers = count()


@pytest.fixture(params=[(OURS,), ()], ids=["present", "absent"])
def chain(request: pytest.FixtureRequest) -> Any:
    """With our middleware, and without it."""
    return request.param


def plain(request: HttpRequest, name: str = "", *, page: int = 1) -> HttpResponse:
    """Say whose page it is."""
    return HttpResponse(f"{name} {page}")


async def asynchronous(request: HttpRequest, name: str = "", *, page: int = 1) -> HttpResponse:
    """Say whose page it is."""
    return HttpResponse(f"{name} {page}")


class Page(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")


class AsyncPage(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")


def kind_of(base: type[View], **attributes: Any) -> type[View]:
    """Make a class of views with a name of its own."""
    return type("Made", (base,), {"__module__": __name__, "__qualname__": f"Made{next(numbers)}", **attributes})


def foreign(view: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as any library does."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


def names(answer: Any) -> list[str]:
    policies: list[str] = answer.json()["violated-policies"]
    return policies


# Functions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [plain, asynchronous])
def test_django_decorated_view_keeps_name_signature_and_kind(view: Callable[..., Any]) -> None:
    decorated: Any = rate_limit("2/m")(rate_limit("9/h")(view))
    assert (decorated.__name__, decorated.__qualname__, decorated.__module__) == (view.__name__, view.__qualname__, __name__)
    assert decorated.__doc__ == "Say whose page it is."
    assert inspect.unwrap(decorated) is view
    assert inspect.signature(decorated) == inspect.signature(view)
    assert iscoroutinefunction(decorated) is iscoroutinefunction(view)


def test_django_answer_from_a_cache_is_charged_and_has_headers_of_its_own(site: Site, chain: Any) -> None:
    site.serve(rate_limit("2/m", name="page")(cache_page(60)(hello)), middleware=chain)
    answers = [site.get() for _ in range(3)]
    assert [answer.headers["RateLimit"][:10] for answer in answers] == ['"page";r=1', '"page";r=0', '"page";r=0']
    assert [answer.status_code for answer in answers] == [200, 200, 429]


@pytest.mark.parametrize("view", [plain, asynchronous])
def test_django_decorated_function_is_limited_with_headers(site: Site, chain: Any, view: Any) -> None:
    site.serve(urls=[path("<name>/", rate_limit("2/m", name="page")(view), {"page": 7})], middleware=chain)
    first, _, third = (site.get("/ann/") for _ in range(3))
    assert (first.status_code, first.content, first.headers["RateLimit"]) == (200, b"ann 7", '"page";r=1;t=30')
    assert (third.status_code, third.headers["Retry-After"], third.headers["Cache-Control"]) == (429, "30", "no-store")
    assert third.headers["RateLimit"] == '"page";r=0;t=30'
    site.clock.advance(30)
    assert site.statuses("/ann/", 2) == [200, 429]


def test_django_decorated_function_is_limited_only_while_enabled(site: Site, chain: Any) -> None:
    site.serve(rate_limit("1/m")(plain), middleware=chain, ENABLED=False)
    assert site.statuses() == [200] * 3
    assert "RateLimit" not in site.get().headers


def test_django_stacked_limits_are_charged_together_or_not_at_all(site: Site, chain: Any) -> None:
    view = rate_limit("1/s", name="second")(rate_limit("3/h", name="hour")(rate_limit("5/d", name="day", cost=2)(plain)))
    site.serve(view, middleware=chain)
    assert site.get().headers["RateLimit"] == '"day";r=3;t=17280, "hour";r=2;t=1200, "second";r=0;t=1'
    assert site.statuses() == [429] * 3  # and these cost nothing, of any limit
    site.clock.advance(1)
    assert '"hour";r=1' in site.get().headers["RateLimit"]
    assert names(site.get()) == ["day", "second"]


def test_django_limits_of_settings_and_view_are_one_admission(site: Site) -> None:
    site.serve(rate_limit("1/m", name="view")(plain), LIMITS=[Limit("all", "9/m", key="global")])
    assert site.get().headers["RateLimit"] == '"all";r=8;t=7, "view";r=0;t=60'
    assert names(site.get()) == ["view"]
    site.clock.advance(60)
    # What the view refused was given back to the limit of the settings.
    assert site.get().headers["RateLimit"] == '"all";r=8;t=7, "view";r=0;t=60'


def test_django_limits_around_a_foreign_decorator_are_two_admissions(site: Site, chain: Any) -> None:
    inner = never_cache(rate_limit("1/m", name="inner")(plain))
    site.serve(rate_limit("3/m", name="outer")(inner), middleware=chain)
    first = site.get()
    assert first.headers["RateLimit"] == '"outer";r=2;t=20, "inner";r=0;t=60'
    assert [names(site.get()) for _ in range(3)] == [["inner"], ["inner"], ["outer"]]


def test_django_refund_is_made_without_the_middleware_too(site: Site, chain: Any) -> None:
    site.serve(rate_limit("1/m", refund_when=lambda status, headers: status == 200)(plain), middleware=chain)
    assert site.statuses() == [200] * 3


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Http404, 404),
        (PermissionDenied, 403),
        (SuspiciousOperation, 400),
        (BadRequest, 400),
        (MultiPartParserError, 400),
        (ValueError, 500),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_django_refund_is_made_for_what_the_view_raises(
    site: Site, chain: Any, error: type[Exception], status: int, asynchronous: bool
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        raise error

    async def view_async(request: HttpRequest) -> HttpResponse:
        raise error

    limit = rate_limit("1/m", refund_when=lambda found, headers: found == status)
    site.client.raise_request_exception = False
    site.serve(limit(view_async if asynchronous else view), middleware=chain)
    assert site.statuses() == [status] * 3


def answered(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answer what views raise, as middleware of an application may."""

    def middleware(request: HttpRequest) -> HttpResponse:
        return get_response(request)

    middleware.process_exception = lambda request, error: HttpResponse("answered")  # type: ignore[attr-defined]
    return middleware


def test_django_refund_is_left_to_the_middleware_where_it_sees_the_answer(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        raise ValueError

    limit = rate_limit("2/m", refund_when=lambda status, headers: status == 500)
    site.serve(limit(view), middleware=(OURS, f"{__name__}.answered"))
    assert site.statuses() == [200, 200, 429]


def test_django_refund_looks_at_the_answer_that_goes_out(site: Site) -> None:
    inner = rate_limit("1/m", refund_when=lambda status, headers: status == 200)(plain)

    def outer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(inner(request).content, status=401)

    site.serve(outer)
    assert [site.get().content[:7] for _ in range(2)] == [b" 1", b'{"type"']


def test_django_request_that_is_sent_again_is_a_new_admission(settings: Any) -> None:
    settings.JWTLIMIT = {}
    request = RequestFactory().get("/")
    view = rate_limit("2/m", key=lambda request: "k", name="page")(plain)
    answers = [view(request) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]  # no refusal gives back the calls before
    assert answers[1].headers["RateLimit"] == '"page";r=0;t=30'


def test_django_decorated_view_that_raises_leaves_no_trace(settings: Any) -> None:
    settings.JWTLIMIT = {}
    error = StopIteration("mine")

    @rate_limit("2/m")
    def view(request: HttpRequest) -> HttpResponse:
        raise error

    request = RequestFactory().get("/")
    for _ in range(2):
        with pytest.raises(StopIteration) as caught:
            view(request)
        assert caught.value is error
    assert view(request).status_code == 429


def test_django_decorated_view_that_returns_no_response_is_left_to_django(site: Site, chain: Any) -> None:
    site.serve(rate_limit("2/m")(lambda request: None), middleware=chain)
    with pytest.raises(ValueError, match="didn't return an HttpResponse"):
        site.get()


@pytest.mark.parametrize("wrong", [lambda: "a view, for want of parentheses", 5, "often"])
def test_django_rate_limit_of_what_is_no_rate_is_told_at_decoration(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a rate must read like"):
        rate_limit(wrong)


async def key_async(request: HttpRequest) -> str:
    return request.GET.get("key", "")


def test_django_coroutine_functions_are_for_async_views(site: Site, chain: Any) -> None:
    with pytest.raises(ConfigError, match="its view has no event loop"):
        rate_limit("1/m", key=key_async)(plain)
    site.serve(rate_limit("1/m", key=key_async)(asynchronous), middleware=chain)
    assert site.statuses("/?key=a", 2) + site.statuses("/?key=b", 2) + site.statuses("/", 2) == [200, 429, 200, 429, 200, 200]


def test_django_user_key_that_is_a_coroutine_function_is_for_async_views(settings: Any) -> None:
    settings.JWTLIMIT = {"USER_KEY": key_async}
    request = RequestFactory().get("/?key=a")
    with pytest.raises(ConfigError, match="USER_KEY"):
        rate_limit("1/m", key="user")(plain)(request)
    assert async_to_sync(rate_limit("1/m", key="user")(asynchronous))(request).status_code == 200


def test_django_rate_limit_of_what_is_no_view_says_so(settings: Any) -> None:
    settings.JWTLIMIT = {}
    with pytest.raises(TypeError, match="first argument is the request"):
        rate_limit("1/m")(lambda name: name)("ann")
    assert rate_limit("1/m")(plain)(request=RequestFactory().get("/")).status_code == 200


# Classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [Page, AsyncPage])
def test_django_class_view_is_limited_by_method_decorator_under_its_own_name(site: Site, chain: Any, base: Any) -> None:
    limit = method_decorator(rate_limit("1/m"), name="dispatch")
    mine, other = limit(kind_of(base)), limit(kind_of(base))
    site.serve(urls={"mine": mine.as_view(), "other": other.as_view()}, middleware=chain)
    assert site.get("/mine").content == b"page"
    assert names(site.get("/mine")) == [f"{__name__}.{mine.__qualname__}.dispatch"]
    assert site.statuses("/other", 2) == [200, 429]


@pytest.mark.parametrize("base", [Page, AsyncPage])
def test_django_class_view_with_several_decorators_is_named_after_itself(site: Site, chain: Any, base: Any) -> None:
    limit = method_decorator([rate_limit("9/m"), rate_limit("1/m"), foreign], name="dispatch")
    pages = [limit(kind_of(base)) for _ in range(2)]
    site.serve(urls={str(index): page.as_view() for index, page in enumerate(pages)}, middleware=chain)
    for index, page in enumerate(pages):
        name = f"{__name__}.{page.__qualname__}.dispatch"
        assert site.get(f"/{index}").headers["RateLimit"].startswith(f'"{name}";r=0;t=60, "{name}#2";r=8;t=')
        assert names(site.get(f"/{index}")) == [name]


@pytest.mark.parametrize("base", [Page, AsyncPage])
@pytest.mark.parametrize("how", [lambda limit: limit, method_decorator])
def test_django_methods_of_class_views_are_limited(site: Site, chain: Any, base: Any, how: Any) -> None:
    limited = how(rate_limit("1/m", name="get"))(base.get)
    site.serve(kind_of(base, get=limited, post=base.get).as_view(), middleware=chain)
    assert site.statuses(count=2) == [200, 429]
    assert site.post().status_code == 200


@pytest.mark.parametrize("base", [Page, AsyncPage])
def test_django_dispatch_is_limited_without_method_decorator(site: Site, chain: Any, base: Any) -> None:
    def dispatch(self: View, request: HttpRequest) -> Any:
        return View.dispatch(self, request)

    site.serve(kind_of(base, dispatch=rate_limit("1/m")(dispatch)).as_view(), middleware=chain)
    assert site.statuses(count=2) == [200, 429]
    assert site.request("PUT").status_code == 429


@pytest.mark.parametrize("base", [Page, AsyncPage])
def test_django_view_that_as_view_made_is_limited_under_the_name_of_its_class(site: Site, chain: Any, base: Any) -> None:
    kind = kind_of(base)
    site.serve(rate_limit("1/m")(kind.as_view()), middleware=chain)
    assert site.get().status_code == 200
    assert names(site.get()) == [f"{__name__}.{kind.__qualname__}"]


def test_django_async_class_view_takes_coroutine_functions(site: Site, chain: Any) -> None:
    limit = method_decorator(rate_limit("1/m", key=key_async), name="dispatch")
    site.serve(limit(kind_of(AsyncPage)).as_view(), middleware=chain)
    assert site.statuses("/?key=a", 2) == [200, 429]
    site.serve(limit(kind_of(Page)).as_view(), middleware=chain)
    with pytest.raises(ConfigError, match="its view has no event loop"):
        site.get("/?key=a")


def test_django_page_that_is_rendered_later_has_the_headers(site: Site, chain: Any) -> None:
    site.settings.TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {"loaders": [("django.template.loaders.locmem.Loader", {"page.html": "a page"})]},
        }
    ]
    site.serve(rate_limit("1/m", name="p")(TemplateView.as_view(template_name="page.html")), middleware=chain)
    answer = site.get()
    assert (answer.content, answer.headers["RateLimit"]) == (b"a page", '"p";r=0;t=60')


def test_django_rate_limit_of_a_class_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"put @method_decorator\(…, name=\"dispatch\"\) on Page"):
        rate_limit("5/m")(Page)


def test_django_method_decorator_costs_no_new_limit_for_each_request(site: Site) -> None:
    decoration = rate_limit("9/m")
    kind = kind_of(Page)
    site.serve(method_decorator(decoration, name="dispatch")(kind).as_view())
    assert site.statuses(count=5) == [200] * 5
    closed = inspect.getclosurevars(decoration).nonlocals["decoration"]
    assert list(closed._limits) == [f"{__name__}.{kind.__qualname__}.dispatch"]


def test_django_decorated_view_follows_overridden_settings(site: Site, chain: Any) -> None:
    site.serve(rate_limit("1/m")(hello), middleware=chain)
    assert site.statuses(count=2) == [200, 429]
    with override_settings(JWTLIMIT={"ENABLED": False}):
        assert site.statuses(count=2) == [200, 200]
