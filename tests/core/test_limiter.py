"""RateLimiter: its answers in the documented order, its upkeep, and its bounds."""

import copy
import pickle
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from freezegun import freeze_time

from jwtlimit_core import ConfigError, LimiterUnavailable, Rate, RateLimiter
from jwtlimit_core.testing import ManualClock

IMPOSSIBLE = [("a", -1), ("a", 6), ("a", 10**30), ("", 1), ("", 6), ("", -1)]


class Text(str):
    """A subclass of str, such as web frameworks hand out."""

    __slots__ = ()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limiter(clock: ManualClock) -> RateLimiter:
    """Five tokens, one back each 12 s."""
    return RateLimiter(5, timedelta(minutes=1), clock=clock)


def drain(limiter: RateLimiter, key: str) -> None:
    assert limiter.allow_n(key, limiter.peek(key).remaining)
    assert not limiter.allow(key)


# The settings --------------------------------------------------------------------------------------------------


def test_limiter_by_default_is_the_reference_one(clock: ManualClock) -> None:
    limiter = RateLimiter(clock=clock)
    assert (limiter.rate, limiter.name, limiter.max_buckets) == (Rate(100, 60), "default", 10_000)


def test_limiter_of_the_reference_refuses_the_101st_and_lets_one_more_pass_after_600_ms(clock: ManualClock) -> None:
    limiter = RateLimiter(100, timedelta(minutes=1), clock=clock)
    assert [limiter.allow("k") for _ in range(101)] == [True] * 100 + [False]
    clock.advance_ns(599_999_999)
    assert not limiter.allow("k")
    clock.advance_ns(1)
    assert [limiter.allow("k"), limiter.allow("k")] == [True, False]
    limiter.reset("k")
    assert [limiter.allow_n("k", 10), limiter.allow_n("k", 95)] == [True, False]
    assert limiter.allow_n("k", 90)


@pytest.mark.parametrize("rate", [Rate(10, 1, 50), "10/s;burst=50"])
def test_limiter_from_a_rate_has_that_rate(rate: Rate | str, clock: ManualClock) -> None:
    limiter = RateLimiter.from_rate(rate, name="login", max_buckets=7, clock=clock)
    assert (limiter.rate, limiter.name, limiter.max_buckets) == (Rate(10, 1, 50), "login", 7)
    drain(limiter, "a")
    clock.advance(0.1)
    assert limiter.allow("a")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *[({"max_rate": bad}, "limit must be") for bad in (0, -1, 1.5, True, "100")],
        *[({"window": bad}, "window must be") for bad in (0, -1, float("nan"), "60", True)],
        *[({"burst": bad}, "burst must be") for bad in (0, -1, True)],
        *[({"name": bad}, "name must be") for bad in ("", None, 5)],
        *[({"max_buckets": bad}, "max_buckets must be") for bad in (0, -1, 1.5, True, None)],
        *[({"clock": bad}, "clock must have") for bad in (None, time.monotonic)],
    ],
)
def test_limiter_with_a_bad_setting_is_a_config_error(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RateLimiter(**settings)  # type: ignore[arg-type]


def test_limiter_with_a_number_too_long_to_print_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="max_buckets must be"):
        RateLimiter(max_buckets=-(10**5000))


@pytest.mark.parametrize("bad", [0, None, "", "soon", b"1/s"])
def test_limiter_from_what_is_no_rate_is_a_config_error(bad: object) -> None:
    with pytest.raises(ConfigError):
        RateLimiter.from_rate(bad)  # type: ignore[arg-type]


# The questions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "n"), IMPOSSIBLE)
def test_limiter_asked_the_impossible_refuses_and_makes_no_bucket(limiter: RateLimiter, key: str, n: int) -> None:
    assert limiter.allow_n(key, n) is False
    for decision in (limiter.acquire(key, n), limiter.peek(key, n)):
        assert (decision.allowed, decision.retry_after_ns, decision.retry_after) == (False, None, None)
    assert len(limiter) == 0


@pytest.mark.parametrize("key", ["a", ""])
def test_limiter_asked_for_nothing_says_yes_and_makes_no_bucket(limiter: RateLimiter, key: str) -> None:
    assert limiter.allow_n(key, 0) is True
    for decision in (limiter.acquire(key, 0), limiter.peek(key, 0)):
        assert (decision.allowed, decision.remaining, decision.retry_after_ns) == (True, 5, 0)
    assert len(limiter) == 0


def test_limiter_asked_by_the_empty_key_refuses_even_one(limiter: RateLimiter) -> None:
    assert limiter.allow("") is False


@pytest.mark.parametrize("method", ["allow_n", "acquire", "peek", "refund"])
@pytest.mark.parametrize(("key", "n"), [("a", True), ("a", 1.0), ("a", "1"), ("a", None), (None, 1), (b"a", 1), (7, 1), (7, 0)])
def test_limiter_asked_with_a_wrong_type_is_a_type_error(limiter: RateLimiter, method: str, key: object, n: object) -> None:
    with pytest.raises(TypeError, match=r"must be an? (int|str), not"):
        getattr(limiter, method)(key, n)
    assert len(limiter) == 0


@pytest.mark.parametrize("method", ["allow", "acquire", "peek", "refund", "reset"])
@pytest.mark.parametrize("key", [None, b"", b"a", 7, ["a"], ("a",)])
def test_limiter_asked_by_a_key_that_is_no_text_is_a_type_error(limiter: RateLimiter, method: str, key: object) -> None:
    with pytest.raises(TypeError, match="key must be a str, not"):
        getattr(limiter, method)(key)


def test_limiter_asked_by_a_subclass_of_str_charges_the_same_bucket(limiter: RateLimiter) -> None:
    assert limiter.allow_n("a", 4)
    assert [limiter.allow(Text("a")), limiter.allow(Text("a")), limiter.allow(Text(""))] == [True, False, False]


def test_limiter_with_a_limit_of_one_an_hour_lets_one_through(clock: ManualClock) -> None:
    limiter = RateLimiter(1, timedelta(hours=1), clock=clock)
    assert limiter.peek("a").allowed
    assert [limiter.acquire("a").allowed for _ in range(3)] == [True, False, False]


def test_limiter_refused_each_second_at_one_in_three_is_allowed_after_three(clock: ManualClock) -> None:
    limiter, answers = RateLimiter(1, 3, clock=clock), []
    for _ in range(7):
        answers.append(limiter.allow("a"))
        clock.advance(1)
    assert answers == [True, False, False, True, False, False, True]


def test_limiter_peek_changes_nothing(limiter: RateLimiter, clock: ManualClock) -> None:
    limiter.allow_n("a", 3)
    limiter.allow("b")
    before = dict(limiter._buckets)
    clock.advance(1)
    assert limiter.peek("a", 2).remaining == 2
    assert not limiter.peek("a", 3).allowed
    limiter.peek("c")
    assert dict(limiter._buckets) == before
    assert list(limiter._buckets) == ["a", "b"]


def test_limiter_never_reads_the_wall_clock(clock: ManualClock) -> None:
    wall_less = SimpleNamespace(monotonic_ns=clock.monotonic_ns)
    limiter = RateLimiter(1, 60, clock=wall_less)  # type: ignore[arg-type]
    assert [limiter.allow("a"), limiter.allow("a")] == [True, False]
    clock.advance(60)
    assert limiter.acquire("a").allowed


def test_limiter_in_frozen_wall_time_leaves_no_bucket_stuck() -> None:
    # Frozen time reads decades away from the real monotonic clock, on either side; both ends must not meet in a bucket.
    for frozen in ("2100-01-01", "1970-01-01"):
        limiter = RateLimiter(1, timedelta(microseconds=1))
        with freeze_time(frozen):
            limiter.allow("a")
        started_ns = time.monotonic_ns()
        while not limiter.allow("a"):
            assert time.monotonic_ns() - started_ns < 10**9


# The upkeep ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spent", "back", "left"), [(3, 1, 3), (3, 3, 5), (3, 4, 5), (1, 10**9, 5), (3, 0, 2), (3, -2, 2)])
def test_limiter_refund_gives_back_up_to_the_burst(limiter: RateLimiter, spent: int, back: int, left: int) -> None:
    limiter.allow_n("a", spent)
    limiter.refund("a", back)
    assert limiter.peek("a").remaining == left


def test_limiter_refund_without_a_bucket_makes_none(limiter: RateLimiter) -> None:
    limiter.refund("a")
    limiter.refund("")
    assert len(limiter) == 0


def test_limiter_reset_restores_that_key_alone(limiter: RateLimiter) -> None:
    drain(limiter, "a")
    drain(limiter, "b")
    limiter.reset("a")
    limiter.reset("unknown")
    assert (limiter.peek("a").remaining, limiter.peek("b").remaining) == (5, 0)


def test_limiter_reset_all_restores_every_key(limiter: RateLimiter) -> None:
    drain(limiter, "a")
    drain(limiter, "b")
    limiter.reset_all()
    assert (len(limiter), limiter.peek("a").remaining, limiter.peek("b").remaining) == (0, 5, 5)


def test_limiter_closed_admits_nobody(limiter: RateLimiter) -> None:
    limiter.allow("a")
    limiter.close()
    limiter.close()
    assert [limiter.allow("a"), limiter.allow("b"), limiter.allow_n("a", 2), limiter.allow_n("a", 0)] == [
        False,
        False,
        False,
        True,
    ]
    for ask in (limiter.acquire, limiter.peek):
        with pytest.raises(LimiterUnavailable, match="'default' is closed"):
            ask("secret-key")
    limiter.refund("a")
    limiter.reset("a")
    assert len(limiter) == 0


@pytest.mark.parametrize(("key", "n", "allowed"), [*((key, n, False) for key, n in IMPOSSIBLE), ("a", 0, True), ("", 0, True)])
def test_limiter_closed_still_answers_what_needs_no_bucket(limiter: RateLimiter, key: str, n: int, allowed: bool) -> None:
    limiter.close()
    assert limiter.allow_n(key, n) is allowed
    assert limiter.acquire(key, n).allowed is allowed


def test_limiter_as_a_context_manager_closes_at_the_end(limiter: RateLimiter) -> None:
    with limiter as same:
        assert same is limiter
        assert limiter.allow("a")
    assert not limiter.allow("a")


def test_limiter_knows_which_keys_it_holds(limiter: RateLimiter) -> None:
    assert limiter, "an empty limiter must not count as none"
    limiter.allow("a")
    assert len(limiter) == 1
    assert "a" in limiter
    assert [key in limiter for key in ("b", "", b"a", 7, None)] == [False] * 5


def test_limiter_repr_shows_the_rate_and_no_key(limiter: RateLimiter) -> None:
    limiter.allow("secret-key")
    assert repr(limiter) == "<RateLimiter 'default' 5/m with 1 of 10000 buckets>"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_limiter_copied_or_pickled_is_a_type_error_that_says_why(
    limiter: RateLimiter, copied: Callable[[object], object]
) -> None:
    with pytest.raises(TypeError, match="a RateLimiter counts in one process and cannot be pickled or copied"):
        copied(limiter)


@pytest.mark.parametrize("key", ["x" * 10**6, "x" * 257, "\ud800" * 300, "\u00e9" * 300])
def test_limiter_keeps_a_long_key_as_a_digest_and_finds_it_again(limiter: RateLimiter, key: str) -> None:
    drain(limiter, key)
    assert key in limiter
    assert [len(stored) for stored in limiter._buckets] == [32]
    assert not limiter.allow_n(key, 2)
    assert limiter.allow(key + "y")
    limiter.refund(key, 2)
    assert limiter.peek(key).remaining == 2
    limiter.reset(key)
    assert key not in limiter
    assert key + "y" in limiter


@pytest.mark.parametrize("key", ["x" * 256, "\ud800", "\0", "a:b", "\u00e9", " "])
def test_limiter_keeps_any_other_text_as_it_is(limiter: RateLimiter, key: str) -> None:
    drain(limiter, key)
    assert list(limiter._buckets) == [key]


def test_limiter_tells_a_clock_that_ran_back_when_the_bucket_will_be_full(clock: ManualClock, limiter: RateLimiter) -> None:
    clock.advance(30)
    assert limiter.acquire("a").reset_after_ns == 12 * 10**9
    clock.advance(-7)
    decision = limiter.acquire("a")
    assert (decision.allowed, decision.remaining, decision.reset_after_ns) == (True, 3, (24 + 7) * 10**9)
