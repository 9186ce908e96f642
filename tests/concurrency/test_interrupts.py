"""Exceptions out of nowhere: a signal handler raises while the limiter is at work, as time limits of task queues do."""

import signal
import threading
from collections.abc import Callable

import pytest

from jwtlimit_core import RateLimiter, acquire_all

INTERRUPTS = 300


class Interrupt(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
@pytest.mark.parametrize(
    "call",
    [
        lambda limiter: limiter.allow("a"),
        lambda limiter: limiter.allow_n("a", 2),
        lambda limiter: limiter.acquire("a"),
        lambda limiter: acquire_all([(limiter, "a", 1), (limiter, "b", 1)]),
    ],
    ids=["allow", "allow_n", "acquire", "acquire_all"],
)
def test_limiter_interrupted_at_any_point_goes_on_working(call: Callable[[RateLimiter], object]) -> None:
    limiter = RateLimiter(10**9, 1)

    def interrupt(*_signal: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(INTERRUPTS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + number * 1e-7)  # a little later each time
                while True:
                    call(limiter)
            except Interrupt:
                continue
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    answers: list[bool] = []
    asker = threading.Thread(target=lambda: answers.append(limiter.allow("c")), daemon=True)
    asker.start()
    asker.join(timeout=10)
    assert answers == [True]
