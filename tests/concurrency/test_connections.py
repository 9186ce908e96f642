"""Connections that threads share: a bound, the latest first, none lost for good, and none that answers somebody else."""

import asyncio
import queue
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from jwtlimit_core import LimiterUnavailable
from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisTokenBucket
from jwtlimit_core.redis.clients import PerProcess
from jwtlimit_core.redis.connections import Connections, is_of_key, is_of_server
from jwtlimit_core.redis.store import _text
from jwtlimit_core.testing import ManualClock
from servers import Server, binaries, served
from stores import Plain

WAIT_S = 0.05
BINARY = next(iter(binaries().values()))

Make = Callable[[int], Connections]


@pytest.fixture
def make(server: Server) -> Iterator[Make]:
    made: list[Connections] = []

    def make(most: int) -> Connections:
        made.append(Connections(lambda: redis.Connection(port=server.port, protocol=2), most, WAIT_S))
        return made[-1]

    yield make
    for connections in made:
        connections.close()


def number(connections: Connections) -> int:
    """Return the number that the server gives to the connection that is used."""
    return int(connections.execute("CLIENT", b"ID"))


def test_connection_that_was_used_last_is_used_next(make: Make) -> None:
    connections = make(3)
    assert len({number(connections) for _ in range(20)}) == 1
    first, second = connections._take(), connections._take()
    for connection in (first, second):
        connections._idle.append(connection)
    assert connections._take() is second


def test_threads_share_no_more_connections_than_there_may_be(make: Make) -> None:
    connections, numbers = make(3), set[int]()

    def ask() -> None:
        for _ in range(100):
            numbers.add(number(connections))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(numbers) <= 3


def test_who_waits_does_so_by_what_has_been_patched_since_the_import(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[queue.Queue[Any]] = []

    def patched() -> Any:  # as gevent does
        made.append(queue.Queue())
        return made[-1]

    connections = make(1)
    taken = connections._take()
    monkeypatch.setattr(queue, "SimpleQueue", patched)
    with pytest.raises(redis.ConnectionError, match="all connections are in use"):
        connections.execute("PING")
    assert len(made) == 1
    connections._give(taken)


def test_connection_is_waited_for_as_long_as_was_said(make: Make) -> None:
    connections = make(1)
    taken = connections._take()
    start = time.monotonic()
    with pytest.raises(redis.ConnectionError, match="all connections are in use"):
        connections.execute("PING")
    assert time.monotonic() - start >= WAIT_S
    threading.Timer(WAIT_S / 5, connections._give, [taken]).start()
    assert connections.execute("PING") == b"PONG"


def test_connection_for_one_who_left_at_that_moment_stays(make: Make) -> None:
    class Leaving(deque[Any]):
        def popleft(self) -> Any:
            self.clear()
            return super().popleft()

    connections = make(1)
    connection = connections._take()
    connections._waiting = Leaving(["place"])
    connections._give(connection)
    assert connections._take() is connection


class Late(deque[Any]):
    """The places of those who wait: a connection comes at the moment when somebody gives up his place."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self.connection = connection

    def remove(self, place: Any) -> None:
        if self.connection is not None:
            self.popleft().put(self.connection)
            self.connection = None
        super().remove(place)


def test_connection_that_comes_when_the_wait_is_over_is_taken(make: Make) -> None:
    connections = make(1)
    connections._waiting = Late(connections._take())
    for _ in range(3):
        assert connections.execute("PING") == b"PONG"


@pytest.mark.parametrize("comes", [False, True])
def test_who_is_interrupted_while_waiting_leaves_no_place_and_no_connection_behind(make: Make, comes: bool) -> None:
    connections = make(1)
    taken = connections._take()
    connections._waiting = Late(taken if comes else None)

    def interrupt() -> None:
        del connections.__dict__["_hand_over"]
        raise KeyboardInterrupt

    connections.__dict__["_hand_over"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        connections.execute("PING")
    assert not connections._waiting
    if not comes:
        connections._give(taken)
    assert connections.execute("PING") == b"PONG"


def test_threads_that_wait_through_outages_find_all_connections_again() -> None:
    with served(BINARY) as own:
        clients = PerProcess(own.url, 0.1)
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                with suppress(redis.RedisError):
                    clients.execute("PING")

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            own.pause()
            time.sleep(0.3)
            own.resume()
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join()
        connections = clients._of_process()[1]
        assert len(connections._idle) == len(connections._alive) <= 20
        assert clients.execute("PING") == b"PONG"
        clients.close()


def test_connection_that_was_lost_is_replaced(make: Make) -> None:
    connections = make(2)
    for _ in range(20):
        connections._take()  # as by whom an exception of a signal handler meets right after
    assert connections.execute("PING") == b"PONG"


def test_connection_that_the_server_closed_is_made_anew_without_a_failure(make: Make, server: Server) -> None:
    connections = make(2)
    before = number(connections)
    with server.client() as client:
        client.client_kill_filter(_id=str(before))
    assert number(connections) != before


def test_connection_with_something_left_in_it_is_made_anew(make: Make) -> None:
    connections = make(2)
    before = number(connections)
    connections._idle[-1].send_command("ECHO", "of another")
    assert connections._idle[-1].can_read(timeout=5)
    assert number(connections) != before


@pytest.mark.parametrize("command", [("EVALSHA", "0" * 40, "0"), ("EVAL", "return redis.error_reply('WRONGTYPE of key')", "0")])
def test_connection_whose_reply_was_an_error_of_the_call_is_used_again(make: Make, command: tuple[str, ...]) -> None:
    connections = make(2)
    before = number(connections)
    with pytest.raises(redis.ResponseError):
        connections.execute(*command)
    assert number(connections) == before


def test_connections_that_were_closed_in_use_are_closed_when_given_back(make: Make) -> None:
    connections = make(2)
    connection = make(2)._take()

    def close_meanwhile(*_: object, **__: object) -> bytes:
        connections.close()
        return b"reply"

    connection.read_response = close_meanwhile
    connections._idle.append(connection)
    assert connections.execute("PING") == b"reply"
    assert connection._sock is None
    assert not connections._idle


def test_limiter_whose_calls_are_interrupted_anywhere_goes_on_and_mixes_no_replies(server: Server) -> None:
    class Alarm(BaseException):
        pass

    armed = False

    def interrupt(*_: object) -> None:
        if armed:
            raise Alarm

    limiter = RedisTokenBucket.from_url(server.url, 5_000, 86_400, name="interrupted", timeout=5, local_refusal=False)
    before, chance = signal.signal(signal.SIGALRM, interrupt), random.Random(7)
    interrupted = 0
    try:
        limiter.acquire("b", 7)
        for _ in range(1_500):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.000_02, 0.000_6))
                limiter.acquire("a")
                armed = False
            except Alarm:
                armed = False
                interrupted += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert limiter.peek("b").remaining == 4_993
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 20
    assert limiter.acquire("a").allowed
    limiter.close()


# After a failover -----------------------------------------------------------------------------------------------------


OTHERWISE = {
    "READONLY": ("REPLICAOF", "127.0.0.1", "1"),
    "MASTERDOWN": ("REPLICAOF", "127.0.0.1", "1"),  # with replica-serve-stale-data no
    "NOREPLICAS": ("CONFIG", "SET", "min-replicas-to-write", "1"),
}


@pytest.mark.parametrize("reply", OTHERWISE)
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (RedisTokenBucket, "of-url"),
        (RedisTokenBucket, "given"),  # with a single connection it is refused
        (AsyncRedisTokenBucket, "of-url"),
        (AsyncRedisTokenBucket, "given"),
        (AsyncRedisTokenBucket, "single"),
    ],
)
def test_connection_to_a_server_that_is_the_primary_no_more_is_not_used_again(kind: Any, reply: str, how: str) -> None:
    module: Any = redis if kind is RedisTokenBucket else redis.asyncio
    arguments = ("--replica-serve-stale-data", "no") if reply == "MASTERDOWN" else ()
    with served(BINARY, *arguments) as server, asyncio.Runner() as runner:
        url = f"{server.url}?client_name=failover"
        options: dict[str, Any] = {"socket_timeout": 2, "socket_connect_timeout": 2, "protocol": 2, "max_connections": 1}
        if how == "single":
            options["single_connection_client"] = True
        source: Any = url if how == "of-url" else module.Redis.from_url(url, **options)
        clock = ManualClock()
        make = kind.from_url if how == "of-url" else kind
        limiter: Any = Plain(make(source, 5, 60, timeout=5, cooldown=1, clock=clock), runner.run)
        with server.client() as client:

            def connections() -> list[str]:
                return [each["id"] for each in client.client_list() if each["name"] == "failover"]

            limiter.acquire("a")
            [before] = connections()
            client.execute_command(*OTHERWISE[reply])
            with pytest.raises(LimiterUnavailable):
                limiter.acquire("a")
            assert before not in connections(), "its name may stand for another server by now"
            client.execute_command("REPLICAOF", "NO", "ONE")
            client.execute_command("CONFIG", "SET", "min-replicas-to-write", "0")
            clock.advance(1)
            assert limiter.acquire("a").remaining == 3
        limiter.close()
        if how != "of-url":
            source.close() if module is redis else runner.run(source.aclose())


def test_idle_connections_to_a_server_that_is_the_primary_no_more_are_closed_too(make: Make) -> None:
    connections = make(3)
    for connection in [connections._take() for _ in range(3)]:
        connection.connect()
        connections._give(connection)
    with pytest.raises(redis.ResponseError):
        connections.execute("EVAL", "return redis.error_reply('MASTERDOWN the link is down')", "0")
    assert [connection._sock for connection in connections._idle] == [None] * 3
    assert len({id(connection) for connection in [connections._take() for _ in range(3)]}) == 3


@pytest.mark.parametrize("first", ["LOADING Redis is loading", "NOAUTH Authentication required", "OOM command not allowed"])
def test_no_connection_is_lost_to_whatever_errors_a_server_answers(make: Make, first: str) -> None:
    connections = make(20)
    for connection in [connections._take() for _ in range(20)]:
        connection.connect()
        connections._give(connection)
    for text in (*[first] * 20, "READONLY You can't write"):
        connections._idle.rotate(1)
        with pytest.raises(redis.RedisError):
            connections.execute("EVAL", f'return redis.error_reply("{text}")', "0")
    assert len({id(connection) for connection in [connections._take() for _ in range(20)]}) == 20


@pytest.mark.parametrize(
    ("text", "of_key", "word"),
    [
        ("WRONGTYPE Operation against a key", True, "WRONGTYPE"),
        ("OOM command not allowed", False, "OOM"),
        ("NOREPLICAS Not enough good replicas", False, "NOREPLICAS"),
        ("unknown command 'EVALSHA'", False, "unknown"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_error_reply_is_known_by_its_first_word_and_nothing_more_of_it_is_told(
    text: str, of_key: bool, word: str, wrapped: bool
) -> None:
    if wrapped:  # as Redis 6.2 does within a script
        text = f"Error running script (call to f_1): @user_script:1: @user_script: 1: -{text}"
        word = word if word.isupper() else "Error"
    error = redis.ResponseError(text)
    assert (is_of_key(error), is_of_server(error)) == (of_key, not of_key)
    assert _text(error) == f"ResponseError: {word}"


def test_script_that_the_server_does_not_know_is_no_fault_of_it() -> None:
    assert not is_of_server(redis.exceptions.NoScriptError("No matching script."))
    assert is_of_server(redis.ReadOnlyError("You can't write against a read only replica."))
