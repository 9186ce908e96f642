"""Limiters over a running server: of both colours as plain objects, on the clock of the server or on one of the tests."""

import asyncio
import inspect
import itertools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from jwtlimit_core import Clock, Decision, acquire_all, acquire_all_async
from servers import Server


class Plain:
    """A limiter of either colour, whose methods are plain functions."""

    def __init__(self, limiter: Any, run: Callable[..., Any]) -> None:
        self.limiter = limiter
        self._run = run

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.limiter, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *arguments: self._run(value(*arguments))


class Stores:
    """Makes limiters over one server, each with keys of its own; those of one colour share one client."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = server.client(socket_timeout=20, socket_connect_timeout=20, retry=Retry(NoBackoff(), 0), protocol=2)
        self._awaited = redis.asyncio.Redis(port=server.port)
        self._runner = asyncio.Runner()
        self._numbers = itertools.count()

    def limiter(self, kind: type, *arguments: Any, now: Clock | None = None, **options: Any) -> Any:
        """Make a limiter that asks for every refusal.

        With a clock as *now*, the script is told its nanoseconds as microseconds: the one argument that production leaves out.
        """
        client = self._awaited if kind.__name__.startswith("Async") else self.client
        options = {"prefix": f"test-{next(self._numbers)}", "timeout": 60, "local_refusal": False} | options
        limiter = kind(client, *arguments, **options)
        if now is not None:
            execute = limiter._store.execute

            def execute_at(name: str, *parts: Any) -> Any:
                return execute(name, *parts, b"%d" % now.monotonic_ns()) if name.startswith("EVAL") else execute(name, *parts)

            limiter._store.execute = execute_at
        return Plain(limiter, self._runner.run)

    def acquire_all(self, spends: Sequence[tuple[Plain, str, int]]) -> Decision:
        """Spend from limiters of one colour."""
        pairs = [(plain.limiter, key, n) for plain, key, n in spends]
        return self._runner.run(acquire_all_async(pairs)) if pairs[0][0].awaits else acquire_all(pairs)

    def commands(self, work: Callable[[], object]) -> list[str]:
        """Do *work*, and return the commands that clients gave the server meanwhile."""
        found = []
        with self.server.client() as client, client.monitor() as monitor:
            work()
            self.client.echo("the end")
            while not (entry := monitor.next_command())["command"].endswith("the end"):
                if entry["client_type"] != "lua":
                    found.append(entry["command"])
        return found

    def value(self, plain: Plain, key: str) -> bytes | None:
        """Return what the server keeps for *key*."""
        value: bytes | None = self.client.get(plain.limiter._form.stored(key))
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.client.close()
        self._runner.run(self._awaited.aclose())
        self._runner.close()
