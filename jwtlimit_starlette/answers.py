"""What is answered to a refusal: by the application where it has a handler, else with problem details."""

from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from jwtlimit_core import LimiterUnavailable, RateLimitExceeded
from jwtlimit_core.flow import awaits
from jwtlimit_core.http import Refusal, kinds_of, refusal
from jwtlimit_core.http import Response as Answer
from jwtlimit_starlette.passage import Passage

__all__ = [
    "Answered",
    "ServiceUnavailable",
    "TooManyRequests",
    "add_exception_handlers",
    "adopt",
    "answer",
    "as_http",
    "handled",
    "refuse",
]


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


def answer(error: Refusal, passage: Passage | None) -> Answer:
    """Return the answer of the core to *error*, of which `on_refused` is told only once."""
    if isinstance(error, Answered):
        return error.answer
    return refusal(error) if passage is None else passage.refuse(error, passage)


async def refuse(error: Refusal, found: Answer, request: HTTPConnection, *, from_pool: bool = False) -> Response:
    """Return the response to *error* of a handler of the application, or else the one of the core; both with our headers."""
    response = await handled(error, found, request, request.scope.get("app"), from_pool=from_pool)
    return Response(found.body, found.status, dict(found.headers), found.content_type) if response is None else response


async def handled(
    error: Refusal, found: Answer, request: HTTPConnection, app: Any, *, from_pool: bool = False
) -> Response | None:
    """Return what the own handler of *app* for *error* makes, with our headers; None where it has none.

    With *from_pool* a thread of the pool waits for it. A plain handler gets one beyond the pool then: if all threads of that
    waited for one more of it, they would wait for ever.
    """
    function, argument = _handler(error, found, getattr(app, "exception_handlers", {}))
    if function is None:
        return None
    response: Response
    if awaits(function):
        response = await function(request, argument)
    else:
        beyond = CapacityLimiter(1) if from_pool else None
        response = await run_sync(function, request, argument, limiter=beyond)
    for name, value in found.headers:
        response.headers[name] = value
    return response


def _handler(error: Refusal, found: Answer, handlers: Any) -> tuple[Callable[[Any, Any], Any] | None, Exception]:
    """Return the application's own handler for *error*, and what it takes."""
    for kind in kinds_of(error):
        handler = handlers.get(kind)
        if kind is not HTTPException and handler not in (None, _answer):
            return handler, error
    for which in (found.status, HTTPException):
        handler = handlers.get(which)
        # The frameworks' own know no problem details.
        if handler is not None and not str(getattr(handler, "__module__", "")).startswith(("starlette.", "fastapi.")):
            return handler, as_http(error, found)
    return None, error


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
    return await refuse(error, answer(error, Passage.of(request)), request)
