"""The ASGI middleware, and what is done by hand with its engine.

It charges a request before the application sees it, and adds the headers to its answer.
"""

from collections.abc import Iterator
from typing import Any, Unpack

from anyio.to_thread import run_sync
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from jwtlimit_core import AsyncProcessor, ConfigError, Engine, Processor
from jwtlimit_core.asgi_passage import MISSING, closing, fail
from jwtlimit_core.decoration import layers
from jwtlimit_core.flow import is_on_loop, run_async
from jwtlimit_core.settings import Settings, build_engine
from jwtlimit_starlette.passage import Passage, adopt
from jwtlimit_starlette.routes import Routes, routes_of

__all__ = ["RateLimitMiddleware", "get_processor", "get_sync_processor", "reset", "reset_all"]


class RateLimitMiddleware:
    """Limits on requests and tokens, for one application.

    Put it inside of ``CORSMiddleware``, so that browsers may read refusals, and of ``AuthenticationMiddleware``, whose users a
    limit may be by. What a request was charged is in ``request.state.jwtlimit``. Only HTTP is limited; a WebSocket passes.

    Args:
        app: What to call.
        settings: Those of jwtlimit in lower case, as `Settings` of the core has them. ``enabled`` may be a function, which is
            asked for each request.

    Raises:
        ConfigError: Settings are unknown or cannot work; all of them are named.
    """

    def __init__(self, app: ASGIApp, **settings: Unpack[Settings]) -> None:
        self.app = app
        self._problem: ConfigError | None = None
        try:
            self.engine = build_engine({name.upper(): value for name, value in settings.items()}, named=str.lower, host="async")
        except ConfigError as error:
            if not is_on_loop():
                raise
            # Starlette makes its middleware when the server asks for the first time, and servers take an error then for an
            # application without a lifespan: they are told when they ask us.
            self._problem = error
        self.routes = Routes(app)
        # Of an application that is wrapped from outside, since that has not said yet who it is.
        self._wrapped = next((layer for layer in layers(app, "app") if hasattr(layer, "exception_handlers")), None)
        adopt(self._wrapped)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it pass."""
        if self._problem is not None:
            await fail(self._problem, scope, receive, send)
        if scope["type"] == "lifespan":
            await self.app(scope, receive, closing(self.engine, send, run_sync))
            return
        self.routes.look_through()
        handler = self._wrapped or scope.get("app")  # asked now: applications below put themselves there
        await Passage(self.engine, scope, receive).through(self.app, send, self.routes.exempt, handler)


def get_processor(request: HTTPConnection) -> AsyncProcessor:
    """Return the processor of the middleware; it limits only while that is enabled. FastAPI: ``Depends(get_processor)``.

    Raises:
        ConfigError: The middleware is missing, or was given no key.
    """
    return Passage.around(request.scope).async_processor()


def get_sync_processor(request: HTTPConnection) -> Processor:
    """Return the same for ``def`` endpoints, which run in threads.

    Raises:
        ConfigError: The middleware is missing, or was given no key; or this is called on an event loop, which would wait for
            the store.
    """
    return Passage.around(request.scope).processor()


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
    engines = [Passage.around(where.scope).engine] if isinstance(where, HTTPConnection) else _engines(where)
    for engine in engines:
        await run_async(engine.reset(name, key, on_loop=True))


def reset_all(app: ASGIApp) -> None:
    """Give everybody the full quota back in *app* and all that is mounted in it; meant for tests.

    Raises:
        ConfigError: The middleware is missing.
    """
    for engine in _engines(app):
        engine.reset_all()


def _engines(app: ASGIApp) -> list[Engine]:
    found = []
    for layer in _everything(app):
        if isinstance(layer, RateLimitMiddleware):
            layer.routes.look_through()  # before what is below is built, and takes no more handlers
            found.append(layer.engine)
    if not found:
        raise ConfigError(MISSING)
    return found


def _everything(app: Any) -> Iterator[Any]:
    """Yield *app* and all that it may pass a request on to."""
    if getattr(app, "middleware_stack", app) is None:
        app.middleware_stack = app.build_middleware_stack()  # as its first request will do
    yield app
    for below in (getattr(app, "middleware_stack", None), getattr(app, "app", None), *(routes_of(app) or ())):
        if below is not None:
            yield from _everything(below)
