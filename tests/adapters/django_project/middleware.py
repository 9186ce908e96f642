"""Other middleware than ours: of each colour, and some that change what comes after them."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import async_only_middleware, sync_and_async_middleware, sync_only_middleware

GetResponse = Callable[[HttpRequest], Any]


@sync_only_middleware
def only_sync(get_response: GetResponse) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = get_response(request)
        response.headers["X-Neighbour"] = "sync"
        return response

    return middleware


@async_only_middleware
def only_async(get_response: GetResponse) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    async def middleware(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = await get_response(request)
        response.headers["X-Neighbour"] = "async"
        return response

    return middleware


def before(change: Callable[[HttpRequest], None]) -> Callable[[GetResponse], Callable[[HttpRequest], Any]]:
    """Make a middleware of either colour that changes requests."""

    @sync_and_async_middleware
    def factory(get_response: GetResponse) -> Callable[[HttpRequest], Any]:
        async def middleware_async(request: HttpRequest) -> HttpResponse:
            change(request)
            response: HttpResponse = await get_response(request)
            return response

        def middleware(request: HttpRequest) -> HttpResponse:
            change(request)
            response: HttpResponse = get_response(request)
            return response

        return middleware_async if iscoroutinefunction(get_response) else middleware

    return factory


def _read_name(request: HttpRequest) -> None:
    name = request.META.get("HTTP_X_USER")
    request.user = SimpleNamespace(is_authenticated=bool(name), pk=name)


def _put_authorization(request: HttpRequest) -> None:
    request.META["HTTP_AUTHORIZATION"] = f"Bearer {request.META['HTTP_X_TOKEN']}"


def _choose_urlconf(request: HttpRequest) -> None:
    if "HTTP_X_URLCONF" in request.META:
        request.urlconf = request.META["HTTP_X_URLCONF"]


def _read_stream(request: HttpRequest) -> None:
    request.read(1)


named_user = before(_read_name)
token_in_own_header = before(_put_authorization)
chosen_urlconf = before(_choose_urlconf)
reads_stream = before(_read_stream)
