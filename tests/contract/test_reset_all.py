"""Forgetting all counts of one limiter over a store, and nothing else."""

import asyncio
from typing import Any

import pytest

from jwtlimit_core import LimiterUnavailable
from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisTokenBucket
from servers import Server


def test_reset_all_of_thousands_of_keys_deletes_those_and_no_foreign_one(server: Server) -> None:
    names: Any = {"name": "reset[1]*", "prefix": "odd?prefix", "timeout": 20}
    with RedisTokenBucket.from_url(server.url, 5, 86_400, **names) as limiter, server.client() as client:
        for index in range(3_000):
            assert limiter.allow(f"user {index}")
        foreign = ["oddXprefix:reset[1]*:a", "odd?prefix:reset1:a", "odd?prefix:reset[1]*", "other"]
        for key in foreign:
            client.set(key, "theirs", ex=60)
        assert len(list(client.scan_iter(match="odd?prefix:*", count=1_000))) >= 3_000
        limiter.reset_all()
        assert not [key for key in client.scan_iter(count=1_000) if key.startswith(b"odd?prefix:reset%5B1%5D%2A:")]
        assert [client.get(key) for key in foreign] == [b"theirs"] * len(foreign)


def test_reset_all_async_gives_every_key_its_quota_back(server: Server) -> None:
    async def use() -> None:
        async with AsyncRedisTokenBucket.from_url(server.url, 1, 86_400, name="reset all async", timeout=20) as limiter:
            assert [await limiter.allow("a"), await limiter.allow("a")] == [True, False]
            await limiter.reset_all()
            assert await limiter.allow("a")

    asyncio.run(use())


@pytest.mark.parametrize("on_failure", ["deny", "local"])
def test_reset_all_without_a_store_follows_the_policy(on_failure: str) -> None:
    with RedisTokenBucket.from_url("redis://127.0.0.1:1/0", 1, 86_400, on_failure=on_failure) as limiter:
        if on_failure == "deny":
            with pytest.raises(LimiterUnavailable):
                limiter.reset_all()
        else:
            assert [limiter.allow("a"), limiter.allow("a")] == [True, False]
            limiter.reset_all()
            assert limiter.allow("a")
