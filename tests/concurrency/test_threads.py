"""Threads: no token is spent twice, no bucket too many is kept, and nobody waits for ever."""

import faulthandler
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jwtlimit_core import LimiterUnavailable, RateLimiter, acquire_all
from jwtlimit_core.testing import ManualClock

THREADS = 8
WATCHDOG_S = 60


@pytest.fixture(autouse=True)
def _impatient_interpreter() -> Iterator[None]:
    """Switch threads as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(*works: Callable[[], int]) -> int:
    """Run *works* at once, each in a thread; return the sum of what they return, or raise what one of them raised."""
    start, results, errors = threading.Barrier(len(works)), [], []

    def run(work: Callable[[], int]) -> None:
        start.wait()
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    deadline_ns = time.monotonic_ns() + WATCHDOG_S * 10**9
    for thread in threads:
        thread.join(max(0, deadline_ns - time.monotonic_ns()) / 10**9)
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback()
        pytest.fail("the threads locked each other out: see where in the captured stderr")
    if errors:
        raise errors[0]
    return sum(results)


@pytest.fixture(params=["still", "yielding"])
def clock(request: pytest.FixtureRequest, yielding_clock: ManualClock) -> ManualClock:
    return yielding_clock if request.param == "yielding" else ManualClock()


@pytest.mark.parametrize(
    ("ask", "cost"),
    [
        (lambda it: it.allow("hot"), 1),
        (lambda it: it.allow_n("hot", 5), 5),
        (lambda it: it.acquire("hot", 2).allowed, 2),
        (lambda it: acquire_all([(it, "hot", 3), (it, "hot", 1)]).allowed, 4),
    ],
    ids=["allow", "allow_n", "acquire", "acquire_all"],
)
def test_limiter_asked_by_threads_for_one_key_allows_exactly_the_burst(
    clock: ManualClock, ask: Callable[[RateLimiter], bool], cost: int
) -> None:
    limiter = RateLimiter(1000, 60, clock=clock)
    asked = 1600 // cost // THREADS
    allowed = together(*[lambda: sum(ask(limiter) for _ in range(asked))] * THREADS)
    assert allowed * cost == 1000
    assert limiter.peek("hot").remaining == 0


def test_limiter_reset_by_one_thread_allows_the_others_no_more_than_a_burst_for_each_reset(clock: ManualClock) -> None:
    limiter, resets = RateLimiter(100, 60, clock=clock), 20

    def reset() -> int:
        for _ in range(resets):
            limiter.reset("hot")
            limiter.reset_all()
        return 0

    spent = 5 * together(reset, *[lambda: sum(limiter.allow_n("hot", 5) for _ in range(150))] * (THREADS - 1))
    assert 100 <= spent <= 100 * (1 + 2 * resets)
    limiter.reset("hot")
    assert [limiter.allow_n("hot", 100), limiter.allow("hot")] == [True, False]


def test_limiter_closed_by_one_thread_ends_the_others_cleanly(clock: ManualClock) -> None:
    limiter = RateLimiter(10**12, 60, clock=clock)
    asking = threading.Event()

    def close() -> int:
        asking.wait()
        limiter.close()
        return 0

    def allow() -> int:
        while limiter.allow_n("hot", 5) or limiter.allow("cold"):
            asking.set()
        return 0

    def acquire() -> int:
        try:
            while limiter.acquire("hot", 5).allowed:
                asking.set()
        except LimiterUnavailable:
            return 1
        return 0

    assert together(close, *[allow, acquire] * 3) == 3
    assert len(limiter) == 0, "nobody made a bucket after the close"


def test_limiter_flooded_by_threads_stays_within_its_cap_and_exact_for_a_hot_key() -> None:
    limiter = RateLimiter(100, 60, clock=ManualClock())
    done = threading.Event()

    def flood(first: int) -> int:
        allowed = 0
        for key in range(first, 30_000, THREADS):
            assert limiter.allow(str(key))
            if key % 5 == 0:
                allowed += limiter.allow("hot")
        return allowed

    def observe() -> None:
        while not done.is_set():
            largest.append(max(len(limiter), largest.pop()))
            time.sleep(0)

    largest = [0]
    observer = threading.Thread(target=observe)
    observer.start()
    try:
        allowed = together(*[lambda first=first: flood(first) for first in range(THREADS)])
    finally:
        done.set()
        observer.join()
    assert allowed == 100
    assert 9_000 < largest[0] <= 10_000


def test_limiter_that_is_brand_new_admits_one_of_two_threads(clock: ManualClock) -> None:
    limiters = [RateLimiter(1, 60, clock=clock) for _ in range(500)]
    allowed = together(*[lambda: sum(limiter.allow("a") for limiter in limiters)] * 2)
    assert allowed == len(limiters)


def test_acquire_all_by_threads_in_opposite_orders_neither_deadlocks_nor_overspends(clock: ManualClock) -> None:
    one, two = RateLimiter(300, 60, clock=clock), RateLimiter(500, 60, clock=clock)

    def spend(*limiters: RateLimiter) -> int:
        return sum(acquire_all([(limiter, "hot", 1) for limiter in limiters]).allowed for _ in range(100))

    assert together(*[lambda: spend(one, two), lambda: spend(two, one)] * (THREADS // 2)) == 300
    assert (one.peek("hot").remaining, two.peek("hot").remaining) == (0, 200)
