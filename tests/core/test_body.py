"""Fields of bodies: what every reader would find, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core.body import body_field, has_fields

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"user=ann", FORM, "ann"),
        (b"user=ann", "Application/X-WWW-Form-Urlencoded; charset=UTF-8", "ann"),
        (b"user=ann", f'{FORM}; charset="utf-8"', "ann"),
        (b"page=1&user=ann&next=%2F", FORM, "ann"),
        (b"user=a+b%20c%26d", FORM, "a b c&d"),
        (b"user=J%C3%BCrgen", FORM, "J\u00fcrgen"),
        ("user=J\u00fcrgen".encode(), FORM, "J\u00fcrgen"),
        (b"us%65r=ann", FORM, "ann"),
        (b"user=", FORM, ""),
        (b"user", FORM, ""),
        (b"", FORM, None),
        (b"users=ann", FORM, None),
        (b"user=ann&user=bob", FORM, None),  # some readers take the first, some the last
        (b"user=ann&us%65r=", FORM, None),
        (b"user=ann;user=bob", FORM, None),  # some readers separate here
        (b"user=J%FCrgen", FORM, None),  # no UTF-8: some readers replace, some fail
        (b"user=J\xfcrgen", FORM, None),
        (b"&".join([b"a=1"] * 1001) + b"&user=ann", FORM, None),
        (b"user=ann", f"{FORM}; charset=utf-7", None),
        (b"user=ann", f"{FORM}; charset*=utf-8''utf-7", None),
        (b"user=ann", f"{FORM}; charset=utf-8; Charset = utf-7", None),
        (b"user=ann", f'{FORM}; x="; charset=utf-7"', None),
        (b"user=ann", "text/plain", None),
        (b"user=ann", None, None),
        (b'--x\r\nContent-Disposition: form-data; name="user"\r\n\r\nann\r\n--x--', "multipart/form-data; boundary=x", None),
        (b'{"user": "ann"}', JSON, "ann"),
        (b'{"user": "J\\u00fcrgen", "page": [1, {"user": "bob"}]}', f"{JSON}; charset=utf-8", "J\u00fcrgen"),
        (b'{"user": ""}', JSON, ""),
        (b'{"user": 7}', JSON, None),
        (b'{"user": null}', JSON, None),
        (b'{"user": ["ann"]}', JSON, None),
        (b'{"page": 1}', JSON, None),
        (b'{"user": "ann", "user": "bob"}', JSON, None),
        (b'["user"]', JSON, None),
        (b'"user"', JSON, None),
        (b"", JSON, None),
        (b'{"user": "ann"', JSON, None),
        (b'\xef\xbb\xbf{"user": "ann"}', JSON, None),
        ('{"user": "ann"}'.encode("utf-16"), JSON, None),
        (b'{"user": "ann", "deep": ' + b"[" * 100_000, JSON, None),
        (b'{"user": "\\ud800"}', JSON, None),
    ],
)
def test_field_is_what_every_reader_finds(body: bytes, content_type: str | None, expected: str | None) -> None:
    assert body_field(body, content_type, "user") == expected


@given(body=st.binary(max_size=80), content_type=st.sampled_from([FORM, JSON]))
def test_field_of_any_body_is_a_text_or_none(body: bytes, content_type: str) -> None:
    assert isinstance(body_field(body, content_type, "a"), str | None)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (FORM, True),
        (f"{JSON};charset=utf-8", True),
        (f"{JSON};charset=latin-1", False),
        ("multipart/form-data", False),
        ("", False),
    ],
)
def test_has_fields_tells_by_the_type_alone(content_type: str, expected: bool) -> None:
    assert has_fields(content_type) is expected
