"""Claims: what they may hold, and the way into a payload and back."""

import copy
import pickle
from collections import UserDict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest

from jwtlimit_core import Claims, InvalidClaims, InvalidToken, RegisteredClaims
from jwtlimit_core.claims import claims_from, payload_of, registered_fault

LATEST = 253_402_300_799


@dataclass(kw_only=True)
class Tenant(RegisteredClaims):
    tenant: str
    level: Literal["free", "paid"] = "free"
    quota: int | None = None
    share: float = 1.0
    active: bool = True
    groups: tuple[str, ...] = ()
    labels: list[str] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    pair: tuple[int, str] | None = None
    anything: Any = None
    bare: dict = field(default_factory=dict)  # type: ignore[type-arg]
    hidden: str = field(default="not a claim", init=False)


FULL = {
    "tenant": "acme",
    "level": "paid",
    "quota": 5,
    "share": 0.5,
    "active": False,
    "groups": ["a", "b"],
    "labels": ["x"],
    "limits": {"a": 1},
    "pair": [1, "x"],
    "anything": [None, {"deep": []}],
    "bare": {"a": [1]},
}


def test_payload_of_claims_leaves_out_what_is_empty_by_default() -> None:
    assert payload_of(Claims(sub="u1")) == {"sub": "u1"}
    assert payload_of(Tenant(tenant="acme")) == {
        "tenant": "acme",
        "level": "free",
        "share": 1.0,
        "active": True,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("quota", 0), ("anything", 0), ("anything", False), ("anything", ""), ("anything", []), ("anything", {})],
)
def test_payload_of_a_falsy_value_that_is_not_the_empty_default_keeps_it(name: str, value: object) -> None:
    assert payload_of(Tenant(tenant="acme", **{name: value}))[name] == value


def test_claims_from_a_payload_fills_every_kind_of_field_and_back() -> None:
    tenant = claims_from({"sub": "u1", "unknown": 1, **FULL}, Tenant)
    assert (tenant.groups, tenant.labels, tenant.pair) == (("a", "b"), ["x"], (1, "x"))
    assert tenant.hidden == "not a claim"
    assert claims_from(payload_of(tenant), Tenant) == tenant


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tenant", None),
        ("tenant", 7),
        ("level", "gold"),
        ("level", []),
        ("quota", "5"),
        ("quota", True),
        ("quota", 5.0),
        ("share", "0.5"),
        ("share", False),
        ("active", 1),
        ("active", None),
        ("groups", "ab"),
        ("groups", [1]),
        ("labels", {"x": 1}),
        ("labels", None),
        ("limits", {"a": "1"}),
        ("limits", []),
        ("pair", "x"),
        ("bare", [1]),
    ],
)
def test_a_claim_of_another_type_than_its_field_is_refused_in_both_directions(name: str, value: object) -> None:
    claims = FULL | {name: value}
    with pytest.raises(InvalidToken, match=f"claim '{name}' must be "):
        claims_from(claims, Tenant)
    with pytest.raises(InvalidClaims, match=f"claim '{name}' must be "):
        payload_of(Tenant(**claims))


def test_claims_from_a_payload_without_a_required_field_raises_invalid_token() -> None:
    with pytest.raises(InvalidToken, match="'tenant'") as caught:
        claims_from({"sub": "u1"}, Tenant)
    assert isinstance(caught.value.__cause__, TypeError)


def test_claims_from_a_payload_that_post_init_refuses_raises_invalid_token_with_its_cause() -> None:
    @dataclass(kw_only=True)
    class Even(RegisteredClaims):
        number: int = 0

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    with pytest.raises(InvalidToken, match="do not make a Even: odd") as caught:
        claims_from({"number": 3}, Even)
    assert isinstance(caught.value.__cause__, ValueError)


def test_claims_collect_in_extra_what_has_no_field() -> None:
    claims = Claims(sub="u1", extra={"plan": "free", "nothing": None, "extra": {"extra": 1}})
    payload = payload_of(claims)
    assert payload == {"sub": "u1", "plan": "free", "nothing": None, "extra": {"extra": 1}}
    assert claims_from(payload, Claims) == claims


@pytest.mark.parametrize("name", ["sub", "exp", "token_type", "role", "permissions"])
def test_extra_that_holds_the_name_of_a_field_is_refused(name: str) -> None:
    with pytest.raises(InvalidClaims, match=f"extra may not hold '{name}'"):
        payload_of(Claims(extra={name: "x"}))


@pytest.mark.parametrize("mapping", [dict, UserDict], ids=lambda kind: kind.__name__)
def test_payload_of_a_mapping_keeps_its_claims_and_leaves_the_mapping_as_it_was(mapping: type) -> None:
    given = mapping({"sub": "u1", "nbf": None, "plan": None, "roles": ["a"], "permissions": []})
    before = copy.deepcopy(given)
    payload = payload_of(given)
    assert payload == {"sub": "u1", "plan": None, "roles": ["a"], "permissions": []}
    payload["sub"] = "u2"
    assert given == before


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"sub": 7}, "'sub' must be a str, not int: use str()"),
        (Claims(sub=UUID(int=1)), "'sub' must be a str, not UUID: use str()"),  # type: ignore[arg-type]
        ({"jti": 1}, "'jti' must be a str"),
        ({"iss": ["a"]}, "'iss' must be a str"),
        ({"aud": 1}, "'aud' must be a str or a list of str, not int"),
        ({"aud": ["a", None]}, "'aud' must be a str or a list of str"),
        ({"aud": {"a": 1}}, "'aud' must be a str or a list of str, not dict"),
        ({"exp": True}, "'exp' must be a number of seconds since the epoch, not bool"),
        ({"iat": "1"}, "'iat' must be a number"),
        ({"nbf": float("nan")}, "'nbf' must be seconds since the epoch, from 0"),
        ({"nbf": -1}, "from 0 to the year 9999"),
        ({"nbf": LATEST + 1}, "from 0 to the year 9999"),
        ({"exp": 10**5000}, "from 0 to the year 9999"),
        ({"nbf": datetime(2030, 1, 1)}, "without a time zone"),  # noqa: DTZ001
        ({"nbf": datetime(1969, 12, 31, tzinfo=UTC)}, "from 0 to the year 9999"),
        ({"user_id": 7}, "claim 'user_id' must be str | None, not int"),
        ({"permissions": None}, "claim 'permissions' must be list[str], not null"),
        ({1: "a"}, "the name of a claim must be a str, not int"),
        ({10**5000: "a"}, "the name of a claim must be a str, not int"),
        ({"when": datetime(2030, 1, 1, tzinfo=UTC)}, "claim 'when' is a datetime, which JSON cannot carry"),
        ({"a": Decimal(1)}, "claim 'a' is a Decimal"),
        ({"a": [{"b": {1, 2}}]}, "claim 'a'[0]['b'] is a set"),
        ({"a": {7: 1}}, "claim 'a' has a name that is no str"),
        ({"a": float("inf")}, "claim 'a' is inf"),
        (Claims(permissions={"a"}), "claim 'permissions' is a set"),  # type: ignore[arg-type]
        (Claims(extra=[1]), "extra must be a mapping of claims by name, not list"),  # type: ignore[arg-type]
        (Claims(extra={1: 2}), "the name of a claim must be a str"),  # type: ignore[dict-item]
    ],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_payload_of_what_cannot_be_signed_raises_invalid_claims_that_says_why(claims: Claims, says: str) -> None:
    with pytest.raises(InvalidClaims) as caught:
        payload_of(claims)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        (datetime(2030, 1, 1, tzinfo=UTC), 1_893_456_000),
        (datetime(2030, 1, 1, 5, tzinfo=timezone(timedelta(hours=5))), 1_893_456_000),
        (datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), 1.5),
        (LATEST, LATEST),
        (0, 0),
    ],
)
def test_payload_of_a_date_gives_seconds_since_the_epoch(date: datetime | int, seconds: float) -> None:
    given = Claims(nbf=date)
    written = payload_of(given)["nbf"]
    assert (written, type(written)) == (seconds, type(seconds))
    assert given.nbf is date


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({"sub": None}, "'sub'"),
        ({"exp": None}, "'exp'"),
        ({"aud": None}, "'aud' must be a str or a list of str, not null"),
        ({"aud": ["a"], "nbf": [1]}, "'nbf'"),
        ({"sub": "a", "aud": "b", "exp": 1, "nbf": 0.5, "jti": "", "iss": "", "token_type": ""}, ""),
        ({"aud": []}, ""),
    ],
)
def test_registered_fault_names_the_claim_that_is_null_or_of_the_wrong_type(payload: dict[str, object], says: str) -> None:
    assert says in registered_fault(payload)
    assert bool(registered_fault(payload)) == bool(says)


@pytest.mark.parametrize("claims", [None, "sub", 7, [("sub", "u1")], object()])
def test_payload_of_what_are_no_claims_raises_type_error(claims: Any) -> None:
    with pytest.raises(TypeError, match="claims must be a mapping or derive from RegisteredClaims"):
        payload_of(claims)


@pytest.mark.parametrize("claims_type", [None, "Claims", dict, Claims(), list[str]], ids=repr)
def test_claims_from_into_no_claims_type_raises_type_error(claims_type: Any) -> None:
    with pytest.raises(TypeError, match="claims_type must be a dataclass that derives from RegisteredClaims"):
        claims_from({}, claims_type)


def test_claims_survive_pickling() -> None:
    claims = Claims(sub="u1", extra={"a": [1]})
    assert pickle.loads(pickle.dumps(claims)) == claims
