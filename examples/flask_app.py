"""A token endpoint that cannot be abused. Run it with ``flask --app examples/flask_app.py run``."""

import os
import secrets

from flask import Flask, Response, request

from jwtlimit_core import Claims, Limit, TokenError
from jwtlimit_flask import JWTLimit

app = Flask(__name__)
app.config["JWTLIMIT_SECRET_KEY"] = os.environ.get("JWT_SECRET") or secrets.token_bytes(32)
app.config["JWTLIMIT_ISSUE_RATE"] = os.environ.get("JWT_RATE", "5/30s")  # tokens for each subject
app.config["JWTLIMIT_STORE"] = os.environ.get("JWT_STORE") or "memory"  # redis://… for one limit over all workers
app.config["JWTLIMIT_LIMITS"] = [Limit("site", "600/m", key="ip")]
app.config["JWTLIMIT_EXEMPT_PATHS"] = ["/healthz"]
jwtlimit = JWTLimit(app)

# A real application keeps password hashes, and compares them in constant time.
USERS = {"alice": "wonderland", "bob": "builder"}


@app.post("/token")
@jwtlimit.rate_limit("60/m", key="ip")  # attempts from one address, right or wrong
def token() -> dict[str, str] | tuple[dict[str, str], int]:
    username = request.form.get("username", "")
    if USERS.get(username) != request.form.get("password"):
        return {"error": "wrong user name or password"}, 401
    claims = Claims(sub=username)
    return {
        "access_token": jwtlimit.processor.create(claims),
        "refresh_token": jwtlimit.processor.create_refresh(claims),
    }


@app.post("/refresh")
def refresh() -> dict[str, str]:
    return {"access_token": jwtlimit.processor.refresh(request.form.get("refresh_token", ""))}


@app.get("/me")
def me() -> dict[str, str | None]:
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    claims = jwtlimit.processor.validate(bearer if scheme.lower() == "bearer" else "")
    return {"user": claims.sub}


@app.get("/healthz")
def healthz() -> str:
    return "ok"


@app.errorhandler(TokenError)
def not_authorized(_error: TokenError) -> Response:
    return Response("the token was not accepted\n", 401, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
