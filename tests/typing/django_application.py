"""User code that is checked and never run: a Django application. A marked line is wrong, and must stay an error."""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jwtlimit_core import Admission, AsyncProcessor, Claims, Decision, Limit, Processor, Rate, RateLimitExceeded, RequestView
from jwtlimit_core.testing import ManualClock
from jwtlimit_django import (
    arender_refusal,
    areset,
    exempt,
    get_async_processor,
    get_processor,
    rate_limit,
    render_refusal,
    reset,
    reset_all,
)
from jwtlimit_django.middleware import RateLimitMiddleware
from jwtlimit_django.throttling import RateLimitThrottle


def count(decision: Decision, view: RequestView) -> None:
    assert_type((decision.name, view.peer), tuple[str, str | None])


def user_of(request: HttpRequest) -> str | None:
    return request.headers.get("X-User")


async def tenant_of(request: HttpRequest) -> str | None:
    return str((await request.auser()).pk)


JWTLIMIT = {
    "SECRET_KEY": "…",
    "LIMITS": [Limit("all", "100/m"), Limit("tenant", "1000/h", key=tenant_of)],
    "CLOCK": ManualClock(),
    "ON_REFUSED": count,
}

assert_type(get_processor(), Processor)
assert_type(get_async_processor(), AsyncProcessor)
assert_type(reset("login", "ip=192.0.2.1"), None)
assert_type(reset_all(), None)


class LimitedRequest(HttpRequest):
    """What views of an application with our middleware may call their request."""

    jwtlimit: Admission


@rate_limit("5/m", key="ip", methods=["POST"], name="login")
@rate_limit(Rate(1000, 3600), key=user_of, cost=2)
def token(request: LimitedRequest) -> JsonResponse:
    assert_type(request.jwtlimit.decision, Decision | None)
    assert_type(request.jwtlimit.claims, Claims | None)
    return JsonResponse({"access_token": get_processor().create(Claims(sub="ann"))})


served: Callable[[LimitedRequest], JsonResponse] = token
assert_type(token(LimitedRequest()), JsonResponse)
token("ann")  # type: ignore[arg-type]


@rate_limit("5/m")
def page(request: HttpRequest, name: str, *, number: int = 1) -> HttpResponse:
    return HttpResponse(f"{name} {number}")


assert_type(page(HttpRequest(), "ann", number=2), HttpResponse)
page(HttpRequest(), "ann", number="2")  # type: ignore[arg-type]
page(HttpRequest())  # type: ignore[call-arg]


@exempt
@rate_limit("5/m", key=tenant_of)
async def me(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(await get_async_processor().create(Claims(sub=name)))


async def asks() -> None:
    assert_type(await me(HttpRequest(), "ann"), HttpResponse)
    await me(HttpRequest(), 7)  # type: ignore[arg-type]
    pending: Coroutine[Any, Any, HttpResponse] = me(HttpRequest(), "ann")
    assert_type(await pending, HttpResponse)
    assert_type(await areset("login", "ip=192.0.2.1"), None)


@method_decorator(rate_limit("5/m"), name="dispatch")
class Pages(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")

    @rate_limit("5/m")
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")


@exempt
class Health(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("up")


class ByUser(RateLimitThrottle):
    rate = "5/m"
    key = "user"


class ByTenant(RateLimitThrottle):
    rate = Rate(5, 60)
    key = (user_of, "ip")
    options = {"cost": 2}  # noqa: RUF012


class Wrong(RateLimitThrottle):
    rate = 5  # type: ignore[assignment]


class Orders(APIView):
    throttle_classes = (ByUser, ByTenant)

    @rate_limit("5/m", key="user")
    def get(self, request: Request) -> Response:
        return Response()


urlpatterns = [
    path("token", token),
    path("me/<name>", me),
    path("pages", Pages.as_view()),
    path("up", Health.as_view()),
    path("orders", Orders.as_view()),
]


def handler429(request: HttpRequest, exception: RateLimitExceeded) -> HttpResponse:
    return HttpResponse(f"wait {exception.retry_after} s", status=429)


class Guard:
    """Another middleware, which refuses by a limiter of its own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = RateLimitMiddleware(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        try:
            return self.get_response(request)  # type: ignore[return-value]  # of either colour
        except RateLimitExceeded as error:
            return render_refusal(error, request)


async def refuses(error: RateLimitExceeded) -> HttpResponseBase:
    return await arender_refusal(error)


rate_limit(5)  # type: ignore[arg-type]
rate_limit("5/m", cost="2")  # type: ignore[arg-type]
rate_limit("5/m", key=5)  # type: ignore[arg-type]
rate_limit("5/m")("no view")  # type: ignore[arg-type]
render_refusal(ValueError())  # type: ignore[arg-type]
