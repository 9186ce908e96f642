"""Whom a request comes from, as a key: the peer of the socket."""

from ipaddress import IPv6Address, IPv6Network, ip_address

__all__ = ["NO_ADDRESS", "address_key"]

NO_ADDRESS = "local"  # the one key of all peers without an address: a unix socket


def address_key(peer: str | None, *, ipv6_prefix: int = 64) -> str:
    """Return the key of the address *peer*.

    IPv6 is grouped by *ipv6_prefix* bits, since one line owns all addresses of such a network; IPv4 that is mapped into IPv6
    is IPv4; a zone is dropped. What is no address is taken as it is: it was named by the server, not by the client.
    """
    if not peer:
        return NO_ADDRESS
    if ":" not in peer:
        return peer
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), ipv6_prefix), strict=False))
