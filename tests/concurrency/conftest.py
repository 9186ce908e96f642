"""What the tests of threads and of forks share."""

import time

import pytest

from jwtlimit_core.testing import ManualClock


class YieldingClock(ManualClock):
    """A frozen clock that gives way to other threads at each reading: in the middle of every step of a limiter."""

    def monotonic_ns(self) -> int:
        time.sleep(0)
        return super().monotonic_ns()


@pytest.fixture
def yielding_clock() -> YieldingClock:
    return YieldingClock()
