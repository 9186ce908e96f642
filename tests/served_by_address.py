"""An application with one limit by address, to be served by uvicorn in one way or another."""

import os

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from jwtlimit_core import Limit
from jwtlimit_starlette import RateLimitMiddleware


async def hello(_request: object) -> PlainTextResponse:
    return PlainTextResponse("hello")


app = Starlette(
    routes=[Route("/", hello), Route("/healthz", hello)],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            limits=[Limit("site", "1/h", key="ip")],
            exempt_paths=["/healthz"],
            trusted_proxies=os.environ["PROXIES"].split(),
        )
    ],
)
