"""A request as limits look at it, and what becomes of it on its way."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from jwtlimit_core.claims import Claims
from jwtlimit_core.decision import Decision, combine
from jwtlimit_core.errors import InvalidClaims, TokenError
from jwtlimit_core.flow import Call
from jwtlimit_core.http import Headers
from jwtlimit_core.limit import Limit
from jwtlimit_core.processor import Processor

__all__ = ["Admission", "Charge", "RequestView"]


class RequestView(Protocol):
    """A request, as far as limits look at it; an adapter shows its framework's."""

    __slots__ = ()

    @property
    def awaits(self) -> bool:
        """Whether what is done for this request runs on an event loop."""

    @property
    def method(self) -> str:
        """The method, in upper case."""

    @property
    def path(self) -> str:
        """The path below the place where the application is mounted."""

    @property
    def peer(self) -> str | None:
        """The address at the other end of the socket; None or empty where there is none."""

    @property
    def is_forwarded(self) -> bool:
        """Whether it has an X-Forwarded-For or Forwarded header, whoever wrote that."""

    @property
    def raw(self) -> Any:
        """The framework's own request, as functions of the application get it."""

    def call(self, function: Callable[[Any], Any], *, awaits: bool) -> Call:
        """Return how to call a function of the application with `raw`; *awaits* says whether it is a coroutine function."""

    def header(self, name: str) -> str | None:
        """Return the value of a header, None where the request has none."""

    def header_lines(self, name: str) -> Sequence[str]:
        """Return the values of all lines of a header, in their order; they may stand joined in one."""

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body, None where it is longer than *most_bytes*; the view can read it all the same."""

    def user(self) -> Call:
        """Return how to get the key of the framework's authenticated user, None where there is none.

        Raises:
            ConfigError: The framework knows no users; the message says what to set.
        """


@dataclass(slots=True)
class Charge:
    """What a request was charged of one limit."""

    limit: Limit
    limiter: Any
    key: str
    n: int
    by_address: bool


class Admission:
    """What one request has been found to be; views find it where their framework keeps such things.

    Attributes:
        charges: What it was charged and may get back.
        decisions: The answers of all limits that let it pass.
        enabled: Whether anything is limited, for this request.
        refunds: Whether the answer decides on what is put back.
        refused: The headers of the answer to what was refused, whoever answered it; None where nothing was.
    """

    __slots__ = (
        "_authorization",
        "_claims",
        "_reader",
        "_view",
        "charges",
        "decisions",
        "enabled",
        "refunds",
        "refused",
    )

    def __init__(self, view: RequestView, reader: Processor | None, enabled: bool) -> None:
        self.charges: list[Charge] = []
        self.decisions: list[Decision] = []
        self.enabled = enabled
        self.refunds = False
        self.refused: Headers | None = None
        self._view: RequestView | None = view
        self._authorization: str | None = None
        self._reader = reader
        self._claims: Claims | None = None

    @property
    def decision(self) -> Decision | None:
        """The answer of all limits together, that of the one with the least left first; None where none applied."""
        return combine(self.decisions) if self.decisions else None

    @property
    def claims(self) -> Claims | None:
        """The claims of the bearer token, verified at the first look; None where there is no token that is accepted."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            header = self._authorization if self._view is None else self._view.header("Authorization")
            scheme, _, token = (header or "").partition(" ")
            if scheme.lower() == "bearer":
                with suppress(TokenError, InvalidClaims):  # the view will tell
                    self._claims = reader.validate(token.strip())
        return self._claims

    def release(self) -> None:
        """Let go of the request, now that it is over, but for what `claims` needs: memory is free without the collector."""
        if self._view is not None and self._reader is not None:
            self._authorization = self._view.header("Authorization")
        self._view = None
