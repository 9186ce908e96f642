"""Whom a request comes from, whatever a client writes."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from forwarded import FORWARDED, INSIDE, NOBODY, ONE, THREE, TWO, UNIX, XFF, Request, key_of
from jwtlimit_core.client_address import NO_ADDRESS, ClientAddresses

NETWORKS = [ip_network(text) for text in INSIDE["trusted_proxies"]]
OPEN = [IPv4Network("128.0.0.0/2"), IPv6Network("2000::/3")]

inside = st.sampled_from(NETWORKS).flatmap(lambda network: st.ip_addresses(network=network))
outside = st.sampled_from(OPEN).flatmap(lambda network: st.ip_addresses(network=network))
junk = st.sampled_from(["", "unknown", "_hidden", "1.2.3", "x", "1.2.3.04", "::1::", "[::1", "a, b".partition(",")[0]])
hostile = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            ["for=6.6.6.6", "6.6.6.6", "10.6.6.6", ",", ", ", '"', "\\", ";", "=", "for=", 'x="', "a", " ", "::1", "[", "]"]
        ),
        max_size=12,
    ).map("".join),
)
modes = st.sampled_from([INSIDE, ONE, TWO, THREE])


def written(address: IPv4Address | IPv6Address) -> st.SearchStrategy[str]:
    """Return the ways in which proxies write an *address* into X-Forwarded-For."""
    if isinstance(address, IPv6Address):
        texts = [str(address), address.exploded.upper(), f"{address}%eth0", f"[{address}]", f"[{address}]:443"]
    else:
        texts = [str(address), f"{address}:5678", f"::ffff:{address}", f"[::ffff:{address}]:443"]
    return st.sampled_from(texts)


@st.composite
def elements(draw: st.DrawFn, address: IPv4Address | IPv6Address) -> str:
    """Return an element of Forwarded for *address*, with what a client may have had a say in quoted as it should be."""
    node = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    port = draw(st.sampled_from(["", ":443", ":_port"]))
    value = node if node == str(address) and not port and draw(st.booleans()) else f'"{node}{port}"'
    pairs = [f"{draw(st.sampled_from(['for', 'For', 'FOR']))}={value}"]
    text = st.text(st.sampled_from('a;=,"\\ ') | st.characters(min_codepoint=32, max_codepoint=126))
    for name in draw(st.lists(st.sampled_from(["host", "by", "ext"]), unique=True)):
        quoted = re.sub(r'(["\\])', r"\\\1", draw(text | st.just("x, for=6.6.6.6") | st.just(';a="b", for=6.6.6.6;c="')))
        pairs.insert(draw(st.integers(0, len(pairs))), f'{name}="{quoted}"')
    return ";".join(pairs)


@st.composite
def appended(draw: st.DrawFn, settings: Mapping[str, Any]) -> tuple[str, dict[str, list[str]]]:
    """Return a client, and what the trusted proxies of *settings* put into either header for it."""
    client = draw(outside)
    count = settings["trusted_proxies"]
    proxies = draw(
        st.lists(outside, min_size=count - 1, max_size=count - 1) if isinstance(count, int) else st.lists(inside, max_size=3)
    )
    hops = [client, *proxies]
    key = str(client) if isinstance(client, IPv4Address) else str(IPv6Network((client, 64), strict=False))
    return key, {XFF: [draw(written(hop)) for hop in hops], FORWARDED: [draw(elements(hop)) for hop in hops]}


@given(st.sampled_from([NOBODY, INSIDE, UNIX]), outside.map(str) | st.just("testclient"), st.lists(hostile), st.lists(hostile))
@example(INSIDE, "192.0.2.1", ["10.0.0.1"], ["for=10.0.0.1"])
def test_key_of_an_untrusted_peer_is_its_own_whatever_it_writes(
    settings: Mapping[str, Any], peer: str, forwarded_for: list[str], forwarded: list[str]
) -> None:
    for header in (XFF, FORWARDED):
        addresses = ClientAddresses(**settings, forwarded_header=header)
        assert addresses.key(Request(peer, {XFF: forwarded_for, FORWARDED: forwarded})) == addresses.group(peer)


@given(st.data(), modes, st.sampled_from([XFF, FORWARDED]), st.lists(hostile, max_size=3), hostile)
def test_key_does_not_change_by_what_is_left_of_the_proxies_entries(
    data: st.DataObject, settings: Mapping[str, Any], header: str, lines: list[str], prefix: str
) -> None:
    key, headers = data.draw(appended(settings))
    entries = headers[header]
    before = data.draw(st.integers(0, len(entries) - 1))  # entries in the client's line; the others have lines of their own
    line = data.draw(st.sampled_from([",", ", ", " ,\t"])).join([prefix, *entries[: before + 1]])
    sent = [*lines, line, *entries[before + 1 :]]
    settings = {**settings, "forwarded_header": header}
    assert key_of(settings, "10.0.0.1", *sent) == key_of(settings, "10.0.0.1", ",".join(sent)) == key
    assert key_of(settings, "10.0.0.1", *entries) == key


@given(st.data(), modes, st.sampled_from([XFF, FORWARDED]), junk, hostile)
def test_key_where_the_client_cannot_be_read_is_of_the_last_trusted_hop(
    data: st.DataObject, settings: Mapping[str, Any], header: str, unreadable: str, prefix: str
) -> None:
    _, headers = data.draw(appended(settings))
    entries = headers[header][1:]
    settings = {**settings, "forwarded_header": header}
    nodes = headers[XFF][1:] or ["10.0.0.1"]
    stop = unreadable if header == XFF else f"for={unreadable}"
    assert key_of(settings, "10.0.0.1", ", ".join([prefix, stop, *entries])) == ClientAddresses().group(nodes[0])


@given(
    modes | st.just(NOBODY) | st.just(UNIX), st.sampled_from([XFF, FORWARDED]), inside.map(str) | st.none(), st.lists(hostile)
)
def test_key_is_the_peers_or_that_of_an_address_never_a_text(
    settings: Mapping[str, Any], header: str, peer: str | None, lines: list[str]
) -> None:
    key = key_of({**settings, "forwarded_header": header}, peer, *lines)
    if key != NO_ADDRESS:
        address = ip_network(key)
        assert str(address) in {key, f"{key}/32"}
        assert address.prefixlen == (64 if address.version == 6 else 32)
    else:
        assert peer is None


@given(
    modes,
    st.lists(
        st.tuples(inside, st.booleans()) | st.tuples(outside, st.booleans()) | st.tuples(junk, st.just(False)), max_size=6
    ),
)
def test_key_is_what_the_rule_says_of_whole_chains(settings: Mapping[str, Any], entries: list[tuple[Any, bool]]) -> None:
    """The rule, once more, over a list that is read as a whole."""
    chain = [hop for hop, _ in entries] + [ip_address("10.0.0.1")]
    good = next((place for place in range(len(chain), 0, -1) if isinstance(chain[place - 1], str)), 0)
    readable = chain[good:]
    count = settings["trusted_proxies"]
    if not isinstance(count, int):
        strangers = [hop for hop in readable if not any(hop in network for network in NETWORKS)]
        client = strangers[-1] if strangers else readable[0]
    elif len(readable) > count:
        client = readable[-1 - count]
    else:
        client = readable[0] if good else chain[-1]
    line = ", ".join(f"[{hop}]:1" if port and isinstance(hop, IPv6Address) else str(hop) for hop, port in entries)
    assert key_of(settings, "10.0.0.1", *([line] if entries else [])) == ClientAddresses().group(str(client))


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_key_of_ipv6_ignores_the_low_half_and_nothing_else(network: int, host: int, other: int) -> None:
    group = ClientAddresses().group
    here, neighbour = (str(IPv6Address((network | 1 << 60) << 64 | low)) for low in (host, other))
    elsewhere = str(IPv6Address(((network | 1 << 60) ^ 1) << 64 | host))
    assert group(here) == group(neighbour) != group(elsewhere)


@given(st.integers(0, 2**32 - 1))
def test_key_of_mapped_ipv4_is_that_of_ipv4(number: int) -> None:
    address = str(IPv4Address(number))
    group = ClientAddresses(ipv6_prefix=1).group
    assert group(f"::ffff:{address}") == group(address) == address


@given(st.text())
def test_group_of_any_text_is_a_key(text: str) -> None:
    assert ClientAddresses().group(text)
