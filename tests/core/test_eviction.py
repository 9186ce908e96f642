"""Eviction: who goes when a map is full, and that one caller never pays for many."""

from collections import OrderedDict
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core import Rate
from jwtlimit_core.bucket import State, level_at
from jwtlimit_core.eviction import MOST_EVICTED, idle_limit_ns, make_room

NOW_NS = 10**15
IDLE_NS = 100


def full_map(size: int, idle: int = 0) -> OrderedDict[str, State]:
    """A map of *size* buckets in order of use, of which the oldest *idle* are idle by one nanosecond."""
    return OrderedDict((str(i), (0, NOW_NS - IDLE_NS - (i < idle))) for i in range(size))


@pytest.mark.parametrize(
    ("size", "idle", "gone"),
    [
        (10_000, 0, 1000),  # none is idle: the oldest tenth
        (10_000, 1, 1),  # one is idle: it alone
        (10_000, 300, 300),
        (10_000, 1000, 1000),
        (10_000, 5000, 1000),  # the rest of the idle goes at the next call
        (50_000, 0, 1000),
        (50_000, 50_000, 1000),
        (9_999, 0, 999),
        (10, 0, 1),
        (9, 0, 1),
        (1, 0, 1),
        (1, 1, 1),
        (500, 500, 500),  # all of them are idle
    ],
)
def test_make_room_removes_idle_buckets_or_else_the_oldest_tenth(size: int, idle: int, gone: int) -> None:
    buckets = full_map(size, idle)
    make_room(buckets, now_ns=NOW_NS, idle_ns=IDLE_NS, max_buckets=size)
    assert list(buckets) == [str(i) for i in range(gone, size)]


def test_make_room_looks_no_further_than_the_first_bucket_in_use() -> None:
    buckets = full_map(20, idle=3)
    buckets.move_to_end("1")  # used last, by a caller whose clock was behind
    make_room(buckets, now_ns=NOW_NS, idle_ns=IDLE_NS, max_buckets=20)
    assert list(buckets) == [*map(str, range(3, 20)), "1"]


def test_make_room_in_one_call_removes_at_most_a_thousand() -> None:
    assert MOST_EVICTED == 1000


@pytest.mark.parametrize(
    ("rate", "idle_ns"),
    [
        (Rate(100, 60), 120 * 10**9),  # two windows, though one fills the bucket
        (Rate(1, 60, burst=2), 120 * 10**9),
        (Rate(1, 60, burst=5), 300 * 10**9),  # filling takes longer than two windows
        (Rate(3, Fraction(10, 10**9), burst=7), 24),  # 70/3 ns, rounded up
    ],
)
def test_idle_limit_is_two_windows_or_the_time_to_fill(rate: Rate, idle_ns: int) -> None:
    assert idle_limit_ns(rate) == idle_ns


@given(st.integers(1, 9), st.integers(1, 60), st.integers(1, 50))
def test_idle_limit_passed_means_that_the_bucket_is_full(limit: int, window_ns: int, burst: int) -> None:
    rate = Rate(limit, Fraction(window_ns, 10**9), burst)
    assert level_at((0, NOW_NS), rate, NOW_NS + idle_limit_ns(rate)) == rate.capacity
