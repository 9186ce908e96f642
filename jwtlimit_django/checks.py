"""System checks: what is wrong with the settings, told by ``manage.py check`` and at the start of the server.

======================  ==================================================================================
``jwtlimit.E001``       A setting cannot work.
``jwtlimit.E002``       A key is too weak, or none for its algorithm.
``jwtlimit.E003``       Proxies are trusted that cannot be, such as all addresses.
``jwtlimit.E004``       A setting is unknown.
``jwtlimit.E005``       The middleware stands several times in ``MIDDLEWARE``.
``jwtlimit.E006``       ``handler429`` or ``handler503`` of the root URLconf cannot be called.
``jwtlimit.W001``       There are ``LIMITS``, but no middleware to charge them.
``jwtlimit.W002``       There is no middleware to answer what processors refuse.
``jwtlimit.W003``       A limit is by user, but none is known when the middleware asks.
``jwtlimit.W004``       Refusals get no CORS headers.
``jwtlimit.W005``       Each worker counts alone (only outside of ``DEBUG``).
``jwtlimit.W006``       Nothing is limited (only with ``--deploy``).
======================  ==================================================================================
"""

import re
from collections.abc import Iterator, Sequence

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004  the names that Django gives them
from django.core.exceptions import ViewDoesNotExist
from django.urls import get_callable, get_resolver
from django.utils.module_loading import import_string

from jwtlimit_core import ConfigError, Engine
from jwtlimit_django.engine import get_engine

__all__ = ["check_deployment", "check_settings"]

_MIDDLEWARE = "jwtlimit_django.middleware.RateLimitMiddleware"
_AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
_CORS = "corsheaders.middleware.CorsMiddleware"

_PROBLEMS = {  # of settings: by the first that is found in one, its id and a hint
    r"is no setting": ("E004", "Remove it, or correct its name."),
    r'^(?!limit )[^"]*"(SECRET|SIGNING|VERIFICATION)_KEY"': ("E002", "Keep a key of full length outside the code."),
    r'"TRUSTED_PROXIES"': ("E003", "Name the addresses or networks of your own proxies, and no others."),
    r"": ("E001", "See the documentation of this setting."),
}
_MESSAGES = {  # what is said, and the hint
    "E005": ("RateLimitMiddleware stands {} times in MIDDLEWARE.", "Leave the outermost."),
    "E006": ("{} of the root URLconf cannot be called.", "Make it a view of a request and an exception, or its dotted name."),
    "W001": ('JWTLIMIT["LIMITS"] limits nothing: the middleware is missing.', f"Add {_MIDDLEWARE!r} to MIDDLEWARE."),
    "W002": ("What processors refuse is answered with 500: the middleware is missing.", f"Add {_MIDDLEWARE!r} to MIDDLEWARE."),
    "W003": (
        "A limit is by user, but request.user is not set when it is charged.",
        'Put RateLimitMiddleware below AuthenticationMiddleware, or set JWTLIMIT["USER_KEY"].',
    ),
    "W004": (
        "Refusals get no CORS headers: browsers will show scripts a network error in their place.",
        "Put CorsMiddleware above RateLimitMiddleware.",
    ),
    "W005": (
        "Each worker counts alone: with n of them, n times the limits are let pass.",
        'Set JWTLIMIT["STORE"] to the URL of a Redis or Valkey server; with one worker, put this into SILENCED_SYSTEM_CHECKS.',
    ),
    "W006": ('Nothing is limited: JWTLIMIT["ENABLED"] is false.', "Set it to False in the settings of tests only."),
}


def check_settings(**_: object) -> list[CheckMessage]:
    """Report what of the settings cannot work, does not fit the rest of the project, or fits a developer's machine alone."""
    found = [_message("E006", name) for name in ("handler429", "handler503") if not _can_be_called(name)]
    try:
        engine = get_engine()
    except ConfigError as error:
        for problem in error.problems:
            number, hint = next(each for text, each in _PROBLEMS.items() if re.search(text, problem))
            found.append(Error(problem, hint=hint, id=f"jwtlimit.{number}"))
        return found
    return [*found, *_misfits(engine)]


def check_deployment(**_: object) -> list[CheckMessage]:
    """Report what must not reach production."""
    try:
        return [] if get_engine().enabled else [_message("W006")]
    except ConfigError:  # reported above
        return []


def _message(number: str, *values: object) -> CheckMessage:
    text, hint = _MESSAGES[number]
    return (Error if number.startswith("E") else Warning)(text.format(*values), hint=hint, id=f"jwtlimit.{number}")


def _misfits(engine: Engine) -> Iterator[CheckMessage]:
    """Yield where our settings, ``MIDDLEWARE`` and ``DEBUG`` do not fit each other."""
    if engine.counts_alone and not settings.DEBUG:
        yield _message("W005")
    ours = _places(_MIDDLEWARE)
    if not ours:
        if engine.limits or engine.config is not None:
            yield _message("W001" if engine.limits else "W002")
        return
    if len(ours) > 1:
        yield _message("E005", len(ours))
    by_user = any(part.source == "user" for limit in engine.limits for part in limit.parts)
    if by_user and engine.user_key is None and not any(place < ours[0] for place in _places(_AUTHENTICATION)):
        yield _message("W003")
    if any(place > ours[0] for place in _places(_CORS)):
        yield _message("W004")


def _places(name: str) -> Sequence[int]:
    """Return where in ``MIDDLEWARE`` the class called *name* stands, or one that is made from it."""
    return [place for place, path in enumerate(settings.MIDDLEWARE) if name in _names(path)]


def _names(path: str) -> set[str]:
    try:
        middleware = import_string(path)
    except ImportError:  # Django will tell
        return {path}
    kinds = getattr(middleware, "__mro__", ())  # a function has none
    return {path, *(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)}


def _can_be_called(name: str) -> bool:
    """Say whether the handler called *name* of the root URLconf can, if there is one."""
    if not getattr(settings, "ROOT_URLCONF", None):  # as in workers
        return True
    handler = getattr(get_resolver().urlconf_module, name, None)
    try:
        return handler is None or callable(get_callable(handler))
    except (ImportError, ViewDoesNotExist):
        return False
