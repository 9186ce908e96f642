"""Endpoints whose annotations are strings: one that can be evaluated, and one that only type checkers can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette import requests
    from starlette.requests import Request
    from starlette.websockets import WebSocket


async def connected(asked: HTTPConnection) -> PlainTextResponse:
    return PlainTextResponse("connected")


async def checked(asked: Request) -> PlainTextResponse:
    return PlainTextResponse("checked")


async def dotted(asked: requests.Request) -> PlainTextResponse:
    return PlainTextResponse("dotted")


async def socket(asked: WebSocket) -> None: ...
