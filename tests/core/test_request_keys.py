"""Whom a request is charged to, for every source of a key."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core import SERVICE_KEY, Claims, ConfigError, Engine, InvalidToken, Limit
from jwtlimit_core.settings import build_engine
from jwtlimit_core.testing import ManualClock
from views import View, admit, form, passed, passes

SECRET = "s" * 32
CLOCK = ManualClock()


@pytest.fixture
def engine() -> Engine:
    return build_engine({"SECRET_KEY": SECRET, "CLOCK": CLOCK})


def key_of(engine: Engine, view: View, key: Any) -> str | None:
    """Return the key that a limit by *key* charges for *view*, None where it does not apply."""
    charges = admit(engine, view, Limit("any", "100/s", key=key, refund_when=lambda *_: False)).charges
    return charges[0].key if charges else None


def sent(name: str, *values: str) -> View:
    return View(headers={name: list(values)})


def ann_form() -> View:
    return form("user=ann&page=2")


def json_body(text: str, content_type: str = "application/json") -> View:
    return View(headers={"Content-Type": content_type}, content=text.encode())


@pytest.mark.parametrize(
    ("view", "key", "expected"),
    [
        (View(), "ip", "ip=192.0.2.1"),
        (View(peer="2001:db8::1"), "ip", "ip=2001:db8::/64"),
        (sent("X-Key", "k1"), "header:x-key", "header:x-key=k1"),
        (sent("x-key", "k1"), "header:X-KEY", "header:x-key=k1"),
        (View(), "header:x-key", "ip=192.0.2.1"),
        (sent("X-Key", ""), "header:x-key", "ip=192.0.2.1"),
        (sent("X-Key", "k1", "k2"), "header:x-key", "ip=192.0.2.1"),
        (ann_form(), "field:user", "field:user=ann"),
        (ann_form(), "field:User", "ip=192.0.2.1"),
        (json_body('{"user": "ann"}'), "field:user", "field:user=ann"),
        (View(), "field:user", "ip=192.0.2.1"),
        (View(name="7"), "user", "user=7"),
        (View(), "user", None),
        (View(name=""), "user", None),
        (View(name="ann"), lambda view: view.name, "function=ann"),
        (View(), lambda view: view.name, None),
        (ann_form(), ("ip", "field:user"), "ip=192.0.2.1&field:user=ann"),
        (View(), ("ip", "field:user"), "ip=192.0.2.1&ip=192.0.2.1"),
        (View(name="7"), ("user", "header:x"), "user=7&ip=192.0.2.1"),
        (View(), ("user", "ip"), None),
        (View(name="a&b%c"), ("user", "ip"), "user=a%26b%25c&ip=192.0.2.1"),
        (View(name="a&b%c"), "user", "user=a&b%c"),
        (View(name="a"), (lambda view: view.name, lambda view: view.method), "function=a&function1=POST"),
    ],
)
def test_key_reads_source_and_value(engine: Engine, view: View, key: Any, expected: str | None) -> None:
    assert key_of(engine, view, key) == expected


def test_global_key_is_the_one_of_the_whole_service(engine: Engine) -> None:
    assert key_of(engine, View(), "global") is SERVICE_KEY
    limit = Limit("all", "3/m", key="global")
    assert sum(passes(engine, View(peer=f"192.0.2.{number}"), limit) for number in range(9)) == 3


texts = st.text(alphabet="ab&%=:\x00é", min_size=1, max_size=6)


@given(first=st.tuples(texts, texts), second=st.tuples(texts, texts))
def test_keys_of_two_sources_meet_only_where_both_values_do(first: tuple[str, str], second: tuple[str, str]) -> None:
    engine = build_engine({})
    keys = [key_of(engine, View(name=user, headers={"x": [header]}), ("user", "header:x")) for user, header in (first, second)]
    assert (keys[0] == keys[1]) is (first == second)


@given(value=st.text(max_size=20))
def test_value_that_the_client_writes_is_never_taken_for_an_address(value: str) -> None:
    engine = build_engine({})
    by_json = View(headers={"Content-Type": "application/json"}, content=json.dumps({"x": value}).encode())
    found = [key_of(engine, View(headers={"x": [value]}), "header:x"), key_of(engine, by_json, "field:x")]
    try:
        value.encode()
        assert found == ([f"header:x={value}", f"field:x={value}"] if value else ["ip=192.0.2.1"] * 2)
    except UnicodeEncodeError:  # half of a surrogate pair is no text in JSON
        assert found == [f"header:x={value}", "ip=192.0.2.1"]


# The subject of a bearer token -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER   "])
def test_subject_is_that_of_a_verified_bearer_token(engine: Engine, scheme: str) -> None:
    token = engine.processor().create(Claims(sub="ann"))
    view = View(headers={"Authorization": scheme + token})
    assert key_of(engine, view, "subject") == "subject=ann"
    claims = engine.admission(view).claims
    assert claims is not None
    assert claims.sub == "ann"


Forge = Callable[[Engine], str]


@pytest.mark.parametrize(
    "authorization",
    [
        lambda engine: "",
        lambda engine: "Bearer",
        lambda engine: "Bearer ",
        lambda engine: "Bearer garbage",
        lambda engine: "Basic " + engine.processor().create(Claims(sub="ann")),
        lambda engine: "Bearer " + engine.processor().create_refresh(Claims(sub="ann")),
        lambda engine: "Bearer " + engine.processor().create(Claims(sub="ann"))[:-2] + "AA",
        lambda engine: "Bearer " + engine.processor().create(Claims(role="nobody")),
    ],
)
def test_subject_of_no_accepted_token_skips_the_limit(engine: Engine, authorization: Forge) -> None:
    view = View(headers={"Authorization": authorization(engine)})
    assert key_of(engine, view, "subject") is None
    assert passed(engine, view, Limit("me", "1/m", key="subject")) == 10


def test_subject_without_a_key_to_verify_with_is_a_config_error_that_charges_nothing() -> None:
    engine = build_engine({"CLOCK": CLOCK})
    site = Limit("site", "1/m")
    with pytest.raises(ConfigError, match="limit 'me' is by subject: set SECRET_KEY"):
        admit(engine, View(), site, Limit("me", "1/m", key="subject"))
    assert passes(engine, View(), site)


def test_claims_are_verified_once_at_the_first_look(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    view = View(headers={"Authorization": "Bearer " + engine.processor().create(Claims(sub="ann"))})
    admission, other = engine.admission(view), engine.admission(view)
    assert admission.claims is admission.claims is not None
    monkeypatch.setattr(type(engine.processor()), "validate", lambda *_: (_ for _ in ()).throw(InvalidToken("read again")))
    assert admission.claims is not None
    assert other.claims is None


def test_claims_without_a_key_to_verify_with_are_none() -> None:
    token = build_engine({"SECRET_KEY": SECRET}).processor().create(Claims(sub="ann"))
    assert build_engine({}).admission(View(headers={"Authorization": f"Bearer {token}"})).claims is None


def test_claims_are_known_after_the_request_was_let_go_of(engine: Engine) -> None:
    view = View(headers={"Authorization": f"Bearer {engine.processor().create(Claims(sub='u1'))}"})
    admission = engine.admission(view)
    for _ in range(2):
        admission.release()
    view.headers.clear()
    assert admission.claims is not None
    assert admission.claims.sub == "u1"
