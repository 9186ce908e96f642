"""The limiters over a shared store: two algorithms, each for code with and without an event loop."""

from datetime import timedelta
from fractions import Fraction
from types import TracebackType
from typing import Any, Self, Unpack

from jwtlimit_core.decision import Decision
from jwtlimit_core.errors import ConfigError, LimiterUnavailable
from jwtlimit_core.flow import run, run_async
from jwtlimit_core.rate import Rate
from jwtlimit_core.redis.store import StoreDown, async_store, sync_store
from jwtlimit_core.redis.store_limiter import Options, StoreLimiter, without_store
from jwtlimit_core.redis.wire import FixedWindow, TokenBucket

__all__ = ["AsyncRedisFixedWindow", "AsyncRedisTokenBucket", "RedisFixedWindow", "RedisTokenBucket"]


class _SyncLimiter(StoreLimiter):
    """The methods of `RateLimiter`, over a store."""

    _make_store = staticmethod(sync_store)

    def allow(self, key: str) -> bool:
        """Take one token of *key* if it is there; False also while the store is down and the policy is to deny."""
        return self.allow_n(key, 1)

    def allow_n(self, key: str, n: int) -> bool:
        """Take *n* tokens of *key* if all of them are there; see `RateLimiter.allow_n`."""
        verdict = self._verdict(key, n)
        if verdict is not None:
            return verdict
        try:
            return self._take(key, n).allowed
        except LimiterUnavailable:
            return False

    def acquire(self, key: str, n: int = 1) -> Decision:
        """Take *n* tokens of *key* if all of them are there, in one step on the server, and say how things stand.

        Raises:
            TypeError: *key* is not a str or *n* is not an int.
            LimiterUnavailable: The store gave no answer and the policy is to deny, or the limiter is closed.
        """
        refusal = self._refusal(key, n)
        if refusal is not None:
            return refusal
        return self._take(key, n) if n else self.peek(key, n)

    def _take(self, key: str, n: int) -> Decision:
        try:
            decision: Decision = self._store.ask(*self._question(key, n))
        except StoreDown as error:
            return without_store(((self, key, n),), b"take", error)[0]
        return decision

    def peek(self, key: str, n: int = 1) -> Decision:
        """Say what `acquire` would answer now, and change nothing."""
        return run(self._peek(key, n))

    def refund(self, key: str, n: int = 1) -> None:
        """Put *n* tokens of *key* back, never more than were taken."""
        run(self.refund_flow(key, n))

    def reset(self, key: str) -> None:
        """Give *key* its full quota back, in all processes.

        Another process that was just refused goes on refusing from memory until the wait it was told, a minute at most.
        """
        run(self._reset(key))

    def reset_all(self) -> None:
        """Give every key of this limiter its full quota back, page by page; meant for tests."""
        run(self._reset_all())

    def close(self) -> None:
        """Admit nobody any more, and close the client if `from_url` made it."""
        run(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class _AsyncLimiter(StoreLimiter):
    """The methods of `RateLimiter` as coroutines, over a store.

    A task that is cancelled while it waits for the store may have been charged; nothing else is left behind.
    """

    _make_store = staticmethod(async_store)

    async def allow(self, key: str) -> bool:
        """Take one token of *key* if it is there; False also while the store is down and the policy is to deny."""
        return await self.allow_n(key, 1)

    async def allow_n(self, key: str, n: int) -> bool:
        """Take *n* tokens of *key* if all of them are there; see `RateLimiter.allow_n`."""
        verdict = self._verdict(key, n)
        if verdict is not None:
            return verdict
        try:
            return (await self._take(key, n)).allowed
        except LimiterUnavailable:
            return False

    async def acquire(self, key: str, n: int = 1) -> Decision:
        """Take *n* tokens of *key* if all of them are there; raises as `RedisTokenBucket.acquire` does."""
        refusal = self._refusal(key, n)
        if refusal is not None:
            return refusal
        return await (self._take(key, n) if n else self.peek(key, n))

    async def _take(self, key: str, n: int) -> Decision:
        try:
            decision: Decision = await self._store.ask(*self._question(key, n))
        except StoreDown as error:
            return without_store(((self, key, n),), b"take", error)[0]
        return decision

    async def peek(self, key: str, n: int = 1) -> Decision:
        """Say what `acquire` would answer now, and change nothing."""
        return await run_async(self._peek(key, n))

    async def refund(self, key: str, n: int = 1) -> None:
        """Put *n* tokens of *key* back, never more than were taken."""
        await run_async(self.refund_flow(key, n))

    async def reset(self, key: str) -> None:
        """Give *key* its full quota back; see `RedisTokenBucket.reset`."""
        await run_async(self._reset(key))

    async def reset_all(self) -> None:
        """Give every key of this limiter its full quota back, page by page; meant for tests."""
        await run_async(self._reset_all())

    async def close(self) -> None:
        """Admit nobody any more, and close the client of the running loop if `from_url` made it."""
        await run_async(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


Window = timedelta | float | Fraction
_MINUTE = timedelta(minutes=1)


class _TokenBucketLimiter(StoreLimiter):
    _rule_type = TokenBucket

    def __init__(
        self,
        client: Any,
        max_rate: int = 100,
        window: Window = _MINUTE,
        *,
        burst: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(client, Rate(max_rate, window, burst), options)

    @classmethod
    def from_url(
        cls, url: str, max_rate: int = 100, window: Window = _MINUTE, *, burst: int | None = None, **options: Unpack[Options]
    ) -> Self:
        """Make a limiter with a client of its own, whose time-outs and retries keep each call within *timeout*."""
        return cls(_url(url), max_rate, window, burst=burst, **options)


class _FixedWindowLimiter(StoreLimiter):
    _rule_type = FixedWindow

    def __init__(self, client: Any, max_rate: int = 100, window: Window = _MINUTE, **options: Unpack[Options]) -> None:
        super().__init__(client, Rate(max_rate, window), options)

    @classmethod
    def from_url(cls, url: str, max_rate: int = 100, window: Window = _MINUTE, **options: Unpack[Options]) -> Self:
        """Make a limiter with a client of its own, whose time-outs and retries keep each call within *timeout*."""
        return cls(_url(url), max_rate, window, **options)


class RedisTokenBucket(_SyncLimiter, _TokenBucketLimiter):
    """The token bucket of `RateLimiter`, one for all processes and machines, exact on the clock of the server.

    Args:
        client: A `redis.Redis` or `redis.RedisCluster` whose time-outs keep within *timeout*; see `from_url` for one that does.
        max_rate: Tokens that come back in one window.
        window: A `timedelta`, or seconds; a whole number of microseconds.
        burst: The size of a bucket; *max_rate* where it is left out.
        options: See `Options`.

    Raises:
        ConfigError: A value cannot work; nothing has been connected yet.
    """


class AsyncRedisTokenBucket(_AsyncLimiter, _TokenBucketLimiter):
    """`RedisTokenBucket` for code on an event loop; *client* is of `redis.asyncio`, and belongs to one loop."""


class RedisFixedWindow(_SyncLimiter, _FixedWindowLimiter):
    """At most *max_rate* in a window that starts with the first request of a key, one for all processes and machines.

    Refused calls are not counted and do not prolong the window. Up to twice the limit can pass around the edge of a window; a
    token bucket does not have that edge. While the store is down, the policy ``"local"`` counts by a token bucket.

    The arguments are those of `RedisTokenBucket`, without *burst*.
    """


class AsyncRedisFixedWindow(_AsyncLimiter, _FixedWindowLimiter):
    """`RedisFixedWindow` for code on an event loop; *client* is of `redis.asyncio`, and belongs to one loop."""


def _url(url: object) -> str:
    if not isinstance(url, str):
        raise ConfigError(f"url must be a str such as redis://localhost:6379/0, not {type(url).__name__}")
    return url
