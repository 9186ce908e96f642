"""Whom a request is charged to: the key of a limit, from what the request shows."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jwtlimit_core.body import MOST_BODY_BYTES, body_field, has_fields
from jwtlimit_core.client_address import ClientAddresses
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import Call, Flow, awaits
from jwtlimit_core.keys import SERVICE_KEY, resolve_key
from jwtlimit_core.limit import KeyPart, Limit
from jwtlimit_core.rate import shown
from jwtlimit_core.request import Admission, RequestView

__all__ = ["UNVERIFIED", "RequestKeys", "UserKey", "ask", "misfits", "under_plan"]

UserKey = Callable[[Any], Any]

UNVERIFIED = ("ip", "header", "field")  # sources for which nothing is verified
_COUNTED = re.compile(r"(?:ip|subject|user|function[0-9]*|(?:field|header):.+|plan)=.+", re.DOTALL)
_USER_KEY_AWAITS = "USER_KEY is a coroutine function: it must be a plain one here"
_WRITTEN_BY_CLIENT = ("header", "field")


class RequestKeys:
    """Finds keys of requests.

    A key reads ``source=value``, so that no two sources meet; that of several sources joins these by ``&``, which is quoted in
    their values. Where a header or a field is missing, the address takes its place: leaving it out frees nobody.

    Args:
        addresses: How the address of a client is found.
        user_key: What is charged for a user: a function of the request; None for the framework's own.
        verifies: Whether there is a key to verify tokens with.
        say: Puts the framework's names of settings into a message.
    """

    def __init__(
        self, addresses: ClientAddresses, user_key: UserKey | None, *, verifies: bool, say: Callable[[str], str]
    ) -> None:
        self._say = say
        self._addresses = addresses
        self._verifies = verifies
        self._user_key = user_key
        self._user_key_awaits = awaits(user_key)

    def address(self, view: RequestView) -> str:
        """Return the key of a limit by address alone."""
        return f"ip={self._addresses.key(view)}"

    def counted(self, key: str) -> str:
        """Return *key*, which somebody wrote by hand, as it is counted: an address by its network.

        Raises:
            ValueError: No limit counts such keys.
        """
        if key is SERVICE_KEY:
            return key
        if not _COUNTED.fullmatch(key):
            raise ValueError(
                f"key must be as it is counted, such as 'ip=192.0.2.1' or 'subject=u1', or SERVICE_KEY for a global limit, "
                f"not {shown(key)}"
            )
        parts = key.split("&")
        return "&".join(f"ip={self._addresses.group(part[3:])}" if part.startswith("ip=") else part for part in parts)

    def find(self, limit: Limit, view: RequestView, admission: Admission) -> Flow[tuple[str, bool]]:
        """Return the key of a request, ``""`` where *limit* does not apply, and whether the address is in it.

        Raises:
            ConfigError: Nobody here knows of subjects, or of users.
            TypeError: A function returns a key that is no str.
            Exception: What a function raises.
        """
        found = []
        for part in limit.parts:
            label, value = part.label, (yield from self._value(limit, part, view, admission))
            if value is None or value == "":
                if part.source not in _WRITTEN_BY_CLIENT:
                    return "", False
                label, value = "ip", self._addresses.key(view)
            found.append((label, value))
        if len(found) > 1:
            return "&".join(f"{label}={_quoted(value)}" for label, value in found), any(label == "ip" for label, _ in found)
        label, value = found[0]
        return SERVICE_KEY if label == "global" else f"{label}={value}", label == "ip"

    def _value(self, limit: Limit, part: KeyPart, view: RequestView, admission: Admission) -> Flow[str | None]:
        if part.source == "ip":
            return self._addresses.key(view)
        if part.source == "global":
            return SERVICE_KEY
        if part.source == "subject":
            if not self._verifies:
                raise ConfigError(self._say(_by_subject(limit)))
            claims = admission.claims
            return None if claims is None else resolve_key(claims)
        if part.source == "header":
            lines = view.header_lines(part.name)
            return lines[0] if len(lines) == 1 else None
        if part.source == "field":
            content_type = view.header("Content-Type")
            body = (yield view.body(MOST_BODY_BYTES)) if has_fields(content_type) else None
            return None if body is None else body_field(body, content_type, part.name)
        if part.function is not None:
            value = yield ask(limit, part.function, view)
        elif self._user_key is not None:
            if self._user_key_awaits and not view.awaits:
                raise ConfigError(self._say(_USER_KEY_AWAITS))
            value = yield view.call(self._user_key, awaits=self._user_key_awaits)
        else:
            value = yield view.user()
        if value is not None and not isinstance(value, str):
            raise TypeError(f"the key of limit {limit.name!r} must be a str or None, not {type(value).__name__}: use str()")
        return value


def misfits(limits: Iterable[Limit], user_key: object, *, verifies: bool, on_loop: bool, knows_users: bool) -> Iterator[str]:
    """Yield what makes *limits* impossible on a host without an event loop, without keys, or without users of its own."""
    if awaits(user_key) and not on_loop:
        yield _USER_KEY_AWAITS
    for limit in limits:
        if limit.awaits and not on_loop:
            yield f"limit {limit.name!r} has a coroutine function: it must be a plain one here"
        sources = {part.source for part in limit.parts}
        if "user" in sources and user_key is None and not knows_users:
            yield f"limit {limit.name!r} is by user: set USER_KEY to a function of the request that returns its user"
        if "subject" in sources and not verifies:
            yield _by_subject(limit)


def _by_subject(limit: Limit) -> str:
    return f"limit {limit.name!r} is by subject: set SECRET_KEY, SIGNING_KEY or VERIFICATION_KEY, to verify tokens with"


def under_plan(plan: str, key: str) -> str:
    """Return *key* as it is counted under *plan*: each plan of a limit for itself, whatever the rate of another does."""
    label = f"plan={_quoted(plan)}"
    return label if key is SERVICE_KEY else f"{label}&{key}"


def _quoted(value: str) -> str:
    return value.replace("%", "%25").replace("&", "%26")


def ask(limit: Limit, function: Callable[[Any], Any], view: RequestView) -> Call:
    """Return the call of a *function* of *limit*."""
    return view.call(function, awaits=any(function is each for each in limit.awaited))
