"""ManualClock: the clock of all other tests."""

import time

import pytest

from jwtlimit_core.testing import ManualClock


def test_manual_clock_left_alone_stands_still() -> None:
    clock = ManualClock(time_ns=5, monotonic_ns=7)
    assert [(clock.time_ns(), clock.monotonic_ns()) for _ in range(3)] == [(5, 7)] * 3


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"), [(0.1, 10**8), (60, 60 * 10**9), (1e-9, 1), (-3600, -3600 * 10**9), (0, 0)]
)
def test_manual_clock_advanced_moves_both_readings(seconds: float, nanoseconds: int) -> None:
    clock, other = ManualClock(time_ns=10**18), ManualClock(time_ns=10**18)
    start_ns = clock.monotonic_ns()
    clock.advance(seconds)
    other.advance_ns(nanoseconds)
    assert clock.time_ns() == other.time_ns() == 10**18 + nanoseconds
    assert clock.monotonic_ns() == other.monotonic_ns() == start_ns + nanoseconds


def test_manual_clock_without_a_time_starts_with_the_real_one() -> None:
    before_ns = time.time_ns()
    assert before_ns <= ManualClock().time_ns() <= time.time_ns()
