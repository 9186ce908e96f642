"""What a limit adds to one request in each framework, let pass and refused, beside peers; applications are called directly."""

import asyncio
import io
import logging
import sys
from collections.abc import Callable
from functools import partial
from operator import sub
from statistics import median
from types import ModuleType
from typing import Any

import django
import django.conf

from benchmarks.contenders import OURS, PLENTY, SCARCE
from benchmarks.measure import interleaved, pace_ns, print_aim, print_table
from jwtlimit_core import Limit

ROUNDS = 121  # what is added is a small difference of large figures
CALLS = 100
BARE = "bare"
URLS = ModuleType("benchmarks.urls")
RATES = {"allowed": f"{PLENTY[0]}/{PLENTY[1]}s", "refused": f"{SCARCE[0]}/{SCARCE[1]}s"}
_PEER_RATES = {"allowed": f"{PLENTY[0]}/minute", "refused": "1/hour"}

Application = Callable[[], object]  # answers one request
Applications = dict[tuple[str, str], Application]  # by contender and kind of answer


def report() -> None:
    for framework, applications, aims in (
        ("Flask", _flask(), {"Flask-Limiter": 0.1}),
        ("Starlette", _starlette(), {"asgi-ratelimit": 1.0}),
        ("Django", _django(), {"django-ratelimit": 0.1, "Django REST framework": 1.0}),
    ):
        samplers = {which: pace_ns(partial(_call, app), [None] * CALLS, [None] * 20) for which, app in applications.items()}
        found = interleaved(samplers, ROUNDS)
        bare, rows = median(found[BARE, "allowed"]) / 1000, {}
        for name in dict.fromkeys(name for name, _ in found):
            base = found.get((f"{name}, not throttled", "allowed"), found[BARE, "allowed"])
            rows[name] = tuple(median(map(sub, found.get((name, answer), base), base)) / 1000 for answer in RATES)
        rows[BARE] = (bare, bare)
        print_table(f"{framework}, added to one request", (*(f"{answer} µs" for answer in RATES),), rows)
        ours = rows[f"{OURS}: settings"]
        for peer, most in aims.items():
            print_aim(f"added when allowed x {peer}", ours[0] / rows[peer][0], f"at most {most:g}")
        print_aim("a refused request x the bare allowed one", (bare + ours[1]) / bare, "below 1")


def _call(application: Application) -> Callable[[object], object]:
    return lambda _: application()


# WSGI ------------------------------------------------------------------------------------------------------------


def _wsgi(app: Any, path: str = "/") -> Application:
    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "192.0.2.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }

    def start_response(_status: str, _headers: object, _exc_info: object = None) -> None: ...

    def ask() -> object:
        answer = app({**environ, "wsgi.input": io.BytesIO()}, start_response)
        body = b"".join(answer)
        answer.close()
        return body

    return ask


def _flask() -> Applications:
    import flask
    import flask_limiter
    from flask_limiter.util import get_remote_address

    from jwtlimit_flask import JWTLimit

    def app(prepare: Callable[[flask.Flask], object] = lambda made: made, decorate: Any = lambda view: view) -> Application:
        made = flask.Flask("app")
        prepare(made)
        made.add_url_rule("/", "view", decorate(lambda: "hello"))
        return _wsgi(made)

    def settings(answer: str, made: flask.Flask) -> None:
        made.config["JWTLIMIT_LIMITS"] = [Limit("site", RATES[answer])]
        JWTLimit(made)

    def peer(answer: str, made: flask.Flask) -> None:
        made.config["RATELIMIT_HEADERS_ENABLED"] = True
        flask_limiter.Limiter(get_remote_address, app=made, default_limits=[_PEER_RATES[answer]], storage_uri="memory://")

    found = {(BARE, "allowed"): app()}
    for answer in RATES:
        extension = JWTLimit()
        found[f"{OURS}: settings", answer] = app(partial(settings, answer))
        found[f"{OURS}: decorator", answer] = app(extension.init_app, extension.rate_limit(RATES[answer]))
        found["Flask-Limiter", answer] = app(partial(peer, answer))
    return found


# ASGI ------------------------------------------------------------------------------------------------------------


def _asgi(runner: asyncio.Runner, app: Any) -> Application:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("192.0.2.1", 1),
        "server": ("localhost", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: object) -> None: ...

    async def ask() -> None:
        for _ in range(CALLS):
            await app(dict(scope), receive, send)

    waiting = 0

    def one() -> None:
        """Answer a batch at the first of its calls: to start a loop for each would be measured, too."""
        nonlocal waiting
        if not waiting:
            runner.run(ask())
            waiting = CALLS
        waiting -= 1

    return one


def _starlette() -> Applications:
    import slowapi
    import slowapi.errors
    import slowapi.middleware
    import slowapi.util
    from ratelimit import RateLimitMiddleware as PeerMiddleware
    from ratelimit import Rule
    from ratelimit.backends.simple import MemoryBackend
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from jwtlimit_starlette import RateLimitMiddleware, rate_limit

    runner = asyncio.Runner()

    def app(decorate: Any = lambda view: view, **middleware: Any) -> Starlette:
        async def view(_request: Any) -> PlainTextResponse:
            return PlainTextResponse("hello")

        made = Starlette(routes=[Route("/", decorate(view))])
        if middleware:
            made.add_middleware(middleware.pop("kind"), **middleware)
        return made

    def slow(answer: str) -> Starlette:
        limiter = slowapi.Limiter(slowapi.util.get_remote_address, default_limits=[_PEER_RATES[answer]], headers_enabled=True)
        made = app(kind=slowapi.middleware.SlowAPIASGIMiddleware)
        made.state.limiter = limiter
        made.add_exception_handler(slowapi.errors.RateLimitExceeded, slowapi._rate_limit_exceeded_handler)
        return made

    async def who(scope: Any) -> tuple[str, str]:
        return scope["client"][0], "default"

    found = {(BARE, "allowed"): _asgi(runner, app())}
    for answer in RATES:
        rule = Rule(minute=PLENTY[0]) if answer == "allowed" else Rule(hour=1)
        limits = [Limit("site", RATES[answer])]
        found[f"{OURS}: settings", answer] = _asgi(runner, app(kind=RateLimitMiddleware, limits=limits))
        found[f"{OURS}: no fields", answer] = _asgi(runner, app(kind=RateLimitMiddleware, limits=limits, headers=False))
        found[f"{OURS}: decorator", answer] = _asgi(runner, app(rate_limit(RATES[answer]), kind=RateLimitMiddleware))
        found["slowapi", answer] = _asgi(runner, slow(answer))
        config = {r"^/": [rule]}
        found["asgi-ratelimit", answer] = _asgi(
            runner, app(kind=PeerMiddleware, authenticate=who, backend=MemoryBackend(), config=config)
        )
    return found


# Django ----------------------------------------------------------------------------------------------------------


def _django() -> Applications:
    logging.getLogger("django.request").setLevel(logging.CRITICAL)  # it has a line for each refusal of the peers
    if not django.conf.settings.configured:
        django.conf.settings.configure(
            ALLOWED_HOSTS=["*"],
            CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
            JWTLIMIT={"LIMITS": [Limit(f"{answer}", rate, paths=[f"/{answer}"]) for answer, rate in RATES.items()]},
            LOGGING_CONFIG=None,
            REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
            ROOT_URLCONF=URLS.__name__,
        )
        sys.modules[URLS.__name__] = URLS
        django.setup()
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse
    from django.test import override_settings
    from django.urls import path
    from django_ratelimit.decorators import ratelimit
    from rest_framework.throttling import SimpleRateThrottle
    from rest_framework.views import APIView

    from jwtlimit_django import rate_limit

    def view(_request: Any) -> HttpResponse:
        return HttpResponse("hello")

    class Plain(APIView):
        def get(self, _request: Any) -> HttpResponse:
            return HttpResponse("hello")

    def throttled(answer: str) -> Any:
        class Throttle(SimpleRateThrottle):
            # A second: it keeps, and copies, the time of each request in its window.
            rate = f"{PLENTY[0]}/second" if answer == "allowed" else "1/day"
            scope = answer

            def get_cache_key(self, request: Any, _view: Any) -> str:
                return str(self.get_ident(request)) + answer

        class Throttled(Plain):
            throttle_classes = (Throttle,)

        return Throttled.as_view()

    def handler(*middleware: str) -> WSGIHandler:
        with override_settings(MIDDLEWARE=list(middleware)):
            return WSGIHandler()

    urlpatterns = vars(URLS).setdefault("urlpatterns", [])
    bare, limited = handler(), handler("jwtlimit_django.middleware.RateLimitMiddleware")
    urlpatterns += [
        path("bare", view),
        path("allowed", view),
        path("refused", view),
        path("plain", Plain.as_view()),
    ]
    found = {
        (BARE, "allowed"): _wsgi(bare, "/bare"),
        ("Django REST framework, not throttled", "allowed"): _wsgi(bare, "/plain"),
    }
    for answer in RATES:
        peer_rate = f"{PLENTY[0]}/m" if answer == "allowed" else "1/d"
        urlpatterns += [
            path(f"decorated-{answer}", rate_limit(RATES[answer])(view)),
            path(f"peer-{answer}", ratelimit(key="ip", rate=peer_rate, group=answer, block=True)(view)),
            path(f"throttled-{answer}", throttled(answer)),
        ]
        found[f"{OURS}: settings", answer] = _wsgi(limited, f"/{answer}")
        found[f"{OURS}: decorator", answer] = _wsgi(limited, f"/decorated-{answer}")
        found["django-ratelimit", answer] = _wsgi(bare, f"/peer-{answer}")
        found["Django REST framework", answer] = _wsgi(bare, f"/throttled-{answer}")
    return found
