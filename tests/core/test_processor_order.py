"""The order of an issuing call, and that what fails for another reason than the limit is not charged."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from jwtlimit_core import Claims, InvalidClaims, RateLimiter, RegisteredClaims, TokenError
from jwtlimit_core.testing import ManualClock

NOW = 1_900_000_000

Make = Callable[..., Any]


@dataclass(kw_only=True)
class Device(RegisteredClaims):
    device: str = "d1"
    key: object = "device:1"

    def validate(self) -> None:
        if self.device == "stolen":
            raise LookupError("stolen")

    def rate_limit_key(self) -> object:
        if self.key == "raise":
            raise LookupError("no device")
        return self.key


@dataclass(kw_only=True)
class Required(RegisteredClaims):
    tenant: int


@pytest.fixture
def limiter(clock: ManualClock) -> RateLimiter:
    return RateLimiter(5, 60, name="issue", clock=clock)


def left(limiter: RateLimiter, key: str = "u1") -> int:
    return limiter.peek(key).remaining


def test_the_order_is_claims_then_hook_then_limit(make: Make, provider: Make) -> None:
    steps: list[str] = []

    @dataclass(kw_only=True)
    class Noted(RegisteredClaims):
        def validate(self) -> None:
            steps.append("claims")

        def rate_limit_key(self) -> str:
            steps.append("key")
            return "k"

    def allow(_key: str) -> bool:
        steps.append("limit")
        return True

    processor = make(rate_limiter=provider(allow), before_issue=lambda _claims: steps.append("hook"))
    token = processor.create_refresh(Noted())
    assert steps == ["claims", "key", "hook", "limit"]
    processor.refresh_into(token, Noted)
    assert steps[4:] == ["claims", "key", "hook", "limit"]


@pytest.mark.parametrize("method", ["create", "create_refresh"])
@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"sub": "u1", "id": UUID(int=1)}, InvalidClaims),
        ({"sub": "u1", "when": datetime(2030, 1, 1)}, InvalidClaims),  # noqa: DTZ001
        ({"sub": "u1", "nbf": datetime(2030, 1, 1)}, InvalidClaims),  # noqa: DTZ001
        ({"sub": "u1", "text": "\ud800"}, InvalidClaims),
        pytest.param({"sub": "u1", "number": 10**5000}, InvalidClaims, id="too-long-to-print"),
        ({"sub": "u1", "large": "x" * 8192}, InvalidClaims),
        ({"sub": "u1", "iss": "evil"}, InvalidClaims),
        ({"sub": 1, "user_id": "u1"}, InvalidClaims),
        (Claims(sub="u1", extra={"role": "admin"}), InvalidClaims),
        (Claims(sub="u1", username="disabled"), InvalidClaims),
        (Claims(sub="u1", username="raise"), LookupError),
        (Claims(sub="u1", username="unclear"), TypeError),
        (Device(sub="u1", device="stolen"), InvalidClaims),
        (Device(key="raise"), LookupError),
        (Device(key=7), InvalidClaims),
        ({"sub": "normalize:raise"}, LookupError),
        ({"sub": "normalize:"}, InvalidClaims),
        ({"sub": "normalize:none"}, TypeError),
        (["sub", "u1"], TypeError),
        (None, TypeError),
    ],
    ids=lambda part: None if isinstance(part, type) else f"{part!r:.40}",
)
def test_what_fails_for_another_reason_than_the_limit_is_not_charged(
    method: str, claims: Any, error: type[Exception], make: Make, limiter: RateLimiter
) -> None:
    def hook(shown: RegisteredClaims) -> Any:
        if (name := getattr(shown, "username", None)) == "raise":
            raise LookupError("no such user")
        return {"disabled": False, "unclear": 0}.get(name)

    def normalize(key: str) -> Any:
        if key == "normalize:raise":
            raise LookupError("no such key")
        return None if key == "normalize:none" else key.removeprefix("normalize:")

    processor = make(rate_limiter=limiter, before_issue=hook, normalize_key=normalize)
    for _ in range(6):
        with pytest.raises(error) as caught:
            getattr(processor, method)(claims)
        assert type(caught.value) is error  # that of a hook unchanged
    assert (left(limiter), len(limiter)) == (5, 0)
    assert processor.create({"sub": "u1"})
    assert left(limiter) == 4


GOOD = {"sub": "u1", "iss": "jwt-service", "aud": "api", "exp": NOW + 60, "token_type": "refresh", "jti": "1"}


@pytest.mark.parametrize(
    ("change", "claims_type", "error"),
    [
        ({"exp": NOW - 10}, Claims, TokenError),
        ({"nbf": NOW + 10}, Claims, TokenError),
        ({"token_type": "access"}, Claims, TokenError),
        ({"iss": "evil"}, Claims, TokenError),
        ({"aud": "web"}, Claims, TokenError),
        ({"sub": 1}, Claims, TokenError),
        ({"user_id": 1}, Claims, TokenError),
        ({"sub": "x", "pad": "p" * 5950}, Claims, TokenError),  # the new token would be longer than what is read
        ({"username": "disabled"}, Claims, InvalidClaims),
        ({"device": "stolen"}, Device, InvalidClaims),
        ({"device": 7}, Device, TokenError),
        ({}, Required, TokenError),
        ({"tenant": "x"}, Required, TokenError),
        ({}, dict, TypeError),
        ({}, None, TypeError),
    ],
    ids=lambda part: None if isinstance(part, type) else f"{part!r:.40}",
)
def test_a_refresh_that_fails_for_another_reason_than_the_limit_is_not_charged(
    change: Any, claims_type: Any, error: type[Exception], make: Make, forge: Make, limiter: RateLimiter
) -> None:
    def hook(shown: RegisteredClaims) -> bool:
        return getattr(shown, "username", None) != "disabled"

    processor = make(rate_limiter=limiter, audience="api", before_issue=hook)
    token = forge(GOOD | change)
    with pytest.raises(error):
        processor.refresh_into(token, claims_type)
    if claims_type is Claims:
        with pytest.raises(error):
            processor.refresh(token)
    assert len(limiter) == 0
    assert processor.refresh(forge(GOOD))
    assert left(limiter) == 4
