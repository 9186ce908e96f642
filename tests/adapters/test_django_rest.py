"""REST framework: decorated views, processors that refuse inside them, and the throttle."""

import gc
from typing import Any, ClassVar

import pytest
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import APIView

from adapters.django_project import OURS, Site
from jwtlimit_core import ConfigError, Limit
from jwtlimit_django import get_processor, rate_limit
from jwtlimit_django.passage import Passage
from jwtlimit_django.throttling import RateLimitThrottle
from servers import free_port


class ByHeader(BaseAuthentication):
    """Authenticates inside the view, as REST framework does."""

    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("X-User")
        return name and (type("User", (), {"is_authenticated": True, "pk": name})(), None)


@pytest.fixture(autouse=True)
def rest(settings: Any) -> None:
    settings.REST_FRAMEWORK = {
        "DEFAULT_AUTHENTICATION_CLASSES": [ByHeader],
        "DEFAULT_PERMISSION_CLASSES": [],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "DEFAULT_THROTTLE_RATES": {"scoped": "1/m", "free": None},
        "UNAUTHENTICATED_USER": None,
    }


class View(APIView):
    authentication_classes = (ByHeader,)
    permission_classes = ()

    def get(self, request: Any) -> Response:
        return Response("page")

    post = get


def as_user(name: str) -> dict[str, Any]:
    return {"headers": {"X-User": name}}


# Decorators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("middleware", [(), (OURS,)])
def test_django_rest_view_is_limited_by_method_decorator(site: Site, middleware: Any) -> None:
    limited = method_decorator(rate_limit("1/m", name="rest"), name="dispatch")(type("Limited", (View,), {}))
    site.serve(limited.as_view(), middleware=middleware)
    first, second = site.get(), site.get()
    assert (first.json(), first.headers["RateLimit"]) == ("page", '"rest";r=0;t=60')
    assert (second.status_code, second.headers["Retry-After"]) == (429, "60")


@pytest.mark.parametrize("middleware", [(), (OURS,)])
def test_django_rest_handler_is_limited_by_the_user_whom_the_view_authenticated(site: Site, middleware: Any) -> None:
    class Limited(View):
        @rate_limit("1/m", key="user")
        def get(self, request: Any) -> Response:
            return Response(request.user.pk)

    site.serve(Limited.as_view(), middleware=middleware)
    assert site.statuses(count=2, **as_user("ann")) == [200, 429]
    refused = site.get(**as_user("ann"))
    assert (refused.headers["Content-Type"], refused.headers["Retry-After"]) == ("application/problem+json", "60")
    assert site.get(**as_user("bob")).json() == "bob"


def test_django_rest_function_is_limited_on_either_side_of_api_view(site: Site) -> None:
    def view(request: Any) -> Response:
        return Response(type(request).__name__)

    site.serve(urls={"inside": api_view()(rate_limit("1/m")(view)), "outside": rate_limit("1/m")(api_view()(view))})
    for where in ("/inside", "/outside"):
        assert site.get(where).json() == "Request"
        assert site.get(where).status_code == 429


@pytest.mark.parametrize("debug", [False, True])
def test_django_rest_what_a_processor_refuses_inside_a_view_is_429(site: Site, debug: bool) -> None:
    class Token(View):
        def get(self, request: Any) -> Response:
            return Response(get_processor().create({"sub": "ann"}))

    site.settings.DEBUG = debug
    site.serve(Token.as_view(), ISSUE_RATE="1/m")
    assert site.get().status_code == 200
    refused = site.get()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    assert refused.headers["Content-Type"] == "application/problem+json"


# The throttle ----------------------------------------------------------------------------------------------------


def test_django_throttle_has_its_headers_on_whatever_the_handler_of_exceptions_answers(site: Site, settings: Any) -> None:
    class Throttled(View):
        throttle_classes = (type("Once", (RateLimitThrottle,), {"rate": "1/m"}),)

        def get_exception_handler(self) -> Any:
            return lambda error, context: Response("slow down", 429)

    site.serve(Throttled.as_view())
    site.get()
    refused = site.get()
    assert (refused.json(), refused.headers["Retry-After"], refused.headers["Cache-Control"]) == ("slow down", "60", "no-store")


class ByUser(RateLimitThrottle):
    rate = "2/m"
    key = "user"


class Scoped(RateLimitThrottle):
    scope = "scoped"


class Free(RateLimitThrottle):
    scope = "free"


def by_tenant(request: HttpRequest) -> str | None:
    assert isinstance(request, HttpRequest)
    return request.GET.get("tenant")


class ByTenant(RateLimitThrottle):
    rate = "1/m"
    key = by_tenant
    options: ClassVar[dict[str, Any]] = {"methods": ["GET"], "name_is_no_option": None}


def throttled(*throttles: Any) -> Any:
    return type("Throttled", (View,), {"throttle_classes": throttles}).as_view()


def test_django_rest_throttle_charges_the_authenticated_user(site: Site) -> None:
    site.serve(throttled(ByUser))
    first = site.get(**as_user("ann"))
    assert first.headers["RateLimit"] == f'"{__name__}.ByUser";r=1;t=30'
    assert site.statuses(count=2, **as_user("ann")) == [200, 429]
    assert site.statuses(count=2, **as_user("bob")) == [200, 200]
    assert site.statuses(count=3) == [200] * 3
    refused = site.get(**as_user("ann"))
    assert refused.json()["detail"].endswith("Expected available in 30 seconds.")
    assert refused.headers["Retry-After"] == "30"
    assert refused.headers["Cache-Control"] == "no-store"
    assert refused.headers["RateLimit"] == f'"{__name__}.ByUser";r=0;t=30'
    site.clock.advance(29.5)
    assert site.get(**as_user("ann")).headers["Retry-After"] == "1"
    site.clock.advance(0.5)
    assert site.statuses(count=1, **as_user("ann")) == [200]


def test_django_rest_throttle_works_without_the_middleware(site: Site) -> None:
    site.serve(throttled(ByUser), middleware=())
    assert site.statuses(**as_user("ann")) == [200, 200, 429]
    assert site.get(**as_user("ann")).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("throttle", [ByUser, Free])
def test_django_rest_throttle_leaves_an_admission_that_holds_no_request(site: Site, throttle: Any) -> None:
    seen: list[Any] = []

    class Seeing(throttle):  # type: ignore[misc]
        def allow_request(self, request: Any, view: Any) -> bool:
            allowed: bool = super().allow_request(request, view)
            seen.extend(gc.get_referents(request._request.jwtlimit))
            return allowed

    site.serve(throttled(Seeing), middleware=())
    assert site.statuses(count=1) == [200]
    assert seen
    assert not [held for held in seen if isinstance(held, Passage)]


def test_django_rest_throttle_finds_its_rate_by_scope(site: Site) -> None:
    site.serve(urls={"scoped": throttled(Scoped), "free": throttled(Free)})
    assert site.statuses("/scoped", 2) == [200, 429]
    assert site.statuses("/free") == [200] * 3
    site.settings.REST_FRAMEWORK = {**site.settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": {}}
    with pytest.raises(ConfigError, match="Scoped needs a rate, or a scope"):
        site.get("/scoped")


def test_django_rest_throttle_takes_functions_and_options(site: Site) -> None:
    site.serve(throttled(ByTenant))
    with pytest.raises(TypeError, match="name_is_no_option"):
        site.get()
    throttle = type("OfTenants", (ByTenant,), {"options": {"methods": ["get"], "cost": 1}})
    site.serve(throttled(throttle))
    assert site.statuses("/?tenant=a", 2) + site.statuses("/?tenant=b", 2) + site.statuses("/", 2) == [200, 429] * 2 + [200] * 2
    assert site.post("/?tenant=a").status_code == 200


def test_django_rest_throttle_that_refuses_charges_nothing_after_it(site: Site) -> None:
    class After(RateLimitThrottle):
        rate = "2/m"

    class Before(After):
        rate = "9/m"
        key = "global"

    site.serve(urls={"both": throttled(Before, ByUser, After), "after": throttled(After), "before": throttled(Before)})
    assert site.statuses("/both", 1, **as_user("ann")) == [200]
    assert site.statuses("/after", 1) == [200]
    site.clock.advance(0.001)
    site.serve(urls={"both": throttled(Scoped, After), "after": throttled(After)})
    assert site.statuses("/both", 4) == [200, 429, 429, 429]
    assert site.statuses("/after", 2) == [200, 429]


def test_django_rest_throttle_that_refuses_gives_back_what_the_settings_charged(site: Site) -> None:
    site.serve(throttled(Scoped), LIMITS=[Limit("all", "3/m", key="global")])
    assert site.statuses(count=5) == [200, 429, 429, 429, 429]  # the last ones by the throttle still
    assert "RateLimit" in site.get().headers
    site.clock.advance(60)
    assert site.get().headers["RateLimit"].startswith('"all";r=2')


def test_django_rest_throttle_may_be_set_up_for_each_request(
    site: Site, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ByView(RateLimitThrottle):
        options: ClassVar = {"methods": ["GET"]}

        def allow_request(self, request: Any, view: Any) -> bool:
            self.scope = view.scope  # as the ScopedRateThrottle of REST framework does
            return super().allow_request(request, view)

    monkeypatch.setitem(settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"], "other", "1/m")
    site.serve(
        urls={
            name: type("Throttled", (View,), {"throttle_classes": (ByView,), "scope": name}).as_view()
            for name in ("scoped", "other")
        }
    )
    for path in ("/scoped", "/other"):
        assert site.statuses(path, 2) == [200, 429]
    site.clock.advance(60)
    monkeypatch.setattr(ByView, "options", {"methods": ["POST"]})
    assert site.statuses("/scoped", 3) == [200] * 3


def test_django_rest_throttle_limits_only_while_enabled(site: Site) -> None:
    site.serve(throttled(Scoped), ENABLED=False)
    assert site.statuses() == [200] * 3


def test_django_rest_throttle_tells_on_refused(site: Site) -> None:
    told: list[str] = []
    site.serve(throttled(Scoped), ON_REFUSED=lambda decision, view: told.append(decision.name))
    assert site.statuses() == [200, 429, 429]
    assert told == ["scoped", "scoped"]


@pytest.mark.parametrize("middleware", [(), (OURS,)])
def test_django_rest_throttle_answers_an_outage_with_503(site: Site, middleware: Any) -> None:
    site.serve(throttled(Scoped), middleware=middleware, STORE=f"redis://127.0.0.1:{free_port()}/0")
    answer = site.get()
    assert (answer.status_code, answer.headers["Retry-After"], answer.headers["Cache-Control"]) == (503, "1", "no-store")
    assert answer.json() == {
        "detail": "The service cannot say now whether this request is within its limits. Try again in 1 second."
    }


def test_django_rest_throttle_that_no_waiting_helps_says_nothing_of_it(site: Site) -> None:
    costly = type("Costly", (RateLimitThrottle,), {"rate": "1/m", "options": {"cost": lambda request: 2}})

    @api_view()
    @throttle_classes([costly])
    def view(request: Any) -> Response:
        return Response()

    site.serve(view)
    answer = site.get()
    assert answer.status_code == 429
    assert "Retry-After" not in answer.headers


def test_django_rest_exception_handler_of_the_application_sees_the_refusal(site: Site) -> None:
    seen: list[APIException] = []

    def handler(exception: APIException, context: Any) -> HttpResponse:
        seen.append(exception)
        return Response("mine", status=exception.status_code)

    site.settings.REST_FRAMEWORK = {**site.settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": handler}
    site.serve(throttled(Scoped))
    assert [site.get().json() for _ in range(2)] == ["page", "mine"]
    assert [(type(error).__name__, error.wait) for error in seen] == [("Throttled", 60)]
