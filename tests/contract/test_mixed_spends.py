"""Spends over memory and stores, and over several stores: all or nothing, also when one of them fails half way."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jwtlimit_core import Decision, LimiterUnavailable, Rate, RateLimiter, acquire_all, acquire_all_async
from jwtlimit_core.flow import Call
from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket
from jwtlimit_core.testing import ManualClock
from outages import Make, closed_url, limiters
from servers import Server, binaries, served
from stores import Plain

DAY = 86_400


@pytest.fixture
def make() -> Iterator[Make]:
    with limiters() as make:
        yield make


@pytest.fixture(scope="module")
def other() -> Iterator[Server]:
    """Return a second server."""
    with served(next(iter(binaries().values()))) as server:
        yield server


@pytest.fixture(params=[RedisTokenBucket, AsyncRedisTokenBucket], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name


@pytest.fixture
def spend(kind: Any, make: Make) -> Callable[..., Any]:
    """Return the way to spend from limiters of this colour and of memory."""
    run = make(kind, closed_url())._run

    def spend(*spends: tuple[Any, str, int]) -> Any:
        pairs = [(getattr(each, "limiter", each), key, n) for each, key, n in spends]
        return run(acquire_all_async(pairs)) if kind is AsyncRedisTokenBucket else acquire_all(pairs)

    return spend


@pytest.fixture
def three(kind: Any, make: Make, server: Server, other: Server, prefix: str) -> list[Any]:
    """Return limiters of ten a day in memory and on two servers."""
    options: dict[str, Any] = {"prefix": prefix, "timeout": 10, "local_refusal": False}
    return [RateLimiter(10, DAY), make(kind, server.url, 10, DAY, **options), make(kind, other.url, 10, DAY, **options)]


def left(limiters: list[Any]) -> list[int]:
    return [limiter.peek("a").remaining for limiter in limiters]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_acquire_all_over_memory_and_two_servers_takes_from_all_or_puts_back(
    order: tuple[int, ...], three: list[Any], spend: Callable[..., Any]
) -> None:
    asked = [three[index] for index in order]
    decision = spend(*[(limiter, "a", 4) for limiter in asked])
    assert (decision.allowed, len(decision.parts), left(three)) == (True, 3, [6, 6, 6])
    asked[-1].allow_n("a", 5)
    before = left(three)
    refusal = spend(*[(limiter, "a", 4) for limiter in asked])
    assert (refusal.allowed, len(refusal.parts), refusal.remaining) == (False, 1, 1)
    assert left(three) == before


def test_acquire_all_refused_by_the_first_asks_no_other(three: list[Any], spend: Callable[..., Any]) -> None:
    three[0].allow_n("a", 10)
    assert not spend(*[(limiter, "a", 1) for limiter in three]).allowed
    assert left(three) == [0, 10, 10]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_acquire_all_with_a_store_that_fails_puts_back_what_was_taken(
    position: int, three: list[Any], spend: Callable[..., Any], kind: Any, make: Make
) -> None:
    broken = make(kind, closed_url(), 10, DAY)
    asked: list[Any] = [*three[:position], broken, *three[position:]]
    with pytest.raises(LimiterUnavailable, match="does not answer"):
        spend(*[(limiter, "a", 4) for limiter in asked])
    assert left(three) == [10, 10, 10]


@pytest.mark.parametrize(("policy", "lets_pass"), [("allow", [True] * 4), ("local", [True, True, False, False])])
def test_acquire_all_with_a_store_that_fails_goes_on_by_its_policy(
    policy: str, lets_pass: list[bool], three: list[Any], spend: Callable[..., Any], kind: Any, make: Make
) -> None:
    broken = make(kind, closed_url(), 4, DAY, on_failure=policy)
    answers = [spend((three[1], "a", 2), (broken, "a", 2), (three[0], "a", 2)).allowed for _ in range(4)]
    assert answers == lets_pass
    taken = 2 * sum(lets_pass)
    assert left(three) == [10 - taken, 10 - taken, 10]


class Fuse(ManualClock):
    """A clock at whose next reading something happens."""

    happens: Callable[[], None] = staticmethod(lambda: None)

    def monotonic_ns(self) -> int:
        self.happens()
        return super().monotonic_ns()


@pytest.mark.parametrize("policy", ["deny", "local", "allow"])
def test_acquire_all_that_cannot_put_back_in_one_store_does_so_in_the_others(
    policy: str, three: list[Any], spend: Callable[..., Any], kind: Any, make: Make, prefix: str
) -> None:
    with served(next(iter(binaries().values()))) as doomed:
        gone = make(kind, doomed.url, 10, DAY, on_failure=policy, prefix=prefix, timeout=10)
        fuse = Fuse()
        last = RateLimiter(3, DAY, clock=fuse)
        fuse.happens = doomed.stop
        decision = spend((gone, "a", 4), (three[1], "a", 4), (last, "a", 3), (three[0], "a", 11))
        assert (decision.allowed, decision.retry_after_ns) == (False, None)
        assert [*left(three), last.peek("a").remaining] == [10, 10, 10, 3]
        assert gone.limiter._store._next_probe_ns is not None, "it was tried"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_acquire_all_with_a_closed_limiter_puts_back_what_was_taken(
    position: int, three: list[Any], spend: Callable[..., Any]
) -> None:
    three[position].close()
    with pytest.raises(LimiterUnavailable, match="closed"):
        spend(*[(limiter, "a", 4) for limiter in three])
    open_ones = three[:position] + three[position + 1 :]
    assert left(open_ones) == [10, 10]


def test_acquire_all_of_the_other_colour_is_a_type_error(three: list[Any], kind: Any) -> None:
    spends = [(three[0], "a", 1), (three[1].limiter, "a", 1)]
    if kind is AsyncRedisTokenBucket:
        with pytest.raises(TypeError, match="AsyncRedisTokenBucket belongs into acquire_all_async"):
            acquire_all(spends)
    else:
        with pytest.raises(TypeError, match="RedisTokenBucket belongs into acquire_all, away from the event loop"):
            asyncio.run(acquire_all_async(spends))
    assert left(three) == [10, 10, 10]


def test_acquire_all_async_cancelled_half_way_puts_back_what_was_taken(make: Make) -> None:
    with served(next(iter(binaries().values()))) as slow:
        memory = RateLimiter(10, DAY)
        shared = make(AsyncRedisTokenBucket, slow.url, 10, DAY, timeout=10)
        assert shared.allow("a")

        async def cancel() -> None:
            slow.pause()
            task = asyncio.create_task(acquire_all_async([(memory, "a", 4), (shared.limiter, "a", 4)]))
            for _ in range(10):
                await asyncio.sleep(0.001)
            assert memory.peek("a").remaining == 6
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            slow.resume()

        shared._run(cancel())
        assert memory.peek("a").remaining == 10


class Endless:
    """A limiter over a store that has all, and does not answer a second time."""

    awaits = True

    def group(self, key: str) -> str:
        return key

    def spend_all(self, spends: Any, *, alone: bool) -> Any:
        ((_, key, _),) = spends
        if key == "waits":
            yield Call(asyncio.sleep, (0,), awaits=True)
        return [Decision(True, Rate(1, 1), "endless", 1, 0, 0)]

    def refund_flow(self, key: str, n: int) -> Any:
        yield Call(asyncio.sleep, (0,), awaits=True)


def test_acquire_all_async_abandoned_half_way_ends_quietly_and_puts_back_what_needs_no_loop() -> None:
    memory, endless = RateLimiter(10, DAY), Endless()
    abandoned = acquire_all_async([(memory, "a", 4), (endless, "taken", 1), (endless, "waits", 1)])
    abandoned.send(None)
    assert memory.peek("a").remaining == 6
    abandoned.close()  # as the interpreter does with what is left of a loop; nothing can be awaited any more
    assert memory.peek("a").remaining == 10


def test_acquire_all_over_both_algorithms_of_two_servers_is_exact(
    make: Make, server: Server, other: Server, prefix: str
) -> None:
    options: dict[str, Any] = {"prefix": prefix, "timeout": 10}
    bucket: Plain = make(RedisTokenBucket, server.url, 7, DAY, **options)
    window: Plain = make(RedisFixedWindow, other.url, 5, DAY, **options)
    answers = [acquire_all([(bucket.limiter, "a", 1), (window.limiter, "a", 1)]).allowed for _ in range(9)]
    assert answers == [True] * 5 + [False] * 4
    assert (bucket.peek("a").remaining, window.peek("a").remaining) == (2, 0)
