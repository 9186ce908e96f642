"""The ASGI middleware: it charges a request before the application sees it, and adds the headers to its answer."""

from functools import partial
from typing import NoReturn, Unpack

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jwtlimit_core import ConfigError, LimiterUnavailable, RateLimitExceeded
from jwtlimit_core.flow import DONE, is_on_loop, run, run_async
from jwtlimit_core.settings import Settings, build_engine
from jwtlimit_starlette.answers import adopt, answer, handled
from jwtlimit_starlette.passage import PASSAGE, Passage
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
            await self._fail(self._problem, scope, receive, send)
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        self.routes.look_through()
        scope[PASSAGE] = passage = Passage(self.engine, scope, receive)
        try:
            if scope["type"] == "http" and passage.admission.enabled:
                await self._limit(passage, scope, send)
            else:
                await self.app(scope, receive, send)
        finally:
            passage.release()

    async def _limit(self, passage: Passage, scope: Scope, send: Send) -> None:
        app = self._wrapped or scope.get("app")  # asked now: applications below put themselves there
        send_with_headers = partial(passage.send, send)
        try:
            if self.engine.limits and not self.routes.exempt(scope):
                flow = self.engine.enter(passage, passage.admission)
                if flow is not DONE:
                    await run_async(flow)
            await self.app(scope, passage.messages.receive, send_with_headers)
        except (RateLimitExceeded, LimiterUnavailable) as error:
            if passage.is_answered:
                raise
            found = answer(error, passage)
            # No local name for a handler: the error that it takes has this frame in its traceback.
            response = await handled(error, found, passage.raw, app) if getattr(app, "exception_handlers", None) else None
            if response is None:
                await passage.answer(found, send)
            else:
                await response(scope, passage.messages.receive, send_with_headers)
        except Exception:  # outside of here it becomes a 500, which is not sent through us
            if not passage.is_answered:
                await passage.settle(500, ())
            raise

    async def _fail(self, problem: ConfigError, scope: Scope, receive: Receive, send: Send) -> NoReturn:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(problem)})
        raise problem

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Close what was opened before the server hears that the application is down, and stops to run us."""

        async def send_closed(message: Message) -> None:
            try:
                if message["type"] != "lifespan.startup.complete":
                    await run_async(self.engine.close(on_loop=True))
                    await run_in_threadpool(run, self.engine.close(on_loop=False))
            finally:
                await send(message)

        await self.app(scope, receive, send_closed)
