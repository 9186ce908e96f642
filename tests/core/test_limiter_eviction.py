"""RateLimiter at its cap: memory is bounded, whoever was active lately keeps what they owe, and nobody pays for many."""

from datetime import timedelta

import pytest

from jwtlimit_core import RateLimiter
from jwtlimit_core.testing import ManualClock

WINDOW_S = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def filled(clock: ManualClock, size: int, max_buckets: int | None = None) -> RateLimiter:
    """A limiter in which the keys 0 to *size* - 1, oldest first, have spent their one token."""
    limiter = RateLimiter(1, timedelta(seconds=WINDOW_S), max_buckets=max_buckets or size, clock=clock)
    for i in range(size):
        assert limiter.allow(str(i))
    return limiter


def held(limiter: RateLimiter) -> list[str]:
    return list(map(str, limiter._buckets))


def test_limiter_at_10_000_goes_to_9_001_and_takes_999_more_without_another_eviction(clock: ManualClock) -> None:
    limiter = filled(clock, 10_000)
    sizes = []
    for i in range(1001):
        limiter.allow(f"new {i}")
        sizes.append(len(limiter))
    assert sizes == [*range(9_001, 10_001), 9_001]


def test_limiter_at_the_cap_keeps_recently_drained_keys_drained(clock: ManualClock) -> None:
    limiter = filled(clock, 10_000)
    assert limiter.allow("new")
    assert not any(limiter.allow(str(i)) for i in range(1000, 10_000))
    assert "999" not in limiter


def test_limiter_asked_by_100_000_one_time_keys_never_holds_more_than_the_cap(clock: ManualClock) -> None:
    limiter = RateLimiter(clock=clock)
    for i in range(100_000):
        assert limiter.allow(str(i))
        assert len(limiter) <= 10_000


@pytest.mark.parametrize("idle_first", [True, False])
def test_limiter_of_any_size_evicts_at_most_1_000_in_one_call(clock: ManualClock, idle_first: bool) -> None:
    limiter = filled(clock, 20_000)
    clock.advance(2 * WINDOW_S + 1 if idle_first else 0)
    sizes = [len(limiter) for i in range(1001) if limiter.allow(f"new {i}")]
    assert sizes == [*range(19_001, 20_001), 19_001]


def test_limiter_at_the_cap_evicts_only_idle_buckets_where_there_are_any(clock: ManualClock) -> None:
    limiter = filled(clock, 30, max_buckets=100)
    clock.advance_ns(1)
    for i in range(30, 100):
        assert limiter.allow(str(i))
    clock.advance(2 * WINDOW_S)  # now the first 30 are idle for a nanosecond longer than two windows, the rest are not
    assert limiter.allow("new")
    assert held(limiter) == [*map(str, range(30, 100)), "new"]


def test_limiter_counts_a_bucket_that_fills_slowly_as_idle_only_when_it_is_full(clock: ManualClock) -> None:
    limiter = RateLimiter(1, WINDOW_S, burst=5, max_buckets=20, clock=clock)
    assert limiter.allow_n("slow", 5)
    clock.advance(5 * WINDOW_S)  # idle for more than two windows, but not for more than the time to fill
    for i in range(19):
        limiter.allow(str(i))
    limiter.allow("new")
    assert held(limiter) == [*map(str, range(1, 19)), "new"]  # so the oldest tenth went, and not it alone


@pytest.mark.parametrize("use", [RateLimiter.allow, lambda it, key: it.allow_n(key, 1), RateLimiter.acquire])
def test_limiter_counts_a_refused_call_as_a_use(clock: ManualClock, use) -> None:  # type: ignore[no-untyped-def]
    limiter = filled(clock, 20)
    clock.advance(WINDOW_S - 1)
    use(limiter, "0")
    assert limiter.peek("0").remaining == 0
    limiter.allow("new")  # two go: the oldest tenth
    assert held(limiter) == [*map(str, range(3, 20)), "0", "new"]
    clock.advance(2 * WINDOW_S)  # for so long "0" is not idle, but all that were not asked since the start are
    limiter.allow("newer")
    limiter.allow("newest")
    assert held(limiter) == ["0", "new", "newer", "newest"]


@pytest.mark.parametrize("look", [RateLimiter.peek, RateLimiter.refund, lambda it, key: it.allow_n(key, 0)])
def test_limiter_does_not_count_looking_or_refunding_as_a_use(clock: ManualClock, look) -> None:  # type: ignore[no-untyped-def]
    limiter = filled(clock, 20)
    look(limiter, "0")
    limiter.allow("new")
    assert held(limiter) == [*map(str, range(2, 20)), "new"]


@pytest.mark.parametrize(("key", "n"), [("new", 0), ("new", -1), ("new", 2), ("", 1)])
def test_limiter_at_the_cap_evicts_nothing_for_what_makes_no_bucket(clock: ManualClock, key: str, n: int) -> None:
    limiter = filled(clock, 20)
    limiter.allow_n(key, n)
    limiter.acquire(key, n)
    limiter.peek(key, n)
    assert held(limiter) == list(map(str, range(20)))


def test_limiter_with_room_for_one_key_holds_the_last(clock: ManualClock) -> None:
    limiter = RateLimiter(1, WINDOW_S, max_buckets=1, clock=clock)
    assert [limiter.allow(key) for key in "aabb"] == [True, False, True, False]
    assert held(limiter) == ["b"]
