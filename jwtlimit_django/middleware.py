"""The middleware: put it below `SecurityMiddleware` and CORS, and below `AuthenticationMiddleware` if a limit is by user."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLResolver, get_resolver
from django.utils.translation import get_language_from_path, override

from jwtlimit_core.decoration import is_exempt
from jwtlimit_core.flow import Call, run, run_async
from jwtlimit_core.http import Refusal
from jwtlimit_django.engine import get_engine
from jwtlimit_django.passage import Passage, render_refusal

__all__ = ["RateLimitMiddleware"]


class RateLimitMiddleware:
    """Charges requests to the limits in ``JWTLIMIT["LIMITS"]``, and answers what they or the views refuse.

    Works among sync and async neighbours, and makes no change from the one to the other itself.

    Args:
        get_response: The next middleware, or the view.

    Raises:
        ConfigError: The settings cannot work.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        get_engine()  # so that bad settings keep the server from starting
        self.get_response = get_response
        self._awaits = iscoroutinefunction(get_response)
        if self._awaits:
            markcoroutinefunction(self)
        self._with_exempt: dict[object, bool] = {}  # by URLconf

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Answer *request*, or return how to await the answer."""
        passage = Passage(request, awaits=self._awaits)
        engine = passage.engine
        is_charged = passage.outermost and engine.limits and not self._leads_to_exempt(request)
        flow = passage.through(engine.enter if is_charged else None, Call(self.get_response, (request,), self._awaits))
        return run_async(flow) if self._awaits else run(flow)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Answer what a processor refused inside the view."""
        return render_refusal(exception, request) if isinstance(exception, Refusal) else None

    def _leads_to_exempt(self, request: HttpRequest) -> bool:
        """Say whether the view of *request* is exempt; nothing is resolved where no view is."""
        urlconf = getattr(request, "urlconf", None) or settings.ROOT_URLCONF
        if urlconf not in self._with_exempt:
            self._with_exempt[urlconf] = _has_exempt(get_resolver(urlconf))
        return self._with_exempt[urlconf] and _resolves_to_exempt(urlconf, request)


def _has_exempt(resolver: URLResolver) -> bool:
    return any(
        _has_exempt(pattern) if isinstance(pattern, URLResolver) else _is_exempt(pattern.callback)
        for pattern in resolver.url_patterns
    )


def _resolves_to_exempt(urlconf: Any, request: HttpRequest) -> bool:
    # In the language that LocaleMiddleware has found or will find: that of a thread is the one of its last request.
    path = request.path_info
    language = getattr(request, "LANGUAGE_CODE", None) or get_language_from_path(path) or settings.LANGUAGE_CODE
    try:
        with override(language):
            return _is_exempt(get_resolver(urlconf).resolve(path).func)
    except Http404:
        return False


def _is_exempt(view: object) -> bool:
    return is_exempt(view) or is_exempt(getattr(view, "cls", None))  # so view sets of REST framework name their class
