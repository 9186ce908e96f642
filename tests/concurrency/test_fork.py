"""Fork: a child made while another thread is inside the limiter can use it at once."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from jwtlimit_core import RateLimiter, acquire_all, turn
from jwtlimit_core.testing import ManualClock

# Newer Pythons warn of a fork beside threads, which is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

CHILDREN = 60
DEADLINE_S = 5  # for one child; it needs milliseconds, and without a free turn for ever


@pytest.fixture
def limiter(yielding_clock: ManualClock) -> Iterator[RateLimiter]:
    """A limiter that three threads hammer, and whose clock makes sure that a fork finds one of them inside."""
    limiter, done = RateLimiter(10**6, 60, clock=yielding_clock), threading.Event()

    def hammer() -> None:
        while not done.is_set():
            limiter.allow("hot")

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield limiter
    done.set()
    for thread in threads:
        thread.join()


def exit_code_of_a_child(limiter: RateLimiter) -> int:
    """Fork, use *limiter* in the child in every way that takes the turn, and return how the child ended."""
    pid = os.fork()
    if pid == 0:
        signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)  # ends this process by SIGALRM, whatever it waits for
        code = 1
        try:
            answers = [limiter.allow("child"), limiter.allow("hot"), limiter.acquire("child", 2).allowed]
            answers.append(acquire_all([(limiter, "child", 1)]).allowed)
            code = 0 if all(answers) and limiter.peek("child").remaining == 10**6 - 4 else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_limiter_forked_while_threads_use_it_works_in_every_child(limiter: RateLimiter) -> None:
    for _ in range(CHILDREN):
        assert exit_code_of_a_child(limiter) == 0
    assert "child" not in limiter, "the children counted for themselves"


def test_turn_held_at_a_fork_is_free_in_the_child_and_only_once() -> None:
    held, free = turn.Turn(), turn.Turn()
    held.pop()
    turn._free_all()  # what the child runs first
    assert (len(held), len(free)) == (1, 1)


def test_turn_forgotten_is_not_kept_alive_for_the_fork() -> None:
    known = len(turn._turns)
    limiter = RateLimiter()
    assert len(turn._turns) == known + 1
    del limiter
    assert len(turn._turns) == known
