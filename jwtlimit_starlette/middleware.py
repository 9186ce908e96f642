"""The ASGI middleware: it charges a request before the application sees it, and adds the headers to its answer."""

from typing import Unpack

from starlette.types import ASGIApp, Receive, Scope, Send

from jwtlimit_core import ConfigError
from jwtlimit_core.asgi_passage import closing, fail
from jwtlimit_core.flow import is_on_loop
from jwtlimit_core.settings import Settings, build_engine
from jwtlimit_starlette.passage import Passage, adopt
from jwtlimit_starlette.routes import Routes, layers

__all__ = ["RateLimitMiddleware"]


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
        self._wrapped = next((layer for layer in layers(app) if hasattr(layer, "exception_handlers")), None)
        adopt(self._wrapped)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it pass."""
        if self._problem is not None:
            await fail(self._problem, scope, receive, send)
        if scope["type"] == "lifespan":
            await self.app(scope, receive, closing(self.engine, send))
            return
        self.routes.look_through()
        handler = self._wrapped or scope.get("app")  # asked now: applications below put themselves there
        await Passage(self.engine, scope, receive).through(self.app, send, self.routes.exempt, handler)
