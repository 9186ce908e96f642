"""How limiters take their client: what may be given, what is refused and how it is mended, and what close() closes."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import BlockingConnectionPool, Redis, RedisCluster
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from jwtlimit_core import ConfigError, LimiterUnavailable, acquire_all
from jwtlimit_core.flow import run
from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket, open_store
from jwtlimit_core.redis.clients import check_patience
from jwtlimit_core.redis.store import StoreDown
from jwtlimit_core.testing import ManualClock
from jwtlimit_core.turn import Turn
from outages import KINDS, Stub, closed_url
from servers import Server, binaries, cluster

SYNC, ASYNC = KINDS[:2], KINDS[2:]
PATIENT: dict[str, Any] = {"socket_timeout": 0.1, "socket_connect_timeout": 0.1, "protocol": 2}
SENTINELS = "[('::1', 1)], "  # as the argument of a constructor that is shown
ONCE = {"retry": Retry(NoBackoff(), 0)}
NEWER = int(redis.__version__.partition(".")[0]) >= 8

# Given clients of a server ------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "defaults": (Redis, "socket_timeout is "),
    "no-time-out": (lambda: Redis(**PATIENT | ONCE | {"socket_timeout": None}), "socket_timeout is None"),
    "slow-answer": (lambda: Redis(**PATIENT | ONCE | {"socket_timeout": 0.2}), "socket_timeout is 0.2"),
    "slow-connect": (lambda: Redis(**PATIENT | ONCE | {"socket_connect_timeout": 5}), "socket_connect_timeout is 5"),
    "retries": (lambda: Redis(**PATIENT, retry=Retry(ExponentialBackoff(), 3)), "retry makes 3 more attempts"),
    "retry-for-ever": (lambda: Redis(**PATIENT, retry=Retry(NoBackoff(), -1)), "retry makes -1 more attempts"),
    "url": (lambda: Redis.from_url("redis://localhost?socket_timeout=9"), "socket_timeout is 9"),
    "unix": (lambda: Redis(unix_socket_path="/none", socket_timeout=3, **ONCE), "socket_timeout is 3"),
    "tls": (lambda: Redis(ssl=True, **PATIENT | ONCE | {"socket_timeout": 7}), "socket_timeout is 7"),
    "waiting-pool": (lambda: Redis.from_pool(BlockingConnectionPool(**PATIENT, **ONCE)), "timeout is 20"),
    "waiting-pool-for-ever": (
        lambda: Redis.from_pool(BlockingConnectionPool(timeout=None, **PATIENT, **ONCE)),
        "timeout is None",
    ),
    "sentinel": (lambda: Sentinel([("::1", 1)]).master_for("name"), "socket_timeout is "),
    "slow-sentinels": (
        lambda: Sentinel([("::1", 1)], sentinel_kwargs={"socket_timeout": 2}, **PATIENT, **ONCE).master_for("name"),
        "socket_timeout is 2",
    ),
    "many-sentinels": (
        lambda: Sentinel([("::1", 1), ("::1", 2), ("::1", 3)], sentinel_kwargs=PATIENT | ONCE, **PATIENT, **ONCE).master_for(
            "name"
        ),
        "socket_timeout is 0.1",
    ),
}
if NEWER:
    REFUSED["maintenance"] = (lambda: Redis(**ONCE | PATIENT | {"protocol": 3}), "maintenance notifications")
    REFUSED["sentinels-that-retry"] = (
        lambda: Sentinel([("::1", 1)], **PATIENT, **ONCE).master_for("name"),
        "retry makes 10 more attempts",
    )
else:
    REFUSED["retry-on-time-out"] = (lambda: Redis(retry_on_timeout=True, **PATIENT), "retry makes 1 more attempts")


def shown(message: str, arguments: str) -> Any:
    """Run the constructor that *message* shows, with *arguments* in place of its dots."""
    constructor = message.partition("Make it with ")[2].removesuffix(", or use from_url()")
    names = {"dict": dict, "Redis": Redis, "RedisCluster": RedisCluster, "Sentinel": Sentinel, "Retry": Retry}
    names |= {"NoBackoff": NoBackoff, "BlockingConnectionPool": BlockingConnectionPool}
    return eval(constructor.replace("..., ", arguments, 1), names)


@pytest.mark.parametrize("kind", SYNC)
@pytest.mark.parametrize(("make", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_client_that_could_outlast_the_time_out_is_refused_with_the_way_to_mend_it(
    kind: Any, make: Callable[[], Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=r"longer than the time-out of 0\.25 s") as refused:
        kind(make())
    assert problem in str(refused.value)
    kind(shown(str(refused.value), SENTINELS if "Sentinel(" in str(refused.value) else ""), timeout=0.25)


@pytest.mark.parametrize("timeout", [0.1, 0.2, 0.25, 1 / 3, 2])
def test_client_made_as_shown_is_accepted_whatever_the_time_out(timeout: float) -> None:
    for client in (Redis(), Sentinel([("::1", 1)]).master_for("name"), Redis.from_pool(BlockingConnectionPool())):
        with pytest.raises(ConfigError) as refused:
            check_patience(client, timeout)
        check_patience(shown(str(refused.value), SENTINELS if "Sentinel(" in str(refused.value) else ""), timeout)


def test_client_of_one_connection_is_refused() -> None:
    with Stub(b"+OK\r\n") as stub:
        client = Redis.from_url(stub.url, single_connection_client=True, **PATIENT, **ONCE)
        with pytest.raises(ConfigError, match="threads wait for each other"):
            RedisTokenBucket(client)
        client.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("thing", [None, 7, b"redis://localhost", object()])
def test_client_of_another_kind_is_refused(kind: Any, thing: object) -> None:
    with pytest.raises(ConfigError, match=f"client must be .*, not {type(thing).__name__}"):
        kind(thing)


@pytest.mark.parametrize(
    ("kinds", "client"), [(SYNC, redis.asyncio.Redis()), (ASYNC, Redis()), (ASYNC, open_store(closed_url()))]
)
def test_client_of_the_other_colour_is_refused(kinds: tuple[Any, ...], client: object) -> None:
    for kind in kinds:
        with pytest.raises(ConfigError, match="client must be a redis"):
            kind(client)


# Clusters --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Server]]:
    with cluster(next(iter(binaries().values()))) as nodes:
        yield nodes


def test_cluster_client_that_could_outlast_the_time_out_is_refused_with_the_way_to_mend_it(nodes: list[Server]) -> None:
    with RedisCluster(port=nodes[0].port, host="127.0.0.1") as client, pytest.raises(ConfigError) as refused:
        RedisTokenBucket(client)
    message = str(refused.value)
    assert "the cluster is tried " in message
    assert "socket_timeout is " in message
    with shown(message, f"host='127.0.0.1', port={nodes[0].port}, ") as client:
        assert RedisTokenBucket(client).allow("a")


def test_cluster_client_whose_nodes_add_up_is_refused(nodes: list[Server]) -> None:
    options = PATIENT | ({"retry": Retry(NoBackoff(), 0)} if NEWER else {"cluster_error_retry_attempts": 0})
    with RedisCluster(port=nodes[0].port, host="127.0.0.1", **options) as client:
        with pytest.raises(ConfigError, match=r"socket_timeout is 0\.1, .*socket_timeout=0\.0625"):
            RedisTokenBucket(client)
        RedisTokenBucket(client, timeout=0.4)


# URLs ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://:hunter2@localhost",
        "redis://:hunter2@localhost:port/0",
        "redis://:hunter2@localhost?socket_timeout=soon",
        "redis://:hunter2@localhost?sockettimeout=1",
        "redis://:hunter2@localhost?protocol=9",
        "redis://:hunter2@localhost?max_connections=many",
        "REDIS://:hunter2@localhost",
        " redis://:hunter2@localhost",
    ],
)
def test_url_that_is_none_is_refused_without_its_password(kind: Any, url: str) -> None:
    with pytest.raises(ConfigError, match="the URL of the store must read like redis://") as refused:
        kind.from_url(url)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://:hunter2@localhost/tokens", "end with the number of a database"),
        ("redis://:hunter2@localhost/-1", "end with the number of a database"),
        ("redis://:hunter2@localhost?retry=3", "leave retry out"),
        ("redis://:hunter2@localhost?max_connections=0", "have max_connections of 1 or more"),
    ],
)
def test_url_that_redis_py_would_take_for_another_is_refused_without_its_password(kind: Any, url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"the URL of the store must {problem}") as refused:
        kind.from_url(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("kind", SYNC)
@pytest.mark.parametrize(
    "query",
    [
        "socket_timeout=9",
        "socket_connect_timeout=9",
        "timeout=9",
        "retry_on_timeout=yes&socket_timeout=1",
        "socket_timeout=nan",
        "socket_timeout=0",
        "socket_connect_timeout=-1",
    ],
)
def test_url_that_asks_for_a_longer_time_out_is_refused_without_its_password(kind: Any, query: str) -> None:
    with pytest.raises(ConfigError, match=r"must leave the time-outs alone: \w*timeout is ") as refused:
        kind.from_url(f"redis://:hunter2@localhost?{query}")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "url", ["redis://localhost", "rediss://u:p@h:1/2", "unix:///no/where?db=1", "redis://h?max_connections=3"]
)
def test_url_that_reads_like_one_is_accepted(kind: Any, url: str) -> None:
    assert repr(kind.from_url(url, 5, 60)) == f"<{kind.__name__} 'default' 5/m, deny on failure>"


@pytest.mark.parametrize("kind", KINDS)
def test_url_that_asks_for_protocol_3_is_refused_without_its_password(kind: Any) -> None:
    with pytest.raises(ConfigError, match="must leave the protocol alone") as refused:
        kind.from_url("redis://:hunter2@localhost?protocol=3")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_url_that_is_no_str_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="url must be a str"):
        kind.from_url(redis.Redis())


# Making and closing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_when_made_asks_nobody(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    with Stub(None) as stub:
        start = time.perf_counter()
        kind.from_url(stub.url)
        kind.from_url(closed_url())
        assert time.perf_counter() - start < 1
        assert (stub.connections, caplog.messages) == (0, [])


@pytest.mark.parametrize("kind", [RedisTokenBucket, RedisFixedWindow])
def test_limiter_closed_closes_the_client_of_from_url_and_no_other(kind: Any, server: Server) -> None:
    with server.client(**PATIENT, **ONCE) as given:
        name = f"closing-{kind.__name__}"
        own = kind.from_url(f"{server.url}?client_name={name}", prefix="closing")
        lent = kind(given, prefix="closing")
        known = given.client_id()
        with own, lent:
            assert own.allow("a")
            assert lent.allow("a")
        own.close()
        server.await_clients(name, 0)
        assert given.client_id() == known
        for limiter in (own, lent):
            assert not limiter.allow("a")
            for ask in (limiter.acquire, limiter.peek, limiter.refund, limiter.reset):
                with pytest.raises(LimiterUnavailable, match="limiter 'default' is closed"):
                    ask("a")
            with pytest.raises(LimiterUnavailable, match="is closed"):
                acquire_all([(limiter, "a", 1)])


@pytest.mark.parametrize("kind", [AsyncRedisTokenBucket, AsyncRedisFixedWindow])
def test_async_limiter_closed_closes_the_client_of_from_url_and_no_other(kind: Any, server: Server) -> None:
    async def use() -> None:
        name = f"closing-{kind.__name__}"
        given = redis.asyncio.Redis(port=server.port)
        own, lent, unused = (
            kind.from_url(f"{server.url}?client_name={name}", prefix="closing"),
            kind(given),
            kind.from_url(server.url),
        )
        async with own, lent, unused:
            assert await own.allow("a")
            assert await lent.allow("a")
        await own.close()
        server.await_clients(name, 0)
        for limiter in (own, lent, unused):
            assert not await limiter.allow("a")
            for ask in (limiter.acquire, limiter.peek, limiter.refund, limiter.reset):
                with pytest.raises(LimiterUnavailable, match="is closed"):
                    await ask("a")
        await given.aclose()

    asyncio.run(use())


def test_store_that_was_closed_and_is_used_again_keeps_its_connections(server: Server) -> None:
    store = open_store(f"{server.url}?client_name=again", timeout=5)
    limiter = RedisTokenBucket(store, 1_000, 60)
    with server.client() as client:
        for _ in range(2):
            assert all(limiter.allow("a") for _ in range(5))
            assert [each["name"] for each in client.client_list()].count("again") == 1
            run(store.close())
            assert [each["name"] for each in client.client_list()].count("again") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_connections_of_a_url_are_kept_alive_where_there_is_a_network(kind: Any) -> None:
    for url, kept in (("redis://localhost", True), ("unix:///no/where", None)):
        store = kind.from_url(url)._store
        clients = store._close.__self__
        options = clients._make().connection_pool.connection_kwargs
        assert options.get("socket_keepalive") is kept


def test_threads_use_as_many_connections_as_the_url_says(server: Server) -> None:
    limiter = RedisTokenBucket.from_url(f"{server.url}?max_connections=2&client_name=two", 1_000, 60, timeout=10)
    with server.client() as client, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(limiter.allow, "abcdefgh" * 50))
        assert [each["name"] for each in client.client_list()].count("two") <= 2
    limiter.close()


def test_limiters_over_one_opened_store_share_its_connections_and_leave_it_open(server: Server) -> None:
    store = open_store(f"{server.url}?client_name=opened")
    limiters = [RedisTokenBucket(store, 3, 60, name=name, prefix="opened") for name in ("one", "two")]
    with server.client() as ours:
        with limiters[0]:
            assert acquire_all([(limiter, "a", 2) for limiter in limiters]).allowed
        assert limiters[1].allow("a")
        assert [client["name"] for client in ours.client_list()].count("opened") == 1


def test_store_whose_return_another_thread_logged_first_does_not_log_it_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(server.url, timeout=5)
    limiter = RedisTokenBucket(store, 5, 60, name="first answer")

    class TurnAfterAnother(Turn):
        """Somebody had the turn just before, with an answer of the server of his own."""

        def take(self) -> None:
            super().take()
            if store._answered_ns is not None:
                store._next_probe_ns = None

    store._turn = TurnAfterAnother()
    store._next_probe_ns = 0  # down, and the probe is due
    with caplog.at_level("DEBUG", logger="jwtlimit"):
        assert limiter.allow("a")
    assert caplog.messages == []
    assert store._next_probe_ns is None


@pytest.mark.parametrize("answered_meanwhile", [True, False])
def test_store_takes_a_failure_for_an_outage_only_if_nobody_was_answered_meanwhile(
    answered_meanwhile: bool, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = open_store(server.url, timeout=5, clock=clock)
    store.delete(b"outage:a")()
    clock.advance(1)

    def fail_late(*_command: str | bytes) -> None:
        clock.advance(1)
        if answered_meanwhile:
            store.delete(b"outage:b")()
        raise redis.TimeoutError("this process was busy")

    with pytest.raises(StoreDown):
        store.ask(int, fail_late, "DEL", b"outage:a")
    assert (store._next_probe_ns is None, caplog.messages == []) == (answered_meanwhile, answered_meanwhile)


@pytest.mark.parametrize(
    ("interrupt", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (SystemExit(1), SystemExit), (RuntimeError("alarm"), LimiterUnavailable)],
)
def test_connection_that_was_interrupted_before_its_answer_is_not_used_again(
    interrupt: BaseException, raised: type[BaseException], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = RedisTokenBucket(open_store(server.url, timeout=5), 100, 60, name=f"interrupted by {raised.__name__}")
    monkeypatch.setattr(redis.Connection, "can_read", lambda *_: False)  # what is still under way cannot be seen

    def is_interrupted(*_arguments: Any, **_named: Any) -> None:
        raise interrupt

    assert limiter.allow("b")
    for _ in range(25):  # more often than there are connections
        with monkeypatch.context() as patch:
            patch.setattr(redis.Connection, "read_response", is_interrupted)
            with pytest.raises(raised):
                limiter.acquire("a")
        limiter._store._next_probe_ns = None
        assert limiter.peek("b").remaining == 99, "not what was answered for the other key"
    assert limiter.peek("a").remaining == 75
