"""What limiters over a store promise beyond the contract of all: windows, clocks of other hosts, several limits in a step."""

from typing import Any

import pytest

from jwtlimit_core import ConfigError, LimiterUnavailable
from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket
from jwtlimit_core.testing import ManualClock
from stores import Stores

DAY = 86_400
MINUTE_US = 60_000_000
BUCKETS, WINDOWS = [RedisTokenBucket, AsyncRedisTokenBucket], [RedisFixedWindow, AsyncRedisFixedWindow]


@pytest.fixture
def clock() -> ManualClock:
    """Counts microseconds, and starts a tenth of a second before a full minute."""
    return ManualClock(monotonic_ns=30_000_000 * MINUTE_US - 100_000)


@pytest.mark.parametrize("kind", WINDOWS)
def test_window_starts_at_the_first_request_of_its_key_and_the_wait_is_to_its_end(
    stores: Stores, kind: type, clock: ManualClock
) -> None:
    limiter = stores.limiter(kind, 3, 60, now=clock)
    assert limiter.acquire("a").reset_after_ns == 60 * 10**9
    clock.advance_ns(40_000_000)
    assert limiter.allow("b")
    assert limiter.acquire("a", 2).reset_after_ns == 20 * 10**9
    for _ in range(3):  # refused calls are not counted, and do not prolong the window
        refusal = limiter.acquire("a")
        assert (refusal.allowed, refusal.remaining) == (False, 0)
        assert refusal.retry_after_ns == refusal.reset_after_ns == 20 * 10**9
    clock.advance_ns(20_000_000 - 1)
    assert not limiter.allow("a")
    clock.advance_ns(1)
    assert limiter.acquire("a", 3).reset_after_ns == 60 * 10**9
    assert limiter.peek("b").reset_after_ns == 40 * 10**9


@pytest.mark.parametrize("kind", WINDOWS)
def test_window_lets_twice_its_limit_through_around_its_edge_and_never_more(
    stores: Stores, kind: type, clock: ManualClock
) -> None:
    limiter = stores.limiter(kind, 10, 60, now=clock)
    limiter.allow("a")
    clock.advance_ns(MINUTE_US - 1)
    passed = sum(limiter.allow("a") for _ in range(20))
    clock.advance_ns(1)
    passed += sum(limiter.allow("a") for _ in range(20))
    clock.advance_ns(MINUTE_US - 1)
    passed += sum(limiter.allow("a") for _ in range(20))
    assert passed == 9 + 10


@pytest.mark.parametrize("kind", WINDOWS)
def test_window_refund_lowers_the_count_and_not_below_none(stores: Stores, kind: type, clock: ManualClock) -> None:
    limiter = stores.limiter(kind, 5, 60, now=clock)
    limiter.refund("a", 3)
    assert limiter.allow_n("a", 5)
    limiter.refund("a", 2)
    assert limiter.peek("a").remaining == 2
    limiter.refund("a", 100)
    assert [limiter.peek("a").remaining, limiter.allow_n("a", 5), limiter.allow("a")] == [5, True, False]
    clock.advance_ns(MINUTE_US)
    limiter.refund("a", 1)
    assert limiter.acquire("a").reset_after_ns == 60 * 10**9, "the refund of a window that is over begins none"


@pytest.mark.parametrize("kind", BUCKETS)
def test_bucket_under_clocks_apart_gives_nothing_for_the_difference_but_once(
    stores: Stores, kind: type, clock: ManualClock
) -> None:
    ahead = ManualClock(monotonic_ns=clock.monotonic_ns() + 5_000_000)
    limiters = [stores.limiter(kind, 1, 1, burst=10, now=now, prefix=f"apart {kind.__name__}") for now in (clock, ahead)]
    # The first second that is missing comes back when the clock ahead is seen, and never again.
    assert sum(limiters[turn % 2].allow("a") for turn in range(100)) == 10 + 1


@pytest.mark.parametrize("kind", BUCKETS + WINDOWS)
def test_limiters_on_hosts_with_clocks_apart_count_by_that_of_the_server(stores: Stores, kind: type) -> None:
    hosts = [ManualClock(time_ns=ns, monotonic_ns=ns) for ns in (10**15, 10**15 + 5 * 10**9)]
    limiters = [
        stores.limiter(kind, 10, DAY, clock=host, local_refusal=True, prefix=f"hosts {kind.__name__}") for host in hosts
    ]
    assert sum(limiters[turn % 2].allow("a") for turn in range(40)) == 10


@pytest.mark.parametrize("kind", BUCKETS + WINDOWS)
def test_limiter_charges_a_cost_of_ten_thousand_as_one_number(stores: Stores, kind: type) -> None:
    limiter = stores.limiter(kind, 20_000, DAY)
    assert [limiter.allow_n("a", 10_000) for _ in range(3)] == [True, True, False]
    assert limiter.peek("a").remaining == 0


@pytest.mark.parametrize("kind", BUCKETS)
def test_bucket_of_a_slow_rate_polled_for_ten_hours_gives_one_an_hour(stores: Stores, kind: type, clock: ManualClock) -> None:
    limiter, passed = stores.limiter(kind, 1, 3600, now=clock), 0
    for _ in range(0, 36_000, 60):
        passed += limiter.allow("a")
        clock.advance_ns(60_000_007)
    assert passed == 10


@pytest.mark.parametrize("kind", BUCKETS + WINDOWS)
def test_acquire_all_over_a_store_charges_none_where_one_refuses(stores: Stores, kind: type, clock: ManualClock) -> None:
    wide, narrow = (stores.limiter(kind, limit, 60, now=clock, name=f"{limit}") for limit in (10, 2))
    assert stores.acquire_all([(wide, "a", 2), (narrow, "a", 2)]).allowed
    for turn in (1, -1):
        decision = stores.acquire_all([(wide, "a", 1), (narrow, "a", 1), (wide, "b", 3)][::turn])
        assert [(part.name, part.allowed, part.remaining) for part in decision.parts][::turn] == [
            ("10", True, 8),
            ("2", False, 0),
            ("10", True, 10),
        ]
    assert [wide.peek("a").remaining, narrow.peek("a").remaining, wide.peek("b").remaining] == [8, 0, 10]
    assert stores.value(wide, "b") is None, "a refusal makes no state"


def test_acquire_all_over_both_algorithms_is_one_step(stores: Stores) -> None:
    bucket, window = stores.limiter(RedisTokenBucket, 5, DAY, name="b"), stores.limiter(RedisFixedWindow, 3, DAY, name="w")
    assert [stores.acquire_all([(bucket, "a", 1), (window, "a", 1)]).allowed for _ in range(4)] == [True, True, True, False]
    assert (bucket.peek("a").remaining, window.peek("a").remaining) == (2, 0)


@pytest.mark.parametrize("kinds", [(RedisTokenBucket, RedisTokenBucket), (RedisTokenBucket, RedisFixedWindow)])
def test_acquire_all_over_two_limits_of_one_name_is_a_config_error_and_charges_none(stores: Stores, kinds: Any) -> None:
    one, two = (stores.limiter(kind, 5, DAY, prefix="one name") for kind in kinds)
    with pytest.raises(ConfigError, match="need a name each: two are called 'default'"):
        stores.acquire_all([(one, "a", 1), (two, "a", 1)])
    assert stores.value(one, "a") is None


@pytest.mark.parametrize("kind", BUCKETS + WINDOWS)
def test_limiter_closed_refuses_what_it_had_to_ask_for(stores: Stores, kind: type) -> None:
    limiter = stores.limiter(kind, 1, DAY, local_refusal=True)
    assert [limiter.allow("a"), limiter.allow("a")] == [True, False]
    limiter.close()
    assert (limiter.allow("a"), limiter.allow("b"), limiter.allow_n("a", 0)) == (False, False, True)
    for ask in (
        limiter.acquire,
        limiter.peek,
        limiter.refund,
        limiter.reset,
        lambda key: stores.acquire_all([(limiter, key, 1)]),
    ):
        with pytest.raises(LimiterUnavailable, match="is closed"):
            ask("a")
    assert stores.client.ping(), "the client belongs to its owner"


@pytest.mark.parametrize("kind", BUCKETS + WINDOWS)
@pytest.mark.parametrize(("key", "n"), [(None, 1), (b"a", 1), ("a", True), ("a", 1.0), ("a", "1")])
def test_limiter_asked_by_a_wrong_type_is_a_type_error(stores: Stores, kind: type, key: Any, n: Any) -> None:
    limiter = stores.limiter(kind, 5, DAY)
    for ask in (limiter.allow_n, limiter.acquire, limiter.peek, limiter.refund):
        with pytest.raises(TypeError, match=r"must be an? (int|str), not"):
            ask(key, n)
