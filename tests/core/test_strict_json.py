"""Strict JSON: what is read and written, and that both agree about it."""

import json
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core.strict_json import DEEPEST, dumps, fault, loads_object

names = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(names, inside, max_size=4),
    max_leaves=20,
)


def nested(levels: int) -> object:
    """Return as many lists and objects, by turns, one in the other."""
    value: object = []
    for level in range(levels - 1):
        value = [value] if level % 2 else {"a": value}
    return value


@given(st.dictionaries(names, values, max_size=6))
def test_dumps_of_what_fault_passes_is_read_back_equal(value: dict[str, object]) -> None:
    assert fault(value, "it") == ""
    read = loads_object(dumps(value))
    assert read == value
    assert repr(read) == repr(value)  # 1 and 1.0 and True are equal, and not the same


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_loads_object_of_any_bytes_gives_an_object_that_can_be_written_or_a_value_error(text: bytes) -> None:
    try:
        value = loads_object(text)
    except ValueError:
        return
    assert loads_object(dumps(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"1",
        b'"a"',
        b"null",
        b"{} {}",
        b"{}\x00",
        b'{"a":1,}',
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":-1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":01}',
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{"b":[{"a":1,"a":2}]}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\udc00\\ud800"}',
        b'{"\\ud800":1}',
        b'{"a":"\n"}',
        b'{"a":"\\x"}',
        b"\xef\xbb\xbf{}",
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":"',
        b'{"a":"\\',
        b"{" + b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda text: f"{text[:16]!r}+{len(text)}",
)
def test_loads_object_of_what_two_readers_take_differently_raises_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  what was found first depends on the reader
        loads_object(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b" {\t}\r\n", {}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a":"[[[[\\"{{{{"}', {"a": '[[[["{{{{'}),
        (b'{"a":-0.0}', {"a": -0.0}),
        (b'{"a":' + b"9" * 4000 + b"}", {"a": 10**4000 - 1}),
        (json.dumps({"a": "[" * 100 + '"' + "{" * 100, "\\": "\\"}).encode(), {"a": "[" * 100 + '"' + "{" * 100, "\\": "\\"}),
        (b'{"a":[' + b"[]," * 100 + b"{}]}", {"a": [*([[]] * 100), {}]}),
    ],
    ids=lambda part: None if isinstance(part, dict) else f"{part[:16]!r}+{len(part)}",
)
def test_loads_object_of_one_meaning_reads_it(text: bytes, value: dict[str, object]) -> None:
    assert loads_object(text) == value


def test_depth_is_bounded_alike_in_reading_and_in_writing() -> None:
    deepest = {"a": nested(DEEPEST - 1), "b": nested(DEEPEST - 1)}
    assert fault(deepest["a"], "a") == ""
    assert loads_object(dumps(deepest)) == deepest
    too_deep = {"a": nested(DEEPEST)}
    assert "32 levels" in fault(too_deep["a"], "a")
    with pytest.raises(ValueError, match="32 levels"):
        loads_object(json.dumps(too_deep).encode())


def circle() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (UUID(int=1), "x is a UUID"),
        (Decimal("1.5"), "x is a Decimal"),
        ({1, 2}, "x is a set"),
        (b"a", "x is a bytes"),
        (object, "x is a type"),
        (float("nan"), "x is nan"),
        (float("-inf"), "x is -inf"),
        ([1, {"a": UUID(int=1)}], "x[1]['a'] is a UUID"),
        ({1: "a"}, "x has a name that is no str, but a int"),
        ({None: "a"}, "a NoneType"),
        ([{10**5000: "a"}], "x[0] has a name"),  # a number that cannot even be shown
        (circle(), "32 levels"),
    ],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_fault_of_what_json_cannot_carry_says_where_and_what(value: object, says: str) -> None:
    assert says in fault(value, "x")


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\ud800": 1}, {"a": 10**5000}], ids=["text", "name", "number"])
def test_dumps_of_what_cannot_be_read_back_raises_value_error(value: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  what was found first depends on the reader
        dumps(value)
