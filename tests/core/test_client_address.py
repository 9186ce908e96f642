"""Whom a request comes from: the peer, or the client that trusted proxies name, whatever else a header says."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jwtlimit_core import ConfigError
from jwtlimit_core.client_address import NO_ADDRESS, ClientAddresses, address_key

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

    def header_lines(self, name: str) -> Sequence[str]:
        return self.headers.get(name, ())


def key_of(settings: Mapping[str, Any], peer: str | None, *lines: str) -> str:
    """Return the key of a request whose lines are of the header that is configured."""
    headers = {settings.get("forwarded_header", XFF): lines} if lines else {}
    return ClientAddresses(**settings).key(Request(peer, headers))


# Examples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "peer", "lines", "key"),
    [
        pytest.param(settings, peer, lines, key, id=name)
        for name, settings, peer, lines, key in [
            # No proxy is trusted: the peer.
            ("peer", NOBODY, "192.0.2.1", [], "192.0.2.1"),
            ("peer, whatever it says", NOBODY, "192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
            ("peer on loopback", NOBODY, "127.0.0.1", ["198.51.100.7"], "127.0.0.1"),
            ("peer of IPv6", NOBODY, "2001:0DB8:1:2::5", [], "2001:db8:1:2::/64"),
            ("peer of IPv6 with a zone", NOBODY, "fe80::1%eth0", [], "fe80::/64"),
            ("peer of mapped IPv4", NOBODY, "::ffff:192.0.2.1", [], "192.0.2.1"),
            ("peer of mapped IPv4 in hexadecimal", NOBODY, "::FFFF:c000:201", [], "192.0.2.1"),
            ("peer with a port", NOBODY, "192.0.2.1:5678", [], "192.0.2.1"),
            ("peer named by the server", NOBODY, "testclient", ["198.51.100.7"], "testclient"),
            ("peer named by its socket", NOBODY, "unix:/run/app.sock", [], "unix:/run/app.sock"),
            ("peer of four numbers", NOBODY, "1.2.3.400", [], "1.2.3.400"),
            ("peer that is None", NOBODY, None, ["198.51.100.7"], NO_ADDRESS),
            ("peer that is empty", NOBODY, "", [], NO_ADDRESS),
            ("no proxies by count", {"trusted_proxies": 0}, "10.0.0.1", ["198.51.100.7"], "10.0.0.1"),
            ("prefix of 48 bits", {"ipv6_prefix": 48}, "2001:db8:1:2ff::5", [], "2001:db8:1::/48"),
            ("prefix of 56 bits", {"ipv6_prefix": 56}, "2001:db8:1:2ff::5", [], "2001:db8:1:200::/56"),
            ("prefix of 128 bits", {"ipv6_prefix": 128}, "2001:db8:1:2ff::5", [], "2001:db8:1:2ff::5/128"),
            ("prefix of 1 bit", {"ipv6_prefix": 1}, "2001:db8::1", [], "::/1"),
            # Networks are trusted: the first hop from the right that is in none of them.
            ("one proxy", INSIDE, "10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
            ("two proxies", INSIDE, "10.0.0.1", ["198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("forged entry", INSIDE, "10.0.0.1", ["6.6.6.6, 198.51.100.7"], "198.51.100.7"),
            ("forged entry that is trusted", INSIDE, "10.0.0.1", ["10.6.6.6, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("forged line", INSIDE, "10.0.0.1", ["6.6.6.6", "198.51.100.7"], "198.51.100.7"),
            ("malformed line of the client", INSIDE, "10.0.0.1", ["<>", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("line for each proxy", INSIDE, "10.0.0.1", ["198.51.100.7", "10.0.0.3", "10.0.0.2"], "198.51.100.7"),
            ("peer is not trusted", INSIDE, "192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
            ("peer is just outside", INSIDE, "11.0.0.0", ["198.51.100.7"], "11.0.0.0"),
            ("peer has no address", INSIDE, None, ["198.51.100.7"], NO_ADDRESS),
            ("peer has a name", INSIDE, "testclient", ["198.51.100.7"], "testclient"),
            ("no header", INSIDE, "10.0.0.1", [], "10.0.0.1"),
            ("empty header", INSIDE, "10.0.0.1", [""], "10.0.0.1"),
            ("all are trusted", INSIDE, "10.0.0.1", ["10.0.0.4, 10.0.0.3", "10.0.0.2"], "10.0.0.4"),
            ("unreadable entry", INSIDE, "10.0.0.1", ["198.51.100.7, what?, 10.0.0.2"], "10.0.0.2"),
            ("unreadable entry at the end", INSIDE, "10.0.0.1", ["198.51.100.7, what?"], "10.0.0.1"),
            ("unknown", INSIDE, "10.0.0.1", ["198.51.100.7, unknown, 10.0.0.2"], "10.0.0.2"),
            ("hidden", INSIDE, "10.0.0.1", ["198.51.100.7, _hidden, 10.0.0.2"], "10.0.0.2"),
            ("empty entry", INSIDE, "10.0.0.1", ["198.51.100.7, , 10.0.0.2"], "10.0.0.2"),
            ("comma at the end", INSIDE, "10.0.0.1", ["198.51.100.7,"], "10.0.0.1"),
            ("empty line at the end", INSIDE, "10.0.0.1", ["198.51.100.7", ""], "10.0.0.1"),
            ("leading zeros", INSIDE, "10.0.0.1", ["198.051.100.7"], "10.0.0.1"),
            ("three numbers", INSIDE, "10.0.0.1", ["198.51.100"], "10.0.0.1"),
            ("number too large", INSIDE, "10.0.0.1", ["198.51.100.256"], "10.0.0.1"),
            ("digits of another script", INSIDE, "10.0.0.1", ["١٩٨.51.100.7"], "10.0.0.1"),
            ("network", INSIDE, "10.0.0.1", ["198.51.100.0/24"], "10.0.0.1"),
            ("host name", INSIDE, "10.0.0.1", ["client.example"], "10.0.0.1"),
            ("name of the bucket without address", INSIDE, "10.0.0.1", [NO_ADDRESS], "10.0.0.1"),
            ("port", INSIDE, "10.0.0.1", ["198.51.100.7:5678, 10.0.0.2:80"], "198.51.100.7"),
            ("port of six digits", INSIDE, "10.0.0.1", ["198.51.100.7:123456"], "10.0.0.1"),
            ("port that is empty", INSIDE, "10.0.0.1", ["198.51.100.7:"], "10.0.0.1"),
            ("IPv6", INSIDE, "fd00::1", ["2001:db8::1"], "2001:db8::/64"),
            ("IPv6 in brackets", INSIDE, "fd00::1", ["[2001:db8::1], [fd00::2]"], "2001:db8::/64"),
            ("IPv6 with a port", INSIDE, "fd00::1", ["[2001:db8::1]:443"], "2001:db8::/64"),
            ("IPv6 with a zone", INSIDE, "fd00::1%eth0", ["fe80::1%eth0"], "fe80::/64"),
            ("IPv6 with a zone and a port", INSIDE, "fd00::1", ["[fe80::1%25eth0]:443"], "fe80::/64"),
            ("IPv6 with a bracket left open", INSIDE, "fd00::1", ["[2001:db8::1"], "fd00::/64"),
            ("IPv6 with a word after it", INSIDE, "fd00::1", ["[2001:db8::1]x"], "fd00::/64"),
            ("IPv4 in brackets", INSIDE, "10.0.0.1", ["[198.51.100.7]"], "10.0.0.1"),
            ("IPv4 with a zone", INSIDE, "10.0.0.1", ["198.51.100.7%eth0"], "10.0.0.1"),
            ("mapped client", INSIDE, "10.0.0.1", ["::ffff:198.51.100.7"], "198.51.100.7"),
            ("mapped proxies", INSIDE, "::ffff:10.0.0.1", ["198.51.100.7, [::ffff:10.0.0.2]:80"], "198.51.100.7"),
            ("mapped network", {"trusted_proxies": ["::ffff:10.0.0.0/104"]}, "10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
            ("mapped address", {"trusted_proxies": ["::ffff:10.0.0.1"]}, "10.0.0.2", ["198.51.100.7"], "10.0.0.2"),
            ("one address", {"trusted_proxies": ("10.0.0.1",)}, "10.0.0.1", ["198.51.100.7, 10.0.0.2"], "10.0.0.2"),
            ("white space", INSIDE, "10.0.0.1", [" \t198.51.100.7\t ,\t10.0.0.2 "], "198.51.100.7"),
            ("no white space", INSIDE, "10.0.0.1", ["198.51.100.7,10.0.0.2"], "198.51.100.7"),
            ("other white space", INSIDE, "10.0.0.1", ["198.51.100.7\n"], "10.0.0.1"),
            ("space inside", INSIDE, "10.0.0.1", ["198.51. 100.7"], "10.0.0.1"),
            ("too long", INSIDE, "10.0.0.1", ["fe80::1%" + "x" * 93], "10.0.0.1"),
            ("as long as can be", INSIDE, "10.0.0.1", ["fe80::1%" + "x" * 92], "fe80::/64"),
            ("grouped", INSIDE | {"ipv6_prefix": 48}, "10.0.0.1", ["2001:db8:1:2::3"], "2001:db8:1::/48"),
            # A unix socket is trusted, in the words of the settings.
            ("unix", UNIX, None, ["198.51.100.7"], "198.51.100.7"),
            ("unix, empty", UNIX, "", ["198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("unix without a header", UNIX, None, [], NO_ADDRESS),
            ("unix, unreadable", UNIX, None, ["198.51.100.7, unknown"], NO_ADDRESS),
            ("unix as a name", UNIX, "unix", ["198.51.100.7"], "unix"),
            # So many proxies are trusted, whoever they are.
            ("first of one", ONE, "203.0.113.1", ["198.51.100.7"], "198.51.100.7"),
            ("first of one, forged", ONE, "10.0.0.1", ["6.6.6.6, 198.51.100.7"], "198.51.100.7"),
            ("first of one, forged line", ONE, "10.0.0.1", ["6.6.6.6", "198.51.100.7"], "198.51.100.7"),
            ("first of one, inside", ONE, "10.0.0.1", ["198.51.100.7, 10.0.0.2"], "10.0.0.2"),
            ("first of one, named", ONE, "testclient", ["198.51.100.7"], "198.51.100.7"),
            ("first of one, unix", ONE, None, ["198.51.100.7"], "198.51.100.7"),
            ("first of one, unix without a header", ONE, None, [], NO_ADDRESS),
            ("first of one, no header", ONE, "10.0.0.1", [], "10.0.0.1"),
            ("first of one, unreadable", ONE, "10.0.0.1", ["198.51.100.7, what?"], "10.0.0.1"),
            ("second of two", TWO, "10.0.0.1", ["6.6.6.6, 198.51.100.7, 203.0.113.1"], "198.51.100.7"),
            ("second of two, lines", TWO, "10.0.0.1", ["6.6.6.6", "198.51.100.7", "203.0.113.1"], "198.51.100.7"),
            ("second of two, too short", TWO, "10.0.0.1", ["198.51.100.7"], "10.0.0.1"),
            ("second of two, unreadable", TWO, "10.0.0.1", ["6.6.6.6, what?, 203.0.113.1"], "203.0.113.1"),
            ("third of three, too short", THREE, "10.0.0.1", ["6.6.6.6, 203.0.113.1"], "10.0.0.1"),
            ("more than there ever are", {"trusted_proxies": 10**9}, "10.0.0.1", ["6.6.6.6, 203.0.113.1"], "10.0.0.1"),
        ]
    ],
)
def test_key_is_of_the_client_that_trusted_hops_name(
    settings: Mapping[str, Any], peer: str | None, lines: Sequence[str], key: str
) -> None:
    assert key_of(settings, peer, *lines) == key


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        pytest.param(lines, key, id=name)
        for name, lines, key in [
            ("IPv4", ["for=198.51.100.7"], "198.51.100.7"),
            ("two elements", ["for=198.51.100.7, for=10.0.0.2"], "198.51.100.7"),
            ("forged element", ["for=6.6.6.6, for=198.51.100.7,for=10.0.0.2"], "198.51.100.7"),
            ("forged line", ["for=6.6.6.6", "for=198.51.100.7"], "198.51.100.7"),
            ("malformed line of the client", ['for="', "for=198.51.100.7"], "198.51.100.7"),
            ("malformed start of the line", ['for="6.6.6.6;=,;\\, for=198.51.100.7'], "198.51.100.7"),
            ("quote left open", ['for=6.6.6.6;x=", for=198.51.100.7'], "198.51.100.7"),
            ("quote closed by the proxy's", ['for=6.6.6.6;x=", for="198.51.100.7"'], "198.51.100.7"),
            ("quote escaped by the client", ['for=6.6.6.6;x="\\, for="198.51.100.7"'], "198.51.100.7"),
            ("forged in a quoted string", ['for=198.51.100.7;host="x,for=6.6.6.6"'], "198.51.100.7"),
            ("forged in two quoted strings", ['for=198.51.100.7;host="x,for=6.6.6.6";by="y, z,,"'], "198.51.100.7"),
            ("forged with escaped quotes", [r'for=198.51.100.7;host="x,for=6.6.6.6;a=\"b"'], "198.51.100.7"),
            ("escaped backslash at the end", [r'for=198.51.100.7;host="x,\\",for=10.0.0.2'], "198.51.100.7"),
            ("IPv4 in quotes", ['for="198.51.100.7"'], "198.51.100.7"),
            ("IPv4 with escapes", [r'for="198.51.100.\7"'], "198.51.100.7"),
            ("IPv4 with a port", ['for="198.51.100.7:5678"'], "198.51.100.7"),
            ("IPv4 with a named port", ['for="198.51.100.7:_gazonk"'], "198.51.100.7"),
            ("IPv4 with a port, not quoted", ["for=198.51.100.7:5678"], "10.0.0.1"),
            ("IPv6", ['for="[2001:db8::1]"'], "2001:db8::/64"),
            ("IPv6 with a port", ['for="[2001:db8::1]:47011"'], "2001:db8::/64"),
            ("IPv6, not quoted", ["for=[2001:db8::1]"], "10.0.0.1"),
            ("IPv6 without brackets", ['for="2001:db8::1"'], "10.0.0.1"),
            ("mapped IPv4", ['for="[::ffff:198.51.100.7]", for="[::ffff:10.0.0.2]"'], "198.51.100.7"),
            ("other parameters", ['proto=https;for=198.51.100.7;by=10.0.0.1;host="a.example"'], "198.51.100.7"),
            ("name in upper case", ["FOR=198.51.100.7;By=10.0.0.1"], "198.51.100.7"),
            ("name twice", ["for=198.51.100.7;for=6.6.6.6"], "10.0.0.1"),
            ("name twice, in two cases", ["for=198.51.100.7;For=198.51.100.7"], "10.0.0.1"),
            ("other name twice", ["for=198.51.100.7;a=b;a=c"], "10.0.0.1"),
            ("no for", ["for=198.51.100.7, by=10.0.0.2"], "10.0.0.1"),
            ("nothing", [""], "10.0.0.1"),
            ("empty element", ["for=198.51.100.7, , for=10.0.0.2"], "10.0.0.2"),
            ("empty pairs", [";for=198.51.100.7;;"], "198.51.100.7"),
            ("unknown", ["for=198.51.100.7, for=unknown"], "10.0.0.1"),
            ("unknown with a quoted comma", ['for=6.6.6.6, for=unknown;host="a,b"'], "10.0.0.1"),
            ("hidden", ["for=198.51.100.7, for=_SEVKISEK, for=10.0.0.2"], "10.0.0.2"),
            ("no value", ["for="], "10.0.0.1"),
            ("no quote at the end", ['for="198.51.100.71'], "10.0.0.1"),
            ("no quote at the end of another value", ['for=198.51.100.7;a="b'], "10.0.0.1"),
            ("word after the quote", ['for="198.51.100.7"x'], "10.0.0.1"),
            ("control character in quotes", ['for="198.51.100.7";a="\x00"'], "10.0.0.1"),
            ("escaped control character", ['for="198.51.100.7";a="\\\n"'], "10.0.0.1"),
            ("text in quotes", ['for="198.51.100.7";a="\t !\xff\\\xff"'], "198.51.100.7"),
            ("space around an element", ["\t for=198.51.100.7 \t,\t for=10.0.0.2 "], "198.51.100.7"),
            ("space around a pair", ["for=198.51.100.7; proto=http"], "10.0.0.1"),
            ("space around the sign", ["for = 198.51.100.7"], "10.0.0.1"),
            ("element as long as can be", ["for=198.51.100.7;a=" + "b" * 480], "198.51.100.7"),
            ("element that is too long", ["for=198.51.100.7;a=" + "b" * 481], "10.0.0.1"),
            ("the other header's syntax", ["198.51.100.7"], "10.0.0.1"),
            ("all are trusted", ["for=10.0.0.3, for=10.0.0.2"], "10.0.0.3"),
            ("giant line of the client", ['x,"' * 100_000 + ", for=198.51.100.7"], "198.51.100.7"),
            ("giant line of nothing", ['x,"' * 100_000], "10.0.0.1"),
        ]
    ],
)
def test_key_is_of_the_client_that_forwarded_names(lines: Sequence[str], key: str) -> None:
    assert key_of(INSIDE | RFC, "10.0.0.1", *lines) == key


@pytest.mark.parametrize("name", ["X-FORWARDED-FOR", "forwarded", "Forwarded"])
def test_key_follows_the_configured_header_alone(name: str) -> None:
    addresses = ClientAddresses(**INSIDE, forwarded_header=name)
    request = Request("10.0.0.1", {XFF: ["192.0.2.1"], FORWARDED: ["for=192.0.2.2"], "X-Real-IP": ["192.0.2.3"]})
    assert addresses.key(request) == ("192.0.2.1" if name.startswith("X") else "192.0.2.2")
    other = FORWARDED if name.startswith("X") else XFF
    assert addresses.key(Request("10.0.0.1", {other: request.headers[other]})) == "10.0.0.1"


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1%eth0", "testclient", ""])
def test_group_is_the_key_of_that_peer(address: str) -> None:
    assert ClientAddresses().group(address) == key_of(NOBODY, address)


# Properties ------------------------------------------------------------------------------------------------------

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


# Warnings --------------------------------------------------------------------------------------------------------


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all((record.name, record.levelno) == ("jwtlimit", logging.WARNING) for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("headers", [{XFF: ["192.0.2.9"]}, {FORWARDED: ["for=192.0.2.9"]}, {XFF: [""], FORWARDED: ["?"]}])
@pytest.mark.parametrize("peer", ["10.0.0.1", "2001:db8::1", "testclient"])
@pytest.mark.parametrize("settings", [NOBODY, {"trusted_proxies": ["192.0.2.0/24"]}, RFC])
def test_header_from_a_peer_that_is_not_trusted_warns_once_with_the_fix(
    caplog: pytest.LogCaptureFixture, settings: Mapping[str, Any], peer: str, headers: Mapping[str, Sequence[str]]
) -> None:
    addresses = ClientAddresses(**settings)
    addresses.key(Request(peer))
    assert warned(caplog) == []
    for _ in range(3):
        addresses.key(Request(peer, headers))
    [message] = warned(caplog)
    assert repr(peer) in message
    assert "TRUSTED_PROXIES" in message
    assert "FORWARDED_HEADER" in message


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.9", {XFF: ["192.0.2.9"]}),
        ("192.0.2.9", {XFF: ["6.6.6.6, ?, 192.0.2.9, 10.0.0.1"]}),  # the server has trusted one hop itself
        ("192.0.2.9", {XFF: ["192.0.2.9, ?", "10.0.0.1"]}),  # the server has taken the left-most
        ("192.0.2.9", {XFF: ["10.0.0.1"], FORWARDED: ["for=192.0.2.9"]}),
        ("192.0.2.9", {XFF: [", ".join(["192.0.2.9", *["10.0.0.1"] * 7])]}),
        ("2001:db8::1", {FORWARDED: ['for="[2001:DB8::1]:443"']}),
    ],
)
def test_header_that_the_server_has_followed_does_not_warn(
    caplog: pytest.LogCaptureFixture, peer: str, headers: Mapping[str, Sequence[str]]
) -> None:
    addresses = ClientAddresses()
    assert addresses.key(Request(peer, headers)) == addresses.group(peer)
    assert warned(caplog) == []
    addresses.key(Request("10.0.0.9", headers))  # and it goes on looking
    assert len(warned(caplog)) == 1


def test_search_for_the_peer_in_a_header_ends_after_eight_hops(caplog: pytest.LogCaptureFixture) -> None:
    ClientAddresses().key(Request("192.0.2.9", {XFF: [", ".join(["192.0.2.9", *["10.0.0.1"] * 8])]}))
    assert len(warned(caplog)) == 1


def test_warning_of_a_header_is_the_end_of_looking() -> None:
    addresses = ClientAddresses()
    addresses.key(Request("10.0.0.1", {XFF: ["192.0.2.9"]}))

    class Blind(Request):
        def header_lines(self, name: str) -> Sequence[str]:
            raise AssertionError(name)

    assert addresses.key(Blind("192.0.2.9")) == "192.0.2.9"


@pytest.mark.parametrize("settings", [INSIDE, ONE, INSIDE | RFC])
@pytest.mark.parametrize("headers", [{}, {XFF: ["192.0.2.9, ?"]}, {FORWARDED: ["?"]}])
def test_header_from_a_trusted_peer_does_not_warn(
    caplog: pytest.LogCaptureFixture, settings: Mapping[str, Any], headers: Mapping[str, Sequence[str]]
) -> None:
    ClientAddresses(**settings).key(Request("10.0.0.1", headers))
    assert warned(caplog) == []


@pytest.mark.parametrize(
    ("settings", "lines"),
    [(NOBODY, []), (NOBODY, ["192.0.2.1"]), (UNIX, []), (UNIX, ["unknown"]), (ONE, []), (TWO, ["192.0.2.1"])],
)
@pytest.mark.parametrize("peer", [None, ""])
def test_peer_without_an_address_warns_once_that_all_share_a_bucket(
    caplog: pytest.LogCaptureFixture, settings: Mapping[str, Any], lines: Sequence[str], peer: str | None
) -> None:
    addresses = ClientAddresses(**settings)
    for _ in range(3):
        assert addresses.key(Request(peer, {XFF: lines})) == NO_ADDRESS
    [message] = warned(caplog)
    assert "one bucket" in message
    assert "TRUSTED_PROXIES to ['unix']" in message


@pytest.mark.parametrize("settings", [UNIX, ONE])
def test_peer_without_an_address_does_not_warn_where_a_header_gives_one(
    caplog: pytest.LogCaptureFixture, settings: Mapping[str, Any]
) -> None:
    assert key_of(settings, None, "192.0.2.1") == "192.0.2.1"
    assert warned(caplog) == []


def test_peer_that_is_named_as_the_bucket_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    assert key_of(NOBODY, NO_ADDRESS) == NO_ADDRESS
    assert warned(caplog) == []


def test_warnings_are_each_objects_own(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        key_of(NOBODY, None)
        key_of(NOBODY, "10.0.0.1", "192.0.2.9")
    assert len(warned(caplog)) == 4


# Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        *[
            ("trusted_proxies", value, ["a list of networks and addresses", "the number of your proxies", repr(value)])
            for value in ("10.0.0.0/8", "unix", "*", b"10.0.0.0/8", -1, True, False, 1.0, None, {"10.0.0.0/8"})
        ],
        *[
            ("trusted_proxies", [value], ["'10.0.0.0/8'", repr(value)])
            for value in ("*", "", " 10.0.0.1", "10.0.0", "10.0.0.0/33", "proxy", "unix:", "Unix", "fe80::1%eth0", "010.0.0.1")
        ],
        *[("trusted_proxies", [value], ["'10.0.0.0/8'", repr(value)]) for value in (10, b"\n\0\0\1", None, ["10.0.0.1"])],
        ("trusted_proxies", ["10.0.0.1/8"], ["'10.0.0.1/8'", "write '10.0.0.0/8', or '10.0.0.1' for one address"]),
        ("trusted_proxies", ["2001:db8::1/32"], ["write '2001:db8::/32', or '2001:db8::1' for one address"]),
        ("trusted_proxies", ["10.1.0.0/255.0.0.0"], ["write '10.0.0.0/8', or '10.1.0.0' for one address"]),
        ("trusted_proxies", ["0.0.0.0/0"], ["['0.0.0.0/0']", "all of 0.0.0.0/0"]),
        ("trusted_proxies", ["unix", "::/0"], ["['unix', '::/0']", "all of ::/0"]),
        ("trusted_proxies", ["::ffff:0:0/96"], ["['::ffff:0:0/96']", "all of 0.0.0.0/0"]),
        ("trusted_proxies", ["0.0.0.0/1", "128.0.0.0/1"], ["['0.0.0.0/1', '128.0.0.0/1']", "all of 0.0.0.0/0"]),
        ("trusted_proxies", ["::/1", "10.0.0.0/8", "8000::/1"], ["all of ::/0"]),
        *[
            ("forwarded_header", value, ["'X-Forwarded-For' or 'Forwarded'", repr(value)])
            for value in (
                "",
                "X-Real-IP",
                "X-Forwarded-For, Forwarded",
                "Forwarded ",
                "x_forwarded_for",
                None,
                1,
                [XFF, FORWARDED],
            )
        ],
        *[("ipv6_prefix", value, ["from 1 to 128", repr(value)]) for value in (0, -1, 129, True, 64.0, "64", None)],
    ],
)
def test_setting_that_cannot_work_is_refused_with_its_name_value_and_fix(setting: str, value: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientAddresses(**{setting: value})
    [problem] = caught.value.problems
    assert problem.startswith(f"{setting.upper()} ")
    for word in words:
        assert word in problem


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ClientAddresses(trusted_proxies=["*", "1.2.3.4/0", "::/0"], forwarded_header="Via", ipv6_prefix=0)
    names = [problem.split()[0] for problem in caught.value.problems]
    assert names == ["TRUSTED_PROXIES"] * 4 + ["FORWARDED_HEADER", "IPV6_PREFIX"]


def test_long_value_is_cut_short_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        ClientAddresses(trusted_proxies=["x" * 10_000])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "proxies", [[], (), ["127.0.0.1", "::1"], ["0.0.0.0/1"], ["2000::/3"], ["10.0.0.0/255.0.0.0"], 0, 10**30]
)
def test_setting_that_works_is_kept(proxies: Any) -> None:
    assert ClientAddresses(trusted_proxies=proxies).group("192.0.2.1") == "192.0.2.1"


def test_settings_object_is_not_changed() -> None:
    proxies = ["10.0.0.0/8", "unix"]
    addresses = ClientAddresses(trusted_proxies=proxies)
    proxies.clear()
    assert addresses.key(Request("10.0.0.1", {XFF: ["192.0.2.1"]})) == "192.0.2.1"


# The function that the engine calls ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "key"),
    [
        (None, NO_ADDRESS),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::5", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1%a:b", "192.0.2.1"),
        ("%eth0:", "%eth0:"),
    ],
)
def test_address_key_is_the_key_of_a_peer(peer: str | None, key: str) -> None:
    assert address_key(peer) == key
