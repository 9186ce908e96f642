"""Stores that do not answer as they should, and limiters at a URL to ask them with."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket
from servers import free_port
from stores import Plain

KINDS = (RedisTokenBucket, RedisFixedWindow, AsyncRedisTokenBucket, AsyncRedisFixedWindow)
HANG_S = 1.0  # far more than any time-out of these tests: who takes longer, hangs

Make = Callable[..., Plain]


class Stub:
    """A TCP server that gives one *reply* to whatever it receives: None for none at all, and b"" to close the connection."""

    def __init__(self, reply: bytes | None) -> None:
        self.connections = 0
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
                self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(65536):
                if self._reply == b"":
                    return
                if self._reply is not None:
                    connection.sendall(self._reply)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):  # gone already
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()


def closed_url() -> str:
    """Return the URL of a port on which nobody listens."""
    return f"redis://127.0.0.1:{free_port()}/0"


@contextmanager
def limiters() -> Iterator[Make]:
    """Return the maker of limiters of either colour at a URL, as plain objects; all are closed at the end."""
    with asyncio.Runner() as runner, ExitStack() as stack:

        def make(kind: type, url: str, *arguments: Any, **options: Any) -> Plain:
            limiter: Any = kind
            plain = Plain(limiter.from_url(url, *arguments, **options), runner.run)
            stack.callback(plain.close)
            return plain

        yield make
