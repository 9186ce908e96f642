"""Decision and RateLimitExceeded: what they carry, and how several decisions become one."""

import copy
import pickle

import pytest

from jwtlimit_core import Decision, JWTLimitError, Rate, RateLimitExceeded
from jwtlimit_core.decision import combine, impossible

RATE = Rate(5, 30, burst=20)
YES = Decision(True, RATE, "login", 3, 0, 102 * 10**9)
NO = Decision(False, RATE, "login", 0, 1_500_000_000, 120 * 10**9)
NEVER = Decision(False, RATE, "login", 20, None, 0)


@pytest.mark.parametrize(("decision", "seconds"), [(YES, 0.0), (NO, 1.5), (NEVER, None)])
def test_decision_retry_after_is_the_wait_in_seconds(decision: Decision, seconds: float | None) -> None:
    assert decision.retry_after == seconds


def test_decision_limit_is_the_burst() -> None:
    assert YES.limit == 20


def test_decision_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        YES.allowed = False  # type: ignore[misc]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_decision_copied_or_pickled_is_equal(copied) -> None:  # type: ignore[no-untyped-def]
    decision = NO._replace(parts=(YES, NO))
    assert copied(decision) == decision


@pytest.mark.parametrize(("decision", "retry_after"), [(NO, 1.5), (NEVER, None)])
def test_exceeded_carries_the_decision_its_wait_and_its_limit(decision: Decision, retry_after: float | None) -> None:
    exceeded = RateLimitExceeded(decision)
    assert isinstance(exceeded, JWTLimitError)
    assert (exceeded.decision, exceeded.retry_after, exceeded.limit) == (decision, retry_after, 20)


def test_exceeded_as_text_names_the_limit_and_the_wait() -> None:
    assert str(RateLimitExceeded(NO)) == "rate limit 'login' (5/30s;burst=20) exceeded: retry after 1.5 s"
    assert str(RateLimitExceeded(NEVER)) == "rate limit 'login' (5/30s;burst=20) exceeded: waiting does not help"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_exceeded_copied_or_pickled_keeps_all_it_carries(copied) -> None:  # type: ignore[no-untyped-def]
    exceeded = RateLimitExceeded(decision=NO)
    twin = copied(exceeded)
    assert type(twin) is RateLimitExceeded
    assert (twin.decision, twin.retry_after, twin.limit, str(twin)) == (NO, 1.5, 20, str(exceeded))


def test_exceeded_may_tell_another_wait() -> None:
    exceeded = RateLimitExceeded(NO)
    exceeded.retry_after = 7.0
    assert (exceeded.retry_after, exceeded.args) == (7.0, (NO,))


def test_impossible_says_that_waiting_never_helps_and_nothing_of_the_bucket() -> None:
    assert impossible(RATE, "login") == Decision(False, RATE, "login", 0, None, 0)


LONG = NO._replace(name="long", retry_after_ns=9_000_000_000, remaining=7)
ROOMY = YES._replace(name="roomy", remaining=11, reset_after_ns=1)


@pytest.mark.parametrize(
    ("parts", "spokesman"),
    [
        ([YES], YES),
        ([ROOMY, YES], YES),
        ([YES, ROOMY], YES),
        ([NO], NO),
        ([NO, YES], NO),
        ([NO, LONG, YES], LONG),
        ([LONG, NO], LONG),
        ([LONG, NEVER, NO], NEVER),
        ([NEVER, LONG], NEVER),
    ],
)
def test_combine_speaks_for_the_longest_wait_or_else_for_the_least_left(parts: list[Decision], spokesman: Decision) -> None:
    assert combine(parts) == spokesman._replace(parts=tuple(parts))
