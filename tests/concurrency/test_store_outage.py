"""A store that goes and comes back under load: nobody waits twice, one asks for all, and no error of redis-py gets out."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
import redis.asyncio

from jwtlimit_core import LimiterUnavailable, acquire_all, acquire_all_async
from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisTokenBucket, open_store
from jwtlimit_core.testing import ManualClock
from outages import HANG_S, KINDS, Make, Stub, limiters
from servers import Server, binaries, served
from stores import Plain

DAY = 86_400
LONG = 10_000 * DAY  # so long that nothing comes back meanwhile, at a limit of MANY
MANY = 10**6
THREADS = 8
BINARY = next(iter(binaries().values()))


@pytest.fixture
def make() -> Iterator[Make]:
    with limiters() as make:
        yield make


@pytest.fixture
def own() -> Iterator[Server]:
    """Return a server that the test may stop and pause."""
    with served(BINARY) as server:
        yield server


def crowd(work: Callable[[], Any], count: int = THREADS) -> list[Any]:
    """Do *work* in threads at once; raise what one of them raised."""
    with ThreadPoolExecutor(count) as pool:
        return [each.result() for each in [pool.submit(work) for _ in range(count)]]


def at_once(plain: Plain, key: str, times: int) -> list[bool]:
    """Ask for *key* from all threads, or from as many tasks, and return all answers."""
    if not plain.awaits:
        return [each for answers in crowd(lambda: [plain.allow(key) for _ in range(times // THREADS)]) for each in answers]

    async def ask() -> list[bool]:
        return await asyncio.gather(*[plain.limiter.allow(key) for _ in range(times)])

    answers: list[bool] = plain._run(ask())
    return answers


# Deadlines and the probe -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_over_a_paused_store_loses_one_time_out_in_a_thousand_calls(kind: type, own: Server, make: Make) -> None:
    limiter = make(kind, own.url, MANY, LONG, timeout=0.3, cooldown=60)
    assert limiter.allow("a")
    own.pause()
    start = time.perf_counter()
    assert not any(limiter.allow("a") for _ in range(1000))
    assert 0.1 < time.perf_counter() - start < HANG_S


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_over_a_paused_store_lets_a_crowd_wait_for_one_time_out(kind: type, own: Server, make: Make) -> None:
    limiter = make(kind, own.url, MANY, LONG, timeout=0.4, cooldown=60)
    assert limiter.allow("a")
    own.pause()
    start = time.perf_counter()
    assert not any(at_once(limiter, "a", 800))
    assert time.perf_counter() - start < 2 * HANG_S


def test_async_limiter_with_a_given_client_without_time_outs_keeps_its_own(own: Server) -> None:
    async def ask() -> float:
        async with redis.asyncio.Redis(port=own.port, socket_timeout=None, socket_connect_timeout=None) as client:
            limiter = AsyncRedisTokenBucket(client, timeout=0.4)
            assert await limiter.allow("a")
            own.pause()
            start = time.perf_counter()
            with pytest.raises(LimiterUnavailable):
                await asyncio.wait_for(limiter.acquire("a"), HANG_S)
            taken_s = time.perf_counter() - start
            own.resume()
            return taken_s

    assert 0.39 < asyncio.run(ask()) < HANG_S


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_in_an_outage_probes_once_for_all_in_each_cooldown(kind: type, make: Make) -> None:
    clock = ManualClock()
    with Stub(b"-LOADING not yet\r\n") as stub:
        limiter = make(kind, stub.url, cooldown=5, clock=clock)
        assert not limiter.allow("a")
        for probes in range(2, 6):
            clock.advance(5 - 1e-9)
            assert not any(at_once(limiter, "a", 80))
            assert stub.connections == probes - 1
            clock.advance(1e-9)
            assert not any(at_once(limiter, "a", 80))
            assert stub.connections == probes


# Its return --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fail", "mend"), [(Server.pause, Server.resume), (Server.stop, Server.start)])
def test_limiter_uses_the_store_again_within_a_cooldown_of_its_return(
    kind: type, fail: Callable[[Server], None], mend: Callable[[Server], None], own: Server, make: Make
) -> None:
    clock = ManualClock()
    # A thousand in the outage, three in the store: the answers tell who gave them.
    limiter = make(kind, own.url, 3, DAY, timeout=0.4, cooldown=5, clock=clock, on_failure="allow", local_refusal=False)
    assert [limiter.allow("a") for _ in range(4)] == [True] * 3 + [False]
    for _ in range(2):
        fail(own)
        assert all(limiter.allow("a") for _ in range(5))
        mend(own)
        clock.advance(5)
        limiter.allow("a")
        assert not limiter.acquire("b", 4).allowed
        assert limiter.peek("b").remaining == 3, "and that is no local answer"
        assert [limiter.allow("c") for _ in range(4)] == [True] * 3 + [False]
        limiter.reset("c")


@pytest.mark.parametrize("policy", ["deny", "allow", "local"])
def test_limiter_over_a_server_restarted_under_load_answers_by_its_policy(policy: str, own: Server, make: Make) -> None:
    options: dict[str, Any] = {"timeout": 0.3, "cooldown": 0.05, "on_failure": policy}
    plain, waiting = (make(kind, own.url, MANY, LONG, **options).limiter for kind in (RedisTokenBucket, AsyncRedisTokenBucket))
    done, taken_s = Event(), []

    def ask() -> set[bool]:
        answers = set()
        while not done.is_set():
            start = time.perf_counter()
            answers.add(plain.allow("a"))
            taken_s.append(time.perf_counter() - start)
        return answers

    async def ask_on_loop() -> set[bool]:
        async def one() -> set[bool]:
            answers = set()
            while not done.is_set():
                start = time.perf_counter()
                answers.add(await waiting.allow("a"))
                taken_s.append(time.perf_counter() - start)
                await asyncio.sleep(0)
            return answers

        async with waiting:
            return set().union(*await asyncio.gather(*[one() for _ in range(20)]))

    with ThreadPoolExecutor(THREADS + 1) as pool:
        try:
            asked = [pool.submit(ask) for _ in range(THREADS)] + [pool.submit(asyncio.run, ask_on_loop())]
            for _ in range(3):
                own.stop()
                own.start()
        finally:
            done.set()
    answers = set().union(*(each.result() for each in asked))
    assert answers <= ({True, False} if policy == "deny" else {True})
    assert max(taken_s) < 2 * HANG_S
    deadline = time.monotonic() + HANG_S
    while plain._store._next_probe_ns is not None:
        assert time.monotonic() < deadline, "back within a cool-down"
        plain.allow("b")
    assert plain.peek("c").remaining == MANY


# Lost scripts ----------------------------------------------------------------------------------------------------------


def test_limiters_beside_a_loop_of_script_flushes_never_fail(server: Server, make: Make) -> None:
    count, done = 150, Event()
    options: dict[str, Any] = {"timeout": 10, "prefix": "flushed"}
    opened = open_store(server.url, timeout=10)
    plain = [RedisTokenBucket(opened, MANY, LONG, name=name, **options) for name in ("one", "two")]
    waiting = make(AsyncRedisTokenBucket, server.url, MANY, LONG, **options).limiter

    def flush() -> int:
        flushed = 0
        with server.client() as client:
            while not done.is_set():
                client.script_flush()
                flushed += 1
        return flushed

    def ask() -> int:
        return sum(acquire_all([(limiter, "a", 1) for limiter in plain]).allowed + plain[0].allow("b") for _ in range(count))

    async def ask_on_loop() -> int:
        async def one() -> int:
            return sum([(await acquire_all_async([(waiting, "a", 1)])).allowed for _ in range(count)])

        async with waiting:
            return sum(await asyncio.gather(*[one() for _ in range(THREADS)]))

    with ThreadPoolExecutor(THREADS + 2) as pool:
        flushing = pool.submit(flush)
        try:
            asked = [pool.submit(ask) for _ in range(THREADS)] + [pool.submit(asyncio.run, ask_on_loop())]
            assert [each.result() for each in asked] == [2 * count] * THREADS + [count * THREADS]
        finally:
            done.set()
    assert flushing.result() > 10
    assert plain[1].peek("a").remaining == MANY - count * THREADS
    opened._client.__self__.close()
