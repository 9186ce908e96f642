"""Room for a new bucket in a full map: who goes, in bounded work.

The map is kept in order of last use, oldest first, so that nothing is ever searched or sorted.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

from jwtlimit_core.bucket import State
from jwtlimit_core.rate import Rate

__all__ = ["MOST_EVICTED", "idle_limit_ns", "make_room"]

MOST_EVICTED = 1_000  # in one call, whatever the size of the map: it bounds the time that one caller pays for all

_Key = TypeVar("_Key", bound=Hashable)


def idle_limit_ns(rate: Rate) -> int:
    """Return the idle time, in nanoseconds, after which a bucket of *rate* is surely full and may be forgotten."""
    return max(2 * rate.window_ns, -(-rate.capacity // rate.refill))


def make_room(buckets: "OrderedDict[_Key, State]", *, now_ns: int, idle_ns: int, max_buckets: int) -> None:
    """Remove the buckets that are idle for longer than *idle_ns*, or else the oldest tenth of *max_buckets*.

    Either way at least one goes and at most `MOST_EVICTED` do. Forgetting an idle bucket loses nothing, since it is full;
    what a bucket of the oldest tenth owed is forgotten.
    """
    newest_idle_ns = now_ns - idle_ns
    evicted = 0
    while evicted < MOST_EVICTED and buckets and next(iter(buckets.values()))[1] < newest_idle_ns:
        buckets.popitem(last=False)
        evicted += 1
    if not evicted:
        for _ in range(min(MOST_EVICTED, max(1, max_buckets // 10))):
            buckets.popitem(last=False)
