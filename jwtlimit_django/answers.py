"""What is answered: what is inside of us does, with our headers; or to a refusal, the application's page or problem details."""

from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.urls import get_callable, get_resolver

from jwtlimit_core import Admission, LimiterUnavailable, RateLimitExceeded
from jwtlimit_core.flow import Call, Flow, run, run_async
from jwtlimit_core.http import Refusal
from jwtlimit_django.engine import get_engine
from jwtlimit_django.passage import Passage

__all__ = ["arender_refusal", "render_refusal", "respond"]

# What Django answers to exceptions.
_STATUSES = ((Http404, 404), (PermissionDenied, 403), ((BadRequest, MultiPartParserError, SuspiciousOperation), 400))
_MARK = "_jwtlimit_refusal"  # in a response: it was made of one


def respond(passage: Passage, charge: Callable[[Passage, Admission], Flow[None]] | None, call: Call) -> Flow[HttpResponseBase]:
    """Return the answer to a request: that of *call*, unless *charge* refuses it.

    Around all others, put back what the answer asks to put back, and tell in its headers how much is left.
    """
    engine, admission = passage.engine, passage.admission
    passage.open()
    try:
        try:
            if charge is not None:
                yield from charge(passage, admission)
        except (RateLimitExceeded, LimiterUnavailable) as error:
            response = yield from _refuse(error, passage)
        else:
            response = yield call
        if passage.outermost and isinstance(response, HttpResponseBase):  # Django complains of what else a view returns
            if _MARK not in vars(response):  # a refusal has its headers, whatever status a handler has given it
                for name, value in engine.headers(admission, response.status_code):
                    response.headers[name] = value
            if admission.refunds:
                yield from engine.settle(passage, admission, response.status_code, response.headers)
        return response
    except Exception as error:
        if passage.outermost and admission.refunds:  # nobody of us will see what Django answers
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            yield from engine.settle(passage, admission, status, {})
        raise
    finally:
        passage.close()


def render_refusal(exception: Refusal, request: HttpRequest | None = None) -> HttpResponseBase:
    """Return the answer to *exception*, for code that our middleware is not around, such as another middleware.

    It is made by ``handler429`` or ``handler503`` of the root URLconf, called as ``handler403`` is, if there is one; else it is
    problem details. Our headers are set on it.

    Args:
        exception: What was raised.
        request: Whose request it was; None where there is none, and then no handler can be called.
    """
    return run(_render(exception, request, awaits=False))


async def arender_refusal(exception: Refusal, request: HttpRequest | None = None) -> HttpResponseBase:
    """Do as `render_refusal` does, in code on an event loop."""
    return await run_async(_render(exception, request, awaits=True))


def _render(error: Refusal, request: HttpRequest | None, *, awaits: bool) -> Flow[HttpResponseBase]:
    if request is None:
        return (yield from _refuse(error, None))
    passage = Passage(request, awaits=awaits)
    try:
        return (yield from _refuse(error, passage))
    finally:
        passage.close()


def _refuse(error: Refusal, passage: Passage | None) -> Flow[HttpResponseBase]:
    """Return the rendered answer to *error*, which came up on *passage*."""
    answer = get_engine().refuse(error, passage)
    handler = None if passage is None else _handler(passage.raw, answer.status)
    response: HttpResponseBase
    if passage is None or handler is None:
        response = HttpResponse(answer.body, status=answer.status, content_type=answer.content_type)
    else:
        handle = sync_to_async(_handle) if passage.awaits else _handle
        response = yield Call(handle, (handler, passage.raw, error), passage.awaits)
    for name, value in answer.headers:
        response.headers[name] = value
    vars(response)[_MARK] = True
    response._has_been_logged = True  # type: ignore[attr-defined]  # as Django marks its own: else it logs each refusal
    return response


def _handler(request: HttpRequest, status: int) -> Callable[..., Any] | None:
    """Return the handler for *status* in the URLconf of *request*, which another middleware may have chosen."""
    handler = getattr(get_resolver(getattr(request, "urlconf", None)).urlconf_module, f"handler{status}", None)
    return None if handler is None else get_callable(handler)


def _handle(handler: Callable[..., Any], request: HttpRequest, error: Refusal) -> HttpResponseBase:
    """Call *handler*, of either colour, without an event loop: it may ask the database, and so may its template."""
    call = async_to_sync(handler) if iscoroutinefunction(handler) else handler
    response = call(request, exception=error)
    return cast("HttpResponseBase", response if getattr(response, "is_rendered", True) else response.render())
