"""Processors: what is issued is what was asked for, and validates at once."""

import copy
import time
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core import (
    Claims,
    Config,
    ConfigError,
    InvalidAudience,
    InvalidClaims,
    InvalidIssuer,
    InvalidToken,
    Processor,
    ProcessorClosed,
    RegisteredClaims,
    TokenTypeMismatch,
)
from jwtlimit_core.testing import ManualClock
from jwtlimit_core.tokens import ALGORITHMS

SECRET = bytes(range(64))
NOW = 1_900_000_000  # of the clock fixture, which stands a nanosecond before the next second

Make = Callable[..., Any]


@dataclass(kw_only=True)
class Member(RegisteredClaims):
    team: str
    tags: tuple[str, ...] = ()


def read(token: str) -> dict[str, Any]:
    """Return the payload of *token* as PyJWT reads it."""
    return jwt.decode(token, options={"verify_signature": False})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_create_returns_validate_accepts_at_once_for_every_algorithm(algorithm: str, make: Make, keys: Any) -> None:
    processor = make(algorithm=algorithm, **keys[algorithm], leeway=0)
    claims = processor.validate(processor.create(Claims(sub="u1", scopes=["read"])))
    assert (claims.sub, claims.scopes, claims.token_type) == ("u1", ["read"], "access")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati"])
@pytest.mark.parametrize("ttl", [0.001, 0.5, 1, 1.5, timedelta(milliseconds=1), timedelta(days=30)], ids=str)
def test_what_create_returns_validate_accepts_at_once_in_every_time_zone_and_for_every_ttl(
    zone: str, ttl: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    processor = make(access_token_ttl=ttl, leeway=0)
    token = processor.create(Claims(sub="u1", nbf=datetime.fromtimestamp(NOW, UTC)))
    monkeypatch.undo()
    time.tzset()
    claims = processor.validate(token)
    assert (claims.iat, claims.nbf) == (NOW, NOW)
    assert claims.exp >= NOW + 1


def test_create_sets_the_claims_that_are_ours_and_keeps_the_others(make: Make) -> None:
    processor = make(issuer="auth", access_token_ttl=60, refresh_token_ttl=3600.5)
    asked = Claims(sub="u1", nbf=5, role="admin", exp=1, iat=1, jti="mine", token_type="refresh", extra={"plan": None})
    access, refresh = read(processor.create(asked)), read(processor.create_refresh(asked))
    kept = {"sub": "u1", "nbf": 5, "role": "admin", "plan": None, "iss": "auth", "iat": NOW}
    assert access == kept | {"exp": NOW + 60, "token_type": "access", "jti": access["jti"]}
    assert refresh == kept | {"exp": NOW + 3601, "token_type": "refresh", "jti": refresh["jti"]}
    assert len({access["jti"], refresh["jti"], "mine"}) == 3
    assert all(len(bytes.fromhex(payload["jti"])) == 16 for payload in (access, refresh))


@pytest.mark.parametrize(
    "given_claims",
    [
        Claims(sub="u1", permissions=["a"], extra={"deep": {"list": [1]}}),
        Member(sub="u1", team="t", tags=("a",)),
        {"sub": "u1", "deep": {"list": [1]}, "nbf": datetime(2030, 1, 1, tzinfo=UTC), "iat": None},
        UserDict({"sub": "u1"}),
    ],
    ids=lambda claims: type(claims).__name__,
)
@pytest.mark.parametrize("method", ["create", "create_refresh"])
def test_issuing_leaves_the_callers_object_as_it_was(method: str, given_claims: Any, make: Make) -> None:
    before = copy.deepcopy(given_claims)

    def hook(shown: RegisteredClaims) -> None:
        shown.sub, shown.iss = "changed", "changed"

    token = getattr(make(before_issue=hook, audience=["api"]), method)(given_claims)
    assert given_claims == before
    assert read(token)["sub"] == "u1"


def test_validate_into_gives_an_instance_of_the_type(make: Make) -> None:
    processor = make()
    token = processor.create(Member(sub="u1", team="red", tags=("a", "b")))
    member = processor.validate_into(token, Member)
    assert (type(member), member.sub, member.team, member.tags) == (Member, "u1", "red", ("a", "b"))
    assert processor.validate(token).extra == {"team": "red", "tags": ["a", "b"]}


def test_access_and_refresh_tokens_are_not_interchangeable(make: Make) -> None:
    processor = make()
    access, refresh = processor.create({"sub": "u1"}), processor.create_refresh({"sub": "u1"})
    for call in (
        lambda: processor.refresh(access),
        lambda: processor.refresh_into(access, Claims),
        lambda: processor.validate(refresh),
        lambda: processor.validate_into(refresh, Claims),
    ):
        with pytest.raises(TokenTypeMismatch):
            call()


def test_a_token_without_a_type_is_neither(make: Make, forge: Make) -> None:
    processor = make()
    for payload in ({}, {"token_type": "Access"}, {"token_type": ""}):
        token = forge({"iss": "jwt-service", "exp": NOW + 60, **payload})
        for call in (processor.validate, processor.refresh):
            with pytest.raises(TokenTypeMismatch):
                call(token)


@pytest.mark.parametrize("claims", [Claims(iss="evil"), {"iss": "evil"}, {"iss": ""}, {"iss": "JWT-service"}], ids=repr)
def test_create_of_a_foreign_issuer_raises_invalid_claims(claims: Any, make: Make) -> None:
    with pytest.raises(InvalidClaims, match="'iss' must be the issuer of the configuration, 'jwt-service'"):
        make().create(claims)
    assert make().create({"iss": "jwt-service"})


@pytest.mark.parametrize("issuer", ["evil", "", "JWT-service", None])
def test_validate_of_a_foreign_issuer_raises_invalid_issuer(issuer: str | None, make: Make, forge: Make) -> None:
    token = forge({"exp": NOW + 60, "token_type": "access"} | ({} if issuer is None else {"iss": issuer}))
    with pytest.raises(InvalidIssuer):
        make().validate(token)


@pytest.mark.parametrize(
    ("audience", "written", "read_back"),
    [
        (None, None, None),
        (None, "any", "any"),
        (None, ["a", "b"], ["a", "b"]),
        ("api", None, "api"),
        ("api", "api", "api"),
        ("api", ["web", "api"], ["web", "api"]),
        (("api", "web"), None, ["api", "web"]),
        (["api", "web"], "web", "web"),
    ],
)
def test_aud_in_every_form_goes_through_create_validate_and_refresh(
    audience: Any, written: Any, read_back: Any, make: Make
) -> None:
    processor = make(audience=audience)
    claims = Claims(sub="u1", aud=written)
    assert processor.validate(processor.create(claims)).aud == read_back
    assert processor.validate(processor.refresh(processor.create_refresh(claims))).aud == read_back


@pytest.mark.parametrize("aud", ["web", ["web"], [], "API", "ap", "apis", None])
def test_an_audience_that_is_not_ours_raises_invalid_audience(aud: Any, make: Make, forge: Make) -> None:
    payload = {"exp": NOW + 60, "iss": "jwt-service"} | ({} if aud is None else {"aud": aud})
    processor = make(audience="api")
    with pytest.raises(InvalidAudience):
        processor.validate(forge(payload | {"token_type": "access"}))
    with pytest.raises(InvalidAudience):
        processor.refresh(forge(payload | {"token_type": "refresh"}))


def test_a_processor_with_a_verification_key_alone_only_validates(make: Make, keys: Any) -> None:
    signer = make(algorithm="ES256", **keys["ES256"])
    reader = make(algorithm="ES256", verification_key=keys["ES256"]["signing_key"].public_key())
    access, refresh = signer.create({"sub": "u1"}), signer.create_refresh({"sub": "u1"})
    assert reader.validate(access).sub == "u1"
    for call in (
        lambda: reader.create({"sub": "u1"}),
        lambda: reader.create_refresh({"sub": "u1"}),
        lambda: reader.refresh(refresh),
        lambda: reader.refresh_into(refresh, Claims),
    ):
        with pytest.raises(ConfigError, match="only validates: give it a signing_key"):
            call()


def test_a_closed_processor_raises_processor_closed_before_anything_else(make: Make) -> None:
    processor = make()
    token = processor.create_refresh({"sub": "u1"})
    processor.close()
    processor.close()
    for call in (
        lambda: processor.create(None),
        lambda: processor.create_refresh(None),
        lambda: processor.refresh(token),
        lambda: processor.refresh_into("", None),
        lambda: processor.validate(None),
        lambda: processor.validate_into("", None),
    ):
        with pytest.raises(ProcessorClosed):
            call()


@pytest.mark.parametrize("token", [None, b"a.b.c", 7, ["a.b.c"]])
@pytest.mark.parametrize("method", ["validate", "refresh"])
def test_a_token_that_is_no_str_raises_type_error(method: str, token: Any, make: Make) -> None:
    with pytest.raises(TypeError, match="token must be a str"):
        getattr(make(), method)(token)


def test_a_changed_registry_of_pyjwt_changes_nothing(make: Make) -> None:
    class Gullible(type(jwt.PyJWS().get_algorithm_by_name("HS256"))):  # type: ignore[misc]
        def verify(self, *_: Any) -> bool:
            return True

    before = make()
    good = before.create({"sub": "u1"})
    original = jwt.get_algorithm_by_name("HS256")
    jwt.unregister_algorithm("HS256")
    try:
        jwt.register_algorithm("HS256", Gullible(Gullible.SHA256))
        for processor in (before, make()):
            assert processor.validate(good).sub == "u1"
            with pytest.raises(InvalidToken, match="the signature is wrong"):
                processor.validate(good[:-2] + "AA")
    finally:
        jwt.unregister_algorithm("HS256")
        jwt.register_algorithm("HS256", original)


names = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(names, inside, max_size=4),
    max_leaves=10,
)
OWN = {"sub", "iss", "aud", "exp", "nbf", "iat", "jti", "token_type", *vars(Claims())}


@given(
    st.builds(
        Claims,
        sub=st.none() | names,
        aud=st.none() | names | st.lists(names),
        user_id=st.none() | names,
        permissions=st.lists(names),
        extra=st.dictionaries(names.filter(lambda name: name not in OWN), values, max_size=4),
    )
)
def test_validate_of_what_create_returns_gives_back_every_claim_of_the_caller(claims: Claims) -> None:
    processor = Processor(Config(secret_key=SECRET, max_token_bytes=1_000_000, clock=ManualClock()))
    back = processor.validate(processor.create(claims))
    assert repr(back.extra) == repr(claims.extra)
    for ours in ("iss", "exp", "iat", "jti", "token_type"):
        setattr(back, ours, None)
    assert back == claims
