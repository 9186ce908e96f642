"""Whom a request comes from: the peer, or the client that trusted proxies name, by examples."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from forwarded import FORWARDED, INSIDE, NOBODY, ONE, RFC, THREE, TWO, UNIX, XFF, Request, key_of
from jwtlimit_core.client_address import NO_ADDRESS, ClientAddresses


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
