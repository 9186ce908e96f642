"""Refreshing: what is kept, what is new, and that a refused refresh costs nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from jwtlimit_core import Claims, InvalidClaims, InvalidToken, RateLimitExceeded, RegisteredClaims, TokenExpired
from jwtlimit_core.testing import ManualClock

NOW = 1_900_000_000

Make = Callable[..., Any]


@dataclass(kw_only=True)
class Member(RegisteredClaims):
    team: str
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    role: int | None = None  # of another type than in Claims
    seen: str = "never"

    def rate_limit_key(self) -> str:
        return f"team:{self.team}"


@pytest.fixture(params=["refresh", "refresh_into"])
def refresh(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Refresh by one of the two calls."""
    return lambda processor, token: getattr(processor, request.param)(token, *[Claims] * (request.param == "refresh_into"))


@pytest.mark.parametrize(
    "claims",
    [
        Claims(sub="u1"),
        Claims(sub="u1", aud="web", nbf=NOW - 5, user_id="7", role="admin", scopes=["read"], session_id="s"),
        Claims(aud=["web", "api"], extra={"plan": None, "deep": {"list": [1, {"x": 0.5}]}, "zero": 0, "empty": []}),
    ],
    ids=["sub", "fields", "extra"],
)
def test_refresh_keeps_every_claim_of_the_caller_and_renews_ours(
    claims: Claims, refresh: Callable[..., str], make: Make, clock: ManualClock
) -> None:
    processor = make(access_token_ttl=60)
    token = processor.create_refresh(claims)
    before = processor.validate(processor.create(claims))
    clock.advance(100)
    after = processor.validate(refresh(processor, token))
    assert (after.iat, after.exp, after.token_type) == (NOW + 100, NOW + 160, "access")
    assert after.jti != before.jti
    for renewed in ("iat", "exp", "jti"):
        setattr(after, renewed, getattr(before, renewed))
    assert after == before


def test_refresh_into_keeps_typed_claims_and_those_that_the_type_does_not_know(make: Make) -> None:
    processor = make()
    member = Member(sub="u1", team="red", tags=("a", "b"), limits={"x": 1}, role=3)
    access = processor.refresh_into(processor.create_refresh(member), Member)
    back = processor.validate_into(access, Member)
    assert (back.team, back.tags, back.limits, back.role) == ("red", ("a", "b"), {"x": 1}, 3)
    wider = processor.refresh_into(processor.create_refresh({"team": "red", "plan": "free"}), Member)
    assert processor.validate(wider).extra == {"team": "red", "plan": "free"}


def test_refresh_reads_claims_as_validate_does(make: Make) -> None:
    processor = make()
    member = Member(team="red", role=3)
    for call, token in (("validate", processor.create(member)), ("refresh", processor.create_refresh(member))):
        with pytest.raises(InvalidToken, match=r"claim 'role' must be str \| None, not int"):
            getattr(processor, call)(token)


def test_a_refused_refresh_leaves_the_token_good_after_exactly_the_wait(
    refresh: Callable[..., str], make: Make, clock: ManualClock
) -> None:
    processor = make(enable_rate_limit=True, rate_limit_rate=1, rate_limit_window=60, refresh_token_ttl=120)
    token = processor.create_refresh({"sub": "u1"})
    with pytest.raises(RateLimitExceeded) as caught:
        refresh(processor, token)
    wait_ns = caught.value.decision.retry_after_ns
    assert wait_ns == 60 * 10**9
    clock.advance_ns(wait_ns - 1)
    with pytest.raises(RateLimitExceeded):
        refresh(processor, token)
    clock.advance_ns(1)
    assert processor.validate(refresh(processor, token)).sub == "u1"
    clock.advance(120)
    with pytest.raises(TokenExpired):
        refresh(processor, token)


def test_two_refreshes_at_once_both_succeed_by_default(make: Make) -> None:
    processor = make(enable_rate_limit=True)
    token = processor.create_refresh({"sub": "u1"})
    assert len({processor.refresh(token) for _ in range(5)}) == 5


def test_a_hook_can_stop_a_user_from_refreshing(refresh: Callable[..., str], make: Make) -> None:
    disabled: set[str] = set()

    def hook(claims: RegisteredClaims) -> bool:
        return claims.sub not in disabled

    processor = make(before_issue=hook)
    token = processor.create_refresh({"sub": "u1"})
    assert refresh(processor, token)
    disabled.add("u1")
    with pytest.raises(InvalidClaims, match="before_issue refused"):
        refresh(processor, token)


def test_the_hook_sees_the_claims_as_their_type_and_cannot_change_the_token(make: Make) -> None:
    shown: list[RegisteredClaims] = []

    def hook(claims: Any) -> None:
        shown.append(claims)
        claims.sub = "root"

    processor = make(before_issue=hook, audience=["api"])
    token = processor.create({"sub": "u1", "plan": "free"})
    refreshed = processor.refresh(processor.create_refresh(Claims(sub="u1", aud=["api", "web"])))
    processor.refresh_into(processor.create_refresh(Member(sub="u1", team="red")), Member)
    assert [type(claims) for claims in shown] == [Claims, Claims, Claims, Member, Member]
    assert shown[0] == Claims(sub="root", extra={"plan": "free"})
    assert [processor.validate(issued).sub for issued in (token, refreshed)] == ["u1", "u1"]
