"""The token endpoint in Starlette. Run it with ``uvicorn --app-dir examples starlette_app:app``."""

import os
import secrets
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from jwtlimit_core import Claims, Limit, TokenError
from jwtlimit_starlette import RateLimitMiddleware, get_processor, rate_limit

# A real application keeps password hashes, and compares them in constant time.
USERS = {"alice": "wonderland", "bob": "builder"}


@rate_limit("60/m", key="ip")  # attempts from one address, right or wrong
async def token(request: Request) -> Response:
    fields = await form(request)
    username = fields.get("username", "")
    if USERS.get(username) != fields.get("password"):
        return JSONResponse({"error": "wrong user name or password"}, 401)
    claims = Claims(sub=username)
    processor = get_processor(request)
    return JSONResponse(
        {"access_token": await processor.create(claims), "refresh_token": await processor.create_refresh(claims)}
    )


async def refresh(request: Request) -> Response:
    fields = await form(request)
    return JSONResponse({"access_token": await get_processor(request).refresh(fields.get("refresh_token", ""))})


async def me(request: Request) -> Response:
    claims = request.state.jwtlimit.claims  # of the bearer token, verified
    return JSONResponse({"user": claims.sub}) if claims else not_authorized(request)


async def healthz(_request: Request) -> Response:
    return PlainTextResponse("ok")


def not_authorized(_request: Request, _error: Exception | None = None) -> Response:
    headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return PlainTextResponse("the token was not accepted\n", 401, headers)


async def form(request: Request) -> dict[str, str]:
    """Read a form; `request.form()` does the same where python-multipart is installed."""
    return {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}


app = Starlette(
    routes=[
        Route("/token", token, methods=["POST"]),
        Route("/refresh", refresh, methods=["POST"]),
        Route("/me", me),
        Route("/healthz", healthz),
    ],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            secret_key=os.environ.get("JWT_SECRET") or secrets.token_bytes(32),
            issue_rate=os.environ.get("JWT_RATE", "5/30s"),  # tokens for each subject
            store=os.environ.get("JWT_STORE") or "memory",  # redis://… for one limit over all workers
            limits=[Limit("site", "600/m", key="ip")],
            exempt_paths=["/healthz"],
        )
    ],
    exception_handlers={TokenError: not_authorized},
)
