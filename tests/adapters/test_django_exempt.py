"""`exempt`: the limits of the settings pass by such views, of every kind, and nobody else pays for it."""

from types import ModuleType
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.conf.urls.i18n import i18n_patterns
from django.http import Http404, HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import include, path, register_converter
from django.urls.converters import StringConverter
from django.utils.decorators import method_decorator
from django.utils.functional import lazy
from django.utils.translation import get_language
from django.views import View
from django.views.decorators.cache import never_cache
from rest_framework.decorators import api_view
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from adapters.django_project import OURS, Site, hello, hello_async
from jwtlimit_core import Limit
from jwtlimit_django import exempt, rate_limit
from jwtlimit_django.middleware import RateLimitMiddleware

LOCALE = "django.middleware.locale.LocaleMiddleware"
LIMITS = [Limit("all", "2/m", key="global")]


def fresh(view: Any) -> Any:
    """Return a copy of *view*, since `exempt` marks what it gets."""

    def copied(request: HttpRequest) -> HttpResponse:
        return view(request)

    return copied


class Page(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")


@exempt
class ExemptPage(Page):
    pass


@method_decorator(exempt, name="dispatch")
class ExemptByDispatch(Page):
    pass


class AsyncPage(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")


@exempt
class ExemptAPI(APIView):
    authentication_classes = permission_classes = ()

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("page")


@exempt
class ExemptSet(ViewSet):
    authentication_classes = permission_classes = ()

    def list(self, request: Any) -> HttpResponse:
        return HttpResponse("page")


@exempt
@api_view(["GET"])
def exempt_api(request: Any) -> HttpResponse:
    return HttpResponse("page")


exempt_api.cls.authentication_classes = exempt_api.cls.permission_classes = ()


@exempt
async def exempt_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse("page")


VIEWS = {
    "function": exempt(fresh(hello)),
    "async": exempt_async,
    "below": never_cache(exempt(fresh(hello))),
    "class": ExemptPage.as_view(),
    "dispatch": ExemptByDispatch.as_view(),
    "as-view": exempt(Page.as_view()),
    "async-class": exempt(AsyncPage.as_view()),
    "rest": ExemptAPI.as_view(),
    "rest-set": ExemptSet.as_view({"get": "list"}),
    "rest-function": exempt_api,
}


@pytest.mark.parametrize("name", VIEWS)
def test_django_exempt_views_are_not_charged_but_their_neighbours_are(site: Site, name: str) -> None:
    site.serve(urls={"free": VIEWS[name], "page": Page.as_view()}, LIMITS=LIMITS)
    assert site.statuses("/free", 4) == [200] * 4
    assert "RateLimit" not in site.get("/free").headers
    assert site.statuses("/page") == [200, 200, 429]
    assert site.statuses("/unknown", 1) == [429]


def test_django_exempt_views_in_included_urls_are_found(site: Site) -> None:
    inner = [path("free", VIEWS["function"]), path("page", hello_async)]
    site.serve(urls=[path("a/", include(([path("b/", include(inner))], "a")))], LIMITS=LIMITS)
    assert site.statuses("/a/b/free", 4) == [200] * 4
    assert site.statuses("/a/b/page") == [200, 200, 429]


def test_django_classes_made_from_an_exempt_one_are_not_exempt(site: Site) -> None:
    made = type("Made", (ExemptPage,), {})
    site.serve(urls={"free": ExemptPage.as_view(), "page": made.as_view()}, LIMITS=LIMITS)
    assert site.statuses("/page") == [200, 200, 429]


def test_django_limits_of_decorators_hold_on_exempt_views(site: Site) -> None:
    site.serve(exempt(rate_limit("1/m")(fresh(hello))), LIMITS=LIMITS)
    assert site.statuses(count=2) == [200, 429]


def test_django_urlconf_of_the_request_decides(site: Site) -> None:
    site.serve(VIEWS["function"], middleware=("adapters.django_project.middleware.chosen_urlconf", OURS), LIMITS=LIMITS)
    other = {"X-Urlconf": "adapters.django_project.urls"}
    assert site.statuses() == [200] * 3
    assert site.statuses(headers=other) == [200, 200, 429]
    assert site.get(headers=other).content == b"of other urls"
    assert site.statuses() == [200] * 3


asked: list[str] = []


class Counted(StringConverter):
    def to_python(self, value: str) -> str:
        asked.append(value)
        return value


class Missing(StringConverter):
    def to_python(self, value: str) -> str:
        raise Http404


register_converter(Counted, "counted")
register_converter(Missing, "missing")


def named(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(name)


def test_django_resolves_nothing_where_no_view_is_exempt(site: Site) -> None:
    asked.clear()
    site.serve(urls=[path("<counted:name>", named)], LIMITS=LIMITS)
    assert site.get("/ann").content == b"ann"
    assert asked == ["ann"]


def test_django_converter_that_raises_404_does_not_get_past_the_limit(site: Site) -> None:
    site.serve(VIEWS["function"], urls=[path("<missing:name>", named)], LIMITS=LIMITS)
    assert site.statuses("/ann") == [404, 404, 429]


def test_django_urls_are_looked_through_once(settings: Any) -> None:
    looked: list[int] = []

    class Patterns(list[Any]):
        def __iter__(self) -> Any:
            looked.append(1)
            return super().__iter__()

    urlconf = ModuleType("urls")
    vars(urlconf)["urlpatterns"] = Patterns([path("", hello)])
    settings.ROOT_URLCONF = urlconf
    settings.JWTLIMIT = {"LIMITS": LIMITS}
    middleware = RateLimitMiddleware(hello)
    middleware(RequestFactory().get("/"))
    first = len(looked)
    for _ in range(3):
        middleware(RequestFactory().get("/"))
    assert len(looked) == first > 0


def test_django_exempt_views_are_those_of_the_urls_that_hold_now(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    urlconfs = {name: ModuleType(name) for name in ("limited", "free")}
    vars(urlconfs["limited"])["urlpatterns"] = [path("", hello)]
    vars(urlconfs["free"])["urlpatterns"] = [path("", exempt(fresh(hello)))]
    settings.JWTLIMIT = {"LIMITS": LIMITS}
    middleware = RateLimitMiddleware(hello)
    for name, expected in (("limited", [200, 200, 429]), ("free", [200] * 3), ("limited", [429] * 3)):
        monkeypatch.setattr(django_settings, "ROOT_URLCONF", urlconfs[name])  # without a signal
        assert [middleware(RequestFactory().get("/")).status_code for _ in range(3)] == expected


@pytest.mark.parametrize("prefixed", [True, False])
@pytest.mark.parametrize("place", [0, 1])
def test_django_exempt_view_is_found_whatever_language_came_before(site: Site, place: int, prefixed: bool) -> None:
    chain = [LOCALE]
    chain.insert(place, OURS)
    site.settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    urls = i18n_patterns(path("free", exempt(fresh(hello))), prefix_default_language=prefixed)
    site.serve(urls=urls, middleware=chain, LIMITS=LIMITS)
    paths = ("/de/free", "/en/free" if prefixed else "/free")
    assert [site.get(each).status_code for each in (*paths, *paths, *reversed(paths))] == [200] * 6


def test_django_exempt_view_with_a_translated_path_is_found_in_the_language_of_the_request(site: Site) -> None:
    site.settings.LANGUAGES = [("en", "English"), ("de", "Deutsch")]
    route = lazy(lambda: "frei" if get_language() == "de" else "free", str)()
    site.serve(urls=[path(route, exempt(fresh(hello)))], middleware=(LOCALE, OURS), LIMITS=LIMITS)
    assert site.statuses("/frei", headers={"Accept-Language": "de"}) == [200] * 3
    assert site.statuses("/free", headers={"Accept-Language": "en"}) == [200] * 3
