"""What the settings of client addresses take, and what is warned of."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from forwarded import FORWARDED, INSIDE, NOBODY, ONE, RFC, TWO, UNIX, XFF, Request, key_of
from jwtlimit_core import ConfigError
from jwtlimit_core.client_address import NO_ADDRESS, ClientAddresses

# Warnings --------------------------------------------------------------------------------------------------------


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all((record.name, record.levelno) == ("jwtlimit", logging.WARNING) for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("headers", [{XFF: ["192.0.2.9"]}, {FORWARDED: ["for=192.0.2.9"]}, {XFF: [""]}, {FORWARDED: ["?"]}])
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
        @property
        def is_forwarded(self) -> bool:
            raise AssertionError

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
