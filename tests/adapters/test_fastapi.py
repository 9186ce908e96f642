"""FastAPI: `rate_limit` on path operations, and what the middleware does around it."""

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Form, Request
from fastapi.exceptions import HTTPException
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel

from adapters.fastapi_applications import make_app
from adapters.starlette_client import FORM, JSON, OURS_EXCEEDED, SECRET, get, make_exceeded, statuses
from jwtlimit_core import AsyncProcessor, ConfigError, Limit
from jwtlimit_starlette import (
    exempt,
    get_processor,
    rate_limit,
    reset_all,
)

ONE = [Limit("api", "1/m")]
REFUSED = [200, 429, 429]


class Login(BaseModel):
    user: str
    code: int = 0


# The decorator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("middleware", [True, False])
def test_path_operation_keeps_its_parameters_and_its_result(middleware: bool) -> None:
    app = make_app(middleware=middleware)

    @app.post("/{number}")
    @rate_limit("2/m", key="ip", name="view")
    async def view(number: int, login: Login, asked: Request, x: str = "none") -> dict[str, Any]:
        return {"number": number, "user": login.user, "x": x, "method": asked.method}

    options: Any = {"method": "POST", "headers": JSON}
    good = get(app, "/7?x=y", chunks=[b'{"user": "ann"}'], **options)
    assert (good.status, good.json) == (200, {"number": 7, "user": "ann", "x": "y", "method": "POST"})
    assert good.ours[2] == (['"view";q=2;w=60'] if middleware else [])
    assert get(app, "/7", chunks=[b'{"user": 7}'], **options).status == 422  # it was not called, nor charged
    assert [get(app, "/7", chunks=[b'{"user": "ann"}'], **options).status for _ in range(2)] == [200, 429]
    operation = app.openapi()["paths"]["/{number}"]["post"]
    assert [each["name"] for each in operation["parameters"]] == ["number", "x"]


def test_plain_path_operation_is_limited_in_the_pool() -> None:
    app = make_app()

    @app.get("/")
    @rate_limit("1/m")
    def view(request: Request) -> str:
        return "plain"

    assert statuses(app, count=3) == REFUSED


def test_path_operation_without_a_request_is_told_of_the_dependency() -> None:
    with pytest.raises(ConfigError, match=r"request: Request, or use dependencies=\[Depends\(RateLimit\(...\)\)\]"):

        @rate_limit("1/m")
        async def view(number: int) -> int:
            return number


@pytest.mark.parametrize(("headers", "body"), [(JSON, b'{"user": "%s"}'), (FORM, b"user=%s&code=1")], ids=["json", "form"])
def test_field_is_seen_after_fastapi_has_parsed_the_body(headers: Any, body: bytes) -> None:
    app = make_app(limits=[Limit("api", "9/m", key="field:user", methods=["PUT"])])
    if headers is JSON:

        @app.post("/")
        @app.put("/")
        @rate_limit("1/m", key="field:user", name="login")
        async def view(request: Request, login: Login) -> str:
            return login.user
    else:

        @app.post("/")
        @app.put("/")
        @rate_limit("1/m", key="field:user", name="login")
        async def view_form(request: Request, user: Annotated[str, Form()], code: Annotated[int, Form()]) -> str:
            return user

    for name, method in ((b"ann", "POST"), (b"bob", "PUT")):
        chunks = [body % name]
        answers = [get(app, method=method, headers=headers, chunks=chunks) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        assert answers[0].json == name.decode()


# The rest --------------------------------------------------------------------------------------------------------


def test_refusal_of_the_processor_is_answered_and_the_processor_is_a_dependency() -> None:
    app = make_app(secret_key=SECRET, issue_rate="1/m")

    @app.post("/token")
    async def token(processor: Annotated[AsyncProcessor, Depends(get_processor)]) -> str:
        return await processor.create({"sub": "ann"})

    assert statuses(app, "/token", 3, method="POST") == REFUSED
    assert get(app, "/token", method="POST").json["violated-policies"] == ["issue"]
    reset_all(app)
    assert statuses(app, "/token", 1, method="POST") == [200]


def test_default_handlers_of_fastapi_do_not_replace_problem_details() -> None:
    app = make_app(limits=ONE)
    assert statuses(app, count=2) == [404, 429]
    assert get(app).headers["content-type"] == "application/problem+json"


def test_handler_of_fastapis_own_exception_is_for_that_alone() -> None:
    app = make_app(limits=ONE)

    @app.exception_handler(HTTPException)
    async def theirs(request: Request, error: Any) -> PlainTextResponse:
        raise AssertionError("it is a subclass")

    assert statuses(app, count=2) == [404, 429]


def test_exempt_path_operations_are_found_in_included_routers_and_mounts() -> None:
    app = make_app(limits=ONE)
    inner, outer = APIRouter(prefix="/inner"), APIRouter(prefix="/outer")
    mounted = FastAPI()

    for router in (inner, mounted):

        @router.get("/free/{number}")
        @exempt
        async def free(number: int) -> int:
            return number

        @router.get("/charged")
        async def charged() -> str:
            return ""

    outer.include_router(inner)
    app.include_router(outer)
    app.mount("/mounted", mounted)
    for path in ("/outer/inner", "/mounted"):
        assert statuses(app, f"{path}/free/7", 3) == [200] * 3
    assert statuses(app, "/outer/inner/charged", 2) == [200, 429]
    assert statuses(app, "/mounted/charged", 1) == [429]


def test_refusal_that_a_dependency_raises_itself_is_answered() -> None:
    async def refuse() -> None:
        raise make_exceeded()

    app = make_app()

    @app.get("/", dependencies=[Depends(refuse)])
    async def view() -> StreamingResponse:
        raise AssertionError("never called")

    assert (get(app).status, get(app).ours) == (429, OURS_EXCEEDED)
