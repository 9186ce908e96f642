"""When tokens begin and end: to the nanosecond, between clocks that differ."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jwtlimit_core import InvalidToken, RateLimitExceeded, TokenExpired, TokenNotYetValid
from jwtlimit_core.testing import ManualClock

SECOND_NS = 10**9
NOW = 1_900_000_000  # of the clock fixture, which stands a nanosecond before the next second
TTL = 60

Make = Callable[..., Any]


@pytest.fixture(params=["validate", "refresh"])
def use(request: pytest.FixtureRequest, make: Make) -> Callable[..., Any]:
    """Return ``use(leeway)``: a processor's issuer of tokens, and the call that they are for."""

    def ready(leeway: Any) -> tuple[Callable[..., str], Callable[[str], Any]]:
        processor = make(leeway=leeway, access_token_ttl=TTL, refresh_token_ttl=TTL)
        issue = processor.create if request.param == "validate" else processor.create_refresh
        return issue, getattr(processor, request.param)

    return ready


LEEWAYS = [(0, 0), (5, 5 * SECOND_NS), (0.25, SECOND_NS // 4), (timedelta(milliseconds=1), 10**6), (1e-9, 1)]


@pytest.mark.parametrize(("leeway", "leeway_ns"), LEEWAYS, ids=str)
def test_a_token_expires_at_exp_plus_leeway_and_not_a_nanosecond_earlier(
    leeway: Any, leeway_ns: int, use: Callable[..., Any], clock: ManualClock
) -> None:
    issue, call = use(leeway)
    token = issue({"sub": "u1"})
    clock.advance_ns((NOW + TTL) * SECOND_NS + leeway_ns - 1 - clock.time_ns())
    assert call(token)
    clock.advance_ns(1)
    with pytest.raises(TokenExpired):
        call(token)


@pytest.mark.parametrize(("leeway", "leeway_ns"), LEEWAYS, ids=str)
def test_a_token_begins_at_nbf_less_leeway_and_not_a_nanosecond_earlier(
    leeway: Any, leeway_ns: int, use: Callable[..., Any], clock: ManualClock
) -> None:
    issue, call = use(leeway)
    token = issue({"sub": "u1", "nbf": NOW + 30})
    clock.advance_ns((NOW + 30) * SECOND_NS - leeway_ns - 1 - clock.time_ns())
    with pytest.raises(TokenNotYetValid):
        call(token)
    clock.advance_ns(1)
    assert call(token)


@pytest.mark.parametrize(("name", "error"), [("exp", TokenExpired), ("nbf", TokenNotYetValid)])
def test_dates_with_a_fraction_count_to_the_fraction(
    name: str, error: type[Exception], make: Make, forge: Make, clock: ManualClock
) -> None:
    payload = {"iss": "jwt-service", "exp": NOW + TTL, "token_type": "access", name: NOW + 30.5}
    processor = make(leeway=0)
    for offset_ns, refuses in ((-1, name == "nbf"), (0, name == "exp")):
        clock.advance_ns((NOW + 30) * SECOND_NS + SECOND_NS // 2 + offset_ns - clock.time_ns())
        if refuses:
            with pytest.raises(error):
                processor.validate(forge(payload))
        else:
            assert processor.validate(forge(payload))


def test_a_token_of_a_clock_two_seconds_ahead_is_good_at_once_and_can_be_refreshed(make: Make, clock: ManualClock) -> None:
    ahead = ManualClock(time_ns=clock.time_ns() + 2 * SECOND_NS)
    there, here = make(clock=ahead), make()
    claims = {"sub": "u1", "nbf": NOW + 2}
    assert here.validate(there.create(claims)).iat == NOW + 2
    assert here.validate(here.refresh(there.create_refresh(claims))).nbf == NOW + 2


def test_a_future_iat_alone_never_refuses(make: Make, forge: Make) -> None:
    payload = {"iss": "jwt-service", "exp": NOW + TTL, "token_type": "access"}
    assert make(leeway=0).validate(forge(payload | {"iat": NOW + 10**6})).iat == NOW + 10**6
    assert make().validate(forge(payload)).iat is None


@pytest.mark.parametrize("method", ["validate", "refresh"])
def test_a_token_without_an_end_is_refused(method: str, make: Make, forge: Make) -> None:
    token_type = {"validate": "access", "refresh": "refresh"}[method]
    with pytest.raises(InvalidToken, match="has no 'exp'"):
        getattr(make(), method)(forge({"iss": "jwt-service", "token_type": token_type}))


def test_a_clock_set_back_neither_ends_nor_revives_a_token_by_more_than_itself(make: Make, clock: ManualClock) -> None:
    processor = make(access_token_ttl=TTL)
    token = processor.create({"sub": "u1"})
    clock.advance(-3600)
    assert processor.validate(token)
    clock.advance(3600 + TTL + 5)
    with pytest.raises(TokenExpired):
        processor.validate(token)


def test_the_hour_of_the_wall_clock_decides_no_limit(make: Make, clock: ManualClock) -> None:
    class SetForward(ManualClock):
        def time_ns(self) -> int:
            return super().time_ns() + 86_400 * SECOND_NS * next(days)

    days = iter(range(10))
    processor = make(clock=SetForward(), enable_rate_limit=True, rate_limit_rate=2, rate_limit_window=60)
    processor.create({"sub": "u1"})
    processor.create({"sub": "u1"})
    with pytest.raises(RateLimitExceeded, match=r"rate limit 'issue' .* exceeded: retry after 30 s"):
        processor.create({"sub": "u1"})
