"""Refusals raised anywhere in a Flask application, and its own handlers for them: each wins, and gets our headers once."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, redirect
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException, NotFound, TooManyRequests
from werkzeug.test import TestResponse

from jwtlimit_core import (
    Claims,
    Config,
    InvalidToken,
    JWTLimitError,
    LimiterUnavailable,
    Processor,
    RateLimiter,
    RateLimitExceeded,
)
from jwtlimit_core.testing import ManualClock
from jwtlimit_flask import JWTLimit

Raise = Callable[[], Any]
OUR_HEADERS = ("Cache-Control", "Retry-After", "RateLimit-Policy", "RateLimit")


def exceed() -> None:
    """Spend two tokens where there is one."""
    limiter = RateLimiter(1, 20, name="mine", clock=ManualClock())
    limiter.acquire("k")
    raise RateLimitExceeded(limiter.acquire("k"))


def fail() -> None:
    raise LimiterUnavailable("the store is down", retry_after=2.5)


def assert_headers_of_exceed(answer: TestResponse) -> None:
    """Assert that each of our headers is there, and once."""
    assert [answer.headers.getlist(name) for name in OUR_HEADERS] == [
        ["no-store"],
        ["20"],
        ['"mine";q=1;w=20'],
        ['"mine";r=0;t=20'],
    ]


# Raised anywhere -------------------------------------------------------------------------------------------------


def nested() -> None:
    try:
        json.loads("no json")
    except ValueError as error:
        try:
            exceed()
        except RateLimitExceeded as refusal:
            raise refusal from error


@pytest.mark.parametrize("raiser", [exceed, nested])
@pytest.mark.parametrize(
    "where", ["view", "limited view", "async view", "blueprint view", "before_request", "url_value_preprocessor"]
)
def test_refusal_raised_anywhere_is_the_default_answer(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, raiser: Raise, where: str
) -> None:
    async def coroutine() -> None:
        raiser()

    view: Callable[..., Any] = {"view": raiser, "async view": coroutine}.get(where, lambda: "hello")
    if where == "limited view":
        view = jwtlimit.rate_limit("9/m", name="outer")(raiser)
    elif where == "before_request":
        app.before_request(raiser)
    elif where == "url_value_preprocessor":
        app.url_value_preprocessor(lambda endpoint, values: raiser())
    owner: Flask | Blueprint = app
    if where == "blueprint view":
        owner = Blueprint("api", __name__)
        view = raiser
    owner.add_url_rule("/", "view", view)
    if isinstance(owner, Blueprint):
        app.register_blueprint(owner)
    answer = client.get("/")
    assert (answer.status_code, answer.content_type) == (429, "application/problem+json")
    assert json.loads(answer.data)["violated-policies"] == ["mine"]
    assert_headers_of_exceed(answer)


def test_refusal_by_a_processor_of_its_own_is_answered_too(app: Flask, client: FlaskClient, clock: ManualClock) -> None:
    own = Processor(Config(secret_key="o" * 32, enable_rate_limit=True, rate_limit_rate=1, clock=clock))
    app.add_url_rule("/", "view", lambda: own.create(Claims(sub="ann")))
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]


def test_refusal_that_the_view_handles_itself_leaves_no_trace(app: Flask, client: FlaskClient) -> None:
    def view() -> str:
        with pytest.raises(RateLimitExceeded):
            exceed()
        return "instead"

    app.add_url_rule("/", "view", view)
    answer = client.get("/")
    assert (answer.status_code, answer.data) == (200, b"instead")
    assert not set(OUR_HEADERS) & set(answer.headers.keys())


@pytest.mark.parametrize("limited", [False, True])
def test_store_without_an_answer_is_503_with_retry_after(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, limited: bool
) -> None:
    app.add_url_rule("/", "view", jwtlimit.rate_limit("9/m")(fail) if limited else fail)
    answer = client.get("/")
    assert (answer.status_code, answer.content_type) == (503, "application/problem+json")
    assert (answer.headers["Retry-After"], answer.headers["Cache-Control"]) == ("3", "no-store")
    assert "RateLimit" not in answer.headers
    assert json.loads(answer.data)["status"] == 503


# The application's own handlers ----------------------------------------------------------------------------------


def text(error: Exception) -> tuple[str, int]:
    return f"own answer to {type(error).__name__}", 418


async def coroutine(error: Exception) -> tuple[str, int]:
    return text(error)


def moved(error: Exception) -> Any:
    return redirect("/slow-down")


def response_of_its_own(error: Exception) -> Response:
    return Response("later", 418, {"Retry-After": "7", "Cache-Control": "public", "X-Own": "kept"})


def application(
    jwtlimit: JWTLimit, view: Raise, kind: Any, handler: Callable[..., Any], *, scope: str = "app", before: bool = False
) -> FlaskClient:
    """Return a client of an application whose *view* raises, with *handler* for *kind* in *scope*."""
    app = Flask("app")
    app.testing = True
    blueprint = Blueprint("api", __name__)
    blueprint.add_url_rule("/", "view", view)
    if not before:
        jwtlimit.init_app(app)
    (app if scope == "app" else blueprint).register_error_handler(kind, handler)
    app.register_blueprint(blueprint)
    if before:
        jwtlimit.init_app(app)
    return app.test_client()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("scope", ["app", "blueprint"])
@pytest.mark.parametrize("handler", [text, coroutine])
@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (RateLimitExceeded, "RateLimitExceeded"),
        (JWTLimitError, "RateLimitExceeded"),
        (429, "TooManyRequests"),
        (TooManyRequests, "TooManyRequests"),
        (HTTPException, "TooManyRequests"),
        (Exception, "TooManyRequests"),  # as for abort(429)
    ],
)
def test_handler_of_the_application_wins_and_gets_our_headers(
    jwtlimit: JWTLimit, kind: Any, seen: str, handler: Callable[..., Any], scope: str, before: bool
) -> None:
    answer = application(jwtlimit, exceed, kind, handler, scope=scope, before=before).get("/")
    assert (answer.status_code, answer.text) == (418, f"own answer to {seen}")
    assert_headers_of_exceed(answer)


@pytest.mark.parametrize("scope", ["app", "blueprint"])
@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (LimiterUnavailable, "LimiterUnavailable"),
        (JWTLimitError, "LimiterUnavailable"),
        (503, "ServiceUnavailable"),
        (HTTPException, "ServiceUnavailable"),
        (Exception, "ServiceUnavailable"),
    ],
)
def test_handler_for_an_outage_wins_and_gets_our_headers(jwtlimit: JWTLimit, kind: Any, seen: str, scope: str) -> None:
    answer = application(jwtlimit, fail, kind, text, scope=scope).get("/")
    assert (answer.status_code, answer.text) == (418, f"own answer to {seen}")
    assert answer.headers.getlist("Retry-After") == ["3"]


@pytest.mark.parametrize("kind", [RateLimitExceeded, 429])
@pytest.mark.parametrize(
    ("handler", "status", "header"), [(moved, 302, ("Location", "/slow-down")), (response_of_its_own, 418, ("X-Own", "kept"))]
)
def test_handler_with_an_answer_of_its_own_gets_our_headers_once(
    jwtlimit: JWTLimit, kind: Any, handler: Callable[..., Any], status: int, header: tuple[str, str]
) -> None:
    answer = application(jwtlimit, exceed, kind, handler).get("/")
    assert answer.status_code == status
    assert header in answer.headers.items()
    assert_headers_of_exceed(answer)


@pytest.mark.parametrize("kind", [429, HTTPException, Exception])
def test_handler_that_passes_http_errors_on_gives_the_default_answer(jwtlimit: JWTLimit, kind: Any) -> None:
    answer = application(jwtlimit, exceed, kind, lambda error: error).get("/")
    assert (answer.status_code, answer.content_type) == (429, "application/problem+json")
    assert_headers_of_exceed(answer)


def test_handler_for_429_finds_our_error_as_the_cause(jwtlimit: JWTLimit) -> None:
    def cause(error: TooManyRequests) -> dict[str, object]:
        assert isinstance(error.__cause__, RateLimitExceeded)
        return {"wait": error.__cause__.retry_after, "code": error.code}

    assert application(jwtlimit, exceed, 429, cause).get("/").json == {"wait": 20.0, "code": 429}


def test_handlers_of_blueprint_and_app_are_chosen_as_flask_chooses(app: Flask, client: FlaskClient) -> None:
    inner, outer = Blueprint("inner", __name__), Blueprint("outer", __name__)
    for blueprint in (inner, outer):
        blueprint.add_url_rule(f"/{blueprint.name}", "view", exceed)
    app.register_error_handler(429, lambda error: "app")
    inner.register_error_handler(JWTLimitError, lambda error: "blueprint")
    outer.register_error_handler(Exception, lambda error: "never: a status code goes before a class")
    for blueprint in (inner, outer):
        app.register_blueprint(blueprint)
    assert [client.get(path).text for path in ("/inner", "/outer")] == ["blueprint", "app"]


def test_handler_of_the_innermost_blueprint_is_asked_first(app: Flask, client: FlaskClient) -> None:
    inner, outer = Blueprint("inner", __name__), Blueprint("outer", __name__)
    for blueprint in (inner, outer):
        blueprint.register_error_handler(RateLimitExceeded, lambda error, name=blueprint.name: name)
    inner.add_url_rule("/", "view", exceed)
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    assert client.get("/").text == "inner"


# What is not ours ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("theirs"), InvalidToken("ours, but no refusal")])
def test_other_exception_passes_untouched(app: Flask, client: FlaskClient, error: Exception) -> None:
    def view() -> None:
        raise error

    app.add_url_rule("/", "view", view)
    with pytest.raises(type(error)) as caught:
        client.get("/")
    assert caught.value is error
    app.testing = False
    answer = client.get("/")
    assert answer.status_code == 500
    assert not set(OUR_HEADERS) & set(answer.headers.keys())


def test_other_http_error_of_a_limited_view_keeps_what_it_was_told(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    def view() -> None:
        raise NotFound

    app.add_url_rule("/", "view", jwtlimit.rate_limit("9/m", name="view")(view))
    answer = client.get("/")
    assert (answer.status_code, answer.headers["RateLimit"]) == (404, '"view";r=8;t=7')
    assert "Retry-After" not in answer.headers
    assert client.get("/nowhere").status_code == 404


def test_after_request_hooks_of_the_application_see_the_refusal(app: Flask, client: FlaskClient) -> None:
    seen: list[int] = []

    def hook(response: Response) -> Response:
        seen.append(response.status_code)
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    app.after_request(hook)
    app.add_url_rule("/", "view", exceed)
    answer = client.get("/")
    assert seen == [429]
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert_headers_of_exceed(answer)


def test_on_refused_is_called_once_for_each_refusal(make_app: Callable[..., Flask]) -> None:
    seen: list[tuple[str, str | None]] = []
    extension = JWTLimit(on_refused=lambda decision, view: seen.append((decision.name, view.peer)))
    app = make_app(extension)
    app.add_url_rule("/", "view", exceed)
    app.register_error_handler(429, text)
    assert [app.test_client().get("/").status_code for _ in range(2)] == [418, 418]
    assert seen == [("mine", "127.0.0.1")] * 2
