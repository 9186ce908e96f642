"""The language of the script: limits as its arguments, its replies as decisions, keys as the server stores them."""

import re
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b, sha1, sha256
from importlib.resources import files
from urllib.parse import quote

from jwtlimit_core.bucket import outlook
from jwtlimit_core.decision import Decision
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.keys import LONGEST_KEY, SERVICE_KEY
from jwtlimit_core.rate import Rate

__all__ = ["SCRIPT", "SCRIPT_SHA", "FixedWindow", "KeyForm", "TokenBucket", "packed", "prefix_pattern"]

SCRIPT = files("jwtlimit_core.redis").joinpath("spend.lua").read_bytes()
SCRIPT_SHA = sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()

_EXACT = 2**53  # the whole numbers below are exact as doubles, which are Lua's numbers
_NS_PER_US = 1_000

_SAFE = "@!$&'()+,;=/|^"
_SPECIAL = re.compile(rb"[*?\[\]^\\]")
_PLAIN_KEY = re.compile(rf"[0-9A-Za-z_.~:{re.escape(_SAFE)}-]{{1,{LONGEST_KEY}}}")  # a colon ends nothing any more


class _Rule:
    _text: bytes

    def argument(self, operation: bytes, n: int) -> bytes:
        """Return what the script is told: to ``take``, ``peek`` or ``refund`` *n* by this rule."""
        return b"%b %d %b" % (operation, n, self._text)


class TokenBucket(_Rule):
    """The bucket of `jwtlimit_core.bucket`, in microseconds: the script steps it, the outlook is made there."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        # The same rate with every microsecond read as a nanosecond: the pure functions count in whatever the clock counts.
        self._in_us = scaled = Rate(rate.limit, Fraction(_window_us(rate), 1_000_000_000), rate.burst)
        if scaled.capacity + scaled.refill >= _EXACT:
            raise ConfigError(f"the rate {rate} is too fine for a store: lower the burst, or take a rounder window")
        self._text = b"b%d %d %d" % (scaled.refill, scaled.unit, scaled.capacity)

    def decision(self, allowed: bool, level: int, seen_us: int, n: int, name: str) -> Decision:
        """Return what the state on the server, seen *seen_us* after now, means to somebody who asked for *n* tokens."""
        remaining, retry_us, reset_us = outlook(level, seen_us, self._in_us, 0, n, allowed)
        return Decision(allowed, self.rate, name, remaining, retry_us * _NS_PER_US, reset_us * _NS_PER_US)


class FixedWindow(_Rule):
    """A count in a window that starts with the first request of a key.

    Up to twice the limit can pass around the edge of a window: the last of one and the first of the next. A token bucket has no
    such edge.
    """

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._window_us = _window_us(rate)
        if self._window_us >= _EXACT // 2:
            raise ConfigError(f"the window of {rate} is too long for a store")
        self._text = b"w%d %d 0" % (self._window_us, rate.limit)

    def decision(self, allowed: bool, count: int, start_us: int, _n: int, name: str) -> Decision:
        """Return what the count on the server, of a window that started *start_us* after now, means to somebody who asked."""
        left_ns = (start_us + self._window_us) * _NS_PER_US
        remaining = max(0, self.rate.limit - count)
        retry_after_ns, reset_after_ns = 0 if allowed else left_ns, left_ns if count else 0
        return Decision(allowed, self.rate, name, remaining, retry_after_ns, reset_after_ns, more_after_ns=reset_after_ns)


def packed(*command: str | bytes) -> bytes:
    """Return *command* as clients send it (RESP, an array of bulk strings)."""
    return b"*%d\r\n" % len(command) + b"".join(map(_bulk, command))


@lru_cache(1_000)  # all but the keys recur
def _bulk(part: str | bytes) -> bytes:
    text = part.encode() if isinstance(part, str) else part
    return b"$%d\r\n%b\r\n" % (len(text), text)


def prefix_pattern(prefix: str) -> bytes:
    """Return the pattern of SCAN that matches all keys of limiters with *prefix*."""
    return _SPECIAL.sub(rb"\\\g<0>", _utf8(f"{prefix}:")) + b"*"


class KeyForm:
    """How the keys of one limiter are stored: ``prefix:name:key``, the last two quoted so that no two pairs meet.

    Args:
        prefix: Stands before every key as it is.
        name: The name of the limiter.
        secret: Where it is given, keys are stored as their keyed hash, so that the store shows no identity.
    """

    def __init__(self, prefix: str, name: str, secret: bytes | None = None) -> None:
        self._start = _utf8(f"{prefix}:{_quoted(name)}:")
        self._secret = secret

    def pattern(self) -> bytes:
        """Return the pattern of SCAN that matches all keys of this limiter, and no other."""
        return _SPECIAL.sub(rb"\\\g<0>", self._start) + b"*"

    def stored(self, key: str) -> bytes:
        """Return the key under which the server keeps the state of *key*."""
        if self._secret is None and _PLAIN_KEY.fullmatch(key):  # nearly every key; not SERVICE_KEY, which has spaces
            return self._start + key.encode()
        if key is SERVICE_KEY:
            return self._start + b"*"
        if self._secret is not None:
            return self._start + b"#" + blake2b(_utf8(key), key=self._secret, digest_size=32).hexdigest().encode()
        if len(key) > LONGEST_KEY:
            return self._start + b"#" + sha256(_utf8(key)).hexdigest().encode()
        return self._start + _quoted(key).encode()


def _quoted(text: str) -> str:
    """Return *text* percent-encoded, but for the characters that stand for nothing else in a stored key."""
    return quote(text, safe=_SAFE, errors="surrogatepass")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _window_us(rate: Rate) -> int:
    window_us, rest = divmod(rate.window_ns, _NS_PER_US)
    if rest:
        raise ConfigError(f"a store counts in microseconds: the window of {rate} must be a whole number of them")
    return window_us
