"""Forks: a child made while its parent uses a shared store connects anew, works at once, and leaves the parent alone."""

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from jwtlimit_core import acquire_all
from jwtlimit_core.redis import RedisFixedWindow, RedisTokenBucket
from servers import Server

# Newer Pythons warn of a fork beside threads, which is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

CHILDREN = 25
MANY = 10**6
LONG = 10_000 * 86_400  # so long that nothing comes back meanwhile
DEADLINE_S = 10  # for one child; it needs milliseconds


@pytest.fixture(params=[RedisTokenBucket, RedisFixedWindow])
def limiter(request: pytest.FixtureRequest, server: Server) -> Iterator[RedisTokenBucket]:
    kind = request.param
    with kind.from_url(server.url, MANY, LONG, prefix="fork", name=f"{request.node.name}", timeout=2) as limiter:
        yield limiter


@pytest.fixture
def hammered(limiter: RedisTokenBucket) -> Iterator[RedisTokenBucket]:
    """Return the limiter while four threads are inside its client."""
    done = threading.Event()

    def hammer() -> None:
        while not done.is_set():
            limiter.allow("hot")

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    yield limiter
    done.set()
    for thread in threads:
        thread.join()


def exit_code_of_a_child(work: Callable[[], bool]) -> int:
    """Fork, do *work* in the child, and return how the child ended: 0 if *work* was true."""
    pid = os.fork()
    if pid == 0:
        signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)  # ends this process by SIGALRM, whatever it waits for
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_limiter_forked_while_threads_use_it_works_in_every_child(hammered: RedisTokenBucket) -> None:
    def work() -> bool:
        return hammered.allow("child") and hammered.acquire("child").allowed and acquire_all([(hammered, "child", 1)]).allowed

    assert [exit_code_of_a_child(work) for _ in range(CHILDREN)] == [0] * CHILDREN
    assert hammered.peek("child").remaining == MANY - 3 * CHILDREN, "all of them count as one"


def test_limiter_forked_has_connections_of_its_own(limiter: RedisTokenBucket) -> None:
    with limiter._store._client() as client:
        known = client.client_id()

    def work() -> bool:
        with limiter._store._client() as own:
            return own.client_id() != known

    assert exit_code_of_a_child(work) == 0


def test_limiter_closed_by_a_child_goes_on_in_the_parent(limiter: RedisTokenBucket) -> None:
    assert limiter.allow("a")

    def close_unused() -> bool:
        limiter.close()
        return not limiter.allow("a")

    def close_used() -> bool:
        return limiter.allow("a") and close_unused()

    for work in (close_unused, close_used) * 5:
        assert exit_code_of_a_child(work) == 0
        assert limiter.acquire("a").allowed
    assert limiter.peek("a").remaining == MANY - 16


def test_limiter_used_by_threads_of_a_child_connects_once_for_all(limiter: RedisTokenBucket) -> None:
    assert limiter.allow("a")

    def work() -> bool:
        start, clients = threading.Barrier(8), []

        def ask() -> None:
            start.wait()
            clients.append(limiter._store._client())
            limiter.allow("a")

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(set(map(id, clients))) == 1

    assert exit_code_of_a_child(work) == 0
    assert limiter.peek("a").remaining == MANY - 9


def test_limiter_in_another_process_leaves_the_client_of_its_parent_alone(limiter: RedisTokenBucket) -> None:
    assert limiter.allow("a")
    clients = limiter._store._client.__self__
    of_parent = clients._made[-1] = clients._made.pop(os.getpid())  # as it is found after a fork
    client, connections = of_parent
    known = client.client_id(), connections.execute("CLIENT", b"ID")
    clients.close()
    assert (client.client_id(), connections.execute("CLIENT", b"ID")) == known, "they were not closed"
    own = clients.client()
    assert own is not client
    assert clients.client() is own
    connections.close()
    client.close()
