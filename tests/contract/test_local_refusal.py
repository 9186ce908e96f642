"""What is known to be refused is refused without asking: exactly as long as that is sure, and never longer than a minute."""

from collections.abc import Callable
from typing import Any

import pytest

from jwtlimit_core import Clock, RateLimiter
from jwtlimit_core.keys import SERVICE_KEY
from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket
from jwtlimit_core.testing import ManualClock
from stores import Plain, Stores

KINDS = [RedisTokenBucket, AsyncRedisTokenBucket, RedisFixedWindow, AsyncRedisFixedWindow]
SECOND_NS = 10**9
SURE_NS = 60 * SECOND_NS


class Microseconds:
    """The clock of the host as the server tells it."""

    def __init__(self, host: Clock) -> None:
        self.host = host

    def monotonic_ns(self) -> int:
        return self.host.monotonic_ns() // 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(stores: Stores, clock: ManualClock) -> Callable[..., Plain]:
    return lambda kind, *rate, **options: stores.limiter(
        kind, *rate, **{"now": Microseconds(clock), "clock": clock, "local_refusal": True} | options
    )


@pytest.fixture
def asked(stores: Stores) -> Callable[[Callable[[], Any]], tuple[Any, int]]:
    """Return the way to ask: it gives the answer, and how many commands it took."""

    def ask(work: Callable[[], Any]) -> tuple[Any, int]:
        answers: list[Any] = []
        commands = stores.commands(lambda: answers.append(work()))
        return answers[0], len(commands)

    return ask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["a", "a" * 2**20, SERVICE_KEY])
def test_refused_key_is_refused_without_asking_until_its_wait_is_over(make, asked, clock, kind: type, key: str) -> None:
    limiter = make(kind, 1, 30)
    limiter.reset("another")  # what was forgotten before does not count
    assert limiter.allow(key)
    assert asked(lambda: limiter.acquire(key))[1] == 1
    for ask in (limiter.allow, limiter.acquire, lambda key: limiter.allow_n(key, 1)):
        assert asked(lambda ask=ask: ask(key))[1] == 0
    clock.advance_ns(10 * SECOND_NS)
    local = limiter.acquire(key)
    assert (local.allowed, local.retry_after_ns, local.rate, local.name) == (False, 20 * SECOND_NS, limiter.rate, "default")
    clock.advance_ns(20 * SECOND_NS - 1)
    assert asked(lambda: limiter.allow(key)) == (False, 0)
    clock.advance_ns(1)
    assert asked(lambda: limiter.allow(key)) == (True, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_refused_key_is_asked_for_again_after_a_minute(make, asked, clock, kind: type) -> None:
    limiter = make(kind, 1, 86_400)
    assert [limiter.allow("a"), limiter.allow("a")] == [True, False]
    clock.advance_ns(SURE_NS - 1)
    decision, commands = asked(lambda: limiter.acquire("a"))
    assert (decision.allowed, decision.retry_after_ns, commands) == (False, 86_340 * SECOND_NS + 1, 0)
    clock.advance_ns(1)
    assert asked(lambda: limiter.allow("a")) == (False, 1)
    assert asked(lambda: limiter.allow("a")) == (False, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_of_some_tokens_is_known_for_as_many_or_more_of_that_key(make, asked, kind: type) -> None:
    limiter = make(kind, 5, 86_400)
    assert limiter.allow_n("a", 2)
    assert not limiter.allow_n("a", 4)
    assert [asked(lambda n=n: limiter.allow_n("a", n)) for n in (4, 5)] == [(False, 0)] * 2
    assert asked(lambda: limiter.peek("a", 5).allowed) == (False, 1)
    assert asked(lambda: limiter.allow_n("b", 4)) == (True, 1)
    assert asked(lambda: limiter.allow_n("a", 3)) == (True, 1)


@pytest.mark.parametrize(
    "end",
    [
        lambda it, stores: it.reset("a"),
        lambda it, stores: it.reset_all(),
        lambda it, stores: it.refund("a", 1),
        lambda it, stores: it.allow("a"),
        lambda it, stores: it.acquire("a"),
        lambda it, stores: stores.acquire_all([(it, "a", 1)]),
    ],
    ids=["reset", "reset_all", "refund", "allow", "acquire", "acquire_all"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_refusal_is_forgotten_with_a_reset_a_refund_and_a_charge_of_its_key(make, asked, stores, kind: type, end: Any) -> None:
    limiter = make(kind, 5, 86_400)
    assert [limiter.allow_n(key, n) for key in "ab" for n in (3, 3)] == [True, False] * 2
    end(limiter, stores)
    assert asked(lambda: limiter.allow_n("a", 3))[1] == 1
    others = limiter.peek("b").remaining
    assert asked(lambda: limiter.allow_n("b", 3)) == {2: (False, 0), 5: (True, 1)}[others]


def meanwhile(limiter: Plain, event: Callable[[], object]) -> None:
    """Let *event* happen while the reply to the next command of *limiter* is under way."""
    store = limiter.limiter._store
    execute = store.execute

    def execute_slowly(*command: str | bytes) -> Any:
        store.execute = execute
        reply = execute(*command)
        event()
        return reply

    store.execute = execute_slowly


ASKING = [lambda it, stores: it.acquire("a"), lambda it, stores: stores.acquire_all([(it, "a", 1)])]


@pytest.mark.parametrize("ask", ASKING, ids=["acquire", "acquire_all"])
@pytest.mark.parametrize("end", [lambda it: it.reset("a"), lambda it: it.reset_all(), lambda it: it.refund("a", 1)])
def test_refusal_that_was_under_way_during_a_reset_or_refund_is_not_remembered(make, stores, end: Any, ask: Any) -> None:
    limiter = make(RedisTokenBucket, 1, 86_400)
    assert limiter.allow("a")
    meanwhile(limiter, lambda: end(limiter))
    assert not ask(limiter, stores).allowed
    assert limiter.allow("a")


@pytest.mark.parametrize("ask", ASKING, ids=["acquire", "acquire_all"])
def test_refusal_that_was_long_under_way_is_known_from_before_it_was_asked_for(make, stores, clock, ask: Any) -> None:
    limiter = make(RedisTokenBucket, 1, 30)
    assert limiter.allow("a")
    meanwhile(limiter, lambda: clock.advance(1))
    assert not ask(limiter, stores).allowed
    assert limiter.acquire("a").retry_after_ns == limiter.peek("a").retry_after_ns == 29 * SECOND_NS


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_stays_known_when_nothing_is_asked_for(make, asked, kind: type) -> None:
    limiter = make(kind, 1, 86_400)
    assert [limiter.allow("a"), limiter.allow("a")] == [True, False]
    assert limiter.acquire("a", 0).allowed
    assert asked(lambda: limiter.allow("a")) == (False, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_is_asked_for_each_time_where_it_is_switched_off(make, asked, kind: type) -> None:
    limiter = make(kind, 1, 86_400, local_refusal=False)
    assert [limiter.allow("a"), limiter.allow("a")] == [True, False]
    assert [asked(lambda: limiter.allow("a")) for _ in range(3)] == [(False, 1)] * 3


def test_refusals_that_are_known_are_bounded_and_the_oldest_go(make, asked, stores) -> None:
    limiter = make(RedisTokenBucket, 1, 86_400)
    for page in range(11):
        spends = [(limiter, f"{page} {index}", 1) for index in range(1_000)]
        assert stores.acquire_all(spends).allowed
        assert not stores.acquire_all(spends).allowed
    # The first thousand went, and then one more, for the key that was asked for again.
    commands = [asked(lambda key=key: limiter.allow(key))[1] for key in ("0 999", "1 0", "1 2", "10 999")]
    assert commands == [1, 1, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 3, 5])
def test_local_answer_never_tells_a_longer_wait_than_the_true_one(make, clock, kind: type, n: int) -> None:
    limiter = make(kind, 5, 7)
    limiter.allow_n("a", 5)
    clock.advance_ns(123_456_000)
    limiter.acquire("a", 1)
    for _ in range(50):
        clock.advance_ns(17_171_000)
        local, true = limiter.acquire("a", n), limiter.peek("a", n)
        assert (local.allowed, true.allowed) == (False, False)
        assert 0 < local.retry_after_ns <= true.retry_after_ns


@pytest.mark.parametrize("kind", KINDS)
def test_acquire_all_in_one_step_is_refused_without_asking_by_one_that_is_known(make, asked, stores, kind: type) -> None:
    wide, narrow = make(kind, 5, 86_400, name="wide"), make(kind, 1, 86_400, name="narrow")
    assert stores.acquire_all([(wide, "a", 1), (narrow, "a", 1)]).allowed
    assert not stores.acquire_all([(wide, "a", 1), (narrow, "a", 1)]).allowed
    decision, commands = asked(lambda: stores.acquire_all([(wide, "a", 1), (narrow, "a", 1)]))
    assert (commands, decision.allowed, [part.name for part in decision.parts]) == (0, False, ["narrow"])
    assert asked(lambda: wide.peek("a").remaining) == (4, 1)


def test_acquire_all_in_several_steps_asks_each_time(make, asked, stores, clock) -> None:
    limiter, memory = make(RedisTokenBucket, 1, 86_400), Plain(RateLimiter(9, 86_400, clock=clock), None)
    assert stores.acquire_all([(limiter, "a", 1), (memory, "a", 1)]).allowed
    for _ in range(2):
        decision, commands = asked(lambda: stores.acquire_all([(limiter, "a", 1), (memory, "a", 1)]))
        assert (decision.allowed, commands) == (False, 1)
    assert memory.peek("a").remaining == 8
    assert asked(lambda: limiter.allow("a")) == (False, 1), "nor is such a refusal remembered"
