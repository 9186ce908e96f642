"""A request on its way, and what is answered to a refusal: what is Starlette's in it.

The application answers where it has a handler; else the answer is problem details.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from jwtlimit_core import ConfigError, LimiterUnavailable, RateLimitExceeded, asgi_passage
from jwtlimit_core.asgi import Scope
from jwtlimit_core.flow import awaits
from jwtlimit_core.http import Refusal, kinds_of, refusal
from jwtlimit_core.http import Response as Answer

__all__ = ["Passage", "ServiceUnavailable", "TooManyRequests", "add_exception_handlers", "adopt", "as_http", "refuse"]

_WITHOUT_DETAILS = ("starlette.", "fastapi.", __name__)  # handlers of the frameworks know no problem details; ours leads here


class Passage(asgi_passage.Passage):
    """The passage of a request through the middleware."""

    __slots__ = ()

    request_class = Request

    def user_in(self, scope: Scope) -> Any:
        """Return the identity of the user that AuthenticationMiddleware found."""
        user = scope.get("user")
        if user is None:
            raise ConfigError(
                "a limit is by user, but nobody says who that is: put AuthenticationMiddleware outside of RateLimitMiddleware, "
                "or set user_key to a function of the request"
            )
        if not user.is_authenticated:
            return None
        try:
            return user.identity
        except NotImplementedError as error:
            raise ConfigError(f"{type(user).__name__} has no identity: set user_key to a function of the request") from error

    def mapping(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Return *headers* as Starlette has them."""
        return Headers(raw=list(headers))

    def handling(self, error: Refusal, answer: Answer, app: Any) -> Coroutine[Any, Any, Response] | None:
        """Return what the own handler of *app* is to make."""
        return _handling(error, answer, self.raw, app) if getattr(app, "exception_handlers", None) else None


class Answered(HTTPException):
    """A refusal that is answered rightly by whoever knows of `HTTPException` alone; its answer was found already."""

    answer: Answer

    def __init__(self, error: Refusal, answer: Answer) -> None:
        HTTPException.__init__(self, answer.status, answer.detail, dict(answer.headers))
        vars(self).update(vars(error), answer=answer)


class TooManyRequests(RateLimitExceeded, Answered):
    """What `RateLimit` raises; first of its own kind, so that handlers for that are found first."""

    __init__ = Answered.__init__


class ServiceUnavailable(LimiterUnavailable, Answered):
    """The same for a store that gave no answer."""

    __init__ = Answered.__init__


def as_http(error: Refusal, answer: Answer) -> Answered:
    """Return *error* as an `HTTPException` that is one of its own kind, too."""
    if isinstance(error, Answered):
        return error
    kind = TooManyRequests if isinstance(error, RateLimitExceeded) else ServiceUnavailable
    made: Answered = kind(error, answer)
    made.__cause__ = error
    return made


async def refuse(error: Refusal, found: Answer, request: HTTPConnection, *, from_pool: bool = False) -> Response:
    """Return the response to *error* of a handler of the application, or else the one of the core; both with our headers."""
    handling = _handling(error, found, request, request.scope.get("app"), from_pool=from_pool)
    return Response(found.body, found.status, dict(found.headers), found.content_type) if handling is None else await handling


def _handling(
    error: Refusal, found: Answer, request: HTTPConnection, app: Any, *, from_pool: bool = False
) -> Coroutine[Any, Any, Response] | None:
    """Return what the own handler of *app* for *error* is to make, with our headers; None where it has none."""
    handlers = getattr(app, "exception_handlers", {})
    of_refusals = [kind for kind in kinds_of(error) if kind is not HTTPException]
    for kind in (*of_refusals, found.status, HTTPException):
        handler = handlers.get(kind)
        if handler is not None and not str(getattr(handler, "__module__", "")).startswith(_WITHOUT_DETAILS):
            argument = error if kind in of_refusals else as_http(error, found)
            return _handle(handler, argument, found, request, from_pool=from_pool)
    return None


async def _handle(
    handler: Callable[..., Any], error: Exception, found: Answer, request: HTTPConnection, *, from_pool: bool
) -> Response:
    """Call *handler*; with *from_pool* a thread of the pool waits for it.

    A plain handler gets one beyond the pool then: if all threads of that waited for one more of it, they would wait for ever.
    """
    response: Response
    if awaits(handler):
        response = await handler(request, error)
    else:
        response = await run_sync(handler, request, error, limiter=CapacityLimiter(1) if from_pool else None)
    for name, value in found.headers:
        response.headers[name] = value
    return response


def add_exception_handlers(app: Starlette) -> None:
    """Let *app* answer refusals itself, where they are raised in views: inside of its middleware, as it does other exceptions.

    Without this, `RateLimitMiddleware` answers them. Its own handlers for 429, 503 and ``HTTPException`` are asked as ever.
    """
    app.add_exception_handler(RateLimitExceeded, _answer)
    app.add_exception_handler(LimiterUnavailable, _answer)


def adopt(app: Any) -> None:
    """Do the same for an application below us, which would make a 500 of a refusal.

    What is no application, has handlers of its own for refusals, or has begun to serve, is left as it is.
    """
    handlers = getattr(app, "exception_handlers", None)
    if isinstance(handlers, dict) and getattr(app, "middleware_stack", None) is None:
        handlers.setdefault(RateLimitExceeded, _answer)
        handlers.setdefault(LimiterUnavailable, _answer)


async def _answer(request: Any, error: Any) -> Response:
    passage = Passage.of(request.scope)
    return await refuse(error, refusal(error) if passage is None else passage.refuse(error, passage), request)
