"""Whom every framework charges: addresses behind proxies, bodies, headers, users, functions."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hosts import Client, Reply, Request, Route
from jwtlimit_core import Config, Limit, Processor

Serve = Callable[..., Client]
SECRET = "s" * 32
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


async def echo(request: Request) -> Reply:
    return Reply(request.body.decode())


def limited(key: Any, rate: str = "2/h", **options: Any) -> Route:
    return Route(handler=echo, limits=[{"rate": rate, "key": key, "name": "view", **options}])


# Addresses -------------------------------------------------------------------------------------------------------


def test_peers_count_apart_and_ipv6_by_network(serve: Serve) -> None:
    client = serve(limited("ip", "1/h"))
    peers = ("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:192.0.2.1")
    assert [client.ask(peer=peer).status_code for peer in peers] == [200, 200, 200, 429, 200, 429]


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP"])
def test_client_cannot_choose_its_address(serve: Serve, header: str) -> None:
    client = serve(limited("ip"))
    values = [f"for=198.51.100.{n}" if header == "Forwarded" else f"198.51.100.{n}" for n in range(3)]
    assert [client.ask(headers={header: value}).status_code for value in values] == [200, 200, 429]


@pytest.mark.parametrize("proxies", [["10.0.0.0/8"], 1])
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
def test_clients_behind_a_trusted_proxy_count_apart(serve: Serve, proxies: Any, header: str) -> None:
    client = serve(limited("ip", "1/h"), TRUSTED_PROXIES=proxies, FORWARDED_HEADER=header)

    def status(*addresses: str) -> int:
        chain = ", ".join(f"for={address}" if header == "Forwarded" else address for address in addresses)
        return client.ask(headers={header: chain}, peer="10.0.0.7").status_code

    assert [status("198.51.100.1"), status("198.51.100.2"), status("203.0.113.9", "198.51.100.1")] == [200, 200, 429]


def test_repeated_lines_of_a_forwarding_header_are_one_chain(serve: Serve) -> None:
    client = serve(limited("ip", "1/h"), TRUSTED_PROXIES=["10.0.0.0/8"])

    def status(*lines: str) -> int:
        return client.ask(headers=[("X-Forwarded-For", line) for line in lines], peer="10.0.0.7").status_code

    assert status("203.0.113.1", "198.51.100.1") == 200
    assert status("203.0.113.2", "198.51.100.1, 10.0.0.8") == 429


# Bodies ----------------------------------------------------------------------------------------------------------


def test_field_of_a_form_is_charged_and_the_view_reads_it_again(serve: Serve) -> None:
    client = serve(limited("field:user"))
    answers = [client.ask("POST", content=f"user={name}&n=1", headers=FORM) for name in ("ann", "bob", "ann", "ann")]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.text for answer in answers[:3]] == ["user=ann&n=1", "user=bob&n=1", "user=ann&n=1"]


def test_field_of_json_is_charged_and_the_view_reads_it_again(serve: Serve) -> None:
    client = serve(Route(handler=echo), LIMITS=[Limit("login", "1/h", key="field:user")])
    bodies = [json.dumps({"user": name, "n": 1}) for name in ("ann", "bob", "ann")]
    answers = [client.ask("POST", content=body, headers=JSON) for body in bodies]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.text for answer in answers[:2]] == bodies[:2]


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        (FORM, "n=1"),
        (FORM, ""),
        (FORM, "user=ann&user=bob"),
        (JSON, '{"user": 7}'),
        (JSON, "nonsense"),
        ({"Content-Type": "text/plain"}, "user=ann"),
        (FORM, "user=ann&padding=" + "x" * 70_000),
        ({}, "user=ann"),
    ],
)
def test_body_without_the_field_is_charged_to_the_address(serve: Serve, headers: dict[str, str], content: str) -> None:
    client = serve(limited("field:user", "1/h"))
    answer = client.ask("POST", content=content, headers=headers)
    assert (answer.status_code, answer.text) == (200, content)
    assert client.ask("POST", content="", headers=FORM).status_code == 429
    assert client.ask("POST", content=content, headers=headers, peer="192.0.2.2").status_code == 200


def test_upload_in_parts_reaches_the_view_untouched(serve: Serve) -> None:
    async def size(request: Request) -> Reply:
        return Reply(str(len(request.body)))

    client = serve(Route(handler=size, limits=[{"rate": "2/h", "key": "field:user"}]))
    answer = client.ask("POST", data={"user": "ann"}, files={"file": b"x" * 100_000})
    assert answer.status_code == 200
    assert int(answer.text) > 100_000


def test_body_is_read_for_the_settings_and_again_for_the_view(serve: Serve) -> None:
    client = serve(limited("field:page", "9/h"), LIMITS=[Limit("login", "2/h", key="field:user")])
    answers = [client.ask("POST", content="user=ann&page=1", headers=FORM) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[1].text == "user=ann&page=1"


# Headers, users, functions ---------------------------------------------------------------------------------------


def test_header_is_charged_and_its_lack_is_the_address(serve: Serve) -> None:
    client = serve(limited("header:x-api-key", "1/h"))
    keys = ({"X-API-Key": "k1"}, {"x-api-key": "k2"}, {"X-Api-Key": "k1"}, {}, {"X-Other": "k3"})
    assert [client.ask(headers=headers).status_code for headers in keys] == [200, 200, 429, 200, 429]


def test_key_of_several_sources_counts_each_combination(serve: Serve) -> None:
    client = serve(limited(("ip", "field:user"), "1/h"))
    asked = [("ann", "192.0.2.1"), ("ann", "192.0.2.2"), ("bob", "192.0.2.1"), ("ann", "192.0.2.1")]
    statuses = [client.ask("POST", content=f"user={user}", headers=FORM, peer=peer).status_code for user, peer in asked]
    assert statuses == [200, 200, 200, 429]


@pytest.mark.parametrize("name", ["J\u00fcrgen", "\u5c71\u7530", "\U0001f600", "a b&c=d%", "x" * 5_000, "nul\x00", "a:b"])
def test_any_text_is_a_key_of_its_own(serve: Serve, name: str) -> None:
    client = serve(limited("field:user", "1/h"))
    assert client.statuses(2, "POST", json={"user": name}) == [200, 429]
    assert client.statuses(2, "POST", data={"user": name + "!"}) == [200, 429]
    assert client.statuses(1, "POST", data={"user": name}) == [429]


def test_subject_of_a_verified_token_is_charged_and_others_pass(serve: Serve) -> None:
    client = serve(limited("subject", "1/h"), SECRET_KEY=SECRET)
    with Processor(Config(secret_key=SECRET)) as processor:
        tokens = {name: processor.create({"sub": name}) for name in ("ann", "bob")}
    asked = [tokens["ann"], tokens["bob"], tokens["ann"], tokens["ann"] + "x", "nonsense"]
    statuses = [client.ask(headers={"Authorization": f"Bearer {token}"}).status_code for token in asked]
    assert statuses == [200, 200, 429, 200, 200]
    assert client.statuses(3) == [200, 200, 200]


def user_of(request: Any) -> str | None:
    found: str | None = request.headers.get("X-User")
    return found


def test_user_is_what_the_setting_finds_and_nobody_passes(serve: Serve) -> None:
    client = serve(limited("user", "1/h"), USER_KEY=user_of)
    statuses = [client.ask(headers={"X-User": user}).status_code for user in ("ann", "bob", "ann", "", "")]
    assert statuses == [200, 200, 429, 200, 200]


def test_function_of_the_request_may_be_a_key_a_cost_a_plan_and_an_exemption(serve: Serve) -> None:
    client = serve(
        Route(
            handler=echo,
            limits=[
                {
                    "rate": None,
                    "rates": {"free": "2/h", "pro": "6/h"},
                    "plan": lambda request: request.headers["X-Plan"],
                    "key": user_of,
                    "cost": lambda request: int(request.headers["X-Cost"]),
                    "exempt_when": lambda request: request.method == "PUT",
                }
            ],
        )
    )

    def statuses(plan: str, cost: int, method: str = "GET") -> list[int]:
        return client.statuses(3, method, headers={"X-User": plan, "X-Plan": plan, "X-Cost": str(cost)})

    assert statuses("free", 1) == [200, 200, 429]
    assert statuses("free", 1, "PUT") == [200, 200, 200]
    assert statuses("pro", 3) == [200, 200, 429]


def test_function_that_fails_is_an_error_of_the_application_and_charges_nothing(serve: Serve) -> None:
    def key(request: Any) -> str:
        return str(request.headers["X-User"])

    client = serve(limited(key, "9/h"), LIMITS=[Limit("all", "3/h", key="global")])
    assert client.statuses(3) == [500, 500, 500]
    assert client.statuses(4, headers={"X-User": "ann"}) == [200, 200, 200, 429]


def test_chunked_body_has_fields_where_the_framework_reads_such_bodies(serve: Serve, host: Any) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"user="
        yield b"ann"

    async def chunks_async() -> Any:
        for chunk in chunks():
            yield chunk

    awaits = host.name in ("django-async", "starlette")
    client = serve(limited("field:user", "1/h"))
    answers = [
        client.ask("POST", content=chunks_async() if awaits else chunks(), headers=FORM, peer=f"192.0.2.{number}")
        for number in range(2)
    ]
    read = awaits  # WSGI has no chunked bodies but for servers that say so
    assert [answer.status_code for answer in answers] == ([200, 429] if read else [200, 200])
    assert answers[0].text == ("user=ann" if read else "")
