"""Starlette on trio, an event loop of its own: what works there, and what says that it does not."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from adapters.starlette_client import SECRET, Answer, Sent, hello, make_app, scope_of
from jwtlimit_core import ConfigError, Limit
from jwtlimit_starlette import get_processor, get_sync_processor, rate_limit


async def token(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await get_processor(request).create({"sub": "ann"}))


def in_thread(request: Request) -> PlainTextResponse:
    return PlainTextResponse(get_sync_processor(request).create({"sub": "ann"}))


async def on_loop(request: Request) -> PlainTextResponse:
    return PlainTextResponse(get_sync_processor(request).create({"sub": "ann"}))


def statuses(app: Any, count: int = 3, **scope: Any) -> list[int]:
    async def main() -> list[int]:
        answers = [Answer() for _ in range(count)]
        for answer in answers:
            await app(scope_of(**scope), Sent().receive, answer.send)
        return [answer.status for answer in answers]

    return trio.run(main)


@rate_limit("2/m")
async def limited(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@pytest.mark.parametrize("endpoint", [token, in_thread, limited])
def test_limits_hold_on_trio(endpoint: Callable[..., Any]) -> None:
    assert statuses(make_app(Route("/", endpoint), secret_key=SECRET, issue_rate="2/m")) == [200, 200, 429]
    assert statuses(make_app(Route("/", endpoint), secret_key=SECRET, limits=[Limit("site", "1/m")])) == [200, 429, 429]


def test_processor_for_threads_is_a_config_error_on_trio() -> None:
    with pytest.raises(ConfigError, match="use get_processor there"):
        statuses(make_app(Route("/", on_loop), secret_key=SECRET))


def test_store_is_a_config_error_on_trio() -> None:
    app = make_app(Route("/", hello), limits=[Limit("site", "1/m")], store="redis://localhost:1/0", on_failure="allow")
    with pytest.raises(ConfigError, match="needs the event loop of asyncio"):
        statuses(app)


def test_settings_that_cannot_work_are_told_to_the_server_on_trio() -> None:
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        messages.append(message)

    with pytest.raises(ConfigError, match="often"):
        trio.run(make_app(Route("/", hello), issue_rate="often"), {"type": "lifespan"}, receive, send)
    assert messages[0]["type"] == "lifespan.startup.failed"


def test_application_ends_on_trio() -> None:
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    app = make_app(Route("/", hello), secret_key=SECRET)
    trio.run(app, {"type": "lifespan", "state": {}}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
