"""User code that is checked and never run: a Flask application. A marked line is wrong, and must stay an error."""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from flask import Flask, Request
from flask.views import MethodView

from jwtlimit_core import Claims, Decision, Processor, Rate, RateLimitExceeded, RegisteredClaims, RequestView
from jwtlimit_core.testing import ManualClock
from jwtlimit_flask import JWTLimit


def refuse_disabled(claims: RegisteredClaims) -> bool:
    return claims.sub != "eve"


def count(decision: Decision, view: RequestView) -> None:
    assert_type((decision.name, view.peer), tuple[str, str | None])


def user_of(request: Request) -> str | None:
    return request.headers.get("X-User")


app = Flask(__name__)
jwtlimit = JWTLimit(app, before_issue=refuse_disabled, on_refused=count, clock=ManualClock())
late = JWTLimit()
assert_type(late.init_app(app), None)
assert_type(jwtlimit.processor, Processor)
assert_type(jwtlimit.reset_all(), None)


@app.post("/token")
@jwtlimit.rate_limit("5/m", key="ip", methods=["POST"], name="login")
@jwtlimit.rate_limit(Rate(1000, 3600), key=user_of, cost=2)
def token() -> tuple[dict[str, str], int]:
    return {"access_token": jwtlimit.processor.create(Claims(sub="ann"))}, 201


assert_type(token, Callable[[], tuple[dict[str, str], int]])
assert_type(token(), tuple[dict[str, str], int])
token("ann")  # type: ignore[call-arg]


@jwtlimit.rate_limit("5/m")
def page(name: str, *, number: int = 1) -> str:
    return f"{name} {number}"


assert_type(page("ann", number=2), str)
page("ann", number="2")  # type: ignore[arg-type]
page()  # type: ignore[call-arg]


@app.get("/me")
@jwtlimit.rate_limit("5/m")
async def me(name: str) -> dict[str, str]:
    return {"name": name}


async def asks() -> None:
    assert_type(await me("ann"), dict[str, str])
    await me(7)  # type: ignore[arg-type]
    assert_type(page("ann"), Coroutine[Any, Any, str])  # type: ignore[assert-type]  # not made asynchronous


class Pages(MethodView):
    decorators = [jwtlimit.rate_limit("5/m")]  # noqa: RUF012

    def get(self) -> str:
        return "page"


@app.errorhandler(RateLimitExceeded)
def too_many(error: RateLimitExceeded) -> tuple[str, int]:
    return f"wait {error.retry_after} s", 429


jwtlimit.rate_limit(rates={"free": "5/m"}, plan=lambda request: "free")
jwtlimit.rate_limit(5)  # type: ignore[arg-type]
jwtlimit.rate_limit("5/m", cost="2")  # type: ignore[arg-type]
jwtlimit.rate_limit("5/m", key=lambda: "k")  # type: ignore[arg-type]
jwtlimit.rate_limit("5/m")("no view")  # type: ignore[arg-type]
jwtlimit.processor = None  # type: ignore[assignment, misc]
JWTLimit("app")  # type: ignore[arg-type]
JWTLimit(app, count)  # type: ignore[call-arg, arg-type]
JWTLimit(app, on_refused=lambda decision: None)  # type: ignore[arg-type, misc]
