"""What a limit says over HTTP: header fields and problem details, as values that any framework can send.

Retry-After is of RFC 9110 section 10.2.3, 429 of RFC 6585 section 4, the body of RFC 9457; RateLimit and RateLimit-Policy are
structured fields (RFC 9651) with the names of draft-ietf-httpapi-ratelimit-headers-11.
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, AnyStr, NamedTuple
from urllib.parse import quote

from jwtlimit_core.decision import Decision, RateLimitExceeded
from jwtlimit_core.errors import LimiterUnavailable

__all__ = ["STATUSES", "Headers", "Refusal", "Response", "kinds_of", "overlaid", "rate_limit_headers", "refusal", "status_of"]

Headers = tuple[tuple[str, str], ...]
Refusal = RateLimitExceeded | LimiterUnavailable
STATUSES = (429, 503)  # of answers to refusals

_NS_PER_SECOND = 1_000_000_000
_LARGEST_INTEGER = 999_999_999_999_999  # of a structured field
_NOT_STORED = ("Cache-Control", "no-store")
_PROBLEMS = "https://iana.org/assignments/http-problem-types"


class Response(NamedTuple):
    """A whole answer.

    Attributes:
        status: The status code.
        headers: The headers that belong on every answer of this kind, the application's own included; no name occurs twice.
        detail: What happened, in a sentence.
        body: The default body, in which *detail* is.
        content_type: What *body* is.
    """

    status: int
    headers: Headers
    detail: str
    body: bytes
    content_type: str = "application/problem+json"


def refusal(error: Refusal) -> Response:
    """Return the default answer to *error*: 429 for a limit that was exceeded, 503 for one that gave no answer."""
    if isinstance(error, RateLimitExceeded):
        decision = error.decision
        # Only those that refuse, so that no ``t`` ends later than Retry-After; what was raised by hand does, whatever it says.
        refusing = decision.parts and [part for part in decision.parts if not part.allowed]
        refusing = refusing or (decision,)
        wait_ns, names = decision.retry_after_ns, tuple([part.name for part in refusing])
        headers = rate_limit_headers(refusing)
    else:
        wait_ns, names, headers = int(error.retry_after * _NS_PER_SECOND), (), ()
    wait_s = None if wait_ns is None else -(-wait_ns // _NS_PER_SECOND) if wait_ns > 0 else 1
    status, detail, body = _problem(wait_s, names)
    if wait_s is None:
        return Response(status, (_NOT_STORED, *headers), detail, body)
    return Response(status, (_NOT_STORED, ("Retry-After", str(wait_s)), *headers), detail, body)


@lru_cache(1_000)  # who is refused asks again, and by the thousand
def _problem(wait_s: int | None, names: tuple[str, ...]) -> tuple[int, str, bytes]:
    """Return status, detail and body of the refusal by limits with *names*; without any, of one for want of an answer."""
    again = "" if wait_s is None else f" Try again in {wait_s} second{'' if wait_s == 1 else 's'}."
    problem: dict[str, object]
    if names:
        status, detail = 429, f"A limit on requests was exceeded.{again or ' Waiting does not help.'}"
        problem = {"type": f"{_PROBLEMS}#quota-exceeded", "title": "Too Many Requests", "status": status, "detail": detail}
        problem["violated-policies"] = list(map(_printable, names))
    else:
        status, detail = 503, f"The service cannot say now whether this request is within its limits.{again}"
        kind = f"{_PROBLEMS}#temporary-reduced-capacity"
        problem = {"type": kind, "title": "Service Unavailable", "status": status, "detail": detail}
    return status, detail, json.dumps(problem).encode()


def status_of(error: Refusal) -> int:
    """Return the status of the answer to *error*."""
    return 429 if isinstance(error, RateLimitExceeded) else 503


def kinds_of(error: Refusal) -> Sequence[type[Any]]:
    """Return the classes by which an application may have a handler for *error* itself, and not for any exception."""
    kinds = type(error).__mro__
    return kinds[: kinds.index(Exception)]


def overlaid(theirs: Iterable[tuple[AnyStr, AnyStr]], ours: Iterable[tuple[AnyStr, AnyStr]]) -> list[tuple[AnyStr, AnyStr]]:
    """Return *theirs*, the headers of an answer, with *ours* in place of those of the same names."""
    names = {name.lower() for name, _ in ours}
    return [header for header in theirs if header[0].lower() not in names] + list(ours)


def rate_limit_headers(decisions: Sequence[Decision]) -> Headers:
    """Return RateLimit-Policy and RateLimit for *decisions*, one item each."""
    if len(decisions) == 1:
        policies, states = _items(decisions[0])
    else:
        policies, states = map(", ".join, zip(*map(_items, decisions), strict=True))
    return ("RateLimit-Policy", policies), ("RateLimit", states)


def _items(decision: Decision) -> tuple[str, str]:
    """Return the item of RateLimit-Policy and that of RateLimit for *decision*."""
    rate, remaining = decision.rate, decision.remaining
    reset_after_ns, more_ns = decision.reset_after_ns, decision.more_after_ns
    name, policy = _policy(decision.name, rate.limit, rate.window_ns, rate.burst)
    if not reset_after_ns:
        return policy, f"{name};r={remaining}"
    if more_ns is None:
        # Until full, less the time that the tokens after the next one take; that time is rounded up, so that no t is later than
        # Retry-After.
        more_ns = reset_after_ns + (rate.burst - remaining - 1) * -rate.unit // rate.refill
    wait_s = -(-more_ns // _NS_PER_SECOND) or 1
    return policy, f"{name};r={remaining};t={wait_s if wait_s < _LARGEST_INTEGER else _LARGEST_INTEGER}"  # noqa: FURB136  min() costs more


@lru_cache(1_000)
def _policy(name: str, limit: int, window_ns: int, burst: int) -> tuple[str, str]:
    """Return the name, and the item of RateLimit-Policy, of a limit; the numbers of its rate are hashed faster than that."""
    window_s, rest = divmod(burst * window_ns, limit * _NS_PER_SECOND)
    window = f";w={window_s}" if not rest and window_s <= _LARGEST_INTEGER else ""
    quoted = _quoted(name)
    return quoted, f"{quoted};q={burst}{window}"


def _quoted(name: str) -> str:
    """Return *name* as a String of RFC 9651 section 3.3.3."""
    return '"' + _printable(name).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _printable(name: str) -> str:
    """Return *name* in printable ASCII, the rest percent-encoded: the same text in headers and bodies."""
    if name.isascii() and name.isprintable():
        return name
    return "".join(char if " " <= char <= "~" else quote(char, errors="replace") for char in name)
