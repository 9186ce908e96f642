"""What a limiter answers, and the exception for callers who asked for a token instead of an answer."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from jwtlimit_core.errors import JWTLimitError
from jwtlimit_core.rate import Rate

__all__ = ["Decision", "RateLimitExceeded", "combine", "impossible"]


class Decision(NamedTuple):
    """The answer of a limiter to one question, as it was at that instant.

    Attributes:
        allowed: Whether the tokens were there (and, for an acquire, were taken).
        rate: The rate that decided.
        name: The name of the limiter that decided.
        remaining: Whole tokens left after the step.
        retry_after_ns: Nanoseconds until the same call succeeds if nobody else spends: 0 when allowed, None when
            waiting can never help (more than the burst, fewer than none, or an empty key).
        reset_after_ns: Nanoseconds until the bucket is full.
        parts: The single decisions behind an answer over several limits, in the order in which they were asked.
        more_after_ns: Nanoseconds until there is a token more, where that is not what the bucket of *rate* says: None where it
            is.
    """

    allowed: bool
    rate: Rate
    name: str
    remaining: int
    retry_after_ns: int | None
    reset_after_ns: int
    parts: tuple["Decision", ...] = ()
    more_after_ns: int | None = None

    @property
    def limit(self) -> int:
        """The most that can be spent at once: the burst."""
        return self.rate.burst

    @property
    def retry_after(self) -> float | None:
        """`retry_after_ns` in seconds, or None when waiting can never help."""
        return None if self.retry_after_ns is None else self.retry_after_ns / 1_000_000_000


class RateLimitExceeded(JWTLimitError):
    """The caller asked too often; the usual answer is 429 with Retry-After.

    Attributes:
        decision: The refusal.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    @cached_property
    def retry_after(self) -> float | None:
        """Seconds to wait, or None when waiting can never help."""
        return self.decision.retry_after

    @cached_property
    def limit(self) -> int:
        """The most that can be spent at once."""
        return self.decision.limit

    def __str__(self) -> str:
        wait = "waiting does not help" if self.retry_after is None else f"retry after {self.retry_after:g} s"
        return f"rate limit {self.decision.name!r} ({self.decision.rate}) exceeded: {wait}"


def impossible(rate: Rate, name: str) -> Decision:
    """Return the refusal of what no waiting makes possible; it tells nothing of the bucket, which nobody looked at."""
    return Decision(False, rate, name, 0, None, 0)


def combine(parts: Sequence[Decision]) -> Decision:
    """Make one answer of the answers of several limits that are spent together.

    A refusal speaks for the part with the longest wait (None beats any); a yes for the part with the least left.
    """
    refusals = [part for part in parts if not part.allowed]
    if refusals:
        spokesman = max(refusals, key=lambda part: float("inf") if part.retry_after_ns is None else part.retry_after_ns)
    else:
        spokesman = min(parts, key=lambda part: part.remaining)
    return Decision(
        not refusals,
        spokesman.rate,
        spokesman.name,
        spokesman.remaining,
        spokesman.retry_after_ns,
        spokesman.reset_after_ns,
        tuple(parts),
    )
