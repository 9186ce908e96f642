"""Applications on every host: the same views, described once, in each framework; asked by the same client.

A view is a coroutine function of a `Request` that returns a `Reply`. Hosts without an event loop run it to its end at once,
since nothing that it can await there waits.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Protocol

import httpx

PEER = "192.0.2.1"

Handler = Callable[["Request"], Coroutine[Any, Any, "Reply"]]
Custom = Callable[[Exception], "Reply"]
Create = Callable[[str], Coroutine[Any, Any, str]]


@dataclass
class Request:
    """What a view is shown.

    Attributes:
        body: The whole body, as the framework gives it to a view.
        admission: What the adapter put where the framework keeps such things.
        create: Issues a token for a subject.
    """

    method: str
    body: bytes
    admission: Any
    create: Create


@dataclass
class Reply:
    """What a view answers; with *chunks* it streams."""

    body: str = "hello"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunks: Sequence[str] = ()


async def hello(_request: Request) -> Reply:
    return Reply()


@dataclass
class Route:
    """One path and its view.

    Attributes:
        limits: The options of the limits on the view, the innermost first.
    """

    path: str = "/"
    handler: Handler = hello
    limits: Sequence[Mapping[str, Any]] = ()
    exempt: bool = False
    methods: Sequence[str] = ("GET", "POST", "PUT", "HEAD", "OPTIONS")


class Host(Protocol):
    """One framework, served in one way."""

    name: ClassVar[str]

    def serve(self, routes: Sequence[Route], settings: Mapping[str, Any], custom: Custom | None) -> "Client":
        """Return a client of a new application; *custom* answers 429 and 503 where it is given."""


class Client:
    """Asks an application, from any address; on an event loop of its own where *awaits*."""

    def __init__(
        self,
        transport: Callable[[str], Any],
        reset_all: Callable[[], None],
        *,
        awaits: bool,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._transport = transport
        self._on_close = on_close
        self._runner = asyncio.Runner() if awaits else None
        self.reset_all = reset_all

    def ask(self, method: str = "GET", path: str = "/", **options: Any) -> httpx.Response:
        """Send one request; *peer* says from where."""
        return self.ask_at_once(1, method, path, **options)[0]

    def ask_at_once(self, count: int, method: str = "GET", path: str = "/", **options: Any) -> list[httpx.Response]:
        """Send *count* requests at the same time."""
        if self._runner is not None:
            return self._runner.run(self._gather(count, method, path, **options))
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda _: self._send(method, path, **options), range(count)))

    def statuses(self, count: int, method: str = "GET", path: str = "/", **options: Any) -> list[int]:
        """Send *count* requests one after the other."""
        return [self.ask(method, path, **options).status_code for _ in range(count)]

    def close(self) -> None:
        """Close the event loop, and undo what the application changed."""
        self._on_close()
        if self._runner is not None:
            self._runner.close()

    def _send(self, method: str, path: str, *, peer: str = PEER, **options: Any) -> httpx.Response:
        with httpx.Client(transport=self._transport(peer), base_url="http://testserver") as client:
            return client.request(method, path, **options)

    async def _gather(self, count: int, method: str, path: str, *, peer: str = PEER, **options: Any) -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=self._transport(peer), base_url="http://testserver") as client:
            return await asyncio.gather(*(client.request(method, path, **options) for _ in range(count)))


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run what never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


# Flask -----------------------------------------------------------------------------------------------------------


class FlaskHost:
    name = "flask"

    def serve(self, routes: Sequence[Route], settings: Mapping[str, Any], custom: Custom | None) -> Client:
        import flask

        from jwtlimit_flask import JWTLimit

        app = flask.Flask("app")
        app.config.update({f"JWTLIMIT_{name}": value for name, value in settings.items()})
        jwtlimit = JWTLimit(app)

        async def create(subject: str) -> str:
            return jwtlimit.processor.create({"sub": subject})

        def answer(reply: Reply) -> flask.Response:
            return flask.Response(iter(reply.chunks) if reply.chunks else reply.body, reply.status, reply.headers)

        for number, route in enumerate(routes):

            def view(handler: Handler = route.handler) -> flask.Response:
                request = flask.request
                return answer(at_once(handler(Request(request.method, request.get_data(), flask.g.get("jwtlimit"), create))))

            for options in route.limits:
                view = jwtlimit.rate_limit(**options)(view)
            if route.exempt:
                view = jwtlimit.exempt(view)
            app.add_url_rule(route.path, f"view{number}", view, methods=list(route.methods))
        if custom is not None:
            for status in (429, 503):
                app.register_error_handler(status, lambda error: answer(custom(error)))

        def reset_all() -> None:
            with app.app_context():
                jwtlimit.reset_all()

        return Client(
            lambda peer: httpx.WSGITransport(app, raise_app_exceptions=False, remote_addr=peer), reset_all, awaits=False
        )


# Django ----------------------------------------------------------------------------------------------------------


class DjangoHost:
    name = "django"
    awaits = False

    def serve(self, routes: Sequence[Route], settings: Mapping[str, Any], custom: Custom | None) -> Client:
        from django.core.handlers.asgi import ASGIHandler
        from django.core.handlers.wsgi import WSGIHandler
        from django.test import override_settings
        from django.urls import path

        import adapters.django_project  # noqa: F401  which sets Django up
        import jwtlimit_django

        urls = ModuleType("urls")
        urls.urlpatterns = [  # type: ignore[attr-defined]
            path(route.path.removeprefix("/"), self._view(route, f"view{number}")) for number, route in enumerate(routes)
        ]
        if custom is not None:
            for status in (429, 503):
                setattr(urls, f"handler{status}", lambda request, exception: self._answer(custom(exception)))
        middleware = ["jwtlimit_django.middleware.RateLimitMiddleware"]
        overridden = override_settings(JWTLIMIT=dict(settings), ROOT_URLCONF=urls, MIDDLEWARE=middleware)
        overridden.enable()
        try:
            handler: Any = ASGIHandler() if self.awaits else WSGIHandler()
        except BaseException:
            overridden.disable()
            raise

        def transport(peer: str) -> Any:
            if self.awaits:
                return httpx.ASGITransport(handler, raise_app_exceptions=False, client=(peer, 1))
            return httpx.WSGITransport(handler, raise_app_exceptions=False, remote_addr=peer)

        return Client(transport, jwtlimit_django.reset_all, awaits=self.awaits, on_close=overridden.disable)

    def _view(self, route: Route, name: str) -> Any:
        import jwtlimit_django

        async def create(subject: str) -> str:
            if self.awaits:
                return await jwtlimit_django.get_async_processor().create({"sub": subject})
            return jwtlimit_django.get_processor().create({"sub": subject})

        def shown(request: Any) -> Request:
            return Request(request.method, request.body, getattr(request, "jwtlimit", None), create)

        def view(request: Any) -> Any:
            return self._answer(at_once(route.handler(shown(request))))

        async def view_async(request: Any) -> Any:
            return self._answer(await route.handler(shown(request)))

        made: Any = view_async if self.awaits else view
        made.__qualname__ = made.__name__ = name
        for options in route.limits:
            made = jwtlimit_django.rate_limit(**options)(made)
        return jwtlimit_django.exempt(made) if route.exempt else made

    def _answer(self, reply: Reply) -> Any:
        from django.http import HttpResponse, StreamingHttpResponse

        async def stream() -> AsyncIterator[str]:
            for chunk in reply.chunks:
                yield chunk

        if reply.chunks:
            chunks: Any = stream() if self.awaits else iter(reply.chunks)
            return StreamingHttpResponse(chunks, status=reply.status, headers=reply.headers)
        return HttpResponse(reply.body, status=reply.status, headers=reply.headers)


class AsyncDjangoHost(DjangoHost):
    name = "django-async"
    awaits = True


# Starlette -------------------------------------------------------------------------------------------------------


class StarletteHost:
    name = "starlette"

    def serve(self, routes: Sequence[Route], settings: Mapping[str, Any], custom: Custom | None) -> Client:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.routing import Route as StarletteRoute

        import jwtlimit_starlette

        async def answer_error(_request: Any, error: Exception) -> Any:
            assert custom is not None
            return self._answer(custom(error))

        app = Starlette(
            routes=[
                StarletteRoute(route.path, self._view(route, f"view{number}"), methods=list(route.methods))
                for number, route in enumerate(routes)
            ],
            middleware=[
                Middleware(jwtlimit_starlette.RateLimitMiddleware, **{name.lower(): value for name, value in settings.items()})
            ],
            exception_handlers={} if custom is None else {429: answer_error, 503: answer_error},
        )
        app.middleware_stack = app.build_middleware_stack()  # settings that cannot work are told at the start
        return Client(
            lambda peer: httpx.ASGITransport(app, raise_app_exceptions=False, client=(peer, 1)),
            lambda: jwtlimit_starlette.reset_all(app),
            awaits=True,
        )

    def _view(self, route: Route, name: str) -> Any:
        import jwtlimit_starlette

        async def view(request: Any) -> Any:
            async def create(subject: str) -> str:
                return await jwtlimit_starlette.get_processor(request).create({"sub": subject})

            admission = getattr(request.state, "jwtlimit", None)
            return self._answer(await route.handler(Request(request.method, await request.body(), admission, create)))

        made: Any = view
        made.__qualname__ = made.__name__ = name
        for options in route.limits:
            made = jwtlimit_starlette.rate_limit(**options)(made)
        return jwtlimit_starlette.exempt(made) if route.exempt else made

    def _answer(self, reply: Reply) -> Any:
        from starlette.responses import Response, StreamingResponse

        def stream() -> Iterator[str]:
            yield from reply.chunks

        if reply.chunks:
            return StreamingResponse(stream(), reply.status, reply.headers)
        return Response(reply.body, reply.status, reply.headers)


HOSTS: tuple[type[Host], ...] = (DjangoHost, AsyncDjangoHost, FlaskHost, StarletteHost)
