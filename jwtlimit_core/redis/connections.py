"""Connections of redis-py to one server, shared by the threads of one process."""

import queue
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import redis
from redis.exceptions import NoScriptError, ResponseError

from jwtlimit_core.redis.wire import packed
from jwtlimit_core.turn import Turn

__all__ = ["Connections", "is_of_key", "is_of_server"]

_OF_KEY = ("WRONGTYPE",)  # replies that concern one key; older servers put more before them, in scripts


class Connections:
    """As many connections as threads need at once, up to a bound; the one that was used last is used next.

    This is what of a pool a limiter needs. That of redis-py takes a fifth of the time of a check, and an exception that a
    signal handler raises can leave its lock taken for ever; here one that comes at any point costs a connection at most.

    Args:
        make: Makes a connection, which connects at its first use.
        most: How many there may be. More than can be served at once would only make a crowd that connects at the same time.
        wait_s: Seconds to wait for one that is in use.
    """

    def __init__(self, make: Callable[[], Any], most: int, wait_s: float) -> None:
        self._make = make
        self._most = most
        self._wait_s = wait_s
        self._idle: deque[Any] = deque()
        self._waiting: deque[queue.SimpleQueue[Any]] = deque()
        self._alive: WeakSet[Any] = WeakSet()  # one that was lost is none
        self._turn = Turn()
        self._closed = False

    def execute(self, *command: str | bytes) -> Any:
        """Send *command* and return the reply; an error for a reply is raised.

        Raises:
            RedisError: There was no connection, or no reply.
        """
        connection = self._take()
        try:
            connection.connect()  # does nothing where it is connected
            if _is_stale(connection):
                connection.disconnect()
                connection.connect()
            connection.send_packed_command((packed(*command),))
            return connection.read_response()
        except BaseException as error:
            # Its reply may still be under way; or the name of the server stands for another one by now.
            if not isinstance(error, ResponseError):
                connection.disconnect()
            elif is_of_server(error):
                connection.disconnect()
                self._disconnect_idle()
            raise
        finally:
            self._give(connection)
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().disconnect()

    def _disconnect_idle(self) -> None:
        with suppress(IndexError):  # where others took some meanwhile
            for _ in range(len(self._idle)):
                connection = self._idle.popleft()
                try:
                    connection.disconnect()
                finally:
                    self._give(connection)

    def _take(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            made = self._made_one_more()
            return self._handed_over() if made is None else made

    def _give(self, connection: Any) -> None:
        self._idle.append(connection)
        if self._waiting:
            self._hand_over()

    def _handed_over(self) -> Any:
        """Wait for a connection, first come, first served: under load, those who use one now would be first each time."""
        place: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            self._waiting.append(place)
            self._hand_over()
            return place.get(timeout=self._wait_s)
        except BaseException as error:  # one of a signal handler, too: who leaves takes his place away
            late = self._left(place)
            if not isinstance(error, queue.Empty):
                if late is not None:
                    self._give(late)
                raise
        if late is None:
            raise redis.ConnectionError("all connections are in use")
        return late

    def _left(self, place: "queue.SimpleQueue[Any]") -> Any:
        """Take *place* out of the queue; return the connection that was being handed over there at that moment, if one was."""
        try:
            self._waiting.remove(place)
        except ValueError:
            with suppress(queue.Empty):
                return place.get(timeout=self._wait_s)
        return None

    def _hand_over(self) -> None:
        with suppress(IndexError):
            while self._waiting:
                connection = self._idle.pop()
                try:
                    self._waiting.popleft().put(connection)
                except IndexError:
                    self._idle.append(connection)

    def _made_one_more(self) -> Any:
        try:
            self._turn.take()
            if len(self._alive) >= self._most:
                return None
            made = self._make()
            self._alive.add(made)
            return made
        finally:
            self._turn.append(None)


def is_of_key(error: Exception) -> bool:
    """Say whether *error* is a reply about one key, while the server is well."""
    return any(word in str(error) for word in _OF_KEY)


def is_of_server(error: ResponseError) -> bool:
    """Say whether *error* is the reply of a server that cannot serve, such as one that is the primary no more.

    The name that it was found by may stand for another by now.
    """
    return not isinstance(error, NoScriptError) and not is_of_key(error)


def _is_stale(connection: Any) -> bool:
    """Say whether the server has closed *connection*, or something is left in it."""
    try:
        return bool(connection.can_read())
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        return True
