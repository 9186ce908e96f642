"""A real cluster of three nodes, and a real Sentinel: keys on many nodes, spends over them, a node that stops, a failover."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from jwtlimit_core import LimiterUnavailable, RateLimiter, acquire_all, acquire_all_async
from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket
from jwtlimit_core.testing import ManualClock
from outages import HANG_S
from servers import Server, binaries, cluster
from stores import Plain

DAY = 86_400
BINARY = next(iter(binaries().values()))
TIMEOUT_S = 4.0  # of calls that are to succeed
ALGORITHMS = {"bucket": (RedisTokenBucket, AsyncRedisTokenBucket), "window": (RedisFixedWindow, AsyncRedisFixedWindow)}


def patient(timeout: float, share: int) -> dict[str, Any]:
    """Return the options of a client of which *share* steps fit into *timeout*."""
    options: dict[str, Any] = {"socket_timeout": timeout / share, "socket_connect_timeout": timeout / share, "protocol": 2}
    if hasattr(redis.RedisCluster, "get_retry") and int(redis.__version__.partition(".")[0]) < 6:
        return options
    return options | {"retry": Retry(NoBackoff(), 0)}


class Nodes:
    """Makes limiters of one colour over a cluster."""

    def __init__(self, servers: list[Server], *, awaits: bool, timeout: float = TIMEOUT_S) -> None:
        self.servers = servers
        self.runner = asyncio.Runner()
        self.awaits = awaits
        address: dict[str, Any] = {"host": "127.0.0.1", "port": servers[0].port}
        if int(redis.__version__.partition(".")[0]) < 6:
            address["cluster_error_retry_attempts"] = 0
        self.client: Any = (
            self.runner.run(self._open(address))
            if awaits
            else redis.RedisCluster(**address, **patient(timeout, 1 + len(servers)))
        )
        self.timeout = timeout

    async def _open(self, address: dict[str, Any]) -> Any:
        return redis.asyncio.RedisCluster(**address)

    def limiter(self, algorithm: str, *arguments: Any, **options: Any) -> Plain:
        options = {"timeout": self.timeout, "local_refusal": False} | options
        return Plain(ALGORITHMS[algorithm][self.awaits](self.client, *arguments, **options), self.runner.run)

    def spend(self, *spends: tuple[Any, str, int]) -> Any:
        pairs = [(getattr(plain, "limiter", plain), key, n) for plain, key, n in spends]
        return self.runner.run(acquire_all_async(pairs)) if self.awaits else acquire_all(pairs)

    def close(self) -> None:
        if self.awaits:
            self.runner.run(self.client.aclose())
        else:
            self.client.close()
        self.runner.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with cluster(BINARY) as servers:
        yield servers


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def nodes(servers: list[Server], request: pytest.FixtureRequest) -> Iterator[Nodes]:
    nodes = Nodes(servers, awaits=request.param)
    yield nodes
    nodes.close()


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Return a prefix of this test's own; without the brackets, whose curly kind would choose the slot."""
    return request.node.name.replace("[", "-").replace("]", "")


def commands(servers: list[Server]) -> int:
    """Return how many scripts the nodes have run."""
    total = 0
    for server in servers:
        with server.client() as client:
            known = client.info("commandstats")
            total += sum(known.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    return total


def spread(limiter: Plain, count: int = 60) -> list[str]:
    """Return keys whose states live in every part of the cluster."""
    keys = [f"user:{number}" for number in range(count)]
    assert len({key_slot(limiter.limiter._form.stored(key)) * 3 // 16384 for key in keys}) == 3
    return keys


def test_limiter_over_a_cluster_counts_keys_of_all_nodes(nodes: Nodes, algorithm: str, prefix: str) -> None:
    limiter = nodes.limiter(algorithm, 2, DAY, prefix=prefix)
    for key in spread(limiter):
        assert [limiter.allow(key) for _ in range(3)] == [True, True, False]
    limiter.refund("user:1")
    limiter.reset("user:2")
    assert [limiter.peek(f"user:{number}").remaining for number in range(4)] == [0, 1, 2, 0]
    limiter.reset_all()
    assert all(limiter.peek(key).remaining == 2 for key in spread(limiter))


def test_acquire_all_over_slots_spends_one_by_one_and_puts_back_on_a_refusal(nodes: Nodes, algorithm: str, prefix: str) -> None:
    wide, narrow = (nodes.limiter(algorithm, n, DAY, prefix=prefix, name=f"{n}") for n in (100, 2))
    keys = spread(wide, 9)
    assert nodes.spend(*[(wide, key, 10) for key in keys], (narrow, "last", 2)).allowed
    before = commands(nodes.servers)
    decision = nodes.spend(*[(wide, key, 10) for key in keys], (narrow, "last", 1))
    assert (decision.allowed, decision.name, [part.name for part in decision.parts]) == (False, "2", ["2"])
    assert commands(nodes.servers) - before == 19, "nine taken, one refused, nine put back"
    assert [wide.peek(key).remaining for key in keys] == [90] * 9
    assert narrow.peek("last").remaining == 0


def test_acquire_all_over_one_slot_is_one_step(nodes: Nodes, algorithm: str, prefix: str) -> None:
    limiters = [nodes.limiter(algorithm, n, DAY, prefix="{jwtlimit}" + prefix, name=f"{n}") for n in (100, 3)]
    spends = [(limiters[0], key, 10) for key in ("a", "b", "c")] + [(limiters[1], "d", 2)]
    before = commands(nodes.servers)
    assert nodes.spend(*spends).allowed
    assert commands(nodes.servers) - before in (1, 2), "one, and another if the script was new"
    before = commands(nodes.servers)
    refusal = nodes.spend(*spends)
    assert (refusal.allowed, len(refusal.parts)) == (False, 4)
    assert commands(nodes.servers) - before == 1
    assert [limiters[0].peek(key).remaining for key in ("a", "b", "c")] == [90] * 3


def test_acquire_all_over_a_cluster_and_memory_is_all_or_nothing(nodes: Nodes, algorithm: str, prefix: str) -> None:
    memory, shared = RateLimiter(5, DAY), nodes.limiter(algorithm, 3, DAY, prefix=prefix)
    answers = [nodes.spend((memory, "a", 1), (shared, "a", 1)).allowed for _ in range(5)]
    assert answers == [True, True, True, False, False]
    assert (memory.peek("a").remaining, shared.peek("a").remaining) == (2, 0)


# A node that is gone -------------------------------------------------------------------------------------------------------


def agree(servers: list[Server], state: str) -> None:
    """Wait until each of the nodes takes the cluster for *state*."""
    deadline = time.monotonic() + 20
    for server in servers:
        with server.client() as client:
            while client.cluster("INFO")["cluster_state"] != state:
                assert time.monotonic() < deadline
                time.sleep(0.01)


@pytest.mark.parametrize("awaits", [False, True], ids=["sync", "async"])
def test_limiter_over_a_cluster_that_lost_a_node_follows_its_policy_and_recovers(awaits: bool) -> None:
    with cluster(BINARY) as servers:
        clock, nodes = ManualClock(), Nodes(servers, awaits=awaits, timeout=0.6)
        deny, local = (
            nodes.limiter("bucket", 3, DAY, on_failure=policy, name=policy, cooldown=5, clock=clock)
            for policy in ("deny", "local")
        )

        def in_time(limiter: Plain, key: str) -> bool:
            clock.advance(5)  # so that it asks
            start = time.perf_counter()
            allowed: bool = limiter.allow(key)
            assert time.perf_counter() - start < nodes.timeout + HANG_S
            return allowed

        def lost(limiter: Plain) -> str:
            """Return a key of the last node."""
            return next(key for key in spread(limiter) if key_slot(limiter.limiter._form.stored(key)) > 12_000)

        assert all(in_time(limiter, lost(limiter)) for limiter in (deny, local))
        servers[2].stop()
        assert not in_time(deny, lost(deny))
        assert [in_time(local, lost(local)), *(local.allow(lost(local)) for _ in range(3))] == [True] * 3 + [False]
        agree(servers[:2], "fail")
        assert not in_time(deny, lost(deny)), "CLUSTERDOWN"
        with pytest.raises(LimiterUnavailable):
            deny.acquire("other")
        servers[2].start()
        agree(servers, "ok")
        assert any(in_time(deny, "new") for _ in range(3)), "back with one of the next probes"
        assert all(in_time(limiter, "newer") for limiter in (deny, local))
        nodes.close()
