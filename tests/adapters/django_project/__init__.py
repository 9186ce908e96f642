"""A Django project whose views, middleware and settings each test chooses; served under WSGI and under ASGI alike."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import django
from asgiref.sync import async_to_sync
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from jwtlimit_core.testing import ManualClock

SECRET = "s" * 32
OURS = "jwtlimit_django.middleware.RateLimitMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"

NO_URLS = ModuleType("urls")
vars(NO_URLS)["urlpatterns"] = []

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "jwtlimit_django"],
        MIDDLEWARE=[OURS],
        ROOT_URLCONF=NO_URLS,
        SECRET_KEY="not of jwtlimit",
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        SILENCED_SYSTEM_CHECKS=["urls.W001"],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        USE_TZ=True,
    )
    django.setup()


def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


async def hello_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


class Site:
    """The project as one test has it.

    Args:
        override: Sets a setting of Django until the end of the test.
        clock: The clock of jwtlimit.
        host: ``wsgi`` or ``asgi``.
    """

    def __init__(self, override: Any, clock: ManualClock, host: str) -> None:
        self.settings = override
        self.clock = clock
        self.is_async = host == "asgi"
        self.client: Any = AsyncClient() if self.is_async else Client()
        self.serve(hello)

    def configure(self, **jwtlimit: Any) -> None:
        """Have these settings of jwtlimit, and a key and the clock."""
        self.settings.JWTLIMIT = {"SECRET_KEY": SECRET, "ISSUE_RATE": "2/m", "CLOCK": self.clock, **jwtlimit}

    def serve(
        self, view: Any = None, *, urls: Any = (), middleware: Any = (OURS,), handlers: Any = (), **jwtlimit: Any
    ) -> None:
        """Serve *view* at ``/``, or *urls*: patterns, or views by their paths."""
        if isinstance(urls, dict):
            urls = [path(route, each) for route, each in urls.items()]
        urlconf = ModuleType("urls")
        vars(urlconf).update(urlpatterns=[*urls, *([path("", view)] if view else [])], **dict(handlers))
        self.settings.ROOT_URLCONF = urlconf
        self.settings.MIDDLEWARE = list(middleware)
        self.configure(**jwtlimit)
        self.client.handler._middleware_chain = None  # it was made for the settings before

    def request(self, method: str, where: str = "/", **options: Any) -> Any:
        """Send a request, and return the answer."""
        call: Callable[..., Any] = getattr(self.client, method.lower())
        return (async_to_sync(call) if self.is_async else call)(where, **options)

    def get(self, where: str = "/", **options: Any) -> Any:
        return self.request("GET", where, **options)

    def post(self, where: str = "/", **options: Any) -> Any:
        return self.request("POST", where, **options)

    def statuses(self, where: str = "/", count: int = 3, **options: Any) -> list[int]:
        return [self.get(where, **options).status_code for _ in range(count)]
