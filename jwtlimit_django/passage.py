"""A request on its way, as the engine looks at it, and what is answered to it.

What is inside of us answers, with our headers; or to a refusal, the application's handler, or else problem details.
"""

import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, RawPostDataException, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.urls import get_callable, get_resolver
from django.utils.functional import LazyObject

from jwtlimit_core import ConfigError
from jwtlimit_core.flow import Call, Flow, run, run_async
from jwtlimit_core.http import Refusal
from jwtlimit_core.view_passage import ViewPassage
from jwtlimit_core.wsgi import EnvironView
from jwtlimit_django.engine import get_engine

__all__ = ["Passage", "arender_refusal", "render_refusal"]

_MARK = "_jwtlimit_refusal"  # in a response: it was made of one
# What Django answers to exceptions.
_STATUSES: Any = ((Http404, 404), (PermissionDenied, 403), ((BadRequest, MultiPartParserError, SuspiciousOperation), 400))


class Passage(EnvironView, ViewPassage):
    """A request on its way through the middleware or a decorator, as the engine looks at it.

    Args:
        request: The request.
        awaits: Whether this is on an event loop.

    Raises:
        ConfigError: The settings cannot work.
    """

    __slots__ = ("awaits", "environ", "method", "path", "peer", "raw")

    def __init__(self, request: HttpRequest, *, awaits: bool) -> None:
        self.raw = request
        self.environ = request.META  # request.headers would hide what another middleware puts into META later
        self.awaits = awaits
        self.method = request.method or ""
        self.path = request.path_info
        self.peer = request.META.get("REMOTE_ADDR", "")
        self.begin(get_engine(), vars(request))

    def refused(self, error: Refusal) -> Flow[HttpResponseBase]:
        """Return the rendered response to *error*."""
        return _refuse(error, self)

    def tell(self, response: object) -> tuple[int, object] | None:
        """Set our headers on *response*; Django complains of what else a view returns."""
        if not isinstance(response, HttpResponseBase):
            return None
        if _MARK not in vars(response):  # a refusal has its headers, whatever status a handler has given it
            for name, value in self.engine.headers(self.admission, response.status_code):
                response.headers[name] = value
        return response.status_code, response.headers

    def status_of(self, error: Exception) -> int:
        """Return what Django answers to *error*."""
        return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)

    def call(self, function: Callable[[Any], Any], *, awaits: bool) -> Call:
        """Return how to call a function of the application with the request, in a thread unless it is a coroutine function."""
        if self.awaits and not awaits:  # it may ask the database, as a look at request.user does
            return Call(sync_to_async(_call), (function, self.raw), awaits=True)
        return Call(function, (self.raw,), awaits)

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body."""
        return Call(_body, (self.raw, most_bytes))

    def user(self) -> Call:
        """Return how to get the key of ``request.user``."""
        if not hasattr(self.raw, "user"):
            raise ConfigError(
                "a limit is by user, and request.user is not there: put AuthenticationMiddleware before RateLimitMiddleware,"
                ' or set JWTLIMIT["USER_KEY"] to a function of the request that returns its user'
            )
        user = self.raw.user
        if self.awaits and issubclass(type(user), LazyObject):  # asked of the type: a look at the object may ask the database
            # Not request.auser(), which knows nothing of a user whom another middleware than Django's has put there.
            return Call(sync_to_async(_key_of), (user,), awaits=True)
        return Call(_key_of, (user,))


def _call(function: Callable[[Any], Any], request: HttpRequest) -> Any:
    try:
        return function(request)
    except StopIteration as error:  # which no future can carry
        raise RuntimeError("a function of a limit raised StopIteration") from error


def _body(request: HttpRequest, most_bytes: int) -> bytes | None:
    """Return the body of *request*, None where it is longer or gone; whoever reads it later gets it from the start."""
    if settings.DATA_UPLOAD_MAX_MEMORY_SIZE is not None:  # above it request.body raises, and leaves the stream at its end
        most_bytes = min(most_bytes, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    try:
        if max(int(request.META.get("CONTENT_LENGTH") or 0), _buffered_bytes(request)) > most_bytes:
            return None
        return request.body
    # Something has read the stream, the client is gone, or its Content-Length is no number: the view will tell.
    except (RawPostDataException, UnreadablePostError, ValueError):
        return None


def _buffered_bytes(request: HttpRequest) -> int:
    """Return how long a body is that is there as a whole, as all are under ASGI; it may have come without a length."""
    stream = request._stream
    if not stream.seekable():
        return 0
    position = stream.tell()
    size: int = stream.seek(0, os.SEEK_END)
    stream.seek(position)
    return size


def _key_of(user: object) -> str | None:
    """Return the key of *user*, None where it is nobody who was authenticated.

    Raises:
        ConfigError: Users here have no key.
    """
    if not getattr(user, "is_authenticated", False):
        return None
    key = getattr(user, "pk", None)
    if key is None:
        raise ConfigError(
            f'a limit is by user, and {type(user).__name__} has no pk: set JWTLIMIT["USER_KEY"] to a function of the request'
        )
    return str(key)


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
    with nullcontext() if request is None else closing(Passage(request, awaits=awaits)) as passage:
        return (yield from _refuse(error, passage))


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
