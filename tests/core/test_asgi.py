"""Requests of ASGI as their scope shows them, and headers on the message with which an answer begins."""

import asyncio
from typing import Any

import pytest

from jwtlimit_core import ConfigError
from jwtlimit_core.asgi import ScopeView, with_headers


def view(**scope: Any) -> ScopeView:
    return ScopeView({"method": "GET", "path": "/", "headers": [], **scope}, None)


@pytest.mark.parametrize(
    ("root_path", "path", "expected"),
    [
        ("", "/api/a", "/api/a"),
        ("/api", "/api/a", "/a"),
        ("/api", "/api", ""),
        ("/api", "/apis", "/apis"),
        ("/api", "/a", "/a"),  # of a server that leaves it out
    ],
)
def test_scope_view_has_the_path_below_the_root(root_path: str, path: str, expected: str) -> None:
    assert view(root_path=root_path, path=path).path == expected


def test_scope_view_of_what_the_scope_leaves_out() -> None:
    handshake = ScopeView({"type": "websocket", "path": "/", "headers": []}, None)
    assert (handshake.method, handshake.peer) == ("GET", None)
    assert (view(method="post").method, view(client=("192.0.2.1", 7)).peer) == ("POST", "192.0.2.1")


def test_scope_view_has_the_first_of_a_header_and_all_its_lines() -> None:
    seen = view(headers=[(b"x-a", b"1"), (b"x-b", b"\xe9"), (b"x-a", b"2")])
    assert (seen.header("X-A"), seen.header_lines("X-A")) == ("1", ["1", "2"])
    assert (seen.header("x-b"), seen.header("x-c"), seen.header_lines("x-c")) == ("\xe9", None, [])


def test_scope_view_without_a_middleware_knows_no_body() -> None:
    with pytest.raises(ConfigError, match="RateLimitMiddleware"):
        view().body(9)


def test_with_headers_takes_the_place_of_those_of_the_same_names_and_leaves_the_message_alone() -> None:
    message = {"type": "http.response.start", "status": 429, "headers": [(b"Retry-After", b"9"), (b"x", b"y")]}
    assert with_headers(message, ()) is message
    answer = with_headers(message, (("Retry-After", "3"),))
    assert answer == {**message, "headers": [(b"x", b"y"), (b"retry-after", b"3")]}
    assert message["headers"] == [(b"Retry-After", b"9"), (b"x", b"y")]
    assert with_headers({"status": 200}, (("A", "b"),))["headers"] == [(b"a", b"b")]


def test_scope_view_knows_no_users_and_nothing_of_a_framework() -> None:
    assert view().raw is None
    with pytest.raises(ConfigError, match="set user_key to a function"):
        view().user()()


@pytest.mark.parametrize(("name", "is_forwarded"), [(b"x-forwarded-for", True), (b"forwarded", True), (b"x-forwarded", False)])
def test_scope_view_tells_whether_it_was_forwarded(name: bytes, is_forwarded: bool) -> None:
    assert view(headers=[(b"host", b"a"), (name, b"1")]).is_forwarded is is_forwarded
    assert view().is_forwarded is False


def test_scope_view_asks_a_server_no_more_once_that_has_said_that_the_client_left() -> None:
    messages = [{"type": "http.request", "body": b"user=a", "more_body": True}, {"type": "http.disconnect"}]
    told = messages[:]

    async def receive() -> Any:
        return told.pop(0)  # some servers say it once, and then wait for ever

    async def main() -> list[Any]:
        seen = ScopeView({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
        found = [await seen.body(99)() for _ in range(2)]
        return [*found, await seen.messages.receive(), await seen.messages.receive()]

    assert asyncio.run(main()) == [None, None, *messages]


@pytest.mark.parametrize(("size", "found"), [(65_536, b"x" * 65_536), (65_537, None)])
def test_scope_view_has_no_longer_body_than_it_keeps_whatever_is_asked_for(size: int, found: bytes | None) -> None:
    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * size}

    seen = ScopeView({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    assert asyncio.run(seen.body(99_999)()) == found


def test_scope_view_knows_a_whole_body_for_good_though_the_client_leaves_after_it() -> None:
    messages = [{"type": "http.request", "body": b"user=a", "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def main() -> bytes | None:
        seen = ScopeView({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
        types = [(await seen.messages.receive())["type"] for _ in range(2)]
        assert types == ["http.request", "http.disconnect"]
        found: bytes | None = await seen.body(99)()
        return found

    assert asyncio.run(main()) == b"user=a"
