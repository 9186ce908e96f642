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
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004  the names that Django gives them
from django.core.exceptions import ViewDoesNotExist
from django.urls import get_callable, get_resolver
from django.utils.module_loading import import_string

from jwtlimit_core import ConfigError, Engine
from jwtlimit_django.engine import get_engine

__all__ = ["check_deployment", "check_middleware", "check_settings", "check_store"]

_MIDDLEWARE = "jwtlimit_django.middleware.RateLimitMiddleware"
_AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
_CORS = "corsheaders.middleware.CorsMiddleware"

_IDS = (  # the first that is found in a problem
    (re.compile(r"is no setting"), "E004", "Remove it, or correct its name."),
    (
        re.compile(r'\["(?:SECRET|SIGNING|VERIFICATION)_KEY"\]'),
        "E002",
        "Keep a key of full length outside the code, as in an environment variable.",
    ),
    (re.compile(r'\["TRUSTED_PROXIES"\]'), "E003", "Name the addresses or networks of your own proxies, and no others."),
    (re.compile(""), "E001", "See the documentation of this setting."),
)


def check_settings(**_: object) -> list[CheckMessage]:
    """Report each problem of ``settings.JWTLIMIT``, and handlers that cannot be called."""
    messages: list[CheckMessage] = []
    try:
        get_engine()
    except ConfigError as error:
        for problem in error.problems:
            number, hint = next((number, hint) for pattern, number, hint in _IDS if pattern.search(problem))
            messages.append(Error(problem, hint=hint, id=f"jwtlimit.{number}"))
    for name in ("handler429", "handler503"):
        handler = getattr(get_resolver().urlconf_module, name, None)
        if handler is not None and not _is_callable(handler):
            messages.append(
                Error(
                    f"{name} of the root URLconf cannot be called.",
                    hint="Make it a view of a request and an exception, or its dotted name.",
                    id="jwtlimit.E006",
                )
            )
    return messages


def check_middleware(**_: object) -> list[CheckMessage]:
    """Report what of ``MIDDLEWARE`` does not fit the settings."""
    try:
        return [*_misplaced(get_engine())]
    except ConfigError:  # reported above
        return []


def check_store(**_: object) -> list[CheckMessage]:
    """Report a place to count in that is right on the machine of a developer alone."""
    try:
        limits = get_engine().limits
    except ConfigError:
        return []
    store = getattr(settings, "JWTLIMIT", {}).get("STORE") or "memory"
    # A limiter of the application counts tokens alone.
    if settings.DEBUG or not (store == "memory" or (limits and not isinstance(store, str))):
        return []
    hint = (
        'Set JWTLIMIT["STORE"] to the URL of a Redis or Valkey server; where there is one worker, silence this check by '
        "SILENCED_SYSTEM_CHECKS."
    )
    return [
        Warning("Each worker counts alone: with n of them, n times the limits are let pass.", hint=hint, id="jwtlimit.W005")
    ]


def check_deployment(**_: object) -> list[CheckMessage]:
    """Report what must not reach production."""
    try:
        enabled = get_engine().enabled
    except ConfigError:
        return []
    hint = "Set it to False in the settings of tests only."
    return [] if enabled else [Warning('Nothing is limited: JWTLIMIT["ENABLED"] is false.', hint=hint, id="jwtlimit.W006")]


def _misplaced(engine: Engine) -> Iterator[CheckMessage]:
    ours = _places(_MIDDLEWARE)
    if not ours:
        hint = f"Add {_MIDDLEWARE!r} to MIDDLEWARE."
        if engine.limits:
            yield Warning('JWTLIMIT["LIMITS"] limits nothing: the middleware is missing.', hint=hint, id="jwtlimit.W001")
        else:
            yield Warning(
                "What processors refuse is answered with 500: the middleware is missing.", hint=hint, id="jwtlimit.W002"
            )
        return
    if len(ours) > 1:
        yield Error(
            f"RateLimitMiddleware stands {len(ours)} times in MIDDLEWARE.", hint="Leave the outermost.", id="jwtlimit.E005"
        )
    by_user = any(part.source == "user" for limit in engine.limits for part in limit.parts)
    if by_user and engine.user_key is None and not any(place < ours[0] for place in _places(_AUTHENTICATION)):
        yield Warning(
            "A limit is by user, but request.user is not set when it is charged.",
            hint='Put RateLimitMiddleware below AuthenticationMiddleware, or set JWTLIMIT["USER_KEY"].',
            id="jwtlimit.W003",
        )
    if any(place > ours[0] for place in _places(_CORS)):
        yield Warning(
            "Refusals get no CORS headers: browsers will show scripts a network error in their place.",
            hint="Put CorsMiddleware above RateLimitMiddleware.",
            id="jwtlimit.W004",
        )


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


def _is_callable(handler: Any) -> bool:
    try:
        get_callable(handler)
    except (ImportError, ViewDoesNotExist):
        return False
    return True
