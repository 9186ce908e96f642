"""Django's request, as the engine looks at it, and what is kept of it on its way."""

import os
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, RawPostDataException, UnreadablePostError
from django.utils.functional import LazyObject

from jwtlimit_core import Admission, ConfigError
from jwtlimit_core.flow import Call
from jwtlimit_core.wsgi import EnvironView
from jwtlimit_django.engine import get_engine

__all__ = ["Passage"]

_OPEN = "_jwtlimit"  # in a request, while one of us is around it: its admission


class Passage(EnvironView):
    """A request on its way through the middleware or a decorator, as the engine looks at it.

    Of several around one request, the outermost sees to the answer; all charge the one admission in ``request.jwtlimit``. It is
    new for each passage, since tests may send one request several times.

    Args:
        request: The request.
        awaits: Whether this is on an event loop.

    Raises:
        ConfigError: The settings cannot work.
    """

    __slots__ = ("admission", "awaits", "engine", "method", "outermost", "path", "peer")

    def __init__(self, request: HttpRequest, *, awaits: bool) -> None:
        self.raw = request
        self.environ = request.META  # request.headers would hide what another middleware puts into META later
        self.awaits = awaits
        self.method = request.method or ""
        self.path = request.path_info
        self.peer: str = request.META.get("REMOTE_ADDR", "")
        self.engine = get_engine()
        known: Admission | None = vars(request).get(_OPEN)
        self.outermost = known is None
        self.admission = self.engine.admission(self) if known is None else known

    def open(self) -> None:
        """Show the admission to the view, and to the passages inside of this one."""
        vars(self.raw)["jwtlimit"] = vars(self.raw)[_OPEN] = self.admission

    def close(self) -> None:
        """Let the next passage of this request, if there is one, begin anew."""
        if self.outermost:
            vars(self.raw).pop(_OPEN, None)
            self.admission.release()

    def call(self, function: Callable[[Any], Any], *, awaits: bool) -> Call:
        """Return how to call a function of the application with the request, in a thread unless it is a coroutine function."""
        if self.awaits and not awaits:  # it may ask the database, as a look at request.user does
            return Call(sync_to_async(function), (self.raw,), awaits=True)
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
