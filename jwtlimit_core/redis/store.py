"""One Redis or Valkey server or cluster, as limiters see it: a script call within a deadline, or known to be down."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError

from jwtlimit_core.clock import Clock
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import Call, Flow
from jwtlimit_core.redis.clients import OneLoop, PerLoop, PerProcess, check_patience, execute, execute_async
from jwtlimit_core.redis.connections import is_of_key
from jwtlimit_core.redis.wire import SCRIPT, SCRIPT_SHA
from jwtlimit_core.turn import Turn

__all__ = ["Store", "StoreDown", "async_store", "open_async_store", "open_store", "spend_of_one", "sync_store"]

logger = logging.getLogger("jwtlimit")

T = TypeVar("T")

_PAGE = 1_000
_WORD = re.compile(r"(?:^|: -)([A-Z]+) ")  # in what a server says; older ones put more before it, in scripts


class StoreDown(Exception):
    """The store gave no answer, or was not asked, since it is known to be down; the failure policy answers instead."""


class Store:
    """Runs the script, and knows whether the server answers.

    After a failure nobody waits for the server again, but one probe per cool-down; the first answer ends the outage. A call
    that failed although others were answered in the meantime is no outage: this process may be too busy, or one key be spoiled.
    Changes of that state are logged, calls are not.

    Args:
        client: Returns the client to use now, in this process and on this event loop.
        execute: Sends a command by the client that is to be used now.
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
        execute: Callable[..., Any],
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
        self.now_ns = clock.monotonic_ns
        self._client = client
        self.execute = self._within_deadline(execute) if awaits else execute
        self.ask: Callable[..., Any] = self._ask_async if awaits else self._ask
        self._close = close
        self._timeout = timeout
        self._cooldown_ns = int(cooldown * 1_000_000_000)
        self._turn = Turn()
        self._next_probe_ns: int | None = None  # None while the store answers
        self._answered_ns: int | None = None

    def script(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Call:
        """Return how to run the script on *keys*, with an argument for each, and get three numbers for each.

        The call raises StoreDown: there was no answer within the time-out, an error for an answer, or the store is known to be
        down.
        """
        command = ("EVALSHA", SCRIPT_SHA, b"%d" % len(keys), *keys, *arguments)
        return Call(self.ask, (partial(_numbers, 3 * len(keys)), self.execute, *command), self.awaits)

    def delete(self, key: bytes) -> Call:
        """Return how to delete *key*; it raises as that of `script` does."""
        return Call(self.ask, (int, self.execute, "DEL", key), self.awaits)

    def delete_all(self, pattern: bytes) -> Call:
        """Return how to delete the keys that match *pattern*, page by page; it may take longer than the time-out.

        It raises StoreDown where a page failed; those before it are deleted then.
        """
        return Call(self.ask, (bool, self._delete_all_async if self.awaits else self._delete_all, pattern), self.awaits)

    def close(self) -> Flow[None]:
        """Close the clients that were made here."""
        yield Call(self._close, (), self.awaits)

    def _ask(self, read: Callable[[Any], T], execute: Callable[..., Any], *command: Any) -> T:
        """Return what *read* makes of the reply to *command*; send the script in full where the server does not know it.

        Raises:
            StoreDown: There was no answer; what *read* raises counts as none, too.
        """
        sent_ns = self._begin()
        try:
            try:
                reply = execute(*command)
            except NoScriptError:
                reply = execute("EVAL", SCRIPT, *command[2:])
            answer = read(reply)
        except Exception as error:  # redis-py has no one root for what a call may raise; to the limit it is all no answer
            self._failed(error, sent_ns)
            raise StoreDown(type(error).__name__) from error
        self._answered()
        return answer

    async def _ask_async(self, read: Callable[[Any], T], execute: Callable[..., Awaitable[Any]], *command: Any) -> T:
        sent_ns = self._begin()
        try:
            try:
                reply = await execute(*command)
            except NoScriptError:
                reply = await execute("EVAL", SCRIPT, *command[2:])
            answer = read(reply)
        except ConfigError:  # of a client that belongs to another event loop
            raise
        except Exception as error:  # as above
            self._failed(error, sent_ns)
            raise StoreDown(type(error).__name__) from error
        self._answered()
        return answer

    def _within_deadline(self, execute: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        return lambda *command: self._in_time(execute(*command))

    async def _in_time(self, answer: Awaitable[Any]) -> Any:
        # Twice: a cancellation that meets the end of `asyncio.wait_for`, which redis-py uses, is lost on Python 3.11.
        async with asyncio.timeout(self._timeout * 1.2), asyncio.timeout(self._timeout):
            return await answer

    def _delete_all(self, pattern: bytes) -> None:
        for key in self._client().scan_iter(match=pattern, count=_PAGE):
            self.execute("DEL", key)

    async def _delete_all_async(self, pattern: bytes) -> None:
        keys = self._client().scan_iter(match=pattern, count=_PAGE)
        while (key := await self._in_time(anext(keys, None))) is not None:
            await self.execute("DEL", key)

    def _begin(self) -> int:
        """Return the time.

        Raises:
            StoreDown: The store is known to be down, and this call is not the probe.
        """
        now_ns = self.now_ns()
        if self._next_probe_ns is not None:
            self._take_probe(now_ns)
        return now_ns

    def _answered(self) -> None:
        self._answered_ns = self.now_ns()
        if self._next_probe_ns is not None:
            self._up_again()

    def _take_probe(self, now_ns: int) -> None:
        """Let this call be the probe of a store that is down, or raise as `_begin` does."""
        try:
            self._turn.take()
            if self._next_probe_ns is not None and now_ns < self._next_probe_ns:
                raise StoreDown("known to be down")
            self._next_probe_ns = now_ns + self._cooldown_ns  # this call is the probe
        finally:
            self._turn.append(None)

    def _failed(self, error: Exception, sent_ns: int) -> None:
        if is_of_key(error):
            return
        try:
            self._turn.take()
            if self._answered_ns is not None and self._answered_ns > sent_ns:
                return
            was_up = self._next_probe_ns is None
            self._next_probe_ns = self.now_ns() + self._cooldown_ns
        finally:
            self._turn.append(None)
        if was_up:
            logger.warning(
                "the store of the rate limits does not answer (%s); it is asked again every %g s", _text(error), self.cooldown
            )

    def _up_again(self) -> None:
        try:
            self._turn.take()
            was_down, self._next_probe_ns = self._next_probe_ns is not None, None
        finally:
            self._turn.append(None)
        if was_down:
            logger.warning("the store of the rate limits answers again")


def sync_store(source: object, *, timeout: float, cooldown: float, clock: Clock) -> Store:
    """Make the store for a URL or for a client of redis-py, or return *source* if it is one.

    Raises:
        ConfigError: The client is asynchronous, is none, or could let one call take longer than *timeout*.
    """
    if isinstance(source, Store) and not source.awaits:
        return source
    times: dict[str, Any] = {"timeout": timeout, "cooldown": cooldown, "clock": clock}
    if isinstance(source, str):
        own = PerProcess(source, timeout)
        return Store(own.client, own.execute, close=own.close, awaits=False, identity=own, cluster=False, **times)
    if not isinstance(source, redis.Redis | redis.RedisCluster):
        raise ConfigError(f"client must be a redis.Redis or redis.RedisCluster, not {type(source).__name__}")
    check_patience(source, timeout)
    return Store(
        lambda: source,
        partial(execute, source),
        close=lambda: None,
        awaits=False,
        identity=id(source),
        cluster=isinstance(source, redis.RedisCluster),
        **times,
    )


def async_store(source: object, *, timeout: float, cooldown: float, clock: Clock) -> Store:
    """Make the store for a URL or for a client of redis.asyncio, or return *source* if it is one.

    Raises:
        ConfigError: The client is synchronous, or is none.
    """
    if isinstance(source, Store) and source.awaits:
        return source
    if not isinstance(source, str | redis.asyncio.Redis | redis.asyncio.RedisCluster):
        raise ConfigError(f"client must be a redis.asyncio.Redis or RedisCluster, not {type(source).__name__}")
    clients = PerLoop(source, timeout) if isinstance(source, str) else OneLoop(source)
    return Store(
        clients.client,
        lambda *command: execute_async(clients.client(), *command),
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


def open_async_store(url: str, *, timeout: float = 0.25, cooldown: float = 1.0, clock: Clock = time) -> Store:
    """Make one store for several asynchronous limiters; see `open_store`."""
    return async_store(url, timeout=timeout, cooldown=cooldown, clock=clock)


def spend_of_one(key: bytes, argument: bytes) -> tuple[str, bytes, bytes, bytes, bytes]:
    """Return the command that runs the script on *key* alone; of bytes, since redis-py asks of everything else what it is."""
    return "EVALSHA", SCRIPT_SHA, b"1", key, argument


def _numbers(count: int, reply: str | bytes) -> list[int]:
    """Return the *count* numbers of a reply of the script, which is bytes, or a text with some settings of clients."""
    numbers = list(map(int, reply.split()))
    if len(numbers) != count:
        raise ValueError("not a reply of the script")
    return numbers


def _text(error: Exception) -> str:
    text = str(error)
    if not isinstance(error, redis.ConnectionError | redis.TimeoutError):
        # Of what the server says only the first word, such as OOM: the rest may quote the command, and so a key.
        word = _WORD.search(text)
        text = word[1] if word else text.partition(" ")[0]
        text = text if type(error) is ResponseError else ""
    return type(error).__name__ + (f": {text}" if text else "")
