"""JSON as tokens need it: one reading for every text, bounded in depth, nothing that another reader would take differently."""

import json
import re
from math import isfinite
from typing import Any, NoReturn

__all__ = ["DEEPEST", "dumps", "fault", "loads_object"]

DEEPEST = 32  # levels of lists and objects, the outermost included

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False).encode
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)  # a string without end runs to the end: linear


def dumps(value: dict[str, Any]) -> bytes:
    """Return the UTF-8 text of *value*, in which `fault` found nothing.

    Raises:
        ValueError: A number is beyond what can be written or read back, or a text is no Unicode.
    """
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair") from None  # without its cause, which holds the whole text


def fault(value: object, where: str, depth: int = 1) -> str:
    """Say what in *value* JSON cannot carry unchanged, ``""`` for nothing.

    Args:
        value: What to look through.
        where: What to call it in the answer.
        depth: The level at which it stands; nothing deeper than `DEEPEST` is looked at.
    """
    if value is None or isinstance(value, str | int):
        return ""
    if isinstance(value, float):
        return "" if isfinite(value) else f"{where} is {value}, which is no JSON number"
    if not isinstance(value, list | tuple | dict):
        return f"{where} is a {type(value).__name__}, which JSON cannot carry: convert it first"
    if depth >= DEEPEST:
        return f"{where} is nested more than {DEEPEST} levels deep"
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                return f"{where} has a name that is no str, but a {type(name).__name__}"
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return next((found for name, item in inside if (found := fault(item, f"{where}[{name!r:.40}]", depth + 1))), "")


def loads_object(text: bytes) -> dict[str, Any]:
    """Read one JSON object.

    Raises:
        ValueError: *text* is not UTF-8, not JSON, not an object, nested too deep, repeats a name, or has a number or text
            that cannot be written again.
    """
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None  # without its cause, which holds the whole text
    if decoded.count("[") + decoded.count("{") > DEEPEST and _is_too_deep(decoded):
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    value = _decoder.decode(decoded)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004  a fault of the text, like the others
    if "\\u" in decoded:
        dumps(value)  # refuses half of a surrogate pair
    return value


def _is_too_deep(text: str) -> bool:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += 1
            if depth > DEEPEST:
                return True
        elif first != '"':
            depth -= 1
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
