"""acquire_all: tokens from several limiters, all or none, in one answer."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from jwtlimit_core import Decision, LimiterUnavailable, RateLimiter, acquire_all, acquire_all_async
from jwtlimit_core.testing import ManualClock

Spends = Iterable[tuple[RateLimiter, str, int]]


@pytest.fixture(params=[acquire_all, lambda spends: asyncio.run(acquire_all_async(spends))], ids=["sync", "async"])
def spend(request: pytest.FixtureRequest) -> Callable[[Spends], Decision]:
    """Every test here holds for both forms."""
    return request.param


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fast(clock: ManualClock) -> RateLimiter:
    """Five tokens, one back each second."""
    return RateLimiter(5, 5, name="fast", clock=clock)


@pytest.fixture
def slow(clock: ManualClock) -> RateLimiter:
    """Three tokens, one back each minute."""
    return RateLimiter(3, 180, name="slow", clock=clock)


def left(limiter: RateLimiter, key: str = "a") -> int:
    return limiter.peek(key).remaining


def test_acquire_all_where_all_have_enough_charges_all(spend, fast, slow) -> None:
    decision = spend([(fast, "a", 2), (slow, "b", 1)])
    assert (decision.allowed, decision.retry_after_ns) == (True, 0)
    assert [(part.allowed, part.name, part.remaining) for part in decision.parts] == [(True, "fast", 3), (True, "slow", 2)]
    assert (left(fast, "a"), left(slow, "b")) == (3, 2)
    assert (decision.name, decision.remaining, decision.rate) == ("slow", 2, slow.rate)


@pytest.mark.parametrize("turned", [False, True])
def test_acquire_all_refused_by_one_charges_none(spend, fast, slow, turned: bool) -> None:
    slow.allow_n("a", 3)
    fast.allow("a")
    spends = [(fast, "a", 2), (slow, "a", 1)]
    decision = spend(reversed(spends) if turned else spends)
    assert (decision.allowed, decision.name, decision.retry_after_ns) == (False, "slow", 60 * 10**9)
    assert (left(fast), left(slow)) == (4, 0)


@pytest.mark.parametrize("known", [True, False])
def test_acquire_all_refused_shows_the_others_as_they_are(spend, fast, slow, known: bool) -> None:
    slow.allow_n("a", 3)
    if known:
        fast.allow("a")
    decision = spend([(fast, "a", 2), (slow, "a", 1)])
    assert decision.parts == (fast.peek("a", 2), slow.peek("a", 1))
    assert [part.allowed for part in decision.parts] == [True, False]
    assert ("a" in fast) == known, "a refusal makes no bucket"


def test_acquire_all_refused_by_several_carries_the_longest_wait(spend, fast, slow, clock) -> None:
    fast.allow_n("a", 5)
    slow.allow_n("a", 3)
    decision = spend([(slow, "a", 1), (fast, "a", 1)])
    assert [part.retry_after_ns for part in decision.parts] == [60 * 10**9, 10**9]
    assert decision.retry_after_ns == 60 * 10**9
    clock.advance_ns(decision.retry_after_ns - 1)
    assert not spend([(slow, "a", 1), (fast, "a", 1)]).allowed
    clock.advance_ns(1)
    assert spend([(slow, "a", 1), (fast, "a", 1)]).allowed


@pytest.mark.parametrize(("key", "n"), [("a", 6), ("a", -1), ("", 1)])
def test_acquire_all_asked_the_impossible_says_that_waiting_never_helps(spend, fast, slow, key: str, n: int) -> None:
    slow.allow_n("a", 3)
    decision = spend([(slow, "a", 1), (fast, key, n)])
    assert (decision.allowed, decision.name, decision.retry_after_ns, decision.retry_after) == (False, "fast", None, None)
    assert not spend([(slow, "b", 1), (fast, key, n)]).allowed
    assert (left(slow, "b"), len(fast)) == (3, 0)


def test_acquire_all_of_a_pair_that_occurs_twice_adds_up(spend, fast) -> None:
    assert spend([(fast, "a", 2), (fast, "b", 1), (fast, "a", 3)]).allowed
    assert (left(fast, "a"), left(fast, "b")) == (0, 4)
    refusal = spend([(fast, "b", 2), (fast, "b", 3)])
    assert (refusal.allowed, refusal.retry_after_ns, len(refusal.parts)) == (False, 10**9, 1)
    assert spend([(fast, "c", 3), (fast, "c", 3)]).retry_after_ns is None, "together more than the burst"


def test_acquire_all_of_two_keys_in_one_limiter_charges_each(spend, fast) -> None:
    fast.allow_n("b", 5)
    assert not spend([(fast, "a", 1), (fast, "b", 1)]).allowed
    assert left(fast, "a") == 5
    assert spend([(fast, "a", 1), (fast, "c", 1)]).allowed
    assert (left(fast, "a"), left(fast, "c")) == (4, 4)


@pytest.mark.parametrize("costs", [(-1, 2), (2, -1), (-1, 1, 1), (1, -3, 5)])
def test_acquire_all_with_a_negative_cost_is_refused_and_pays_for_nothing(spend, fast, costs: tuple[int, ...]) -> None:
    decision = spend([(fast, "a", n) for n in costs])
    assert (decision.allowed, decision.retry_after_ns) == (False, None)
    assert len(fast) == 0


@pytest.mark.parametrize("key", ["a", ""])
def test_acquire_all_of_nothing_from_a_limiter_is_allowed_and_makes_no_bucket(spend, fast, slow, key: str) -> None:
    assert spend([(fast, key, 0), (slow, "a", 1)]).allowed
    assert (len(fast), left(slow)) == (0, 2)


def test_acquire_all_of_an_empty_list_is_a_value_error(spend) -> None:
    with pytest.raises(ValueError, match="at least one"):
        spend([])


@pytest.mark.parametrize("wrong", [("limiter", "a", 1), (None, "a", 1)])
def test_acquire_all_from_what_is_no_limiter_is_a_type_error_and_charges_none(spend, fast, wrong) -> None:
    with pytest.raises(TypeError, match="a limiter must be a RateLimiter or one over a store, not"):
        spend([(fast, "a", 1), wrong])
    assert len(fast) == 0


@pytest.mark.parametrize(("key", "n"), [(None, 1), (b"a", 1), ("a", True), ("a", 1.0)])
def test_acquire_all_with_a_wrong_type_is_a_type_error_and_charges_none(spend, fast, slow, key, n) -> None:
    with pytest.raises(TypeError, match=r"must be an? (int|str), not"):
        spend([(fast, "a", 1), (slow, key, n)])
    assert len(fast) == 0


@pytest.mark.parametrize("turned", [False, True])
def test_acquire_all_with_a_closed_limiter_is_unavailable_and_charges_none(spend, fast, slow, turned: bool) -> None:
    slow.close()
    spends = [(fast, "a", 1), (slow, "a", 1)]
    with pytest.raises(LimiterUnavailable, match="'slow' is closed"):
        spend(reversed(spends) if turned else spends)
    assert len(fast) == 0
    assert fast.allow("a"), "the turn is free again"


def test_acquire_all_refused_is_a_use_of_the_buckets_that_it_asked(spend, slow, clock) -> None:
    fast = RateLimiter(1, 5, max_buckets=3, clock=clock)
    slow.allow_n("x", 3)
    for key in "abc":
        fast.allow(key)
    assert not spend([(fast, "a", 1), (slow, "x", 1)]).allowed
    fast.allow("d")
    assert [key in fast for key in "abcd"] == [True, False, True, True]
    clock.advance(7)
    assert not spend([(fast, "a", 1), (slow, "x", 1)]).allowed
    clock.advance(7)  # more than two windows since all of them but "a" were used
    fast.allow("e")
    assert [key in fast for key in "acde"] == [True, False, False, True]


def test_acquire_all_with_room_for_one_key_of_two_keeps_the_last(spend, clock) -> None:
    limiter = RateLimiter(2, 60, max_buckets=1, clock=clock)
    decision = spend([(limiter, "a", 1), (limiter, "b", 2)])
    assert [part.remaining for part in decision.parts] == [1, 0]
    assert ("a" in limiter, "b" in limiter, left(limiter, "b")) == (False, True, 0)
