"""Django's request, as the engine looks at it."""

import os

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, RawPostDataException, UnreadablePostError
from django.utils.functional import LazyObject

from jwtlimit_core import ConfigError
from jwtlimit_core.flow import Call
from jwtlimit_core.http import EnvironHeaders

__all__ = ["View"]


class View(EnvironHeaders):
    """A request, for code that is on an event loop or not.

    Args:
        request: The request.
        awaits: Whether this looks at it on an event loop.
    """

    __slots__ = ("awaits", "method", "path", "peer", "raw")

    def __init__(self, request: HttpRequest, *, awaits: bool) -> None:
        self.raw = request
        self.environ = request.META  # request.headers would hide what another middleware puts into META later
        self.awaits = awaits
        self.method = request.method or ""
        self.path = request.path_info
        self.peer: str = request.META.get("REMOTE_ADDR", "")

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body."""
        return Call(_body, (self.raw, most_bytes))

    def user(self) -> Call:
        """Return how to get the key of ``request.user``."""
        return Call(_user_on_loop if self.awaits else _user, (self.raw,), self.awaits)


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


def _user(request: HttpRequest) -> str | None:
    return _key_of(getattr(request, "user", _NOBODY))


async def _user_on_loop(request: HttpRequest) -> str | None:
    user = getattr(request, "user", _NOBODY)
    if issubclass(type(user), LazyObject):  # asked of the type: a look at the object may ask the database
        # Not request.auser(), which knows nothing of a user whom another middleware than Django's has put there.
        return await sync_to_async(_user)(request)
    return _key_of(user)


_NOBODY = object()


def _key_of(user: object) -> str | None:
    """Return the key of *user*, None where it is nobody who was authenticated.

    Raises:
        ConfigError: There are no users here, or none with a key.
    """
    if user is _NOBODY:
        raise ConfigError(
            "a limit is by user, and request.user is not there: put AuthenticationMiddleware before RateLimitMiddleware,"
            ' or set JWTLIMIT["USER_KEY"] to a function of the request that returns its user'
        )
    if not getattr(user, "is_authenticated", False):
        return None
    key = getattr(user, "pk", None)
    if key is None:
        raise ConfigError(
            f'a limit is by user, and {type(user).__name__} has no pk: set JWTLIMIT["USER_KEY"] to a function of the request'
        )
    return str(key)
