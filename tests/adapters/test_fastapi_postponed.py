"""FastAPI in a module whose annotations are strings."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Form, Request
from pydantic import BaseModel

from adapters.starlette_client import FORM, JSON, get
from jwtlimit_core import AsyncProcessor, ConfigError
from jwtlimit_starlette import RateLimit, RateLimitMiddleware, get_processor, rate_limit

app = FastAPI()
app.add_middleware(RateLimitMiddleware, secret_key="s" * 32)


class Login(BaseModel):
    user: str


@app.post("/json/{number}")
@rate_limit("9/m", name="outer")
@rate_limit("1/m", key="field:user", name="inner")
async def json_view(number: int, login: Login, asked: Request) -> Login:
    return login


@app.post("/form")
@rate_limit("1/m", key="field:user")
def form_view(asked: Request, user: Annotated[str, Form()]) -> dict[str, str]:
    return {"user": user}


@app.post("/token", dependencies=[Depends(RateLimit("1/m"))])
async def token(processor: Annotated[AsyncProcessor, Depends(get_processor)]) -> str:
    return await processor.create({"sub": "ann"})


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/json/7", {"headers": JSON, "chunks": [b'{"user": "ann"}']}),
        ("/form", {"headers": FORM, "chunks": [b"user=ann"]}),
        ("/token", {}),
    ],
)
def test_path_operation_with_postponed_annotations_is_limited(path: str, options: dict[str, Any]) -> None:
    assert [get(app, path, method="POST", **options).status for _ in range(2)] == [200, 429]


def test_path_operation_without_a_request_is_refused_with_postponed_annotations_too() -> None:
    with pytest.raises(ConfigError, match="no parameter for its request"):
        rate_limit("1/m")(token)
