"""How much is allowed in how long: the one place where limits and windows are read and checked."""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from math import gcd, isfinite

from jwtlimit_core.errors import ConfigError

__all__ = ["Rate", "shown"]

_NS_PER_SECOND = 1_000_000_000
_MAX_COUNT = 999_999_999_999_999  # the largest Integer of a structured field: RFC 9651 section 3.3.1
_MAX_WINDOW_NS = timedelta.max // timedelta(microseconds=1) * 1000

# In order of size: str() takes the first that divides the window.
_UNITS_NS = {
    "d": 86_400 * _NS_PER_SECOND,
    "h": 3_600 * _NS_PER_SECOND,
    "m": 60 * _NS_PER_SECOND,
    "s": _NS_PER_SECOND,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_UNIT_NAMES = {
    **{name: name for name in _UNITS_NS},
    **{word + plural: word[0] for word in ("day", "hour", "minute", "second") for plural in ("", "s")},
    **{word + plural: word[0] for word in ("min", "sec") for plural in ("", "s")},
}
_TEXT = re.compile(
    r"""\s* (?P<limit>[0-9]{1,15})
        \s* (?: / | \s per \s )
        \s* (?: (?P<count>[0-9]{1,23}) \s* )? (?P<unit>[a-z]+)
        \s* (?: ; \s* burst \s* = \s* (?P<burst>[0-9]{1,15}) )? \s* """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """*limit* tokens in each *window*, and at most *burst* at once.

    Args:
        limit: Tokens that come back in one window, 1 to 999,999,999,999,999.
        window: A `timedelta`, or seconds as an int, float or `Fraction`; from one nanosecond to `timedelta.max`.
            It is kept as a whole number of nanoseconds.
        burst: The size of the bucket, in the bounds of *limit*; the limit where it is left out.

    Attributes:
        window_ns: The window in nanoseconds.
        refill: Units that come back in a nanosecond; a unit is 1/`unit` of a token.
        unit: Units in one token. ``refill / unit`` is ``limit / window_ns`` in lowest terms, so that a level
            counted in units grows by a whole number each nanosecond.
        capacity: Units in a full bucket.

    Raises:
        ConfigError: A value is of another type or out of its bounds; all such values are named.
    """

    limit: int
    window_ns: int
    burst: int
    refill: int = field(repr=False, compare=False)
    unit: int = field(repr=False, compare=False)
    capacity: int = field(repr=False, compare=False)
    _hash: int = field(repr=False, compare=False)

    def __init__(self, limit: int, window: timedelta | float | Fraction, burst: int | None = None) -> None:
        problems = []
        if not _is_count(limit):
            problems.append(f"limit must be an int from 1 to {_MAX_COUNT}, not {shown(limit)}")
        if burst is None:
            burst = limit
        elif not _is_count(burst):
            problems.append(f"burst must be an int from 1 to {_MAX_COUNT} (or None for the limit), not {shown(burst)}")
        window_ns = _nanoseconds(window)
        if window_ns is None or not 1 <= window_ns <= _MAX_WINDOW_NS:
            problems.append(
                f"window must be a timedelta or a number of seconds, from a nanosecond to timedelta.max, not {shown(window)}"
            )
            window_ns = 1
        if problems:
            raise ConfigError(*problems)
        shared = gcd(limit, window_ns)
        unit = window_ns // shared
        values = (limit, window_ns, burst, limit // shared, unit, burst * unit, hash((limit, window_ns, burst)))
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return self._hash  # made once: rates are looked up for each request

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """Read a rate such as ``"100/m"``, ``"5/30s"``, ``"10/s;burst=50"`` or ``"100 per minute"``.

        Units are ``ns us ms s m h d`` and the words second, minute, hour and day, in the singular or the
        plural; case does not matter. What `str` of a rate gives is read back as the same rate.

        Raises:
            ConfigError: *text* is not such a text, or a number in it is out of its bounds.
        """
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        unit = match and _UNIT_NAMES.get(match["unit"].lower())
        if not match or not unit:
            raise ConfigError(f"a rate must read like '100/m', '5/30s' or '10/s;burst=50', not {shown(text)}")
        window = Fraction(int(match["count"] or 1) * _UNITS_NS[unit], _NS_PER_SECOND)
        try:
            return cls(int(match["limit"]), window, int(match["burst"]) if match["burst"] else None)
        except ConfigError as error:
            raise ConfigError(*(f"rate {shown(text)}: {problem}" for problem in error.problems)) from None

    def __str__(self) -> str:
        unit = next(name for name, size_ns in _UNITS_NS.items() if self.window_ns % size_ns == 0)
        count = self.window_ns // _UNITS_NS[unit]
        burst = "" if self.burst == self.limit else f";burst={self.burst}"
        return f"{self.limit}/{'' if count == 1 else count}{unit}{burst}"


def shown(value: object) -> str:
    """Return *value* as it stands in a message: cut short, and never an error of its own."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # an int of more digits than Python converts to text
        return f"a {type(value).__name__} of too many digits"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_COUNT


def _nanoseconds(window: object) -> int | None:
    """Return *window* in whole nanoseconds, or None where it is no length of time."""
    if isinstance(window, timedelta):
        return window // timedelta(microseconds=1) * 1000
    if isinstance(window, bool) or not isinstance(window, int | float | Fraction):
        return None
    if isinstance(window, float) and not isfinite(window):
        return None
    return round(Fraction(window) * _NS_PER_SECOND)
