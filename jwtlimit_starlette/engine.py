"""The engine of an application's middleware: its processors, and what is done with it by hand."""

from collections.abc import Iterator
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from jwtlimit_core import AsyncProcessor, ConfigError, Engine, Processor
from jwtlimit_core.flow import is_on_loop, run_async
from jwtlimit_starlette.middleware import RateLimitMiddleware
from jwtlimit_starlette.passage import Passage
from jwtlimit_starlette.routes import routes_of

__all__ = ["get_processor", "get_sync_processor", "reset", "reset_all"]

_MISSING = "there is no RateLimitMiddleware: add it to the application"


def get_processor(request: HTTPConnection) -> AsyncProcessor:
    """Return the processor of the middleware; it limits only while that is enabled. FastAPI: ``Depends(get_processor)``.

    Raises:
        ConfigError: The middleware is missing, or was given no key.
    """
    passage = _passage(request)
    return passage.engine.async_processor(enabled=passage.admission.enabled).reporting(passage.note)


def get_sync_processor(request: HTTPConnection) -> Processor:
    """Return the same for ``def`` endpoints, which run in threads.

    Raises:
        ConfigError: The middleware is missing, or was given no key; or this is called on an event loop, which would wait for
            the store.
    """
    if is_on_loop():
        raise ConfigError("get_sync_processor was called on an event loop: use get_processor there")
    passage = _passage(request)
    return passage.engine.processor(enabled=passage.admission.enabled).reporting(passage.note)


async def reset(name: str, key: str, *, where: HTTPConnection | ASGIApp) -> None:
    """Give *key* its full quota of the limits called *name* back, such as ``reset("login", "ip=192.0.2.1", where=request)``.

    Args:
        name: The name of a limit, or ``issue`` for the issuance of tokens.
        key: For ``issue`` the subject; else the key as it is counted.
        where: A request, or the application.

    Raises:
        ValueError: *key* is not of that form.
        LimiterUnavailable: The store gave no answer.
        ConfigError: The middleware is missing.
    """
    engines = [_passage(where).engine] if isinstance(where, HTTPConnection) else _engines(where)
    for engine in engines:
        await run_async(engine.reset(name, key, on_loop=True))


def reset_all(app: ASGIApp) -> None:
    """Give everybody the full quota back in *app* and all that is mounted in it; meant for tests.

    Raises:
        ConfigError: The middleware is missing.
    """
    for engine in _engines(app):
        engine.reset_all()


def _passage(connection: HTTPConnection) -> Passage:
    passage = Passage.of(connection.scope)
    if passage is None:
        raise ConfigError(_MISSING)
    return passage


def _engines(app: ASGIApp) -> list[Engine]:
    found = []
    for layer in _everything(app):
        if isinstance(layer, RateLimitMiddleware):
            layer.routes.look_through()  # before what is below is built, and takes no more handlers
            found.append(layer.engine)
    if not found:
        raise ConfigError(_MISSING)
    return found


def _everything(app: Any) -> Iterator[Any]:
    """Yield *app* and all that it may pass a request on to."""
    if getattr(app, "middleware_stack", app) is None:
        app.middleware_stack = app.build_middleware_stack()  # as its first request will do
    yield app
    for below in (getattr(app, "middleware_stack", None), getattr(app, "app", None), *(routes_of(app) or ())):
        if below is not None:
            yield from _everything(below)
