"""Requests that name their hops in a header, and settings to read them by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jwtlimit_core.client_address import ClientAddresses

XFF, FORWARDED = "X-Forwarded-For", "Forwarded"
NOBODY: dict[str, Any] = {}
INSIDE = {"trusted_proxies": ["10.0.0.0/8", "fd00::/8"]}
UNIX = {"trusted_proxies": ["unix", "10.0.0.0/8"]}
ONE, TWO, THREE = ({"trusted_proxies": count} for count in (1, 2, 3))
RFC = {"forwarded_header": FORWARDED}


@dataclass
class Request:
    peer: str | None
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_forwarded(self) -> bool:
        return XFF in self.headers or FORWARDED in self.headers

    def header_lines(self, name: str) -> Sequence[str]:
        return self.headers.get(name, ())


def key_of(settings: Mapping[str, Any], peer: str | None, *lines: str) -> str:
    """Return the key of a request whose lines are of the header that is configured."""
    headers = {settings.get("forwarded_header", XFF): lines} if lines else {}
    return ClientAddresses(**settings).key(Request(peer, headers))
