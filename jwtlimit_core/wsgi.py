"""Requests of WSGI: what is the same in every framework that is built on it."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO, RawIOBase
from typing import Any

from jwtlimit_core.flow import Call

__all__ = ["EnvironView", "Rewound", "code_of"]


class EnvironView:
    """A request as the environ of WSGI has it, as it is now; header lines of one name stand joined there.

    A framework sets the attributes, and adds how to get the body, and the users that it knows.

    Attributes:
        environ: The environ; the others are those of a `RequestView`.
    """

    __slots__ = ()

    awaits: bool
    environ: Mapping[str, Any]
    method: str
    path: str
    peer: str | None
    raw: Any

    @property
    def is_forwarded(self) -> bool:
        """Whether it has an X-Forwarded-For or Forwarded header."""
        return "HTTP_X_FORWARDED_FOR" in self.environ or "HTTP_FORWARDED" in self.environ

    def call(self, function: Callable[[Any], Any], *, awaits: bool) -> Call:
        """Return how to call a function of the application with `raw`."""
        return Call(function, (self.raw,), awaits)

    def header(self, name: str) -> str | None:
        """Return the value of a header, None where the request has none."""
        value: str | None = self.environ.get(_environ_name(name))
        return value

    def header_lines(self, name: str) -> Sequence[str]:
        """Return that value alone."""
        value = self.environ.get(_environ_name(name))
        return () if value is None else (value,)


class Rewound(RawIOBase):
    """A stream whose *start* has been read already, and which begins with it again."""

    def __init__(self, start: bytes, rest: Any) -> None:
        super().__init__()
        self._start = BytesIO(start)
        self._rest = rest

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is at once."""
        read: bytes = self._start.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(read)] = read
        return len(read)


def code_of(status: str) -> int:
    """Return the code of a status line; 0 where that does not begin with three digits, as PEP 3333 demands."""
    code = status[:3]
    return int(code) if code.isdecimal() else 0


@lru_cache(1_000)
def _environ_name(header: str) -> str:
    """Return the name by which the environ has a *header* (PEP 3333, RFC 3875 section 4.1.18)."""
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
