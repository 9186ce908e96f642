"""Fields in the body of a request, as limits read them.

A limit by a field holds only if it sees the value that the view sees. So a body that two readers could take differently has no
fields: one that is not UTF-8, repeats the field, separates by ``;``, has too many, or is of another type.
"""

from urllib.parse import parse_qsl

from jwtlimit_core.strict_json import loads_object

__all__ = ["MOST_BODY_BYTES", "body_field", "has_fields"]

MOST_BODY_BYTES = 65_536

_MOST_FIELDS = 1_000
_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"


def has_fields(content_type: str | None) -> bool:
    """Say whether a body of *content_type* is one that fields are read from."""
    return _kind(content_type) in (_FORM, _JSON)


def body_field(body: bytes, content_type: str | None, name: str) -> str | None:
    """Return the text of the field *name*, None where there is none that every reader would find.

    Args:
        body: The whole body.
        content_type: The value of its header.
        name: The name of the field; in JSON, of a member of the outermost object whose value is a string.
    """
    kind = _kind(content_type)
    if kind == _JSON:
        try:
            value = loads_object(body).get(name)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, str) else None
    if kind != _FORM or b";" in body:
        return None
    try:
        # A field without a value is one, too: it might be the repetition.
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    values = [value for field, value in pairs if field == name]
    return values[0] if len(values) == 1 else None


def _kind(content_type: str | None) -> str:
    """Return the type without its parameters, ``""`` where it says another character set than UTF-8."""
    kind, *parameters = (content_type or "").lower().split(";")
    for parameter in parameters:
        label, _, value = parameter.partition("=")
        # `charset*` of RFC 2231 is one, too, for some readers.
        if "charset" in label and value.strip().strip('"') not in ("utf-8", "utf8"):
            return ""
    return kind.strip()
