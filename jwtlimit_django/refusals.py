"""The answer to what was refused: the application's own page, or problem details."""

from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import get_callable, get_resolver

from jwtlimit_core.flow import Call, Flow, run, run_async
from jwtlimit_core.http import Refusal
from jwtlimit_django.engine import get_engine
from jwtlimit_django.requests import View

__all__ = ["arender_refusal", "is_refusal", "refuse", "render_refusal"]

_MARK = "_jwtlimit_refusal"


def render_refusal(exception: Refusal, request: HttpRequest | None = None) -> HttpResponseBase:
    """Return the answer to *exception*, for code that our middleware is not around, such as another middleware.

    It is made by ``handler429`` or ``handler503`` of the root URLconf, called as ``handler403`` is, if there is one; else it is
    problem details. Our headers are set on it.

    Args:
        exception: What was raised.
        request: Whose request it was; None where there is none, and then no handler can be called.
    """
    return run(refuse(exception, None if request is None else View(request, awaits=False)))


async def arender_refusal(exception: Refusal, request: HttpRequest | None = None) -> HttpResponseBase:
    """Do as `render_refusal` does, in code on an event loop."""
    return await run_async(refuse(exception, None if request is None else View(request, awaits=True)))


def refuse(error: Refusal, view: View | None) -> Flow[HttpResponseBase]:
    """Return the rendered answer to *error*, which came up in the request of *view*."""
    answer = get_engine().refuse(error, view)
    handler = None if view is None else _handler(view.raw, answer.status)
    response: HttpResponseBase
    if view is None or handler is None:
        response = HttpResponse(answer.body, status=answer.status, content_type=answer.content_type)
    else:
        handle = sync_to_async(_handle) if view.awaits else _handle
        response = yield Call(handle, (handler, view.raw, error), view.awaits)
    for name, value in answer.headers:
        response.headers[name] = value
    vars(response)[_MARK] = True
    response._has_been_logged = True  # type: ignore[attr-defined]  # as Django marks its own: else it logs each refusal
    return response


def is_refusal(response: HttpResponseBase) -> bool:
    """Say whether *response* was made by `refuse`, whatever status a handler has given it."""
    return _MARK in vars(response)


def _handler(request: HttpRequest, status: int) -> Callable[..., Any] | None:
    """Return the handler for *status* in the URLconf of *request*, which another middleware may have chosen."""
    handler = getattr(get_resolver(getattr(request, "urlconf", None)).urlconf_module, f"handler{status}", None)
    return None if handler is None else get_callable(handler)


def _handle(handler: Callable[..., Any], request: HttpRequest, error: Refusal) -> HttpResponseBase:
    """Call *handler*, of either colour, without an event loop: it may ask the database, and so may its template."""
    call = async_to_sync(handler) if iscoroutinefunction(handler) else handler
    response = call(request, exception=error)
    return cast("HttpResponseBase", response if getattr(response, "is_rendered", True) else response.render())
