"""The settings of every framework: their names, and the one reading of their values."""

import re
import time
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from jwtlimit_core.clock import Clock
from jwtlimit_core.config import BeforeIssue, Config
from jwtlimit_core.engine import Engine, OnRefused
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.rate import Rate

__all__ = ["build_engine"]

_KEYS = ("SECRET_KEY", "SIGNING_KEY", "VERIFICATION_KEY")
_TOKENS = (*_KEYS, "ALGORITHM", "ISSUER", "AUDIENCE", "ACCESS_TOKEN_TTL", "REFRESH_TOKEN_TTL", "LEEWAY")
_ENGINE = {"ENABLED": True, "HEADERS": True, "IPV6_PREFIX": 64}
_NAMES = (*_TOKENS, *_ENGINE, "ISSUE_RATE")
_FIELD = re.compile(r"^[a-z_]+|(?:secret|signing|verification)_key")  # a problem begins with the field that has it


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
    values = {name: value for name, value in values.items() if value is not None}
    problems = []
    for name in values:
        if name not in _NAMES:
            near = get_close_matches(name, _NAMES, 1)
            problems.append(f"{prefix}{name} is no setting" + (f": did you mean {prefix}{near[0]}?" if near else ""))
    options = {name: values.get(name, default) for name, default in _ENGINE.items()}
    for name in ("ENABLED", "HEADERS"):
        if not isinstance(options[name], bool):
            problems.append(f"{prefix}{name} must be True or False, not {options[name]!r:.80}")
    bits = options["IPV6_PREFIX"]
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= 128:
        problems.append(f"{prefix}IPV6_PREFIX must be an int from 1 to 128, not {bits!r:.80}")
    config = None
    try:
        rate = values.get("ISSUE_RATE", Rate(100, 60))
        issue_rate = rate if isinstance(rate, Rate) else Rate.parse(rate)
    except ConfigError as error:
        problems += [f"{prefix}ISSUE_RATE: {problem}" for problem in error.problems]
    if any(name in values for name in _KEYS):
        tokens = {name.lower(): values[name] for name in _TOKENS if name in values}
        try:
            config = Config(**tokens, before_issue=before_issue, clock=clock)
        except ConfigError as error:
            problems += [_in_settings(problem, prefix) for problem in error.problems]
    if problems:
        raise ConfigError(*problems)
    return Engine(
        config=config,
        issue_rate=issue_rate,
        clock=clock,
        on_refused=on_refused,
        headers=options["HEADERS"],
        ipv6_prefix=bits,
    )


def _in_settings(problem: str, prefix: str) -> str:
    """Return the *problem* of a `Config` with the names of settings where it has the names of fields."""
    return _FIELD.sub(lambda field: f"{prefix}{field[0].upper()}" if field[0].upper() in _TOKENS else field[0], problem)
