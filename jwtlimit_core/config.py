"""How a processor issues and validates tokens: one frozen value, checked as a whole."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import Any

from jwtlimit_core.claims import RegisteredClaims
from jwtlimit_core.clock import Clock
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.provider import AsyncRateLimitProvider, RateLimitProvider, missing_methods
from jwtlimit_core.rate import Rate, shown
from jwtlimit_core.tokens import CompactJWS

__all__ = ["BeforeIssue", "Config"]

BeforeIssue = Callable[[RegisteredClaims], bool | None] | Callable[[RegisteredClaims], Awaitable[bool | None]]


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a `Processor` needs to know.

    Attributes:
        secret_key: For HMAC algorithms: text (taken as UTF-8) or bytes; at least 32 for HS256, 48 for HS384, 64 for HS512.
        signing_key: For the other algorithms: the private key, as an object of `cryptography` or as unencrypted PEM.
        verification_key: The public key; taken from *signing_key* where it is left out. Alone it makes a processor that
            only validates.
        algorithm: The one algorithm in use: HS256, HS384, HS512, RS256 … PS512, ES256, ES384, ES512 or EdDSA.
        access_token_ttl: How long an access token lives: a timedelta or seconds; fractions are rounded up to a second.
        refresh_token_ttl: The same for a refresh token.
        issuer: The ``iss`` to write and to demand.
        audience: The ``aud`` to write where claims have none, and of which a token must name one; None accepts any.
        leeway: How much the clocks of two hosts may differ: a timedelta or seconds, for ``exp`` and ``nbf``.
        enable_rate_limit: Limit issuance by a `RateLimiter` of the processor's own.
        rate_limit_rate: Tokens that may be issued to one key in one window.
        rate_limit_window: The window: a timedelta or seconds.
        rate_limiter: A limiter to use instead; it is used even when *enable_rate_limit* is False.
        owns_limiter: Close *rate_limiter* with the processor.
        before_issue: A hook that sees the claims before a token is charged and signed, and refuses by raising (what it raises
            reaches the caller) or by returning False; None and True let pass, and anything else is a TypeError. It may be a
            coroutine function in an `AsyncProcessor`.
        normalize_key: A hook that turns a key which is not empty into the one to charge, ``str.casefold`` for instance.
        max_token_bytes: The longest token to read and to issue.
        clock: Where the time comes from.

    Raises:
        ConfigError: Values cannot work; all of them are named.
    """

    secret_key: str | bytes | None = field(default=None, repr=False)
    signing_key: Any = field(default=None, repr=False)
    verification_key: Any = field(default=None, repr=False)
    algorithm: str = "HS256"
    access_token_ttl: timedelta | float = timedelta(minutes=15)
    refresh_token_ttl: timedelta | float = timedelta(days=7)
    issuer: str = "jwt-service"
    audience: str | Sequence[str] | None = None
    leeway: timedelta | float = timedelta(seconds=5)
    enable_rate_limit: bool = False
    rate_limit_rate: int = 100
    rate_limit_window: timedelta | float | Fraction = timedelta(minutes=1)
    rate_limiter: RateLimitProvider | AsyncRateLimitProvider | None = None
    owns_limiter: bool = False
    before_issue: BeforeIssue | None = None
    normalize_key: Callable[[str], str] | None = None
    max_token_bytes: int = 8192
    clock: Clock = time

    # What the values above amount to.
    jws: CompactJWS = field(init=False, repr=False, compare=False)
    rate: Rate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problems = [*self._problems()]
        made: dict[str, object] = {}
        try:
            made["rate"] = Rate(self.rate_limit_rate, self.rate_limit_window)
        except ConfigError as error:
            problems += [f"rate_limit_{problem.replace('limit must', 'rate must', 1)}" for problem in error.problems]
        try:
            made["jws"] = CompactJWS(
                self.algorithm,
                secret_key=self.secret_key,
                signing_key=self.signing_key,
                verification_key=self.verification_key,
                max_token_bytes=self.max_token_bytes,
            )
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(*problems)
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def _problems(self) -> list[str]:
        problems = []
        for name, least in (("access_token_ttl", "above 0"), ("refresh_token_ttl", "above 0"), ("leeway", "0 or more")):
            value = getattr(self, name)
            seconds = duration_s(value)
            if seconds < 0 or (seconds == 0 and least == "above 0"):
                problems.append(f"{name} must be a timedelta or seconds, {least} and at most 100 years, not {shown(value)}")
        if not isinstance(self.issuer, str) or not self.issuer:
            problems.append(f"issuer must be a str of 1 or more characters, not {shown(self.issuer)}")
        names = (self.audience,) if isinstance(self.audience, str) else self.audience
        if names is not None and not (isinstance(names, Sequence) and names and all(_is_text(name) for name in names)):
            problems.append(f"audience must be a str, a sequence of 1 or more, or None, not {shown(self.audience)}")
        for name in ("enable_rate_limit", "owns_limiter"):
            if not isinstance(getattr(self, name), bool):
                problems.append(f"{name} must be True or False, not {shown(getattr(self, name))}")
        size = self.max_token_bytes
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            problems.append(f"max_token_bytes must be an int of 1 or more, not {shown(size)}")
        for name in ("before_issue", "normalize_key"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                problems.append(f"{name} must be callable or None, not {shown(getattr(self, name))}")
        for name, methods in (("rate_limiter", ("allow", "reset", "close")), ("clock", ("time_ns", "monotonic_ns"))):
            value = getattr(self, name)
            missing = missing_methods(value, *methods)
            if missing and not (value is None and name == "rate_limiter"):
                problems.append(f"{name} must have {', '.join(f'{method}()' for method in missing)}: {shown(value)} has not")
        return problems


_LONGEST_S = 100 * 366 * 86_400


def duration_s(value: object) -> Fraction:
    """Return a timedelta or a number of seconds as seconds; -1 where *value* is neither, or over 100 years."""
    seconds = Fraction(value // timedelta(microseconds=1), 1_000_000) if isinstance(value, timedelta) else value
    if not isinstance(seconds, int | float | Fraction) or isinstance(seconds, bool):
        return Fraction(-1)
    return Fraction(seconds) if -_LONGEST_S <= seconds <= _LONGEST_S else Fraction(-1)  # NaN is in no bounds


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
