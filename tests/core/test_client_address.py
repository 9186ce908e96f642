"""The key of a peer: one for an IPv4 address, one for an IPv6 network, one for all without an address."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core.client_address import NO_ADDRESS, address_key


@pytest.mark.parametrize("peer", [None, ""])
def test_key_of_no_address_is_one_for_all(peer: str | None) -> None:
    assert address_key(peer) == NO_ADDRESS


@pytest.mark.parametrize(
    ("peer", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::5", "2001:db8:1:2::/64"),
        ("2001:0DB8:0001:0002:ffff:FFFF:ffff:ffff", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:201", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("unix:/run/app.sock", "unix:/run/app.sock"),  # named by the server
        ("worker-7", "worker-7"),
        ("%eth0:", "%eth0:"),
        ("192.0.2.1%a:b", "192.0.2.1"),
    ],
)
def test_key_of_an_address_is_its_line(peer: str, key: str) -> None:
    assert address_key(peer) == key


@pytest.mark.parametrize(
    ("bits", "key"), [(48, "2001:db8:1::/48"), (56, "2001:db8:1:200::/56"), (128, "2001:db8:1:2ff::5/128")]
)
def test_key_of_ipv6_has_the_configured_bits(bits: int, key: str) -> None:
    assert address_key("2001:db8:1:2ff::5", ipv6_prefix=bits) == key


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_key_of_ipv6_ignores_the_low_half_and_nothing_else(network: int, host: int, other: int) -> None:
    here, neighbour = (str(IPv6Address((network | 1 << 60) << 64 | low)) for low in (host, other))
    elsewhere = str(IPv6Address(((network | 1 << 60) ^ 1) << 64 | host))
    assert address_key(here) == address_key(neighbour) != address_key(elsewhere)


@given(st.integers(0, 2**32 - 1))
def test_key_of_mapped_ipv4_is_that_of_ipv4(number: int) -> None:
    address = str(IPv4Address(number))
    assert address_key(f"::ffff:{address}") == address_key(address) == address
