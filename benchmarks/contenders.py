"""Who is measured: for a limit, a window in seconds and a capacity in keys, each gives a new call that checks one key."""

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import Lock

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage as Counters
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from throttled import MemoryStore, Throttled, per_duration
from token_bucket import Limiter
from token_bucket import MemoryStorage as Buckets

from benchmarks.measure import Call
from jwtlimit_core import RateLimiter

__all__ = ["CAPACITY", "OURS", "PEERS", "PLENTY", "SCARCE", "Contender", "floor", "limits_moving", "ours", "ours_blocking"]

Contender = Callable[[int, int, int], Call]

CAPACITY = 10_000
PLENTY = (100_000_000, 60)  # limit and window: nothing that is measured here comes near it
SCARCE = (1, 3600)


def floor(_limit: int, _window_s: int, _capacity: int) -> Call:
    """Do only what no limiter can do without: find the key, keep others out, read the clock."""
    found: dict[str, object] = {}
    find, lock, now_ns = found.get, Lock(), time.monotonic_ns
    acquire, release = lock.acquire, lock.release

    def check(key: str) -> None:
        acquire()
        find(key)
        now_ns()
        release()

    return check


def ours(limit: int, window_s: int, capacity: int) -> Call:
    return RateLimiter(limit, window_s, max_buckets=capacity).allow


def ours_blocking(limit: int, window_s: int, capacity: int) -> Call:
    """Do the same check within the kind of lock that it avoids."""
    allow, lock = ours(limit, window_s, capacity), Lock()

    def check(key: str) -> object:
        with lock:
            return allow(key)

    return check


def token_bucket(limit: int, window_s: int, _capacity: int) -> Call:
    check: Call = Limiter(limit / window_s, limit, Buckets()).consume  # it keeps every key for ever
    return check


def limits_fixed(limit: int, window_s: int, _capacity: int) -> Call:
    return partial(FixedWindowRateLimiter(Counters()).hit, RateLimitItemPerSecond(limit, window_s))


def limits_moving(limit: int, window_s: int, _capacity: int) -> Call:
    return partial(MovingWindowRateLimiter(Counters()).hit, RateLimitItemPerSecond(limit, window_s))


def throttled(limit: int, window_s: int, capacity: int) -> Call:
    quota = per_duration(timedelta(seconds=window_s), limit)
    check: Call = Throttled(using="token_bucket", quota=quota, store=MemoryStore(options={"MAX_SIZE": capacity})).limit
    return check


OURS = "jwtlimit"
PEERS: dict[str, Contender] = {
    "token-bucket": token_bucket,
    "limits, fixed window": limits_fixed,
    "throttled-py, token bucket": throttled,
}
