"""Requests of WSGI: the stream that was read before, and headers as the environ has them."""

from io import BufferedReader, BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core.wsgi import EnvironView, Rewound, code_of


class Request(EnvironView):
    """That of a framework which sets no more than the environ."""


@given(content=st.binary(max_size=40), at=st.integers(0, 40), sizes=st.lists(st.integers(1, 9), max_size=9))
def test_rewound_stream_reads_as_the_whole(content: bytes, at: int, sizes: list[int]) -> None:
    rest = BytesIO(content)
    stream = BufferedReader(Rewound(rest.read(at), rest))
    pieces = [stream.read(size) for size in sizes]
    assert b"".join(pieces) + stream.read() == content


def test_rewound_stream_reads_line_by_line() -> None:
    rest = BytesIO(b"one\ntwo\nthree")
    assert list(BufferedReader(Rewound(rest.read(5), rest))) == [b"one\n", b"two\n", b"three"]


def test_environ_headers_are_those_of_the_environ_as_it_is_now() -> None:
    headers = Request()
    headers.environ = {"HTTP_X_API_KEY": "k", "CONTENT_TYPE": "text/plain", "CONTENT_LENGTH": "9"}
    assert (headers.header("x-api-key"), headers.header_lines("X-API-Key")) == ("k", ("k",))
    assert (headers.header("Content-Type"), headers.header("Content-Length")) == ("text/plain", "9")
    assert (headers.header("Origin"), headers.header_lines("Origin")) == (None, ())
    assert headers.is_forwarded is False
    for name in ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED"):
        headers.environ = {name: ""}
        assert headers.is_forwarded is True


@pytest.mark.parametrize(
    ("status", "code"), [("200 OK", 200), ("429", 429), ("200OK", 200), ("0 as you like", 0), ("", 0), ("²00 OK", 0)]
)
def test_code_of_a_status_line_that_has_none_is_0(status: str, code: int) -> None:
    assert code_of(status) == code
