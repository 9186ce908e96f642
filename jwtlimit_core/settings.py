"""The settings of every framework: their names, and the one reading of their values."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from jwtlimit_core.clock import Clock
from jwtlimit_core.config import BeforeIssue, Config
from jwtlimit_core.engine import Engine, OnRefused
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.rate import Rate, shown

__all__ = ["build_engine"]

_KEYS = ("SECRET_KEY", "SIGNING_KEY", "VERIFICATION_KEY")
_TOKENS = (*_KEYS, "ALGORITHM", "ISSUER", "AUDIENCE", "ACCESS_TOKEN_TTL", "REFRESH_TOKEN_TTL", "LEEWAY")
_DEFAULTS: dict[str, Any] = {
    "ENABLED": True,
    "HEADERS": True,
    "IPV6_PREFIX": 64,
    "ISSUE_RATE": Rate(100, 60),
    "STORE": "memory",
    "STRATEGY": "token_bucket",
    "ON_FAILURE": "deny",
    "KEY_PREFIX": "jwtlimit",
}
_CHOICES = {
    "ENABLED": (True, False),
    "HEADERS": (True, False),
    "STRATEGY": ("token_bucket", "fixed_window"),
    "ON_FAILURE": ("deny", "allow", "local"),
}
_NAMES = (*_TOKENS, *_DEFAULTS)
_SCHEMES = ("redis://", "rediss://", "unix://")
_FIELD = re.compile(r"^[a-z_]+|(?:secret|signing|verification)_key")  # a problem begins with the field that has it


_NAME = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b|^[A-Z_]+(?= is no setting)")


def build_engine(
    values: Mapping[str, Any],
    *,
    prefix: str = "",
    before_issue: BeforeIssue | None = None,
    on_refused: OnRefused | None = None,
    clock: Clock = time,
) -> Engine:
    """Make the engine that *values* describe.

    Args:
        values: Settings by name, without their prefix. None counts as not set.
        prefix: What the framework puts before each name, for error messages.
        before_issue: See `Config`.
        on_refused: See `Engine`.
        clock: Where the time comes from.

    Raises:
        ConfigError: Settings are unknown or cannot work; all of them are named.
    """
    given = {name: value for name, value in values.items() if value is not None}
    settings = _DEFAULTS | given
    problems = [*_unknown(given), *_misfits(settings)]
    config, rate = None, settings["ISSUE_RATE"]
    try:
        rate = rate if isinstance(rate, Rate) else Rate.parse(rate)
    except ConfigError as error:
        problems += [f"ISSUE_RATE: {problem}" for problem in error.problems]
    if any(name in given for name in _KEYS):
        tokens = {name.lower(): given[name] for name in _TOKENS if name in given}
        try:
            config = Config(**tokens, before_issue=before_issue, clock=clock)
        except ConfigError as error:
            problems += [_in_settings(problem) for problem in error.problems]
    if problems:
        raise ConfigError(*(_NAME.sub(lambda name: prefix + name[0], problem) for problem in problems))
    store = settings["STORE"]
    where: dict[str, Any] = {}
    if isinstance(store, str) and store != "memory":
        where = _shared(settings, clock)
    elif config is not None and store != "memory":
        window = Fraction(rate.window_ns, 1_000_000_000)
        config = replace(config, rate_limiter=store, rate_limit_rate=rate.limit, rate_limit_window=window)
    return Engine(
        config=config,
        issue_rate=rate,
        headers=settings["HEADERS"],
        ipv6_prefix=settings["IPV6_PREFIX"],
        clock=clock,
        on_refused=on_refused,
        **where,
    )


def _unknown(given: Mapping[str, Any]) -> Iterator[str]:
    for name in given:
        if name not in _NAMES:
            near = get_close_matches(name, _NAMES, 1)
            yield f"{name} is no setting" + (f": did you mean {near[0]}?" if near else "")


def _misfits(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, choices in _CHOICES.items():
        if not isinstance(settings[name], type(choices[0])) or settings[name] not in choices:
            yield f"{name} must be {' or '.join(map(repr, choices))}, not {shown(settings[name])}"
    bits, store, key_prefix = settings["IPV6_PREFIX"], settings["STORE"], settings["KEY_PREFIX"]
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= 128:
        yield f"IPV6_PREFIX must be an int from 1 to 128, not {shown(bits)}"
    if not isinstance(key_prefix, str) or not key_prefix:
        yield f"KEY_PREFIX must be a str of 1 or more characters, not {shown(key_prefix)}"
    if isinstance(store, str) and store != "memory" and not store.startswith(_SCHEMES):
        # Not shown: it may hold a password.
        yield "STORE must be 'memory', a URL such as redis://localhost:6379/0, or a limiter of your own"
    elif not isinstance(store, str) and not all(callable(getattr(store, name, None)) for name in ("allow", "reset", "close")):
        yield f"STORE must have allow(), reset() and close(), or be 'memory' or a URL, not {shown(store)}"
    if settings["STRATEGY"] == "fixed_window" and store == "memory":
        yield "STRATEGY 'fixed_window' needs a store that is shared: set STORE to a URL, or take 'token_bucket'"


def _shared(settings: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """Return how the engine makes limiters at a URL: all on one client, so that they can be spent in one step."""
    try:
        from jwtlimit_core.redis import RedisFixedWindow, RedisTokenBucket, open_store
    except ModuleNotFoundError as error:
        raise ConfigError(str(error)) from error
    opened = open_store(settings["STORE"], clock=clock)
    options: dict[str, Any] = {"prefix": settings["KEY_PREFIX"], "on_failure": settings["ON_FAILURE"], "clock": clock}

    def make_limiter(name: str, rate: Rate) -> RedisTokenBucket | RedisFixedWindow:
        window = Fraction(rate.window_ns, 1_000_000_000)
        if settings["STRATEGY"] == "token_bucket":
            return RedisTokenBucket(opened, rate.limit, window, burst=rate.burst, name=name, **options)
        if rate.burst != rate.limit:
            raise ConfigError(f"a fixed window has no burst: limit {name!r} cannot be {rate}")
        return RedisFixedWindow(opened, rate.limit, window, name=name, **options)

    return {"make_limiter": make_limiter, "shared": f"in the shared store, {settings['ON_FAILURE']} while it does not answer"}


def _in_settings(problem: str) -> str:
    """Return the *problem* of a `Config` with the names of settings where it has the names of fields."""
    return _FIELD.sub(lambda field: field[0].upper() if field[0].upper() in _TOKENS else field[0], problem)
