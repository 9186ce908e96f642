"""Spending from several limits as one."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, cast

from jwtlimit_core.decision import Decision, combine
from jwtlimit_core.errors import LimiterUnavailable
from jwtlimit_core.flow import Flow, run, run_async
from jwtlimit_core.limiter import RateLimiter, acquire_together, check_question

__all__ = ["SharedLimiter", "Spend", "acquire_all", "acquire_all_async", "put_back", "spend_all"]


class SharedLimiter(Protocol):
    """A limiter over a store, as it is spent from together with others."""

    @property
    def awaits(self) -> bool:
        """Whether its flows need an event loop."""

    def group(self, key: str) -> Hashable:
        """Return what tells which keys of which limiters can be spent in one step."""

    def spend_all(self, spends: Sequence[Any], *, alone: bool) -> Flow[list[Decision]]:
        """Spend from limits of one group in one step: all, or none."""

    def refund_flow(self, key: str, n: int) -> Flow[None]:
        """Put *n* tokens of *key* back."""


Spend = tuple[RateLimiter | SharedLimiter, str, int]


def acquire_all(spends: Iterable[Spend]) -> Decision:
    """Take tokens from several limiters: from all of them, or from none.

    A pair of limiter and key that occurs twice adds up. How firmly "all or none" holds depends on where the limiters count:

    * In this process, or over one client of one server: one step. Nobody ever sees a part of it.
    * Otherwise (different servers, different slots of a cluster, or memory and a store): one after the other, and what was
      taken is put back when a later one refuses or fails. In between, others may be refused for want of it; if the store fails
      before it is put back, or this process ends, it comes back only with time. More than a limit is never admitted.

    Args:
        spends: One or more of ``(limiter, key, n)``; see `RateLimiter.acquire`.

    Returns:
        One decision. A refusal carries the longest wait among those that refuse (None, waiting never helps, beats any); a yes
        speaks for the limit with the least left. ``parts`` holds the decision of each pair, in the order of first mention; of a
        refusal that is known without asking a store, only of the pairs that refuse.

    Raises:
        TypeError: A limiter, key or n is of another type, or a limiter needs an event loop; nothing has been charged.
        ValueError: There is nothing to spend.
        LimiterUnavailable: One of the limiters is closed or gave no answer; nothing has been charged.
    """
    return run(spend_all(spends, on_loop=False))


async def acquire_all_async(spends: Iterable[Spend]) -> Decision:
    """Do what `acquire_all` does, on an event loop, which it never blocks: limiters count in process, or have coroutines."""
    return await run_async(spend_all(spends, on_loop=True))


def spend_all(spends: Iterable[Spend], *, on_loop: bool) -> Flow[Decision]:
    """Do what `acquire_all` does, or with *on_loop* what `acquire_all_async` does."""
    groups: dict[Hashable, list[Spend]] = {}
    for limiter, key, n in _added_up(spends, on_loop=on_loop):
        where = "memory" if isinstance(limiter, RateLimiter) else limiter.group(key)
        groups.setdefault(where, []).append((limiter, key, n))
    parts: list[Decision] = []
    taken: list[Spend] = []
    for group in groups.values():
        try:
            if isinstance(group[0][0], RateLimiter):
                found = acquire_together(cast("list[tuple[RateLimiter, str, int]]", group))
            else:
                found = yield from group[0][0].spend_all(group, alone=len(groups) == 1)
        except BaseException as error:
            yield from put_back(taken, abandoned=isinstance(error, GeneratorExit))
            raise
        parts += found
        if not all(decision.allowed for decision in found):
            yield from put_back(taken)
            return combine(found)
        taken += group
    return combine(parts)


def put_back(taken: Sequence[Spend], *, abandoned: bool = False) -> Flow[None]:
    """Put back what was taken, where the store answers; of an *abandoned* flow, whose calls nobody makes, what needs none."""
    for limiter, key, n in taken:
        try:
            if isinstance(limiter, RateLimiter):
                limiter.refund(key, n)
            elif not abandoned:
                yield from limiter.refund_flow(key, n)
        except LimiterUnavailable:
            continue  # it comes back with time


def _added_up(spends: Iterable[Spend], *, on_loop: bool) -> list[Spend]:
    totals: dict[tuple[RateLimiter | SharedLimiter, str], int] = {}
    for limiter, key, n in spends:
        if not isinstance(limiter, RateLimiter):
            awaits = getattr(limiter, "awaits", None)
            if awaits is None:
                raise TypeError(f"a limiter must be a RateLimiter or one over a store, not {type(limiter).__name__}")
            if awaits is not on_loop:
                other = "acquire_all_async" if awaits else "acquire_all, away from the event loop"
                raise TypeError(f"{type(limiter).__name__} belongs into {other}")
        check_question(key, n)
        # A negative n is refused like any; it must not pay for another.
        known = totals.get((limiter, key), 0)
        totals[limiter, key] = min(known, n) if n < 0 or known < 0 else known + n
    if not totals:
        raise ValueError("acquire_all needs at least one (limiter, key, n)")
    return [(limiter, key, n) for (limiter, key), n in totals.items()]
