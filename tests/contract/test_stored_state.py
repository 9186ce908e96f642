"""What a server keeps: every key with an expiry that is neither early nor late, and state that outlives changes of a limit."""

import random
from fractions import Fraction
from typing import Any

import pytest

from jwtlimit_core import LimiterUnavailable
from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket
from jwtlimit_core.testing import ManualClock
from stores import Plain, Stores

DAY = 86_400
KINDS = [RedisTokenBucket, AsyncRedisTokenBucket, RedisFixedWindow, AsyncRedisFixedWindow]
BUCKET, WINDOW = RedisTokenBucket, RedisFixedWindow


def stored(limiter: Plain, key: str = "a") -> str:
    name: bytes = limiter.limiter._form.stored(key)
    return name.decode()


def since_us(stores: Stores, limiter: Plain) -> int:
    """Return the time in the state of "a": when it was seen last, or when its window started."""
    value = stores.value(limiter, "a")
    assert value is not None
    return int(value.split(b"@")[1])


def time_us(stores: Stores) -> int:
    seconds, us = stores.client.time()
    return seconds * 1_000_000 + us


# Expiry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RedisTokenBucket, RedisFixedWindow])
def test_every_key_has_an_expiry_after_each_of_a_thousand_operations(stores: Stores, kind: type) -> None:
    chance, prefix = random.Random(3), f"random {kind.__name__}"
    limiters = [stores.limiter(kind, limit, window, prefix=prefix, name=str(window)) for limit, window in ((3, 0.02), (5, DAY))]
    names = [stored(limiter, key) for limiter in limiters for key in "abc"]

    def pairs() -> list[tuple[Plain, str, int]]:
        keys = {(chance.randrange(2), chance.choice("abc")) for _ in range(3)}
        return [(limiters[index], key, chance.randrange(3)) for index, key in sorted(keys)]

    lasted = 0
    for _ in range(1_000):
        operation = chance.choice(["allow_n", "allow_n", "acquire", "acquire", "peek", "refund", "reset", "acquire_all"])
        if operation == "acquire_all":
            stores.acquire_all(pairs())
        else:
            n = () if operation == "reset" else (chance.randrange(5),)
            getattr(chance.choice(limiters), operation)(chance.choice("abc"), *n)
        with stores.client.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.pttl(name)
            left_ms = pipeline.execute()
        assert -1 not in left_ms, operation
        lasted += sum(ms >= 0 for ms in left_ms)
    assert lasted > 2_000, "there were keys to look at"
    assert {key.decode() for key in stores.client.scan_iter(match=prefix + ":*", count=1000)} <= set(names)


@pytest.mark.parametrize("rate", [(10, 60), (7, 1), (999, DAY), (3, 0.000_007), (1, 30 * DAY)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_expiry_is_when_nothing_is_owed_and_at_most_two_milliseconds_later(stores: Stores, kind: type, rate: Any) -> None:
    limiter = stores.limiter(kind, *rate, prefix=f"expiry {kind.__name__} {rate}")
    looked_at = 0
    for n in [1, 2, 1, 1] * 10:
        before_us = time_us(stores)
        decision = limiter.acquire("a", n)
        with stores.client.pipeline(transaction=False) as pipeline:
            value, expires_ms = pipeline.get(stored(limiter)).pexpiretime(stored(limiter)).execute()
        if value is not None and expires_ms > 0 and decision.retry_after_ns is not None:
            since = int(value.split(b"@")[1])
            assert since <= time_us(stores)
            if kind in (RedisTokenBucket, AsyncRedisTokenBucket):
                assert before_us <= since
                over_us = since + decision.reset_after_ns // 1000
            else:
                over_us = since + int(rate[1] * 1_000_000)
            assert 0 <= expires_ms * 1000 - over_us <= 2_000
            looked_at += 1
    assert looked_at > 3 or rate[1] < 0.01


@pytest.mark.parametrize("window_us", [30_123, 50_000, 40_999])
@pytest.mark.parametrize("kind", [RedisTokenBucket, RedisFixedWindow])
def test_quota_that_was_used_up_is_never_there_again_before_its_time(stores: Stores, kind: type, window_us: int) -> None:
    limiter = stores.limiter(kind, 5, Fraction(window_us, 1_000_000))
    for _ in range(3):
        limiter.reset("a")
        assert limiter.allow_n("a", 5)
        used_us = since_us(stores, limiter)
        # A peek writes nothing, so that the first expiry is the one that counts.
        while not limiter.peek("a", 5).allowed:
            assert time_us(stores) < used_us + 1_000_000
        assert limiter.allow_n("a", 5)
        assert since_us(stores, limiter) - used_us >= window_us


@pytest.mark.parametrize("ask", [lambda it: it.allow("a"), lambda it: it.allow_n("a", 5), lambda it: it.refund("a", 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_expiry_that_was_lost_comes_back_with_the_next_call(stores: Stores, kind: type, ask: Any) -> None:
    limiter = stores.limiter(kind, 5, DAY)
    assert limiter.allow_n("a", 2)
    assert stores.client.persist(stored(limiter))
    ask(limiter)
    assert 0 < stores.client.pttl(stored(limiter)) <= DAY * 1000 + 2


@pytest.mark.parametrize(("kind", "value"), [(BUCKET, "b0/17280000000@{}"), (WINDOW, "w5@{}")])
def test_state_that_outlived_its_expiry_counts_as_none(stores: Stores, kind: type, value: str) -> None:
    limiter = stores.limiter(kind, 5, DAY)
    stores.client.set(stored(limiter), value.format(time_us(stores) - DAY * 1_000_000))
    assert [limiter.allow_n("a", 5), limiter.allow("a")] == [True, False]
    assert DAY * 1000 - 60_000 < stores.client.pttl(stored(limiter)) <= DAY * 1000 + 2


@pytest.mark.parametrize(
    "value", ["", "b", "b1", "w", "w1@", "b-5/1@1", "b1/0@1", "w1.5@1", "17", "b1/1@1x", "\x00", "w" * 9999]
)
@pytest.mark.parametrize("kind", [BUCKET, WINDOW])
def test_state_that_nobody_here_wrote_counts_as_none(stores: Stores, kind: type, value: str) -> None:
    limiter = stores.limiter(kind, 5, DAY)
    stores.client.set(stored(limiter), value)
    assert limiter.peek("a").remaining == 5
    assert [limiter.allow_n("a", 5), limiter.allow("a")] == [True, False]
    assert stores.client.pttl(stored(limiter)) > 0


# Changed limits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "taken", "new", "left"),
    [
        ((BUCKET, 5, 60), 5, (BUCKET, 10, 60), 0),  # raised: the bucket is larger, and fills faster
        ((BUCKET, 10, 60), 2, (BUCKET, 3, 60), 3),  # lowered: no more than fits
        ((BUCKET, 10, 60), 8, (BUCKET, 3, 60), 2),
        ((BUCKET, 10, 60), 6, (BUCKET, 10, 3600), 4),  # the same tokens under another window
        ((BUCKET, 7, 60), 3, (BUCKET, 999, DAY), 4),
        ((BUCKET, 10**9, DAY), 1, (BUCKET, 1, 3600), 1),
        ((BUCKET, 10, 60), 2, (BUCKET, 10, 60, 3), 3),  # no more than fits, at the same rate too
        ((BUCKET, 10, 60), 8, (BUCKET, 10, 60, 20), 2),
        ((WINDOW, 5, 60), 5, (WINDOW, 10, 60), 5),
        ((WINDOW, 10, 60), 8, (WINDOW, 3, 60), 0),
        ((WINDOW, 10, 60), 6, (WINDOW, 10, 3600), 4),
        ((BUCKET, 5, 60), 5, (WINDOW, 4, 60), 4),  # another algorithm begins anew
        ((WINDOW, 5, 60), 5, (BUCKET, 4, 60), 4),
    ],
)
def test_limit_that_was_changed_works_at_once_on_old_state(stores: Stores, old: Any, taken: int, new: Any, left: int) -> None:
    clock = ManualClock(monotonic_ns=time_us(stores))
    before = stores.limiter(*old, now=clock)
    assert before.allow_n("a", taken)
    prefix = stored(before).partition(":")[0]
    burst = {"burst": new[3]} if len(new) > 3 else {}
    after = stores.limiter(*new[:3], now=clock, prefix=prefix, **burst)
    assert (after.peek("a").remaining, after.peek("a", 0).allowed) == (left, True)
    assert [after.allow("a") for _ in range(left)] + [after.allow("a")] == [True] * left + [False]
    assert (after.allow_n("a", 0), after.acquire("a", 0).allowed) == (True, True)
    wait_ns = after.acquire("a").retry_after_ns
    # The bucket fills at its new rate; the window lasts its new length from its start.
    assert wait_ns == -(-new[2] * 10**6 // (new[1] if new[0] is BUCKET else 1)) * 1000
    clock.advance_ns(wait_ns // 1000)
    assert after.allow("a")


@pytest.mark.parametrize("step_us", [0, 1, 333_333, 500_000, 999_999])
def test_bucket_of_a_changed_rate_keeps_the_part_of_a_token(stores: Stores, step_us: int) -> None:
    clock = ManualClock(monotonic_ns=time_us(stores))
    before = stores.limiter(BUCKET, 1, 1, burst=5, now=clock)
    before.allow_n("a", 5)
    clock.advance_ns(step_us)
    assert not before.allow("a")
    after = stores.limiter(BUCKET, 1, 7, burst=5, now=clock, prefix=stored(before).partition(":")[0])
    assert after.peek("a").retry_after_ns == (1_000_000 - step_us) * 7 * 1000


def test_bucket_of_a_changed_rate_rounds_the_part_of_a_token_down(stores: Stores) -> None:
    clock = ManualClock(monotonic_ns=time_us(stores))
    before = stores.limiter(BUCKET, 1, 1, now=clock)
    before.allow("a")
    clock.advance_ns(333_333)  # a millionth short of a third of a token
    assert not before.allow("a")
    after = stores.limiter(BUCKET, 1, Fraction(3, 10**6), now=clock, prefix=stored(before).partition(":")[0])
    assert after.peek("a").retry_after_ns == 3_000


@pytest.mark.parametrize("kind", [RedisTokenBucket, AsyncRedisTokenBucket])
def test_bucket_that_was_refunded_too_much_has_no_more_in_it_under_a_larger_burst(stores: Stores, kind: type) -> None:
    clock = ManualClock(monotonic_ns=time_us(stores))
    before = stores.limiter(kind, 5, 60, now=clock)
    before.allow("a")
    before.refund("a", 5)
    after = stores.limiter(kind, 5, 60, burst=20, now=clock, prefix=stored(before).partition(":")[0])
    assert after.peek("a").remaining == 5


# Neighbours ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("on_failure", "allows"), [("deny", False), ("allow", True), ("local", True)])
def test_key_of_another_type_is_a_failure_of_that_key_alone(stores: Stores, kind: type, on_failure: Any, allows: bool) -> None:
    limiter = stores.limiter(kind, 5, DAY, on_failure=on_failure)
    stores.client.rpush(stored(limiter), "theirs")
    assert limiter.allow("a") is allows
    if on_failure == "deny":
        with pytest.raises(LimiterUnavailable):
            limiter.acquire("a")
    assert limiter.acquire("b").remaining == 4, "the server is not taken for down"
    assert stores.client.lrange(stored(limiter), 0, -1) == [b"theirs"]
    limiter.reset("a")
    assert limiter.acquire("a").remaining == 4


@pytest.mark.parametrize("kind", KINDS)
def test_reset_deletes_one_key(stores: Stores, kind: type) -> None:
    one = stores.limiter(kind, 5, DAY)
    prefix = stored(one).partition(":")[0]
    two = stores.limiter(kind, 5, DAY, prefix=prefix, name="other")
    for limiter, key in ((one, "a"), (one, "a*"), (one, "b"), (two, "a")):
        limiter.allow_n(key, 5)
    assert len(stores.commands(lambda: one.reset("a"))) == 1
    kept = {key.decode() for key in stores.client.scan_iter(match=prefix + ":*", count=1000)}
    assert kept == {stored(one, "a*"), stored(one, "b"), stored(two)}
    assert [one.allow("a"), one.allow("a*"), one.allow("b"), two.allow("a")] == [True, False, False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_one_check_is_one_command(stores: Stores, kind: type) -> None:
    limiter = stores.limiter(kind, 5, DAY)
    others = [stores.limiter(kind, 5, DAY, name=f"{index}") for index in range(3)]
    limiter.allow("a")
    assert len(stores.commands(lambda: [limiter.allow("a") for _ in range(8)])) == 8
    for work in (
        lambda: limiter.acquire("b", 3),
        lambda: limiter.peek("b"),
        lambda: limiter.refund("b"),
        lambda: stores.acquire_all([(other, key, 1) for other in others for key in "ab"]),
    ):
        assert len(stores.commands(work)) == 1
    for work in (lambda: limiter.acquire("b", 6), lambda: limiter.allow_n("b", 0), lambda: limiter.refund("b", 0)):
        assert stores.commands(work) == []
