"""The limit on issuance: who is charged, when, and what is told to those who ask too often."""

import logging
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from jwtlimit_core import (
    Claims,
    Decision,
    InvalidClaims,
    JWTLimitError,
    LimiterUnavailable,
    Rate,
    RateLimiter,
    RateLimitExceeded,
    RegisteredClaims,
)
from jwtlimit_core.testing import ManualClock

Make = Callable[..., Any]


@dataclass(kw_only=True)
class Device(RegisteredClaims):
    key: str | None = "device:1"

    def rate_limit_key(self) -> str | None:
        return self.key


@pytest.fixture
def limiter(clock: ManualClock) -> RateLimiter:
    return RateLimiter(5, 60, name="issue", clock=clock)


def left(limiter: RateLimiter, key: str = "u1") -> int:
    return limiter.peek(key).remaining


def test_the_four_issuing_calls_share_one_bucket_for_each_key_and_validate_has_none(make: Make, limiter: RateLimiter) -> None:
    processor = make(rate_limiter=limiter)
    refresh = processor.create_refresh(Claims(sub="u1"))
    access = processor.create({"sub": "u1"})
    for _ in range(20):
        assert processor.validate(access).sub == processor.validate_into(access, Device).sub == "u1"
    assert left(limiter) == 3
    processor.refresh(refresh)
    processor.refresh_into(refresh, Claims)
    processor.create(Device(sub="u1"))
    assert left(limiter) == 0
    for call in (
        lambda: processor.create(Claims(sub="u1")),
        lambda: processor.create_refresh({"user_id": "u1"}),
        lambda: processor.refresh(refresh),
        lambda: processor.refresh_into(refresh, Device),
    ):
        with pytest.raises(RateLimitExceeded):
            call()
    assert processor.create({"sub": "u2"})
    assert (left(limiter, "u2"), len(limiter)) == (4, 2)


def test_a_refusal_tells_the_exact_wait_and_survives_pickling(make: Make, clock: ManualClock) -> None:
    processor = make(enable_rate_limit=True, rate_limit_rate=3, rate_limit_window=timedelta(seconds=60))
    for _ in range(3):
        processor.create({"sub": "u1"})
    clock.advance(5)
    with pytest.raises(RateLimitExceeded) as caught:
        processor.create({"sub": "u1"})
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.limit, error.retry_after, error.decision.name) == (3, 15.0, "issue")
    assert error.decision == caught.value.decision
    clock.advance_ns(error.decision.retry_after_ns - 1)
    with pytest.raises(RateLimitExceeded):
        processor.create({"sub": "u1"})
    clock.advance_ns(1)
    assert processor.create({"sub": "u1"})


def test_without_a_limiter_nobody_is_limited(make: Make) -> None:
    processor = make(rate_limit_rate=1)
    assert len({processor.create({"sub": "u1"}) for _ in range(200)}) == 200


def test_claims_without_a_key_are_not_limited(make: Make, limiter: RateLimiter) -> None:
    processor = make(rate_limiter=limiter)
    for claims in (Claims(), {}, {"sub": ""}, Claims(username="alice"), Device(key=None), Device(key="")):
        for _ in range(10):
            processor.create(claims)
    assert len(limiter) == 0


def test_a_chain_of_refreshes_and_a_key_of_the_claims_type_charge_the_same_bucket(make: Make, limiter: RateLimiter) -> None:
    processor = make(rate_limiter=limiter)
    token = processor.create_refresh(Device())
    processor.refresh_into(token, Device)
    assert left(limiter, "device:1") == 3


def test_normalize_key_makes_one_key_of_many(make: Make, limiter: RateLimiter) -> None:
    exact, folded = make(rate_limiter=limiter), make(rate_limiter=limiter, normalize_key=str.casefold)
    exact.create({"sub": "Alice"})
    assert (left(limiter, "Alice"), left(limiter, "alice")) == (4, 5)
    token = folded.create({"sub": "ALICE"})
    folded.create({"sub": "alice"})
    assert (left(limiter, "alice"), folded.validate(token).sub) == (3, "ALICE")


def test_normalize_key_sees_no_empty_key(make: Make, limiter: RateLimiter) -> None:
    seen: list[str] = []
    processor = make(rate_limiter=limiter, normalize_key=lambda key: seen.append(key) or key)
    processor.create({})
    processor.create({"sub": "u1"})
    assert seen == ["u1"]


def test_a_limiter_with_only_the_three_methods_tells_the_window_as_the_wait(make: Make, provider: Make) -> None:
    processor = make(rate_limiter=provider(lambda key: key == "u1"), rate_limit_rate=7, rate_limit_window=90.5)
    assert processor.create({"sub": "u1"})
    with pytest.raises(RateLimitExceeded) as caught:
        processor.create({"sub": "u2"})
    assert caught.value.retry_after == 90.5
    wait_ns = 90_500_000_000
    assert caught.value.decision == Decision(False, Rate(7, 90.5), "issue", 0, wait_ns, wait_ns, more_after_ns=wait_ns)


def test_a_limiter_that_also_acquires_tells_its_own_wait_and_is_asked_once(make: Make, provider: Make) -> None:
    asked: list[str] = []
    refusal = Decision(False, Rate(1, 10), "theirs", 0, 3_000_000_000, 10_000_000_000)

    def acquire(key: str) -> Decision:
        asked.append(key)
        return refusal

    processor = make(rate_limiter=provider(lambda key: asked.append("allow"), acquire=acquire))
    with pytest.raises(RateLimitExceeded) as caught:
        processor.create({"sub": "u1"})
    assert caught.value.decision is refusal
    assert asked == ["u1"]


@pytest.mark.parametrize("answer", [None, 1, 0, "yes", b"", [True], object()], ids=repr)
def test_a_limiter_that_answers_neither_yes_nor_no_raises_limiter_unavailable(answer: Any, make: Make, provider: Make) -> None:
    with pytest.raises(LimiterUnavailable, match=f"answered with {type(answer).__name__}, neither"):
        make(rate_limiter=provider(lambda key: answer)).create({"sub": "u1"})


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*_arguments: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize("error", [OSError("down"), KeyError("u1"), InvalidClaims("odd")], ids=repr)
def test_a_limiter_that_raises_gives_limiter_unavailable_with_its_cause(error: Exception, make: Make, provider: Make) -> None:
    with pytest.raises(LimiterUnavailable, match=f"failed with {type(error).__name__}$") as caught:
        make(rate_limiter=provider(raising(error))).create({"sub": "u1"})
    assert caught.value.__cause__ is error


def test_limiter_unavailable_of_a_limiter_passes_unchanged(make: Make, provider: Make) -> None:
    error = LimiterUnavailable("the store is away", retry_after=3.0)
    with pytest.raises(LimiterUnavailable) as caught:
        make(rate_limiter=provider(raising(error))).create({"sub": "u1"})
    assert caught.value is error


def test_nothing_is_logged_about_tokens_claims_or_refusals(
    make: Make, limiter: RateLimiter, forge: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    processor = make(rate_limiter=limiter)
    for call in (processor.create, processor.create_refresh, processor.validate, processor.refresh):
        for argument in ({"sub": "u1"}, {"sub": 1}, "a.b.c", forge({"sub": "secret subject"})):
            for _ in range(6):
                try:
                    call(argument)
                except (JWTLimitError, TypeError):
                    continue
    assert left(limiter) == 0
    assert caplog.records == []


def test_reporting_tells_of_each_refusal_before_it_is_raised(make: Make, provider: Make) -> None:
    answers: list[Any] = [True, False, RuntimeError("away"), False]

    def allow(_key: str) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    processor, told = make(rate_limiter=provider(allow)), list[Any]()
    reporting = type(processor)(processor.processor.reporting(told.append))
    assert reporting.create({"sub": "u1"})
    for kind in (RateLimitExceeded, LimiterUnavailable):
        with pytest.raises(kind) as caught:
            reporting.create({"sub": "u1"})
        assert told.pop() is caught.value
    with pytest.raises(RateLimitExceeded):
        processor.create({"sub": "u1"})
    assert told == []
