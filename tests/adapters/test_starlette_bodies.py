"""Limits by a field of the body, and functions that read it: the application gets every message all the same."""

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from adapters.starlette_client import FORM, JSON, Answer, Sent, get, make_app, scope_of, statuses
from jwtlimit_core import Limit
from jwtlimit_core.asgi import Body
from jwtlimit_core.body import MOST_BODY_BYTES
from jwtlimit_starlette import rate_limit

BY_USER = [Limit("login", "1/m", key="field:user")]
ANN = [b'{"user"', b': "a', b'nn"}']


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def form(request: Request) -> Response:
    return JSONResponse(dict(await request.form()))


async def chunks(request: Request) -> Response:
    return JSONResponse([chunk.decode() async for chunk in request.stream()])


async def unread(request: Request) -> Response:
    return PlainTextResponse("")


def posting(endpoint: Any, **settings: Any) -> Any:
    return make_app(Route("/", endpoint, methods=["POST"]), **settings)


def read_first(endpoint: Any) -> Any:
    """Make the limit on *endpoint* look at the body after it was read."""
    limited = rate_limit("1/m", key="field:user", name="login")(endpoint)

    async def read(request: Request) -> Response:
        await request.body()
        answer: Response = await limited(request)
        return answer

    return read


def limited(endpoint: Any) -> Any:
    return rate_limit("1/m", key="field:user", name="login")(endpoint)


APPS = {
    "middleware": lambda endpoint: posting(endpoint, limits=BY_USER),
    "endpoint": lambda endpoint: posting(limited(endpoint)),
    "both": lambda endpoint: posting(limited(endpoint), limits=[Limit("api", "9/m", key="field:user")]),
}


@pytest.mark.parametrize("make", APPS.values(), ids=APPS)
def test_limit_by_a_field_of_json_is_for_each_value(make: Any) -> None:
    app = make(echo)
    answers = [get(app, method="POST", headers=JSON, chunks=ANN) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[0].text == '{"user": "ann"}'
    assert statuses(app, count=2, method="POST", headers=JSON, chunks=[b'{"user": "bob"}']) == [200, 429]


@pytest.mark.parametrize("make", APPS.values(), ids=APPS)
def test_limit_by_a_field_of_a_form_is_for_each_value(make: Any) -> None:
    app = make(form)
    answers = [get(app, method="POST", headers=FORM, chunks=[b"user=", b"ann&x=", b"1"]) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[0].json == {"user": "ann", "x": "1"}


@pytest.mark.parametrize("make", APPS.values(), ids=APPS)
def test_application_gets_every_chunk_as_it_was_sent(make: Any) -> None:
    assert get(make(chunks), method="POST", headers=JSON, chunks=ANN).json == [chunk.decode() for chunk in [*ANN, b""]]


def test_limit_on_an_endpoint_sees_a_body_that_was_read_before() -> None:
    app = posting(read_first(echo))
    answers = [get(app, method="POST", headers=JSON, chunks=ANN) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[0].text == '{"user": "ann"}'


@pytest.mark.parametrize("make", [*APPS.values(), lambda endpoint: posting(read_first(endpoint))])
@pytest.mark.parametrize("padding", [0, 1, MOST_BODY_BYTES])
def test_body_that_is_too_long_is_charged_to_the_address_and_passes_whole(make: Any, padding: int) -> None:
    head = b'{"user": "ann", "x": "'
    body = [head, b"x" * (MOST_BODY_BYTES - len(head) - 2 + padding), b'"}']
    app = make(echo)
    answers = [get(app, method="POST", headers=JSON, chunks=body, peer=peer) for peer in ("192.0.2.1", "192.0.2.2")]
    # Of the longest body the user counts, of a longer one the two addresses.
    assert [answer.status for answer in answers] == [200, 429 if padding == 0 else 200]
    assert answers[0].text == b"".join(body).decode()


def test_too_long_body_is_read_no_further_than_it_must() -> None:
    pulled: list[int] = []

    async def receive() -> Any:
        pulled.append(len(pulled))
        return {"type": "http.request", "body": b"x" * 1024, "more_body": True}

    answer = Answer()
    app = posting(unread, limits=BY_USER)
    asyncio.run(app(scope_of(method="POST", headers=JSON), receive, answer.send))
    assert (answer.status, len(pulled)) == (200, MOST_BODY_BYTES // 1024 + 1)


def test_body_of_another_type_is_not_waited_for() -> None:
    async def receive() -> Any:
        raise AssertionError("nobody needs it")

    answer = Answer()
    headers = {"content-type": "multipart/form-data; boundary=x"}
    asyncio.run(posting(unread, limits=BY_USER)(scope_of(method="POST", headers=headers), receive, answer.send))
    assert answer.status == 200


@pytest.mark.parametrize("read", [0, 1])
def test_client_that_leaves_amid_the_body_is_charged_to_its_address(read: int) -> None:
    app = posting(unread, limits=BY_USER)
    sent = {"method": "POST", "headers": JSON, "chunks": ANN[:1], "leaves": True}
    assert statuses(app, count=2, **sent) == [200, 429]
    assert statuses(app, count=1, peer="192.0.2.2", **sent) == [200]


@pytest.mark.parametrize("before", [[], [Limit("field", "9/m", key="field:user")]])
def test_function_of_a_limit_may_read_the_body_itself(before: Any) -> None:
    async def user(request: Request) -> str:
        return str(json.loads(await request.body())["user"])

    async def cost(request: Request) -> int:
        return len(await request.body()) // 15

    app = posting(chunks, limits=[*before, Limit("mine", "1/m", key=user, cost=cost)])
    answers = [get(app, method="POST", headers=JSON, chunks=ANN) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[0].json == [chunk.decode() for chunk in [*ANN, b""]]
    assert get(app, method="POST", headers=JSON, chunks=[b'{"user": "bob"}']).status == 200


def test_long_body_that_nobody_asked_for_is_not_kept() -> None:
    sent = Sent([b"x" * 8192] * 100)
    body = Body(sent.receive)

    async def drain() -> None:
        while sent.left:
            assert (await body.receive())["body"] == b"x" * 8192
            assert sum(map(len, body._chunks)) <= MOST_BODY_BYTES

    asyncio.run(drain())
