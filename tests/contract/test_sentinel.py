"""A real Sentinel: when the server fails, a limiter over its client goes on with the replica that takes over."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from jwtlimit_core import LimiterUnavailable
from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisTokenBucket
from servers import Server, binaries, free_port, served
from stores import Plain

BINARY = next(iter(binaries().values()))
PATIENT: dict[str, Any] = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5, "protocol": 2}
TOGETHER_S = 20


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[int, Server, Server]]:
    """Return the port of a Sentinel, the server that it watches, and a replica of that."""
    with served(BINARY, "--repl-diskless-sync-delay", "0") as server, served(BINARY) as replica:
        deadline = time.monotonic() + TOGETHER_S
        with server.client() as master, replica.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", server.port)
            while master.info("replication").get("slave0", {}).get("state") != "online":
                assert time.monotonic() < deadline
                time.sleep(0.02)
        port, settings = free_port(), tmp_path / "sentinel.conf"
        watch = ("monitor limits 127.0.0.1 {} 1", "down-after-milliseconds limits 300", "failover-timeout limits 2000")
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {tmp_path}",
            *(f"sentinel {line}".format(server.port) for line in watch),
        ]
        settings.write_text("\n".join(lines) + "\n")
        process = subprocess.Popen([BINARY, str(settings), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port) as client:
                while not replicas(client):
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            yield port, server, replica
        finally:
            process.kill()
            process.wait()


def replicas(client: Any) -> Any:
    with suppress(redis.ConnectionError):  # not yet
        return client.execute_command("SENTINEL", "REPLICAS", "limits")
    return None


@pytest.mark.parametrize("awaits", [False, True], ids=["sync", "async"])
def test_limiter_over_a_sentinel_uses_the_server_that_takes_over(awaits: bool, watched: tuple[int, Server, Server]) -> None:
    port, server, replica = watched
    with asyncio.Runner() as runner:
        if awaits:
            client = redis.asyncio.sentinel.Sentinel([("127.0.0.1", port)]).master_for("limits")
            limiter = Plain(AsyncRedisTokenBucket(client, 3, 86_400, timeout=1, cooldown=0.05), runner.run)
        else:
            options = PATIENT | {"retry": Retry(NoBackoff(), 0)}
            client = Sentinel([("127.0.0.1", port)], sentinel_kwargs=options, **options).master_for("limits")
            limiter = Plain(RedisTokenBucket(client, 3, 86_400, timeout=1, cooldown=0.05), runner.run)
        assert limiter.acquire("a").remaining == 2
        deadline = time.monotonic() + TOGETHER_S
        with replica.client() as known:
            while not known.dbsize():  # or it would not know of the first, as the docs say
                assert time.monotonic() < deadline
                time.sleep(0.02)
        server.stop()
        with pytest.raises(LimiterUnavailable):
            limiter.acquire("a")
        while not limiter.allow("a"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert [limiter.allow("a"), limiter.allow("a")] == [True, False], "it counts on from what the other knew"
        if awaits:
            runner.run(client.aclose())
            runner.run(close_all(client.connection_pool.sentinel_manager.sentinels))


async def close_all(clients: list[Any]) -> None:
    for client in clients:
        await client.aclose()
