"""The settings of every framework: their names, and the one reading of their values."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any, Literal, TypedDict, TypeVar

from jwtlimit_core.client_address import ClientAddresses
from jwtlimit_core.clock import Clock
from jwtlimit_core.config import BeforeIssue, Config, duration_s
from jwtlimit_core.counters import Counters, InProcess, InStore
from jwtlimit_core.engine import Engine, OnRefused, is_enabled
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import awaits
from jwtlimit_core.limit import Limit, OnFailure, path_problems
from jwtlimit_core.limiter import RateLimiter
from jwtlimit_core.provider import AsyncRateLimitProvider, missing_methods
from jwtlimit_core.rate import Rate, shown
from jwtlimit_core.request_keys import UserKey, misfits

__all__ = ["Host", "Settings", "build_engine"]

_Made = TypeVar("_Made")
Host = Literal["sync", "async", "both"]  # whether a framework runs its views on an event loop

_KEYS = ("SECRET_KEY", "SIGNING_KEY", "VERIFICATION_KEY")
_TTLS = ("ACCESS_TOKEN_TTL", "REFRESH_TOKEN_TTL", "LEEWAY")
_TOKENS = (*_KEYS, "ALGORITHM", "ISSUER", "AUDIENCE", *_TTLS, "BEFORE_ISSUE", "CLOCK")
_DEFAULTS: dict[str, Any] = {
    "ENABLED": True,
    "HEADERS": True,
    "ISSUE_RATE": Rate(100, 60),
    "LIMITS": (),
    "EXEMPT_PATHS": (),
    "TRUSTED_PROXIES": (),
    "FORWARDED_HEADER": "X-Forwarded-For",
    "IPV6_PREFIX": 64,
    "STORE": "memory",
    "STRATEGY": "token_bucket",
    "ON_FAILURE": "deny",
    "STORE_TIMEOUT": 0.25,
    "KEY_PREFIX": "jwtlimit",
    "KEY_SECRET": None,
    "USER_KEY": None,
    "ON_REFUSED": None,
    "BEFORE_ISSUE": None,
    "CLOCK": time,
}
_CHOICES = {
    "HEADERS": (True, False),
    "STRATEGY": ("token_bucket", "fixed_window"),
    "ON_FAILURE": ("deny", "allow", "local"),
}
_FUNCTIONS = ("USER_KEY", "ON_REFUSED", "BEFORE_ISSUE")
_IMPORTED = (*_FUNCTIONS, "CLOCK")  # may be given as "package.module.name"
_NAMES = tuple(dict.fromkeys((*_TOKENS, *_DEFAULTS)))
_SCHEMES = ("redis://", "rediss://", "unix://")
_FIELD = re.compile(r"^[a-z_]+|(?:secret|signing|verification)_key")  # a problem begins with the field that has it
_NAME = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b|^\w+(?= is no setting)")


class Settings(TypedDict, total=False):
    """The settings as keywords, for a framework that runs on an event loop. None is as good as left out."""

    secret_key: str | bytes | None
    signing_key: Any
    verification_key: Any
    algorithm: str | None
    issuer: str | None
    audience: str | Sequence[str] | None
    access_token_ttl: timedelta | float | None
    refresh_token_ttl: timedelta | float | None
    leeway: timedelta | float | None
    issue_rate: Rate | str | None
    before_issue: BeforeIssue | None
    enabled: bool | Callable[[], object] | None
    limits: Sequence[Limit | Mapping[str, Any]] | None
    exempt_paths: Sequence[str] | None
    user_key: UserKey | None
    headers: bool | None
    on_refused: OnRefused | None
    store: str | RateLimiter | AsyncRateLimitProvider | None
    strategy: Literal["token_bucket", "fixed_window"] | None
    on_failure: OnFailure | None
    store_timeout: timedelta | float | None
    key_prefix: str | None
    key_secret: bytes | None
    trusted_proxies: Sequence[str] | int | None
    forwarded_header: str | None
    ipv6_prefix: int | None
    clock: Clock | None


def build_engine(
    values: Mapping[str, Any],
    *,
    named: Callable[[str], str] = str,
    host: Host = "both",
    knows_users: bool = True,
    enabled: Callable[[], object] | None = None,
) -> Engine:
    """Make the engine that *values* describe.

    Args:
        values: Settings by name, without their prefix. None counts as not set.
        named: What the framework makes of a name, for error messages.
        host: Whether views run on an event loop, always, never or sometimes.
        knows_users: Whether the framework has users of its own.
        enabled: Reads ENABLED as it is now, where a framework's settings may change; by default it is what *values* say.

    Raises:
        ConfigError: Settings are unknown or cannot work; all of them are named.
    """

    def say(problem: str) -> str:
        return _NAME.sub(lambda name: named(name[0]), problem)

    try:
        given = {name: value for name, value in values.items() if value is not None}
        return _build(given, host=host, knows_users=knows_users, enabled=enabled, say=say)
    except ConfigError as error:
        raise ConfigError(*map(say, error.problems)) from error.__cause__


def _build(
    given: dict[str, Any],
    *,
    host: Host,
    knows_users: bool,
    enabled: Callable[[], object] | None,
    say: Callable[[str], str],
) -> Engine:
    settings = _DEFAULTS | given
    problems = [*_unknown(given), *_import_all(settings)]
    unfit = [*_misfits(settings), *_misfits_of_store(settings)]
    problems += unfit
    rate = _tried(lambda: _rate(settings["ISSUE_RATE"]), problems, "ISSUE_RATE: ")
    addresses = _tried(lambda: _addresses(settings), problems)
    limits = _tried(lambda: _read_limits(settings["LIMITS"]), problems) or []
    counters = None if unfit else _tried(lambda: _counters(settings), problems, "STORE: ")
    makes_tokens = any(name in given for name in _KEYS)
    config = _tried(lambda: _config(settings), problems) if makes_tokens else None
    on_loop, knows_users = host != "sync", knows_users or "USER_KEY" in given
    problems += misfits(limits, settings["USER_KEY"], verifies=makes_tokens, on_loop=on_loop, knows_users=knows_users)
    if problems or rate is None or addresses is None or counters is None:
        raise ConfigError(*problems)
    if config is not None and not isinstance(settings["STORE"], str):  # a limiter of the application, for issuance
        window = Fraction(rate.window_ns, 1_000_000_000)
        config = replace(config, rate_limiter=settings["STORE"], rate_limit_rate=rate.limit, rate_limit_window=window)
    engine = Engine(
        config=config,
        issue_rate=rate,
        counters=counters,
        addresses=addresses,
        limits=limits,
        exempt_paths=settings["EXEMPT_PATHS"],
        user_key=settings["USER_KEY"],
        headers=settings["HEADERS"],
        enabled=settings["ENABLED"] if enabled is None else lambda: is_enabled(enabled()),
        on_refused=settings["ON_REFUSED"],
        say=say,
    )
    _try_out(engine, host)
    return engine


def _config(settings: Mapping[str, Any]) -> Config:
    """Return how tokens are made.

    Raises:
        ConfigError: They cannot be; what is wrong with functions and the clock is told elsewhere, with a key or without one.
    """
    problems: list[str] = []
    config = _tried(lambda: Config(**{name.lower(): settings[name] for name in _TOKENS if name in settings}), problems)
    if config is None:
        told = (problem for problem in problems if not problem.startswith(("before_issue", "clock")))
        raise ConfigError(*map(_in_settings, told))
    return config


def _rate(given: Rate | str) -> Rate:
    return given if isinstance(given, Rate) else Rate.parse(given)


def _addresses(settings: Mapping[str, Any]) -> ClientAddresses:
    return ClientAddresses(
        trusted_proxies=settings["TRUSTED_PROXIES"],
        forwarded_header=settings["FORWARDED_HEADER"],
        ipv6_prefix=settings["IPV6_PREFIX"],
    )


def _counters(settings: Mapping[str, Any]) -> Counters:
    """Return where is counted: at a URL, or else in this process."""
    store = settings["STORE"]
    if not isinstance(store, str) or store == "memory":
        return InProcess(settings["CLOCK"])
    return InStore(
        store,
        strategy=settings["STRATEGY"],
        on_failure=settings["ON_FAILURE"],
        timeout=float(duration_s(settings["STORE_TIMEOUT"])),
        key_prefix=settings["KEY_PREFIX"],
        key_secret=settings["KEY_SECRET"],
        clock=settings["CLOCK"],
    )


def _try_out(engine: Engine, host: Host) -> None:
    """Make now what requests will need, and so refuse what could not work for any.

    Raises:
        ConfigError: Something of that kind.
    """
    problems: list[str] = []
    if engine.config is not None and host != "both":
        of_host = engine.processor if host == "sync" else engine.async_processor
        _tried(lambda: of_host(enabled=True), problems)
        problems = list(map(_in_settings, problems))
    for limit in engine.limits:
        _tried(partial(engine.prepare, limit, on_loop=host != "sync"), problems)
    if problems:
        raise ConfigError(*problems)


def _tried(make: Callable[[], _Made], problems: list[str], where: str = "") -> _Made | None:
    """Return what *make* makes; None where it cannot, and then *problems* has why, each after *where*."""
    try:
        return make()
    except ConfigError as error:
        problems += [where + problem for problem in error.problems]
        return None


def _unknown(given: Mapping[str, Any]) -> Iterator[str]:
    for name in given:
        if name not in _NAMES:
            near = get_close_matches(name.upper(), _NAMES, 1)
            yield f"{name} is no setting" + (f": did you mean {near[0]}?" if near else "")


def _import_all(settings: dict[str, Any]) -> Iterator[str]:
    """Put what they name in the place of dotted names."""
    for name in _IMPORTED:
        path = settings[name]
        if isinstance(path, str):
            module, _, attribute = path.rpartition(".")
            try:
                settings[name] = getattr(import_module(module), attribute)
            except (ImportError, AttributeError, ValueError):
                what = "an object" if name == "CLOCK" else "a function"
                yield f"{name} must be {what}, or its name as in 'package.module.name': there is no {shown(path)}"
                settings[name] = _DEFAULTS[name]


def _misfits(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, choices in _CHOICES.items():
        if not isinstance(settings[name], type(choices[0])) or settings[name] not in choices:
            yield f"{name} must be {' or '.join(map(repr, choices))}, not {shown(settings[name])}"
    if not isinstance(settings["ENABLED"], bool) and not callable(settings["ENABLED"]):
        yield f"ENABLED must be True or False, or a function that returns it, not {shown(settings['ENABLED'])}"
    for name in _FUNCTIONS:
        if settings[name] is not None and not callable(settings[name]):
            yield f"{name} must be a function or None, not {shown(settings[name])}"
    for name in ("ENABLED", "ON_REFUSED"):
        if awaits(settings[name]):
            yield f"{name} must be a plain function: nobody awaits it"
    if missing_methods(settings["CLOCK"], "time_ns", "monotonic_ns"):
        yield f"CLOCK must have time_ns() and monotonic_ns(), not be {shown(settings['CLOCK'])}"
    yield from path_problems("EXEMPT_PATHS", settings["EXEMPT_PATHS"])


def _misfits_of_store(settings: Mapping[str, Any]) -> Iterator[str]:
    store, key_prefix = settings["STORE"], settings["KEY_PREFIX"]
    if not isinstance(key_prefix, str) or not key_prefix:
        yield f"KEY_PREFIX must be a str of 1 or more characters, not {shown(key_prefix)}"
    if duration_s(settings["STORE_TIMEOUT"]) <= 0:
        yield f"STORE_TIMEOUT must be a timedelta or seconds, above 0, not {shown(settings['STORE_TIMEOUT'])}"
    secret = settings["KEY_SECRET"]
    if secret is not None and not (isinstance(secret, bytes) and 1 <= len(secret) <= 64):
        yield f"KEY_SECRET must be 1 to 64 bytes, or None, not a {type(secret).__name__}"  # not shown: it is one
    if isinstance(store, str) and store != "memory" and not store.startswith(_SCHEMES):
        # Not shown: it may hold a password.
        yield "STORE must be 'memory', a URL such as redis://localhost:6379/0, or a limiter of your own"
    elif not isinstance(store, str) and missing_methods(store, "allow", "reset", "close"):
        yield f"STORE must have allow(), reset() and close(), or be 'memory' or a URL, not a {type(store).__name__}"
    if not isinstance(store, str) and not any(settings.get(name) for name in _KEYS):
        yield "STORE is a limiter of your own, which limits issuance: set SECRET_KEY, SIGNING_KEY or VERIFICATION_KEY, too"
    if settings["STRATEGY"] == "fixed_window" and store == "memory":
        yield "STRATEGY 'fixed_window' needs a store that is shared: set STORE to a URL, or take 'token_bucket'"


def _read_limits(given: Any) -> list[Limit]:
    """Return the limits, each given as such or as a mapping of its arguments.

    Raises:
        ConfigError: Some of them are none; all problems are named.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise ConfigError(f"LIMITS must be a list of Limit(name, rate, …), not {shown(given)}")
    limits, problems = [], []
    for index, each in enumerate(given):
        try:
            limit = Limit(**each) if isinstance(each, Mapping) else each
        except ConfigError as error:
            problems += [f"LIMITS[{index}]: {problem}" for problem in error.problems]
        except TypeError as error:
            problems.append(f"LIMITS[{index}]: {error}")
        else:
            if isinstance(limit, Limit):
                limits.append(limit)
            else:
                problems.append(f"LIMITS[{index}] must be a Limit(name, rate, …), not {shown(each)}")
    names = [limit.name for limit in limits]
    problems += [f"LIMITS has several called {name!r}: give each a name of its own" for name in names if names.count(name) > 1]
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return limits


def _in_settings(problem: str) -> str:
    """Return the *problem* of a `Config` with the names of settings where it has the names of fields."""
    problem = problem.replace("rate_limiter", "STORE")
    return _FIELD.sub(lambda field: field[0].upper() if field[0].upper() in _TOKENS else field[0], problem)
