"""Keys: whom a set of claims charges, and how a key is kept."""

import copy
import pickle
from collections import UserDict
from dataclasses import dataclass

import pytest

from jwtlimit_core import Claims, InvalidClaims, RegisteredClaims, resolve_key
from jwtlimit_core.keys import LONGEST_KEY, SERVICE_KEY, stored_key


@dataclass(kw_only=True)
class Device(RegisteredClaims):
    key: object = "device:9"

    def rate_limit_key(self) -> object:
        if isinstance(self.key, Exception):
            raise self.key
        return self.key


class Session(dict[str, object]):
    def rate_limit_key(self) -> str:
        return "session:1"


@dataclass(kw_only=True)
class Numbered(RegisteredClaims):
    user_id: int = 7


@pytest.mark.parametrize(
    ("claims", "key"),
    [
        (Claims(sub="user:123", user_id="9"), "user:123"),
        (Claims(sub="", user_id="9"), "9"),
        (Claims(user_id="9"), "9"),
        (Claims(username="alice"), ""),
        ({"sub": "user:123", "user_id": "9"}, "user:123"),
        ({"sub": None, "user_id": "9"}, "9"),
        (UserDict({"user_id": "9"}), "9"),
        ({"user_id": ""}, ""),
        ({}, ""),
        (Session(user_id="9"), "9"),
        (Session(), "session:1"),
        (Device(sub="d1"), "d1"),
        (Device(), "device:9"),
        (Device(key=""), ""),
        (Device(key=None), ""),
        (Numbered(), ""),  # user_id is known of Claims and mappings only
        (Claims(sub=" Alice "), " Alice "),
        (Claims(sub="\ud800"), "\ud800"),
    ],
    ids=repr,
)
def test_resolve_key_of_claims_takes_the_first_that_is_not_empty(claims: RegisteredClaims, key: str) -> None:
    assert resolve_key(claims) == key


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        (Claims(sub=7), "sub must be a str, not int: use str()"),
        ({"sub": 0}, "sub must be a str, not int: use str()"),
        ({"user_id": [1]}, "user_id must be a str, not list"),
        (Device(key=7), "rate_limit_key() must be a str, not int"),
        (Device(key=0), "rate_limit_key() must be a str, not int"),
        (Device(key=b""), "rate_limit_key() must be a str, not bytes"),
    ],
    ids=repr,
)
def test_resolve_key_of_another_type_raises_invalid_claims_and_is_never_no_limit(claims: RegisteredClaims, says: str) -> None:
    with pytest.raises(InvalidClaims) as caught:
        resolve_key(claims)
    assert says in str(caught.value)


def test_resolve_key_of_a_raising_hook_passes_its_exception() -> None:
    error = LookupError("no device")
    with pytest.raises(LookupError) as caught:
        resolve_key(Device(key=error))
    assert caught.value is error


def test_stored_key_up_to_the_bound_is_the_key_and_above_a_short_digest() -> None:
    longest = "k" * LONGEST_KEY
    assert stored_key(longest) == longest
    digests = {stored_key(longest + tail) for tail in ("k", "l", "\ud800", "\udc00", "k" * 1_000_000)}
    assert len(digests) == 5
    assert {(type(digest), len(digest)) for digest in digests} == {(bytes, 32)}


def test_service_key_equals_no_text_from_either_side() -> None:
    text = str.__str__(SERVICE_KEY)
    twin = "".join(text)
    assert SERVICE_KEY == SERVICE_KEY
    assert twin != SERVICE_KEY
    assert twin != SERVICE_KEY
    assert not twin == SERVICE_KEY  # noqa: SIM201
    assert {twin: 1}.get(SERVICE_KEY) is None


def test_service_key_pickled_or_copied_is_the_same_one() -> None:
    assert pickle.loads(pickle.dumps(SERVICE_KEY)) is SERVICE_KEY
    assert copy.deepcopy(SERVICE_KEY) is SERVICE_KEY
