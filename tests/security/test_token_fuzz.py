"""Any text as a token, up to a megabyte and with a good signature, gives a TokenError and nothing else."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jwtlimit_core import Claims, Config, Processor, RateLimiter, RegisteredClaims, TokenError
from jwtlimit_core.testing import ManualClock

SECRET = bytes(range(64))  # that of `forge`
NOW = 1_900_000_000
MEGABYTE = 1_000_000
HANGS_S = 10.0  # a guard, no measure: far above what a megabyte takes when the work grows with the length alone


@dataclass(kw_only=True)
class Typed(RegisteredClaims):
    team: str
    level: Literal["free", "paid"] = "free"
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)


LIMITER = RateLimiter(10**9)
PROCESSORS = [
    Processor(
        Config(
            secret_key=SECRET,
            clock=ManualClock(time_ns=NOW * 10**9),
            max_token_bytes=size,
            rate_limiter=LIMITER,
            before_issue=lambda _claims: None,
        )
    )
    for size in (8192, 2 * 1024 * 1024)
]


def calls(token: str) -> Iterator[Callable[[], object]]:
    """Yield every call that takes a token, with each bound of the length."""
    for processor in PROCESSORS:
        yield lambda processor=processor: processor.validate(token)
        yield lambda processor=processor: processor.validate_into(token, Typed)
        yield lambda processor=processor: processor.refresh(token)
        yield lambda processor=processor: processor.refresh_into(token, Typed)


def assert_refused(token: str) -> None:
    """Every call raises a TokenError, and soon."""
    for call in calls(token):
        start = time.perf_counter()
        with pytest.raises(TokenError):
            call()
        assert time.perf_counter() - start < HANGS_S


def accepted(token: str) -> list[object]:
    """Return what the calls give that do not raise; those that do raise a TokenError."""
    given_back = []
    for call in calls(token):
        try:
            given_back.append(call())
        except TokenError:
            continue
    return given_back


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    assert_refused(text)


@pytest.mark.parametrize("unit", ["a", ".", "=", "eyJ", "\0", "\ud800", "é", "A.", "\U0001f600", " ", "%"])
def test_a_megabyte_of_anything_is_refused_soon(unit: str) -> None:
    assert_refused(unit * (MEGABYTE // len(unit)))
    assert_refused(f"{PROCESSORS[0].create({'sub': 'u1'})}.{unit * (MEGABYTE // len(unit))}")


@settings(max_examples=300)
@given(st.data())
def test_a_real_token_with_one_change_is_refused(data: st.DataObject) -> None:
    issue = data.draw(st.sampled_from([PROCESSORS[0].create, PROCESSORS[0].create_refresh]))
    token = issue({"sub": "u1", "team": "red"})
    assert len(accepted(token)) == 4
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, min(len(token), start + 3)))
    insert = data.draw(st.text(st.characters(codec="latin-1") | st.sampled_from("._-=+/ \n"), max_size=3))
    changed = token[:start] + insert + token[end:]
    if changed != token:
        assert_refused(changed)


GOOD: dict[str, object] = {"iss": "jwt-service", "exp": NOW + 60, "sub": "u1", "team": "red"}


def with_types(payload: dict[str, object]) -> Iterator[bytes]:
    """Yield *payload* as JSON, of an access and of a refresh token."""
    for token_type in ("access", "refresh"):
        yield json.dumps(payload | {"token_type": token_type}).encode()


def test_the_good_payload_is_accepted(forge: Callable[..., str]) -> None:
    for payload in with_types(GOOD):
        assert len(accepted(forge(payload))) == 4


@pytest.mark.parametrize(
    "value", [None, True, [], {}, [None], [[]], {"a": 1}, "x" * 5000, -1, 10**400, 1.5e300, 0, "9999999999"]
)
@pytest.mark.parametrize("name", ["exp", "nbf", "iat", "iss", "sub", "aud", "jti", "token_type", "team", "tags", "user_id"])
def test_a_claim_of_any_type_under_a_good_signature_raises_only_token_errors(
    name: str, value: object, forge: Callable[..., str]
) -> None:
    for payload in with_types(GOOD):
        token = forge(json.loads(payload) | {name: value})
        given_back = accepted(token)
        assert all(isinstance(one, str | Claims | Typed) for one in given_back)
        if name not in {"team", "tags", "user_id"} and isinstance(value, bool | dict | None):
            assert given_back == []


BASE = json.dumps(GOOD)[:-1]
DEEP = 100_000
TEXTS: dict[str, bytes] = {
    "empty": b"",
    "no object": b"[]",
    "null": b"null",
    "text": b'"u1"',
    "number": b"1",
    "only open lists": b"[" * DEEP,
    "only open objects": b'{"a":' * DEEP,
    "lists": f'{BASE},"a":{"[" * DEEP}{"]" * DEEP}}}'.encode(),
    "objects": (f'{BASE},"a":' + '{"a":' * DEEP + "1" + "}" * DEEP + "}").encode(),
    "lists and objects": (f'{BASE},"a":' + '[{"a":' * DEEP + "1" + "}]" * DEEP + "}").encode(),
    "exp of 5,000 digits": f'{BASE},"exp":{"9" * 5000}}}'.encode(),
    "claim of 5,000 digits": f'{BASE},"a":-{"9" * 5000}}}'.encode(),
    "claim of a million digits": f'{BASE},"a":{"9" * MEGABYTE}}}'.encode(),
    "exp of 1e999": b'{"iss":"jwt-service","exp":1e999,"token_type":"access"}',
    "claim of 1e999": f'{BASE},"a":[1e999]}}'.encode(),
    "NaN": f'{BASE},"a":NaN}}'.encode(),
    "exp of NaN": b'{"iss":"jwt-service","exp":NaN,"token_type":"access"}',
    "Infinity": f'{BASE},"a":Infinity}}'.encode(),
    "exp of Infinity": b'{"iss":"jwt-service","exp":Infinity,"token_type":"access"}',
    "-Infinity": f'{BASE},"a":-Infinity}}'.encode(),
    "duplicate exp": f'{BASE},"exp":{NOW + 61}}}'.encode(),
    "duplicate type": f'{BASE},"token_type":"refresh","token_type":"access"}}'.encode(),
    "duplicate by escape": f'{BASE},"\\u0073ub":"u2"}}'.encode(),
    "lone surrogate": f'{BASE},"a":"\\ud800"}}'.encode(),
    "lone surrogate in a name": f'{BASE},"\\udc00":1}}'.encode(),
    "byte order mark": b"\xef\xbb\xbf" + BASE.encode() + b"}",
    "UTF-16": (BASE + "}").encode("utf-16"),
    "UTF-32": (BASE + "}").encode("utf-32"),
    "not UTF-8": BASE.encode() + b',"a":"\xff"}',
    "overlong UTF-8": BASE.encode() + b',"a":"\xc0\x80"}',
    "NUL": BASE.encode() + b',"a":"\0"}',
    "trailing text": f"{BASE}}} x".encode(),
    "two objects": f"{BASE}}}{{}}".encode(),
    "open string": BASE.encode() + b',"a":"' + b"x" * MEGABYTE,
    "open strings": BASE.encode() + b',"a":' + b'"' * MEGABYTE,
    "open escapes": BASE.encode() + b',"a":"' + b"\\" * MEGABYTE,
    "open quoted escapes": BASE.encode() + b',"a":"' + b'\\"' * (MEGABYTE // 2),
    "open brackets and quotes": BASE.encode() + b',"a":' + b'["' * (MEGABYTE // 2),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_hostile_payload_under_a_good_signature_is_refused_soon(text: bytes, forge: Callable[..., str]) -> None:
    for token_type in (b'"access"', b'"refresh"'):
        assert_refused(forge(text.replace(b'{"iss"', b'{"token_type":%b,"iss"' % token_type, 1)))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_hostile_header_under_a_good_signature_is_refused_soon(text: bytes, forge: Callable[..., str]) -> None:
    for payload in with_types(GOOD):
        assert_refused(forge(payload, text.replace(b'{"iss"', b'{"alg":"HS256","iss"', 1)))


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b'"',
        b"{",
        *(b'{"alg":"HS256","x":' + more for more in (b"", b'"', b'["', b"[" + b"[]," * 40, b"[" + b"[]," * 40 + b'"')),
    ],
    ids=lambda start: f"{start[-24:]!r}",
)
@pytest.mark.parametrize(
    "unit", [b'"', b"[", b"{", b"\\", b'\\"', b'"[', b'["]', b'{"', b"[]", b",", b'"",', b"0", b" "], ids=repr
)
def test_a_megabyte_of_header_is_read_in_linear_time(start: bytes, unit: bytes, forge: Callable[..., str]) -> None:
    token = forge(b"{}", start + unit * (MEGABYTE // len(unit)))
    began = time.perf_counter()
    with pytest.raises(TokenError):
        PROCESSORS[1].validate(token)
    assert time.perf_counter() - began < HANGS_S


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=10,
)


@given(
    header=st.dictionaries(st.sampled_from(["alg", "typ", "crit", "kid", "jwk", "x"]), json_values | st.just("HS256")),
    payload=st.dictionaries(st.sampled_from([*GOOD, "nbf", "iat", "aud", "jti", "tags", "level", "role"]), json_values),
)
def test_any_json_under_a_good_signature_raises_only_token_errors(
    header: dict[str, object], payload: dict[str, object], forge: Callable[..., str]
) -> None:
    for token_type in ("access", "refresh"):
        good = GOOD | {"token_type": token_type}
        assert all(isinstance(one, str | Claims | Typed) for one in accepted(forge(good | payload)))
        if accepted(forge(good, header)):
            assert header["alg"] == "HS256"
            assert "crit" not in header


@given(text=st.binary(max_size=200))
def test_any_bytes_under_a_good_signature_are_refused(text: bytes, forge: Callable[..., str]) -> None:
    assert_refused(forge(text))
    assert_refused(forge(GOOD | {"token_type": "access"}, text))
