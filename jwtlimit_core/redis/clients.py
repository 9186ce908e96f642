"""Clients of redis-py: our own, one for each process or event loop, and those of applications, checked for their patience."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit
from weakref import ref

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from jwtlimit_core.errors import ConfigError
from jwtlimit_core.redis.connections import Connections, is_of_server
from jwtlimit_core.turn import Turn

__all__ = ["OneLoop", "PerLoop", "PerProcess", "check_patience", "execute", "execute_async"]

_URL_FORM = "read like redis://host:6379/0, rediss:// or unix:///path"
_MOST_CONNECTIONS = 20  # of one client; see `Connections`
# What stands between forgets connections that are idle for some minutes, without a word to either end. The names are of Linux.
_KEEPALIVE: dict[str, Any] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    },
}


class PerProcess:
    """A client for each process, and its connections: locks that were forked may be taken for ever.

    Raises:
        ConfigError: The URL does not read like one, or asks for longer time-outs.
    """

    def __init__(self, url: str, timeout: float) -> None:
        # Half of the time-out for each step: two can be slow, such as connecting and the first answer, or two addresses.
        self._half = half = timeout / 2
        self._make = _maker(redis, Retry, url, socket_timeout=half, socket_connect_timeout=half, timeout=half)
        made = self._made_now()  # connects at its first use
        if problems := _impatience(made[0].connection_pool, half):
            raise ConfigError(f"the URL of the store must leave the time-outs alone: {', '.join(problems)}")
        # That of the parent is kept, since to let go of it would close its connections, and wait for its locks.
        self._made = {os.getpid(): made}

    def client(self) -> Any:
        """Return the client of this process."""
        return self._of_process()[0]

    def execute(self, *command: str | bytes) -> Any:
        """Do what ``execute_command`` of the client does, without its retries and records, which take their time."""
        return self._of_process()[1].execute(*command)

    def close(self) -> None:
        """Close the client of this process, if it has one."""
        made = self._made.pop(os.getpid(), None)  # who begins again gets another
        if made is not None:
            client, connections = made
            connections.close()
            client.close()

    def _of_process(self) -> tuple[Any, Connections]:
        made = self._made.get(os.getpid())
        return made if made is not None else self._made.setdefault(os.getpid(), self._made_now())

    def _made_now(self) -> tuple[Any, Connections]:
        client = self._make()
        pool = client.connection_pool
        return client, Connections(partial(_connection_of, pool), pool.max_connections, self._half)


class PerLoop:
    """A client for each event loop, for as long as the loop runs.

    Connections hold their loop, so that to know it weakly would not let go of it. Instead each client has an asynchronous
    generator that closes it: a loop that is shut down, as `asyncio.run` does, closes the generators that were begun on it.
    Loops that were closed without that are forgotten when the next one comes.

    Raises:
        ConfigError: The URL does not read like one.
    """

    def __init__(self, url: str, timeout: float) -> None:
        # Calls are cut off from outside; more time-outs within would cost each of them a task and two timers.
        self._make = _maker(
            redis.asyncio, AsyncRetry, url, socket_timeout=None, socket_connect_timeout=timeout / 2, timeout=None
        )
        self._made: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None, None]]] = {}
        self._turn = Turn()

    def client(self) -> Any:
        """Return the client of the running loop."""
        loop = _running_loop()
        made = self._made.get(loop)
        if made is None:
            client = self._make()
            made = client, self._until_closed(loop, client)
            with suppress(StopIteration):
                made[1].__anext__().send(None)  # as far as its yield; from now on the loop knows it
            try:
                self._turn.take()  # other loops run in other threads
                closed = [self._made.pop(other) for other in list(self._made) if other.is_closed()]
                self._made[loop] = made
            finally:
                self._turn.append(None)
            del closed  # not within the turn: what falls with them may take its time
        return made[0]

    async def close(self) -> None:
        """Close the client of the running loop, if it has one."""
        made = self._made.get(_running_loop())
        if made is not None:
            await made[1].aclose()

    async def _until_closed(self, loop: asyncio.AbstractEventLoop, client: Any) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            try:
                self._turn.take()
                self._made.pop(loop, None)
            finally:
                self._turn.append(None)
            await client.aclose()


class OneLoop:
    """The application's own client, which belongs to the event loop on which it was used first."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None

    def client(self) -> Any:
        """Return the client.

        Raises:
            ConfigError: Another loop runs than at its first use.
        """
        running = _running_loop()
        if self._loop() is None:
            self._loop = ref(running)
        elif self._loop() is not running:
            raise ConfigError(
                "this asyncio client belongs to another event loop: use from_url(), which has a client for each loop"
            )
        return self._client

    async def close(self) -> None:
        """Leave the client to its owner."""


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise ConfigError("a store needs the event loop of asyncio: run the server on that, or count in memory") from error


def execute(client: Any, *command: str | bytes) -> Any:
    """Send *command* by ``execute_command`` of a client of the application, which may have it watched.

    The connection to a server that cannot serve, such as a replica, is closed: its name may stand for another by now.
    """
    try:
        return client.execute_command(*command)
    except ResponseError as error:
        if is_of_server(error) and hasattr(client, "connection_pool"):  # a cluster looks for itself
            with suppress(RedisError):  # of the way to it; what is told is what the server said
                connection = client.connection_pool.get_connection()  # the one that was used last
                connection.disconnect()
                client.connection_pool.release(connection)
        raise


async def execute_async(client: Any, *command: str | bytes) -> Any:
    """Do what `execute` does, by an asynchronous client."""
    try:
        return await client.execute_command(*command)
    except ResponseError as error:
        if is_of_server(error) and hasattr(client, "connection_pool"):
            if client.connection is not None:  # the only one, see single_connection_client
                await client.connection.disconnect()
            await client.connection_pool.disconnect(inuse_connections=False)
        raise


def check_patience(client: Any, timeout: float) -> None:
    """Refuse a synchronous *client* whose settings could let one call take longer than *timeout*.

    What may be waited for one after the other has to fit in: connecting and the answer; each Sentinel before that; each node
    of a cluster that is asked for the others after one has failed.

    Raises:
        ConfigError: It could; the message shows how to make one that could not.
    """
    settings = "socket_timeout={0:g}, socket_connect_timeout={0:g}, retry=Retry(NoBackoff(), 0), protocol=2"
    problems = []
    if isinstance(client, redis.RedisCluster):
        nodes: Any = client.nodes_manager
        pools = [node.redis_connection.connection_pool for node in nodes.nodes_cache.values()]
        most = timeout / (1 + len(pools))
        # Once for the whole cluster, by whichever of the two this version of redis-py knows.
        attempts = max(
            getattr(getattr(client, "retry", None), "_retries", 0), getattr(client, "cluster_error_retry_attempts", 0)
        )
        if attempts:
            problems.append(f"the cluster is tried {attempts} more times")
        more = ", cluster_error_retry_attempts=0" if hasattr(client, "cluster_error_retry_attempts") else ""
        form = f"RedisCluster(..., {settings}{more})"
    else:
        pool: Any = client.connection_pool
        sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", ())
        pools = [pool, *(sentinel.connection_pool for sentinel in sentinels)]
        most = timeout / (1 + (len(sentinels) or 1))
        if client.connection is not None:
            problems.append("single_connection_client lets threads wait for each other")
        if sentinels:
            form = f"Sentinel(..., sentinel_kwargs=dict({settings}), {settings}).master_for(...)"
        elif issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
            form = f"Redis.from_url('unix://...', {settings}), or use from_url()"  # Redis(...) drops one of them
        elif isinstance(pool, redis.BlockingConnectionPool):
            form = f"Redis.from_pool(BlockingConnectionPool(..., timeout={{0:g}}, {settings})), or use from_url()"
        else:
            form = f"Redis(..., {settings}), or use from_url()"
    for each in pools:
        problems += [problem for problem in _impatience(each, most) if problem not in problems]
    if problems:
        raise ConfigError(
            f"the client could keep one call longer than the time-out of {timeout:g} s: {', '.join(problems)}. Make it with "
            + form.format(most)
        )


def _impatience(pool: Any, most: float) -> list[str]:
    """Say which settings of a synchronous *pool* let one step of a call take longer than *most* seconds."""
    connection = _connection_of(pool)
    waits = {name: getattr(connection, name) for name in ("socket_timeout", "socket_connect_timeout")}
    if isinstance(pool, redis.BlockingConnectionPool):
        waits["timeout"] = pool.timeout
    # A thousandth more, since the number was shown rounded.
    problems = [f"{name} is {value}" for name, value in waits.items() if value is None or not 0 < value <= most * 1.001]
    if connection.retry._retries:
        problems.append(f"retry makes {connection.retry._retries} more attempts")
    if getattr(pool, "maint_notifications_enabled", bool)():
        problems.append("maintenance notifications, a part of protocol 3, can stretch the time-outs")
    return problems


def _maker(module: Any, retry: Any, url: str, **times: float | None) -> Callable[[], Any]:
    """Return what makes clients of *module*, redis or redis.asyncio, for *url*; it has been tried."""
    query: dict[str, list[str]] = {}

    def make() -> Any:
        options: dict[str, Any] = {} if url.startswith("unix:") else dict(_KEEPALIVE)
        if url.startswith("rediss:") and query.get("ssl_cert_reqs") != ["none"]:
            options["ssl_check_hostname"] = True  # older versions of redis-py do not
        # RESP2 saves the round trip of HELLO.
        options |= {"retry": retry(NoBackoff(), 0), "max_connections": _MOST_CONNECTIONS, "protocol": 2}
        pool = module.BlockingConnectionPool.from_url(url, **times, **options)
        return module.Redis.from_pool(pool)

    try:
        parts = urlsplit(url)
        query |= parse_qs(parts.query)
        _check_what_redis_py_does_not(url, parts.path.strip("/"), query)
        pool = make().connection_pool
        _connection_of(pool)  # which knows what options there are
    except ConfigError:
        raise
    except Exception:  # noqa: BLE001  of redis-py, which fails in many ways at what an option of a URL cannot be
        # Without its cause: a URL may hold a password.
        raise ConfigError(f"the URL of the store must {_URL_FORM}") from None
    if pool.connection_kwargs["protocol"] != 2:
        raise ConfigError(
            "the URL of the store must leave the protocol alone: the maintenance notifications of protocol 3 can stretch the "
            "time-outs, and keep connections that the server has closed"
        )
    return make


def _check_what_redis_py_does_not(url: str, path: str, query: dict[str, list[str]]) -> None:
    """Refuse what redis-py would take for something else.

    Raises:
        ConfigError: The URL is such a one; it is not shown, since it may hold a password.
    """
    if not url.startswith(("redis://", "rediss://", "unix://")):
        demand = _URL_FORM  # some versions take other cases for these
    elif not url.startswith("unix:") and path and not path.isdecimal():
        demand = "end with the number of a database, as in redis://host:6379/0"  # else it would be 0
    elif "retry" in query:
        demand = "leave retry out: nothing is tried again"  # the text would be taken for an object
    elif int(query.get("max_connections", ["1"])[0]) < 1:
        demand = "have max_connections of 1 or more, or leave it out"  # 0 would be no bound
    else:
        return
    raise ConfigError(f"the URL of the store must {demand}")


def _connection_of(pool: Any) -> Any:
    """Return a new connection as *pool* makes them; it connects at its first use, and knows the defaults."""
    return pool.connection_class(**pool.connection_kwargs)
