"""A store that fails, in whatever way: the chosen policy answers, alike for every operation of every limiter, and soon."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis.asyncio

from jwtlimit_core import (
    AsyncProcessor,
    Config,
    Decision,
    LimiterUnavailable,
    Processor,
    RateLimitExceeded,
    acquire_all,
    acquire_all_async,
)
from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisTokenBucket, open_store
from jwtlimit_core.redis.store import StoreDown
from jwtlimit_core.testing import ManualClock
from outages import HANG_S, KINDS, Make, Stub, closed_url, limiters
from servers import Server, binaries, served
from stores import Plain

DAY = 86_400
COOLDOWN_S = 2.5
QUICK_S = 0.03  # the time-out where it is sure to be waited for
REPLIES = {
    "silent": None,
    "closing": b"",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "garbage": b"\x00\xffHTTP/1.1 400 Bad Request\r\n\r\n",
    "ok": b"+OK\r\n",
    "few-numbers": b"$3\r\n1 2\r\n",
    "list": b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
    "nil": b"$-1\r\n",
    "forgetful": b"-NOSCRIPT No matching script.\r\n",
}
BINARY = next(iter(binaries().values()))

Operation = Callable[[Plain], Any]
ALLOWING: dict[str, Operation] = {
    "allow": lambda it: it.allow("a"),
    "allow_n": lambda it: it.allow_n("a", 2),
}
ASKING: dict[str, Operation] = {
    "acquire": lambda it: it.acquire("a", 2),
    "acquire_all": lambda it: together((it, "a", 1), (it, "b", 1)),
}
READING: dict[str, Operation] = {"peek": lambda it: it.peek("a")}
MENDING: dict[str, Operation] = {
    "refund": lambda it: it.refund("a"),
    "reset": lambda it: it.reset("a"),
}


def together(*spends: tuple[Plain, str, int]) -> Any:
    """Spend from limiters of one colour at once."""
    pairs = [(plain.limiter, key, n) for plain, key, n in spends]
    if pairs[0][0].awaits:
        return spends[0][0]._run(acquire_all_async(pairs))
    return acquire_all(pairs)


def timed(operation: Operation, plain: Plain) -> Any:
    """Do *operation*, and see that it did not hang."""
    start = time.perf_counter()
    try:
        return operation(plain)
    finally:
        assert time.perf_counter() - start < HANG_S


@pytest.fixture
def make() -> Iterator[Make]:
    with limiters() as make:
        yield make


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def failing() -> Iterator[dict[str, str]]:
    """Return the URLs of stores in every outage in which nothing works."""
    with ExitStack() as stack:
        urls = {name: stack.enter_context(Stub(reply)).url for name, reply in REPLIES.items()}
        paused = stack.enter_context(served(BINARY))
        paused.pause()
        urls["paused"] = paused.url
        urls["closed"] = closed_url()
        urls["clusterdown"] = stack.enter_context(served(BINARY, "--cluster-enabled", "yes")).url
        urls["noauth"] = stack.enter_context(served(BINARY, "--aclfile", "")).url
        with redis.Redis.from_url(urls["noauth"]) as client:
            client.config_set("requirepass", "secret")
        yield urls


OUTAGES = (*REPLIES, "paused", "closed", "clusterdown", "noauth")


@pytest.fixture(params=OUTAGES)
def down(request: pytest.FixtureRequest, failing: dict[str, str]) -> str:
    url: str = failing[request.param]
    return url


# Every operation, under every policy -----------------------------------------------------------------------------


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def in_outage(request: pytest.FixtureRequest, make: Make, down: str, clock: ManualClock) -> Callable[[str], Plain]:
    """Return the maker of a limiter of three a day over a store that is down, by its policy; a cool-down makes it ask again."""
    return lambda policy: make(
        request.param, down, 3, DAY, on_failure=policy, timeout=QUICK_S, cooldown=COOLDOWN_S, clock=clock, name=policy
    )


def test_limiter_that_denies_in_an_outage_says_so_in_every_operation(
    in_outage: Callable[[str], Plain], clock: ManualClock
) -> None:
    limiter = in_outage("deny")
    for operation in (ASKING | READING | MENDING).values():
        with pytest.raises(LimiterUnavailable) as raised:
            timed(operation, limiter)
        assert raised.value.retry_after == COOLDOWN_S
        clock.advance(COOLDOWN_S)
    for operation in ALLOWING.values():
        assert timed(operation, limiter) is False
        clock.advance(COOLDOWN_S)


def test_limiter_that_allows_in_an_outage_lets_everything_pass(in_outage: Callable[[str], Plain], clock: ManualClock) -> None:
    limiter = in_outage("allow")
    for _ in range(3):
        assert all(timed(operation, limiter) is True for operation in ALLOWING.values())
        for operation in (ASKING | READING).values():
            decision = timed(operation, limiter)
            assert (decision.allowed, decision.remaining, decision.retry_after_ns) == (True, 3, 0)
        assert [timed(operation, limiter) for operation in MENDING.values()] == [None] * len(MENDING)
        clock.advance(COOLDOWN_S)


def test_limiter_that_counts_locally_in_an_outage_keeps_the_limit(
    in_outage: Callable[[str], Plain], clock: ManualClock
) -> None:
    limiter = in_outage("local")

    def ask(operation: Operation) -> Any:
        clock.advance(COOLDOWN_S)
        return timed(operation, limiter)

    assert [ask(ALLOWING["allow"]) for _ in range(4)] == [True, True, True, False]
    assert [ask(READING["peek"]).allowed, ask(ASKING["acquire"]).allowed, ask(ASKING["acquire_all"]).allowed] == [False] * 3
    assert ask(MENDING["refund"]) is None
    assert ask(ASKING["acquire_all"]).allowed
    assert not ask(ALLOWING["allow"])
    assert ask(MENDING["reset"]) is None
    assert [ask(ALLOWING["allow_n"]), ask(ASKING["acquire"]).allowed, ask(READING["peek"]).allowed] == [True, False, True]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outage", ["closed", "paused", "noauth", "garbage", "ok"])
def test_limiter_asked_to_reset_all_in_an_outage_follows_its_policy(
    kind: type, outage: str, failing: dict[str, str], make: Make
) -> None:
    with pytest.raises(LimiterUnavailable):
        make(kind, failing[outage], timeout=QUICK_S).reset_all()
    limiter = make(kind, failing[outage], 3, DAY, timeout=QUICK_S, on_failure="local", clock=ManualClock())
    assert limiter.allow_n("a", 3)
    limiter.reset_all()
    assert limiter.peek("a").remaining == 3


# Servers that still answer questions, but take nothing ---------------------------------------------------------------


@pytest.fixture(scope="module")
def replica() -> Iterator[Server]:
    with served(BINARY) as server, server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", 1)
        yield server


@pytest.fixture(scope="module")
def full() -> Iterator[Server]:
    with served(BINARY, "--maxmemory", "1", "--maxmemory-policy", "noeviction") as server:
        yield server


@pytest.mark.parametrize("store", ["replica", "full"])
@pytest.mark.parametrize("kind", KINDS)
def test_limiter_over_a_store_that_takes_nothing_follows_its_policy(
    store: str, kind: type, make: Make, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(store).url
    for policy, allows in (("deny", [False] * 4), ("local", [True] * 3 + [False]), ("allow", [True] * 4)):
        limiter = make(kind, url, 3, DAY, on_failure=policy, clock=ManualClock(), name=policy)
        assert [limiter.allow("a") for _ in range(4)] == allows
        if policy == "deny":
            with pytest.raises(LimiterUnavailable):
                limiter.acquire("a")


# Over several limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(
    ("policies", "answers"),
    [
        (("allow", "deny", "local"), []),
        (("allow", "local", "allow"), [True, True, False, False]),  # by a rate whose own policy would let it pass
        (("local", "allow", "local"), [True, True, False, False]),
        (("allow", "allow", "allow"), [True] * 4),
    ],
)
def test_acquire_all_in_an_outage_follows_the_strictest_policy(
    colour: str, policies: tuple[str, ...], answers: list[bool]
) -> None:
    url, rates = closed_url(), {"allow": 2, "local": 3, "deny": 3}
    kind: Any = RedisTokenBucket if colour == "sync" else AsyncRedisTokenBucket
    client = open_store(url) if colour == "sync" else redis.asyncio.Redis.from_url(url)
    if policies[0] == "local":
        rates = {"allow": 3, "local": 2}
    limiters = [kind(client, rates[each], DAY, on_failure=each, name=f"{index}") for index, each in enumerate(policies)]
    spends = [(limiter, "a", 1) for limiter in limiters]
    with asyncio.Runner() as runner:

        def ask() -> Decision:
            return acquire_all(spends) if colour == "sync" else runner.run(acquire_all_async(spends))

        if answers:
            assert [ask().allowed for _ in answers] == answers
        else:
            with pytest.raises(LimiterUnavailable):
                ask()


# Processors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "issued", "error"), [("deny", 0, LimiterUnavailable), ("local", 3, RateLimitExceeded)])
def test_processor_in_an_outage_follows_the_policy(make: Make, policy: str, issued: int, error: type[Exception]) -> None:
    url, claims = closed_url(), {"sub": "user-1"}
    plain, waiting = (make(kind, url, 3, DAY, on_failure=policy).limiter for kind in (RedisTokenBucket, AsyncRedisTokenBucket))
    processor = Processor(Config(secret_key=b"s" * 32, rate_limiter=plain))
    for _ in range(issued):
        assert processor.validate(processor.create(claims)).sub == "user-1"
    with pytest.raises(error):
        processor.create(claims)

    async def create() -> None:
        processor = AsyncProcessor(Config(secret_key=b"s" * 32, rate_limiter=waiting))
        for _ in range(issued):
            assert await processor.create(claims)
        with pytest.raises(error):
            await processor.create(claims)

    make(AsyncRedisTokenBucket, url)._run(create())


def test_processor_in_an_outage_that_allows_goes_on_issuing(make: Make) -> None:
    limiter = make(RedisTokenBucket, closed_url(), 3, DAY, on_failure="allow").limiter
    processor = Processor(Config(secret_key=b"s" * 32, rate_limiter=limiter))
    assert len({processor.create({"sub": "user-1"}) for _ in range(10)}) == 10


# Bounds, logs and what is no failure -----------------------------------------------------------------------------------


def test_limiter_that_counts_locally_stays_bounded_over_fifty_thousand_keys(make: Make) -> None:
    limiter = make(RedisTokenBucket, closed_url(), 3, DAY, on_failure="local", clock=ManualClock())
    assert all(limiter.allow(f"user:{number}") for number in range(50_000))
    assert 9_000 < len(limiter.limiter._local) <= 10_000


QUOTING = b"-ERR unknown command 'EVALSHA', with args beginning with: '%s' '1' 'jwtlimit:default:user:123'\r\n" % (b"0" * 40)


@pytest.mark.parametrize("reply", [QUOTING, b"-OOM command not allowed\r\n", b"", b"user:123\r\n"])
@pytest.mark.parametrize("kind", KINDS)
def test_limiter_in_an_outage_of_a_thousand_calls_logs_it_once_and_names_no_key(
    kind: type, reply: bytes, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with Stub(reply) as stub, caplog.at_level(logging.DEBUG, "jwtlimit"):
        clock = ManualClock()
        limiter = make(kind, stub.url, cooldown=COOLDOWN_S, clock=clock, prefix="jwtlimit")
        for _ in range(10):
            assert not any(limiter.allow("user:123") for _ in range(100))
            clock.advance(COOLDOWN_S)
    records = [record for record in caplog.records if record.name.startswith("jwtlimit")]
    assert [record.levelname for record in records] == ["WARNING"]
    assert "again every 2.5 s" in caplog.text
    assert "123" not in caplog.text


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"-READONLY You can't write against a read only replica.\r\n", "(ReadOnlyError)"),
        (b"-MISCONF Redis is configured to save user:123\r\n", "(ResponseError: MISCONF)"),
    ],
)
@pytest.mark.parametrize("kind", KINDS[:2])  # the others send two commands at once, and the stub answers once
def test_limiter_in_an_outage_logs_what_kind_of_error_came(
    kind: type, reply: bytes, told: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with Stub(reply) as stub:
        assert not make(kind, stub.url).allow("user:123")
    assert told in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_back_from_an_outage_logs_that_once(kind: type, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with served(BINARY) as server:
        limiter = make(kind, server.url, 1000, DAY, clock=clock, cooldown=COOLDOWN_S)
        assert limiter.allow("a")
        server.stop()
        assert not limiter.allow("a")
        server.start()
        assert not limiter.allow("a"), "nobody asks before the cool-down is over"
        clock.advance(COOLDOWN_S)
        assert all(limiter.allow("a") for _ in range(20))
    assert [record.name for record in caplog.records] == ["jwtlimit"] * 2
    assert "answers again" in caplog.messages[1]


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_with_one_spoiled_key_denies_that_one_and_no_other(
    kind: type, make: Make, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = make(kind, server.url, 5, DAY, name=kind.__name__, prefix="spoiled", timeout=10)
    with server.client() as client:
        client.hset(limiter.limiter._form.stored("bad"), "field", "value")
    for _ in range(5):
        with pytest.raises(LimiterUnavailable):
            limiter.acquire("bad")
        assert limiter.acquire("good").allowed
    limiter.reset("bad")
    assert limiter.acquire("bad").allowed
    assert caplog.messages == []


def test_spoiled_key_is_no_outage_in_the_words_of_older_servers(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_command: str | bytes) -> None:
        raise redis.ResponseError(
            "Error running script (call to f_1): @user_script:21: WRONGTYPE Operation against another kind"
        )

    store = open_store("redis://localhost")
    with pytest.raises(StoreDown):
        store.ask(int, fail, "DEL", b"bad")
    assert store._next_probe_ns is None
    assert caplog.messages == []


def test_connection_whose_answer_was_an_error_is_used_again(make: Make, server: Server) -> None:
    limiter = make(RedisTokenBucket, f"{server.url}?client_name=of-errors", 5, DAY, prefix="errors", timeout=10)
    with server.client() as client:

        def connections() -> list[str]:
            return [each["id"] for each in client.client_list() if each["name"] == "of-errors"]

        client.hset(limiter.limiter._form.stored("bad"), "field", "value")
        limiter.acquire("good")
        before = connections()
        with pytest.raises(LimiterUnavailable):
            limiter.acquire("bad")
        client.script_flush()
        limiter.acquire("good")
        assert len(before) == 1
        assert connections() == before


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_that_refuses_is_not_taken_for_a_failure(
    kind: type, make: Make, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = make(kind, server.url, 1, DAY, name=kind.__name__, prefix="denial", local_refusal=False)
    assert limiter.allow("a")
    assert not any(limiter.acquire("a").allowed for _ in range(50))
    assert limiter.acquire("b").allowed
    assert caplog.messages == []
