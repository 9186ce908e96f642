"""The system checks: each has its id and a hint, and none of them speaks where all is well."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage, Error, run_checks
from django.urls import path

from adapters.django_project import AUTHENTICATION, NO_URLS, OURS, SECRET, SESSIONS, hello
from jwtlimit_core import Limit, RateLimiter
from jwtlimit_django import checks
from jwtlimit_django.middleware import RateLimitMiddleware

CORS = "corsheaders.middleware.CorsMiddleware"
LIMITS = [Limit("all", "2/m")]
BY_USER = [Limit("u", "2/m", key=("user", "ip"))]


class Derived(RateLimitMiddleware):
    """A middleware that an application made from ours."""


DERIVED = f"{__name__}.Derived"


def found(
    settings: Any, middleware: Any = (OURS,), *, debug: bool = True, deploy: bool = False, **jwtlimit: Any
) -> list[CheckMessage]:
    settings.DEBUG = debug
    settings.MIDDLEWARE = list(middleware)
    settings.JWTLIMIT = {"SECRET_KEY": SECRET, **jwtlimit}
    messages = run_checks(tags=["jwtlimit"], include_deployment_checks=deploy)
    assert all(message.hint for message in messages)
    return messages


def ids(settings: Any, *arguments: Any, **options: Any) -> list[str]:
    return [str(message.id) for message in found(settings, *arguments, **options)]


@pytest.mark.parametrize("middleware", [[OURS], [SESSIONS, AUTHENTICATION, OURS], [CORS, OURS], [DERIVED]])
def test_django_checks_are_silent_where_all_is_well(settings: Any, middleware: list[str]) -> None:
    assert found(settings, middleware, LIMITS=LIMITS) == []
    assert found(settings, middleware, LIMITS=LIMITS, STORE="redis://localhost:1/0", deploy=True) == []


@pytest.mark.parametrize(
    ("jwtlimit", "number", "text"),
    [
        ({"STRATEGY": "leaky"}, "E001", 'JWTLIMIT["STRATEGY"] must be'),
        ({"SECRET_KEY": "short"}, "E002", 'JWTLIMIT["SECRET_KEY"] has 5 bytes'),
        ({"ALGORITHM": "RS256"}, "E002", 'JWTLIMIT["SECRET_KEY"] is for HS256'),
        ({"SECRET_KEY": None, "LIMITS": [Limit("a", "1/m", key="subject")]}, "E001", 'set JWTLIMIT["SECRET_KEY"]'),
        ({"SECRET_KEY": None, "STORE": RateLimiter()}, "E001", 'set JWTLIMIT["SECRET_KEY"]'),
        ({"LIMIT": []}, "E004", 'JWTLIMIT["LIMIT"] is no setting: did you mean JWTLIMIT["LIMITS"]?'),
        ({"TRUSTED_PROXY": []}, "E004", 'did you mean JWTLIMIT["TRUSTED_PROXIES"]?'),
        ({"SECRET_KY": ""}, "E004", 'JWTLIMIT["SECRET_KY"] is no setting'),
    ],
)
def test_django_settings_that_cannot_work_are_errors(settings: Any, jwtlimit: Any, number: str, text: str) -> None:
    (message,) = found(settings, deploy=True, **jwtlimit)
    assert isinstance(message, Error)
    assert message.id == f"jwtlimit.{number}"
    assert text in message.msg


def test_django_each_problem_of_the_settings_is_an_error_of_its_own(settings: Any) -> None:
    assert sorted(ids(settings, HEADERS=7, SECRET_KEY="short", LIMIT=1)) == ["jwtlimit.E001", "jwtlimit.E002", "jwtlimit.E004"]


@pytest.mark.parametrize("proxies", [["0.0.0.0/0"], ["::/0"], ["*"], -1])
def test_django_proxies_that_cannot_be_trusted_have_an_id(settings: Any, proxies: Any) -> None:
    assert ids(settings, TRUSTED_PROXIES=proxies) == ["jwtlimit.E003"]


@pytest.mark.parametrize(
    ("middleware", "expected"),
    [([OURS, OURS], ["E005"]), ([OURS, DERIVED], ["E005"]), ([OURS, CORS], ["W004"]), ([SESSIONS], ["W001"])],
)
def test_django_middleware_that_is_misplaced_is_told(settings: Any, middleware: list[str], expected: list[str]) -> None:
    assert ids(settings, middleware, LIMITS=LIMITS) == [f"jwtlimit.{number}" for number in expected]


def test_django_missing_middleware_is_told_without_limits_too(settings: Any) -> None:
    assert ids(settings, []) == ["jwtlimit.W002"]
    assert ids(settings, [], SECRET_KEY=None) == []  # no processor, no refusal


def test_django_without_urls_the_rest_is_checked(settings: Any) -> None:
    del settings.ROOT_URLCONF
    assert ids(settings, [OURS, OURS]) == ["jwtlimit.E005"]
    settings.ROOT_URLCONF = NO_URLS


@pytest.mark.parametrize(
    ("middleware", "jwtlimit", "expected"),
    [
        ([OURS], {}, ["jwtlimit.W003"]),
        ([OURS, SESSIONS, AUTHENTICATION], {}, ["jwtlimit.W003"]),
        ([OURS, SESSIONS, AUTHENTICATION, OURS], {}, ["jwtlimit.E005", "jwtlimit.W003"]),
        ([SESSIONS, AUTHENTICATION, OURS], {}, []),
        ([OURS], {"USER_KEY": lambda request: "k"}, []),
    ],
)
def test_django_limit_by_user_before_users_are_known_is_told(
    settings: Any, middleware: list[str], jwtlimit: Any, expected: list[str]
) -> None:
    assert ids(settings, middleware, LIMITS=BY_USER, **jwtlimit) == expected


@pytest.mark.parametrize("handler", ["no.such.view", "adapters.django_project.no_such_view", 7])
def test_django_handler_that_cannot_be_called_is_told(settings: Any, handler: Any) -> None:
    settings.ROOT_URLCONF = urlconf = ModuleType("urls")
    vars(urlconf).update(urlpatterns=[path("", hello)], handler429="adapters.django_project.hello", handler503=handler)
    (message,) = found(settings)
    assert (message.id, message.msg[:10]) == ("jwtlimit.E006", "handler503")
    settings.ROOT_URLCONF = NO_URLS


def test_django_store_is_checked_outside_of_debug_and_limits_before_deployment(settings: Any) -> None:
    assert ids(settings) == []
    assert ids(settings, ENABLED=False) == []
    assert ids(settings, debug=False) == ["jwtlimit.W005"]
    assert ids(settings, debug=False, STORE=RateLimiter()) == []
    assert ids(settings, debug=False, STORE=RateLimiter(), LIMITS=LIMITS) == ["jwtlimit.W005"]
    assert ids(settings, debug=False, STORE="redis://localhost:1/0") == []
    assert ids(settings, debug=False, STORE="stores://nowhere") == ["jwtlimit.E001"]
    assert ids(settings, deploy=True, ENABLED=lambda: False) == ["jwtlimit.W006"]


def test_django_without_settings_deployment_is_checked_all_the_same(settings: Any) -> None:
    del settings.JWTLIMIT
    settings.MIDDLEWARE = [OURS]
    settings.DEBUG = False
    messages = run_checks(tags=["jwtlimit"], include_deployment_checks=True)
    assert [message.id for message in messages] == ["jwtlimit.W005"]


def test_django_every_id_is_listed_in_the_documentation_of_the_checks() -> None:
    source = Path(checks.__file__).read_text()
    listed = set(re.findall(r"``jwtlimit\.([EW]\d{3})``", source))
    assert listed == set(re.findall(r'"(?:jwtlimit\.)?([EW]\d{3})"', source))


@pytest.mark.parametrize(
    "code",
    [
        "import jwtlimit_django; from django.conf import settings; assert not settings.configured",
        "from jwtlimit_django import middleware, exempt; exempt(type('V', (), {}))",
        "import jwtlimit_django, sys; assert 'rest_framework' not in sys.modules",
    ],
)
def test_django_package_is_imported_without_settings_applications_or_rest_framework(code: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
