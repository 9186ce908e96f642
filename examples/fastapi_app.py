"""The token endpoint in FastAPI. Run it with ``uvicorn --app-dir examples fastapi_app:app``."""

import os
import secrets
from typing import Annotated

from fastapi import Depends, FastAPI, Form, HTTPException, Request
from fastapi.responses import PlainTextResponse, Response

from jwtlimit_core import AsyncProcessor, Claims, Limit, TokenError
from jwtlimit_starlette import RateLimit, RateLimitMiddleware, add_exception_handlers, get_processor

app = FastAPI()
app.add_middleware(
    RateLimitMiddleware,
    secret_key=os.environ.get("JWT_SECRET") or secrets.token_bytes(32),
    issue_rate=os.environ.get("JWT_RATE", "5/30s"),  # tokens for each subject
    store=os.environ.get("JWT_STORE") or "memory",  # redis://… for one limit over all workers
    limits=[Limit("site", "600/m", key="ip")],
    exempt_paths=["/healthz"],
)
add_exception_handlers(app)

# A real application keeps password hashes, and compares them in constant time.
USERS = {"alice": "wonderland", "bob": "builder"}
Tokens = Annotated[AsyncProcessor, Depends(get_processor)]


@app.post("/token", dependencies=[Depends(RateLimit("60/m", key="ip"))])  # attempts from one address, right or wrong
async def token(username: Annotated[str, Form()], password: Annotated[str, Form()], tokens: Tokens) -> dict[str, str]:
    if USERS.get(username) != password:
        raise HTTPException(401, "wrong user name or password")
    claims = Claims(sub=username)
    return {"access_token": await tokens.create(claims), "refresh_token": await tokens.create_refresh(claims)}


@app.post("/refresh")
async def refresh(refresh_token: Annotated[str, Form()], tokens: Tokens) -> dict[str, str]:
    return {"access_token": await tokens.refresh(refresh_token)}


@app.get("/me")
async def me(request: Request) -> dict[str, str | None]:
    claims = request.state.jwtlimit.claims  # of the bearer token, verified
    if claims is None:
        raise HTTPException(401, "the token was not accepted", {"WWW-Authenticate": 'Bearer error="invalid_token"'})
    return {"user": claims.sub}


@app.get("/healthz")
async def healthz() -> str:
    return "ok"


@app.exception_handler(TokenError)
async def not_authorized(_request: Request, _error: Exception) -> Response:
    headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return PlainTextResponse("the token was not accepted\n", 401, headers)
