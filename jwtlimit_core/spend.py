"""Spending from several limits as one."""

from collections.abc import Iterable

from jwtlimit_core.decision import Decision, combine
from jwtlimit_core.limiter import RateLimiter, acquire_together, check_question

__all__ = ["acquire_all", "acquire_all_async"]

Spend = tuple[RateLimiter, str, int]


def acquire_all(spends: Iterable[Spend]) -> Decision:
    """Take tokens from several limiters: from all of them, or from none.

    Atomic over the limiters of one process. A pair of limiter and key that occurs twice adds up.

    Args:
        spends: One or more of ``(limiter, key, n)``; see `RateLimiter.acquire`.

    Returns:
        One decision. A refusal carries the longest wait among those that refuse (None, waiting never helps, beats any); a yes
        speaks for the limit with the least left. ``parts`` holds the decision of each pair, in the order of first mention.

    Raises:
        TypeError: A limiter, key or n is of another type; nothing has been charged.
        ValueError: There is nothing to spend.
        LimiterUnavailable: One of the limiters is closed; nothing has been charged.
    """
    return combine(acquire_together(_added_up(spends)))


async def acquire_all_async(spends: Iterable[Spend]) -> Decision:
    """Do what `acquire_all` does, for code that runs on an event loop; it never blocks."""
    return acquire_all(spends)


def _added_up(spends: Iterable[Spend]) -> list[Spend]:
    totals: dict[tuple[RateLimiter, str], int] = {}
    for limiter, key, n in spends:
        if not isinstance(limiter, RateLimiter):
            raise TypeError(f"a limiter must be a RateLimiter, not {type(limiter).__name__}")
        check_question(key, n)
        # A negative n is refused like any; it must not pay for another.
        known = totals.get((limiter, key), 0)
        totals[limiter, key] = min(known, n) if n < 0 or known < 0 else known + n
    if not totals:
        raise ValueError("acquire_all needs at least one (limiter, key, n)")
    return [(limiter, key, n) for (limiter, key), n in totals.items()]
