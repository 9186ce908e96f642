"""Limits by user: the one whom Django, another middleware or a function of the application has authenticated."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.utils.functional import SimpleLazyObject

from adapters.django_project import AUTHENTICATION, OURS, SESSIONS, Site, hello, hello_async
from jwtlimit_core import ConfigError, Limit
from jwtlimit_django import rate_limit, reset

LIMITS = [Limit("u", "2/m", key="user")]
BY_USER = rate_limit("1/m", key="user")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("view", [hello, hello_async])
@pytest.mark.parametrize("neighbour", [(), ("adapters.django_project.middleware.only_sync",)])
def test_django_user_who_logged_in_is_charged(site: Site, view: Any, neighbour: tuple[str, ...]) -> None:
    ann, bob = (get_user_model().objects.create_user(name) for name in ("ann", "bob"))
    site.serve(view, middleware=(SESSIONS, AUTHENTICATION, OURS, *neighbour), LIMITS=LIMITS)
    assert site.statuses() == [200] * 3  # nobody
    site.client.force_login(ann)
    assert site.statuses() == [200, 200, 429]
    site.client.force_login(bob)
    assert site.statuses() == [200, 200, 429]
    reset("u", f"user={bob.pk}")
    assert site.statuses(count=1) == [200]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("view", [BY_USER(hello), BY_USER(hello_async)])
def test_django_user_is_charged_by_a_decorator(site: Site, view: Any) -> None:
    site.serve(view, middleware=(SESSIONS, AUTHENTICATION))
    site.client.force_login(get_user_model().objects.create_user("ann"))
    assert site.statuses() == [200, 429, 429]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exempt_when": lambda request: request.user.is_staff}, [200] * 3),
        ({"cost": lambda request: 2 - request.user.is_staff}, [200, 200, 429]),
        ({"key": lambda request: request.user.username}, [200, 200, 429]),
        ({"rate": None, "rates": {"staff": "1/m"}, "plan": lambda request: "staff" * request.user.is_staff}, [200, 429, 429]),
    ],
)
@pytest.mark.parametrize("view", [hello, hello_async])
def test_django_plain_functions_of_limits_may_look_at_the_user(site: Site, view: Any, options: Any, expected: Any) -> None:
    limit = Limit(**{"name": "u", "rate": "2/m", **options})
    site.serve(view, middleware=(SESSIONS, AUTHENTICATION, OURS), LIMITS=[limit])
    site.client.force_login(get_user_model().objects.create_user("ann", is_staff=True))
    assert site.statuses() == expected


@pytest.mark.django_db(transaction=True)
def test_django_plain_user_key_may_look_at_the_user(site: Site) -> None:
    chain = (SESSIONS, AUTHENTICATION, OURS)
    site.serve(hello, middleware=chain, LIMITS=LIMITS, USER_KEY=lambda request: request.user.username)
    site.client.force_login(get_user_model().objects.create_user("ann"))
    assert site.statuses() == [200, 200, 429]


@pytest.mark.parametrize("view", [hello, hello_async])
def test_django_user_of_another_middleware_is_charged(site: Site, view: Any) -> None:
    chain = (SESSIONS, AUTHENTICATION, "adapters.django_project.middleware.named_user", OURS)
    site.serve(view, middleware=chain, LIMITS=LIMITS)
    assert site.statuses(headers={"X-User": "ann"}) == [200, 200, 429]
    assert site.statuses(headers={"X-User": "bob"}) == [200, 200, 429]
    assert site.statuses() == [200] * 3


def ask(view: Any, user: Any = None, **attributes: Any) -> int:
    """Call *view*, of either colour, with a request that has this user, and return the status."""
    request: Any = (AsyncRequestFactory if view is ASYNC else RequestFactory)().get("/")
    vars(request).update(attributes, user=user)
    response = async_to_sync(view)(request) if view is ASYNC else view(request)
    return int(response.status_code)


async def nobody() -> AnonymousUser:
    """Answer as `request.auser` of Django does, which looks at the session alone."""
    return AnonymousUser()


SYNC = rate_limit("1/m", key="user", name="by user")(hello)
ASYNC = rate_limit("1/m", key="user", name="by user")(hello_async)


@pytest.mark.parametrize("view", [SYNC, ASYNC])
@pytest.mark.parametrize("user", [None, AnonymousUser(), SimpleLazyObject(AnonymousUser)])
def test_django_nobody_is_not_charged(settings: Any, view: Any, user: Any) -> None:
    settings.JWTLIMIT = {}
    assert [ask(view, user) for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("view", [SYNC, ASYNC])
def test_django_lazy_user_of_another_middleware_is_looked_at_where_it_may_ask_the_database(settings: Any, view: Any) -> None:
    def load() -> Any:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return SimpleNamespace(is_authenticated=True, pk=7)

    settings.JWTLIMIT = {}
    assert [ask(view, SimpleLazyObject(load), auser=nobody) for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("view", [SYNC, ASYNC])
def test_django_user_who_was_set_during_the_request_is_charged(settings: Any, view: Any) -> None:
    settings.JWTLIMIT = {}
    user = SimpleNamespace(is_authenticated=True, pk=7)
    assert [ask(view, user, auser=nobody) for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("view", [SYNC, ASYNC])
def test_django_user_without_a_key_is_a_config_error(settings: Any, view: Any) -> None:
    settings.JWTLIMIT = {}
    with pytest.raises(ConfigError, match=r'SimpleNamespace has no pk: set JWTLIMIT\["USER_KEY"\]'):
        ask(view, SimpleNamespace(is_authenticated=True, pk=None))


def test_django_without_users_a_limit_by_user_is_a_config_error_that_says_what_to_do(site: Site) -> None:
    site.serve(hello, LIMITS=LIMITS)
    with pytest.raises(ConfigError, match="put AuthenticationMiddleware before RateLimitMiddleware"):
        site.get()


def user_key(request: HttpRequest) -> str | None:
    return request.GET.get("user")


@pytest.mark.parametrize("key", [user_key, f"{__name__}.user_key"])
def test_django_user_key_decides_whom_to_charge(site: Site, key: Any) -> None:
    site.serve(lambda request: HttpResponse(), LIMITS=LIMITS, USER_KEY=key)
    assert site.statuses("/?user=ann") == [200, 200, 429]
    assert site.statuses("/?user=bob", 1) == [200]
    assert site.statuses() == [200] * 3
