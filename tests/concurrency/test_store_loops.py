"""Event loops: one limiter for many of them, with a client for each, and nothing stuck after a cancellation."""

import asyncio
import gc
import threading
import time
import weakref
from typing import Any

import pytest
import redis.asyncio

from jwtlimit_core import ConfigError, LimiterUnavailable, acquire_all_async
from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket
from outages import HANG_S
from servers import Server, binaries, served

LONG = 10_000 * 86_400  # so long that nothing comes back meanwhile
MANY = 10**6
KINDS = (AsyncRedisTokenBucket, AsyncRedisFixedWindow)


def make(kind: Any, server: Server, max_rate: int = MANY, **options: Any) -> Any:
    """Make a limiter with keys of its own and patience for a busy machine."""
    options = {"prefix": "loops", "timeout": 5, "name": "loops"} | options
    return kind.from_url(f"{server.url}?client_name={options['name']}", max_rate, LONG, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_used_by_fifty_loops_one_after_the_other_keeps_none(kind: Any, server: Server) -> None:
    limiter, loops = make(kind, server, name=f"fifty-{kind.__name__}"), []

    async def ask() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert all(await asyncio.gather(*[limiter.allow("a") for _ in range(3)]))

    for _ in range(50):
        asyncio.run(ask())
        server.await_clients(limiter.name, 0)
    gc.collect()
    assert [loop for loop in loops if loop() is not None] == []
    assert limiter._store._client.__self__._made == {}
    assert asyncio.run(limiter.peek("a")).remaining == MANY - 150


def test_limiter_forgets_loops_that_were_closed_without_being_shut_down(server: Server) -> None:
    limiter = make(AsyncRedisTokenBucket, server)
    made = limiter._store._client.__self__._made
    for _ in range(10):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(limiter.allow("a"))
        loop.run_until_complete(made[loop][0].aclose())  # or its sockets would be left to the garbage collector
        loop.close()
    assert list(made) == [loop]
    asyncio.run(limiter.allow("a"))
    assert made == {}


def test_limiter_used_by_loops_in_threads_counts_as_one(server: Server) -> None:
    limiter, start, allowed = make(AsyncRedisTokenBucket, server, 100, name="threads"), threading.Barrier(8), []

    async def ask() -> None:
        start.wait()
        allowed.extend(await asyncio.gather(*[limiter.allow("a") for _ in range(25)]))

    threads = [threading.Thread(target=asyncio.run, args=(ask(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(allowed), sum(allowed)) == (200, 100)


def test_limiter_closed_closes_the_client_of_the_running_loop(server: Server) -> None:
    limiter = make(AsyncRedisTokenBucket, server, name="closing")

    async def use() -> None:
        async with limiter:
            assert await limiter.allow("a")
            server.await_clients(limiter.name, 1)
        server.await_clients(limiter.name, 0)
        await limiter.close()

    asyncio.run(use())


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_with_a_client_of_another_loop_says_so(kind: Any, server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    limiter = kind(client, MANY, LONG, on_failure="allow", prefix="loops", timeout=5)

    async def ask() -> None:
        assert await limiter.allow("a")

    async def ask_elsewhere() -> None:
        for ask in (limiter.allow, limiter.acquire, limiter.peek, limiter.refund, limiter.reset):
            with pytest.raises(ConfigError, match=r"another event loop: use from_url\(\)"):
                await ask("a")
        with pytest.raises(ConfigError, match="another event loop"):
            await acquire_all_async([(limiter, "a", 1)])

    with asyncio.Runner() as runner:
        runner.run(ask())
        elsewhere = threading.Thread(target=asyncio.run, args=(ask_elsewhere(),))
        elsewhere.start()
        elsewhere.join()
        runner.run(ask())  # it is no failure of the store
        runner.run(client.aclose())


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_asked_by_two_hundred_tasks_answers_all_of_them(kind: Any, server: Server) -> None:
    limiter = make(kind, server, 150, name=f"tasks-{kind.__name__}", local_refusal=False)

    async def ask() -> int:
        return sum(decision.allowed for decision in await asyncio.gather(*[limiter.acquire("a") for _ in range(200)]))

    assert asyncio.run(ask()) == 150


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_with_a_hundred_calls_cancelled_in_flight_answers_the_next_and_each_its_own(kind: Any) -> None:
    async def use(server: Server) -> None:
        limiter = make(kind, server)
        await asyncio.gather(*[limiter.allow("warm") for _ in range(50)])
        server.pause()
        tasks = [asyncio.create_task(limiter.acquire("hot", 1 + number)) for number in range(100)]
        for _ in range(30):
            await asyncio.sleep(0.001)  # so many turns of the loop that all are sent, or wait for a connection
        for task in tasks:
            task.cancel()
        assert {type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)} == {asyncio.CancelledError}
        server.resume()
        # An answer that came late would be taken for that of another.
        decisions = await asyncio.gather(*[limiter.acquire(f"key-{n}", n) for n in range(1, 60)])
        assert [decision.remaining for decision in decisions] == [MANY - n for n in range(1, 60)]
        async with limiter:
            assert await limiter.allow("hot")

    with served(next(iter(binaries().values()))) as server:
        asyncio.run(use(server))


def test_limiter_over_a_slow_store_lets_the_loop_go_on() -> None:
    async def use(server: Server) -> None:
        async with make(AsyncRedisTokenBucket, server, timeout=0.4, cooldown=0.001) as limiter:
            assert await limiter.allow("a")
            server.pause()
            asking = asyncio.create_task(limiter.acquire("a"))
            ticks, longest, last = 0, 0.0, time.perf_counter()
            while not asking.done():
                await asyncio.sleep(0.005)
                now = time.perf_counter()
                ticks, longest, last = ticks + 1, max(longest, now - last), now
            with pytest.raises(LimiterUnavailable):
                await asking
            assert ticks >= 5
            assert longest < 0.19, "a store that is waited for on the loop would take 0.2 s"
            server.resume()

    with served(next(iter(binaries().values()))) as server:
        asyncio.run(asyncio.wait_for(use(server), 10 * HANG_S))
