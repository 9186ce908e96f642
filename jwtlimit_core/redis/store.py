"""One Redis or Valkey server or cluster, as limiters see it: a script call within a deadline, or known to be down."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from jwtlimit_core.clock import Clock
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import Call, Flow
from jwtlimit_core.redis.wire import SCRIPT, SCRIPT_SHA
from jwtlimit_core.turn import Turn

__all__ = ["Store", "StoreDown", "async_store", "open_store", "sync_store"]

logger = logging.getLogger("jwtlimit")

_PAGE = 1_000
# A pool waits for a free connection; more of them than can be served at once only make a crowd that connects at the same time.
_MOST_CONNECTIONS = 20
# Replies that concern one key, not the server: everything else is asked again only by the probe.
_OF_ONE_KEY = ("WRONGTYPE",)


class StoreDown(Exception):
    """The store gave no answer, or was not asked, since it is known to be down; the failure policy answers instead."""


class Store:
    """Runs the script, and knows whether the server answers.

    After a failure nobody waits for the server again, but one probe per cool-down; the first answer ends the outage. A call
    that failed although others were answered in the meantime is no outage: this process may be too busy, or one key be spoiled.
    Changes of that state are logged, calls are not.

    Args:
        client: Returns the client to use now, in this process and on this event loop.
        close: Closes what was made here.
        awaits: Whether the client is asynchronous.
        identity: What tells whether two stores are one: limits of one can be spent in one call.
        cluster: Whether keys may live on different nodes.
        timeout: Seconds that one call may take.
        cooldown: Seconds between probes.
        clock: Only its ``monotonic_ns`` is read.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        *,
        close: Callable[[], Any],
        awaits: bool,
        identity: Hashable,
        cluster: bool,
        timeout: float,
        cooldown: float,
        clock: Clock,
    ) -> None:
        self.awaits = awaits
        self.identity = identity
        self.cluster = cluster
        self.cooldown = cooldown
        self.clock = clock
        self._client = client
        self._close = close
        self._timeout = timeout
        self._cooldown_ns = int(cooldown * 1_000_000_000)
        self._turn = Turn()
        self._next_probe_ns: int | None = None  # None while the store answers
        self._answered_ns: int | None = None

    def script(self, arguments: Sequence[str | bytes | int], keys: Sequence[str]) -> Flow[list[int]]:
        """Run the script on *keys*.

        Raises:
            StoreDown: There was no answer within the time-out, an error for an answer, or the store is known to be down.
        """
        reply: list[int] = yield from self._guarded(("EVALSHA", SCRIPT_SHA), ("EVAL", SCRIPT), len(keys), *keys, *arguments)
        return reply

    def delete(self, key: str) -> Flow[None]:
        """Delete *key*; raises as `script` does."""
        yield from self._guarded(("DEL",), None, key)

    def delete_all(self, pattern: str) -> Flow[None]:
        """Delete the keys that match *pattern*, page by page; it may take longer than the time-out.

        Raises:
            StoreDown: A page failed; those before it are deleted.
        """
        try:
            yield Call(self._delete_all_async if self.awaits else self._delete_all, (pattern,), self.awaits)
        except RedisError as error:
            raise StoreDown(type(error).__name__) from error

    def close(self) -> Flow[None]:
        """Close the clients that were made here."""
        yield Call(self._close, (), self.awaits)

    def _guarded(self, command: tuple[str, ...], again: tuple[str, ...] | None, *arguments: str | bytes | int) -> Flow[Any]:
        sent_ns = self.clock.monotonic_ns()
        self._check_up(sent_ns)
        execute = self._execute_async if self.awaits else self._execute
        try:
            try:
                reply = yield Call(execute, (*command, *arguments), self.awaits)
            except NoScriptError:
                if again is None:
                    raise
                reply = yield Call(execute, (*again, *arguments), self.awaits)
        except ConfigError:
            raise
        except Exception as error:  # redis-py has no one root for what a call may raise; to the limit it is all no answer
            self._failed(error, sent_ns)
            raise StoreDown(type(error).__name__) from error
        self._worked()
        return reply

    def _execute(self, *command: str | bytes | int) -> Any:
        return self._client().execute_command(*command)

    async def _execute_async(self, *command: str | bytes | int) -> Any:
        client = self._client()
        async with asyncio.timeout(self._timeout):
            return await client.execute_command(*command)

    def _delete_all(self, pattern: str) -> None:
        client = self._client()
        for key in client.scan_iter(match=pattern, count=_PAGE):
            client.delete(key)

    async def _delete_all_async(self, pattern: str) -> None:
        client = self._client()
        async for key in client.scan_iter(match=pattern, count=_PAGE):
            await client.delete(key)

    def _check_up(self, now_ns: int) -> None:
        if self._next_probe_ns is None:
            return
        with self._turn:
            if self._next_probe_ns is not None and now_ns < self._next_probe_ns:
                raise StoreDown("known to be down")
            self._next_probe_ns = now_ns + self._cooldown_ns  # this call is the probe

    def _failed(self, error: Exception, sent_ns: int) -> None:
        if str(error).startswith(_OF_ONE_KEY):
            return
        with self._turn:
            if self._answered_ns is not None and self._answered_ns > sent_ns:
                return
            was_up = self._next_probe_ns is None
            self._next_probe_ns = self.clock.monotonic_ns() + self._cooldown_ns
        if was_up:
            logger.warning(
                "the store of the rate limits does not answer (%s); it is asked again every %g s", _text(error), self.cooldown
            )

    def _worked(self) -> None:
        self._answered_ns = self.clock.monotonic_ns()
        if self._next_probe_ns is not None:
            with self._turn:
                was_down, self._next_probe_ns = self._next_probe_ns is not None, None
            if was_down:
                logger.warning("the store of the rate limits answers again")


def sync_store(source: object, *, timeout: float, cooldown: float, clock: Clock) -> Store:
    """Make the store for a URL or for a client of redis-py.

    Raises:
        ConfigError: The client is asynchronous, is none, or could let one call take longer than *timeout*.
    """
    if isinstance(source, Store):
        return source
    if isinstance(source, str):
        own = _PerProcess(source, timeout)
        return Store(
            own.client,
            close=own.close,
            awaits=False,
            identity=own,
            cluster=False,
            timeout=timeout,
            cooldown=cooldown,
            clock=clock,
        )
    if not isinstance(source, redis.Redis | redis.RedisCluster):
        raise ConfigError(f"client must be a redis.Redis or redis.RedisCluster, not {type(source).__name__}")
    if problems := _slow_settings(source, timeout):
        raise ConfigError(
            f"the client could keep one call longer than the time-out of {timeout:g} s: {', '.join(problems)}. Make it with "
            f"{type(source).__name__}(..., socket_timeout={timeout / 2:g}, socket_connect_timeout={timeout / 2:g}, "
            "retry=Retry(NoBackoff(), 0)), or use from_url()"
        )
    cluster = isinstance(source, redis.RedisCluster)
    return Store(
        lambda: source,
        close=lambda: None,
        awaits=False,
        identity=id(source),
        cluster=cluster,
        timeout=timeout,
        cooldown=cooldown,
        clock=clock,
    )


def async_store(source: object, *, timeout: float, cooldown: float, clock: Clock) -> Store:
    """Make the store for a URL or for a client of redis.asyncio.

    Raises:
        ConfigError: The client is synchronous, or is none.
    """
    if isinstance(source, Store):
        return source
    if not isinstance(source, str | redis.asyncio.Redis | redis.asyncio.RedisCluster):
        raise ConfigError(f"client must be a redis.asyncio.Redis or RedisCluster, not {type(source).__name__}")
    clients = _PerLoop(source, timeout) if isinstance(source, str) else _OneLoop(source)
    return Store(
        clients.client,
        close=clients.close,
        awaits=True,
        identity=clients if isinstance(source, str) else id(source),
        cluster=isinstance(source, redis.asyncio.RedisCluster),
        timeout=timeout,
        cooldown=cooldown,
        clock=clock,
    )


def open_store(url: str, *, timeout: float = 0.25, cooldown: float = 1.0, clock: Clock = time) -> Store:
    """Make one store for several limiters, to be given to each in place of a client: they share connections and outages.

    Raises:
        ConfigError: *url* does not read like one.
    """
    return sync_store(url, timeout=timeout, cooldown=cooldown, clock=clock)


class _PerProcess:
    """A client for each process: a pool that was forked may be locked for ever."""

    def __init__(self, url: str, timeout: float) -> None:
        def make() -> Any:
            pool: Any = redis.BlockingConnectionPool
            return redis.Redis.from_pool(pool.from_url(url, **_own_options(timeout)))

        self._make = make
        self._pid = os.getpid()
        self._made = _checked_url(make)  # connects at its first use
        self._turn = Turn()

    def client(self) -> Any:
        if self._pid != os.getpid():
            with self._turn:
                if self._pid != os.getpid():
                    self._made, self._pid = self._make(), os.getpid()
        return self._made

    def close(self) -> None:
        if self._pid == os.getpid():
            self._made.close()


class _PerLoop:
    """A client for each running event loop, for as long as the loop is there."""

    def __init__(self, url: str, timeout: float) -> None:
        def make() -> Any:
            pool: Any = redis.asyncio.BlockingConnectionPool
            return redis.asyncio.Redis.from_pool(pool.from_url(url, **_own_options(timeout)))

        self._make = make
        _checked_url(make)
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    def client(self) -> Any:
        loop = asyncio.get_running_loop()
        client = self._made.get(loop)
        if client is None:
            client = self._made[loop] = self._make()
        return client

    async def close(self) -> None:
        client = self._made.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


class _OneLoop:
    """The application's own client, which belongs to the event loop on which it was used first."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None

    def client(self) -> Any:
        running = asyncio.get_running_loop()
        if self._loop() is None:
            self._loop = ref(running)
        elif self._loop() is not running:
            raise ConfigError(
                "this asyncio client belongs to another event loop: use from_url(), which has a client for each loop"
            )
        return self._client

    async def close(self) -> None:
        """Leave the client to its owner."""


def _own_options(timeout: float) -> dict[str, Any]:
    # Half of the time-out for each phase: two can be slow, such as connecting and the first answer, or two addresses of a name.
    # RESP2 saves the round trip of HELLO.
    return {
        "socket_timeout": timeout / 2,
        "socket_connect_timeout": timeout / 2,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": _MOST_CONNECTIONS,
        "timeout": timeout / 2,
        "protocol": 2,
    }


def _checked_url(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, RedisError):
        # Without its cause: a URL may hold a password.
        raise ConfigError("the URL of the store must read like redis://host:6379/0, rediss:// or unix:///path") from None


def _slow_settings(client: Any, timeout: float) -> list[str]:
    """Say which settings of a synchronous *client* let a call take longer than *timeout*."""
    problems = []
    if isinstance(client, redis.RedisCluster):
        settings = client.nodes_manager.connection_kwargs
        pools = [settings]
        retry: Any = client.retry
        if retry is not None and retry.get_retries() > 0:
            problems.append(f"retry makes {retry.get_retries()} more attempts")
    else:
        pool: Any = client.connection_pool
        pools = [pool.connection_kwargs]
        sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", ())
        pools += [sentinel.connection_pool.connection_kwargs for sentinel in sentinels]
    for settings in pools:
        # What the settings leave out is the default of the connection, which differs from version to version.
        connection: Any = redis.Connection
        probe = connection(**{name: settings[name] for name in _TIME_SETTINGS if name in settings})
        for name in ("socket_timeout", "socket_connect_timeout"):
            value = getattr(probe, name)
            if value is None or value > timeout:
                problems.append(f"{name} is {value}")
        retry = settings.get("retry")
        if retry is not None and retry.get_retries() != 0 and not isinstance(client, redis.RedisCluster):
            problems.append(f"retry makes {retry.get_retries()} more attempts")
    return problems


_TIME_SETTINGS = ("socket_timeout", "socket_connect_timeout")


def _text(error: Exception) -> str:
    return type(error).__name__ + (f": {error}" if isinstance(error, RedisError) else "")
