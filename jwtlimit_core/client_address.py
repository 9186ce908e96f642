"""Whom a request comes from, as a key: the peer of the socket, or the client that a trusted proxy names in a header.

A proxy appends the address that it was called from. So a header is read from the right, and only as far as proxies are trusted:
what stands further left was written by the client, and can neither spoil nor hide what a proxy put after it.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_interface
from itertools import islice
from typing import NamedTuple, Protocol

from jwtlimit_core.errors import ConfigError
from jwtlimit_core.rate import shown

__all__ = ["NO_ADDRESS", "ClientAddresses", "ForwardedView"]

NO_ADDRESS = "local"  # the one key of all peers without an address: a unix socket

logger = logging.getLogger("jwtlimit")

_CACHED = 1024  # texts of each kind whose meaning is kept
_LONGEST_ADDRESS = 100  # characters, with brackets, zone and port
_LONGEST_ELEMENT = 500  # characters; bounds what is kept, and what is spent on a line of Forwarded that holds no element
_HOPS_SEARCHED = 8  # from the right, for the peer, before a header counts as ignored

_MAPPED = IPv6Network("::ffff:0:0/96")

# An address as proxies write it: RFC 7239 section 6, and IPv6 without brackets.
_PORT = r"(?: : (?: [0-9]{1,5} | _[A-Za-z0-9._-]+ ) )?"
_ADDRESS = re.compile(
    rf"""([0-9.]+) {_PORT} | \[ ([0-9A-Fa-f:.]+) (?: % [^\]]* )? \] {_PORT} | ([0-9A-Fa-f:.]+) (?: % .* )?""", re.VERBOSE
)
# RFC 7239 section 4, with token and quoted-string of RFC 9110 section 5.6.
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_QUOTED = r'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*+"'
_PAIR = re.compile(rf"({_WORD})=({_WORD}|{_QUOTED})")
_ELEMENT = re.compile(rf"[ \t]*+(?:{_PAIR.pattern})?(?:;(?:{_PAIR.pattern})?)*+[ \t]*+")

_Network = IPv4Network | IPv6Network
_Hop = tuple[str, bool]  # the key, and whether it is in a network to trust; a plain tuple, for speed


class ForwardedView(Protocol):
    """A request, as far as it tells whom it comes from."""

    @property
    def peer(self) -> str | None:
        """The address at the other end of the socket; None or empty where there is none."""

    @property
    def is_forwarded(self) -> bool:
        """Whether it has an X-Forwarded-For or Forwarded header, whoever wrote that."""

    def header_lines(self, name: str) -> Sequence[str]:
        """Return the values of all header lines of that name, in order; a server may have joined them with commas."""


class _Trust(NamedTuple):
    """Who is believed: so many hops from the right, or else hops in these networks and peers without an address."""

    hops: int = 0
    unix: bool = False
    networks: tuple[_Network, ...] = ()


class ClientAddresses:
    """The keys of the clients of one application.

    Args:
        trusted_proxies: The networks and addresses of the proxies before the application, and ``"unix"`` for one on a unix
            socket; or else how many they are, where no request can go round any of them. By default none is trusted.
        forwarded_header: The one header that they write: ``"X-Forwarded-For"`` or ``"Forwarded"`` (RFC 7239), in any case.
        ipv6_prefix: The bits by which IPv6 addresses are grouped, 1 to 128, since one line owns a whole network of them.

    Raises:
        ConfigError: A value cannot work, or would let clients choose their own keys; each is named with its setting.
    """

    def __init__(
        self,
        *,
        trusted_proxies: Sequence[str] | int = (),
        forwarded_header: str = "X-Forwarded-For",
        ipv6_prefix: int = 64,
    ) -> None:
        problems: list[str] = []
        trust = _trust(trusted_proxies, problems)
        self._readers: dict[str, Callable[[str], Iterator[str]]] = {
            "X-Forwarded-For": _x_forwarded_for,
            "Forwarded": partial(_forwarded, lru_cache(_CACHED)(_element)),
        }
        names = {name.lower(): name for name in self._readers}
        self._header = names.get(forwarded_header.lower(), "") if isinstance(forwarded_header, str) else ""
        if not self._header:
            problems.append(
                "FORWARDED_HEADER must be the one that your proxies write, 'X-Forwarded-For' or 'Forwarded', "
                f"not {shown(forwarded_header)}"
            )
        if not isinstance(ipv6_prefix, int) or isinstance(ipv6_prefix, bool) or not 1 <= ipv6_prefix <= 128:
            problems.append(f"IPV6_PREFIX must be an int from 1 to 128, not {shown(ipv6_prefix)}")
        if problems:
            raise ConfigError(*problems)
        self._trusted_hops = trust.hops
        self._nobody = (NO_ADDRESS, trust.unix)
        self._hop = lru_cache(_CACHED)(partial(_hop, trust.networks, ipv6_prefix))
        self._warned_of_header = self._warned_of_no_address = False

    def key(self, view: ForwardedView) -> str:
        """Return the key of the client of a request; no header lets a client choose it.

        With networks to trust, the client is the first hop from the right that is in none of them, the left-most where all are;
        with a number, the hop left of so many, the peer where there are fewer. Either way the last trusted hop stands for one
        that cannot be read, is ``unknown`` or has a name for an address (RFC 7239 section 6).

        Warns once of a peer without an address, and once of a header that is ignored since its peer is not trusted.
        """
        peer = view.peer
        hop = self._hop(peer) if peer else self._nobody
        key, trusted = hop or (peer or "", False)
        if trusted or self._trusted_hops:
            key = self._client(view, key)
        elif peer and not self._warned_of_header and view.is_forwarded:
            self._warn_of_header(view, key)
        if not peer and key == NO_ADDRESS and not self._warned_of_no_address:
            self._warned_of_no_address = True
            logger.warning(
                "a request came without an address, as from a unix socket, and no trusted header told one: all such requests "
                "share one bucket; behind a proxy, set TRUSTED_PROXIES to ['unix'] and FORWARDED_HEADER to what it writes"
            )
        return key

    def group(self, address: str) -> str:
        """Return the key of an *address* as text, such as one to reset by hand.

        IPv6 is grouped by network; IPv4 that is mapped into IPv6 is IPv4; zone and port are dropped. What is no address is
        taken as it is: it was named by the server, not by the client.
        """
        hop = self._hop(address) if address else self._nobody
        return hop[0] if hop else address

    def _client(self, view: ForwardedView, peer_key: str) -> str:
        key = peer_key
        for place, hop in enumerate(self._hops(view, self._header), 1):
            if hop is None:
                return key
            key, trusted = hop
            reached = place == self._trusted_hops if self._trusted_hops else not trusted
            if reached:
                return key
        return peer_key if self._trusted_hops else key

    def _hops(self, view: ForwardedView, header: str) -> Iterator[_Hop | None]:
        """Yield the hops that a header lists, the last first; None for each that is not told."""
        for line in reversed(view.header_lines(header)):
            for address in self._readers[header](line):
                yield self._hop(address) if len(address) <= _LONGEST_ADDRESS else None

    def _warn_of_header(self, view: ForwardedView, key: str) -> None:
        """Warn of a header that is ignored, unless it lists the peer: then the server has followed it already."""
        for header in self._readers:
            if any(hop and hop[0] == key for hop in islice(self._hops(view, header), _HOPS_SEARCHED)):
                return
        self._warned_of_header = True
        logger.warning(
            "a forwarding header from %r was ignored, since this peer is not trusted: if it is your proxy, set TRUSTED_PROXIES "
            "to its address or network, or to the number of proxies, and FORWARDED_HEADER to the header that it writes",
            view.peer,
        )


def _hop(networks: Sequence[_Network], ipv6_prefix: int, text: str) -> _Hop | None:
    """Return the hop of an address as a proxy or server writes it, None where *text* is no address."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    ipv4, bracketed, bare = match.groups()
    try:
        address = IPv4Address(ipv4) if ipv4 else IPv6Address(bracketed or bare)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    group = address if isinstance(address, IPv4Address) else IPv6Network((int(address), ipv6_prefix), strict=False)
    return str(group), any(address in network for network in networks)


def _x_forwarded_for(line: str) -> Iterator[str]:
    """Yield the elements of a line, the last first."""
    end = len(line)
    while end >= 0:
        start = line.rfind(",", 0, end)
        yield line[start + 1 : end].strip(" \t")
        end = start


def _forwarded(element: Callable[[str], str | None], line: str) -> Iterator[str]:
    """Yield what each *element* of a line is for, the last first.

    A comma may stand in a quoted string. Yet of the texts from some comma to the same end only one can be an element: of two,
    one would end inside a quoted string. So a quote that a client leaves open cannot swallow what a proxy puts after it.
    """
    start = end = len(line)
    while end >= 0:
        start = line.rfind(",", 0, start)
        told = element(line[start + 1 : end]) if end - start <= _LONGEST_ELEMENT else ""
        if told is None and start >= 0:
            continue
        yield told or ""
        end = start


def _element(text: str) -> str | None:
    """Return the address that an element of Forwarded is for, empty where it does not tell; None where *text* is no element."""
    if not _ELEMENT.fullmatch(text):
        return None
    pairs = _PAIR.findall(text)
    values = {name.lower(): value for name, value in pairs}
    value = values.get("for", "")
    if value.startswith('"'):
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    bare = value.count(":") > 1 and not value.startswith("[")  # IPv6 stands in brackets here
    return "" if bare or len(values) < len(pairs) else value


def _trust(given: object, problems: list[str]) -> _Trust:
    """Read TRUSTED_PROXIES; what is wrong with it is added to *problems*."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return _Trust(hops=given)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        problems.append(
            "TRUSTED_PROXIES must be a list of networks and addresses such as ['10.0.0.0/8', 'unix'], or the number of your "
            f"proxies, not {shown(given)}"
        )
        return _Trust()
    networks = [network for item in given if item != "unix" for network in _networks(item, problems)]
    ipv4 = collapse_addresses(network for network in networks if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in networks if isinstance(network, IPv6Network))
    trust = _Trust(unix="unix" in given, networks=(*ipv4, *ipv6))
    problems += [
        f"TRUSTED_PROXIES must list your proxies alone, not {shown(given)}: with all of {network} trusted, each client could "
        "choose its own key"
        for network in trust.networks
        if network.prefixlen == 0
    ]
    return trust


def _networks(item: object, problems: list[str]) -> Iterator[_Network]:
    """Yield the network of an *item* of TRUSTED_PROXIES; one of mapped IPv4 as IPv4, as addresses are."""
    try:
        interface = ip_interface(item if isinstance(item, str) and "%" not in item else "")
    except ValueError:
        problems.append(
            "TRUSTED_PROXIES must list networks and addresses, such as '10.0.0.0/8' or '2001:db8::1', and 'unix', "
            f"not {shown(item)}"
        )
        return
    network = interface.network
    if interface.ip != network.network_address:
        problems.append(
            f"TRUSTED_PROXIES has {shown(item)}, which is no network: write '{network}', or '{interface.ip}' for one address"
        )
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        network = IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
    yield network
