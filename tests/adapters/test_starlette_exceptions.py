"""The Starlette middleware around an application that fails, refuses or is cancelled, and what is put back then."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from adapters.starlette_client import Answer, Sent, ask, get, hello, make_app, make_exceeded, scope_of, statuses
from jwtlimit_core import Limit
from jwtlimit_starlette import RateLimitMiddleware

TEN = [Limit("api", "10/m")]


def failing(error: Exception, *, after: list[Any] | None = None) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope["path"])
        for message in after or []:
            await send(message)
        raise error

    calls: list[str] = []
    app.calls = calls  # type: ignore[attr-defined]
    return app


@pytest.mark.parametrize("error", [RuntimeError("theirs"), make_exceeded()])
def test_exception_after_the_start_of_the_answer_is_raised_as_it_is(error: Exception) -> None:
    refunds: list[int] = []
    app = failing(error, after=[{"type": "http.response.start", "status": 200, "headers": []}])
    limit = Limit("api", "9/m", refund_when=lambda status, headers: refunds.append(status))
    answer = Answer()
    with pytest.raises(type(error)) as caught:
        asyncio.run(RateLimitMiddleware(app, limits=[limit])(scope_of(), Sent().receive, answer.send))
    assert caught.value is error
    assert (len(app.calls), len(answer.messages), refunds) == (1, 1, [200])


def test_exception_of_the_application_passes_and_is_settled_as_a_500() -> None:
    settled: list[Any] = []
    error = RuntimeError("theirs")
    app = failing(error)

    def refund(status: int, headers: Any) -> bool:
        settled.append((status, len(headers)))
        return status == 500

    middleware = RateLimitMiddleware(app, limits=[Limit("api", "1/m", refund_when=refund)])
    for _ in range(3):
        with pytest.raises(RuntimeError) as caught:
            get(middleware)
        assert caught.value is error
    assert (settled, len(app.calls)) == ([(500, 0)] * 3, 3)


def test_refusal_that_leaves_the_application_is_answered_and_it_is_called_once() -> None:
    app = failing(make_exceeded())
    answer = get(RateLimitMiddleware(app))
    assert (answer.status, len(app.calls), answer.ours[1]) == (429, 1, ["20"])


def test_refund_sees_the_headers_of_the_answer() -> None:
    async def endpoint(request: Request) -> Response:
        return Response("", headers={"X-Cached": "yes"})

    limit = Limit("api", "1/m", refund_when=lambda status, headers: headers.get("x-cached") == "yes")
    assert statuses(make_app(Route("/", endpoint), limits=[limit]), count=3) == [200] * 3


def test_refund_sees_a_refusal_by_a_later_limit() -> None:
    limits = [Limit("ip", "2/m", refund_when=lambda status, headers: status == 429), Limit("all", "1/m", key="global")]
    app = make_app(limits=limits)
    answers = [get(app) for _ in range(4)]
    assert [answer.json["violated-policies"] for answer in answers[1:]] == [["all"]] * 3


def test_cancelled_request_leaves_the_next_ones_alone() -> None:
    waiting = asyncio.Semaphore(0)

    async def slow(request: Request) -> Response:
        waiting.release()
        await asyncio.get_running_loop().create_future()
        return Response("")

    app = make_app(Route("/slow", slow), Route("/", hello), limits=TEN)

    async def drive() -> list[int]:
        tasks = [asyncio.create_task(ask(app, "/slow")) for _ in range(9)]
        for _ in tasks:
            await waiting.acquire()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [(await ask(app)).status for _ in range(2)]

    assert asyncio.run(drive()) == [200, 429]  # cancelled, but charged
