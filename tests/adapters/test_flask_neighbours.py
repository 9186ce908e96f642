"""Other code around a Flask application and in it, which takes exceptions, environs and answers into its own hands."""

import gc
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from unittest import mock

import pytest
from flask import Flask, Response, g, request
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Response as WSGIResponse

from jwtlimit_core import Limit, RateLimitExceeded
from jwtlimit_flask import JWTLimit

MakeApp = Callable[..., Flask]


def answers_exceptions(app: Flask) -> None:
    """Do as extensions for APIs do: make an answer of every exception, and 500 of what is no `HTTPException`."""

    def route(inner: Callable[..., Any], *arguments: Any) -> Any:
        return inner(*arguments) if isinstance(arguments[-1], HTTPException) else Response("it broke", 500)

    app.handle_user_exception = partial(route, app.handle_user_exception)  # type: ignore[method-assign]


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize("path", ["/limited", "/decorated", "/token"])
def test_refusal_is_answered_beside_an_extension_that_answers_exceptions(first: str, path: str) -> None:
    app = Flask("neighbours")
    app.config["JWTLIMIT_SECRET_KEY"] = "s" * 32
    app.config["JWTLIMIT_ISSUE_RATE"] = "1/h"
    app.config["JWTLIMIT_LIMITS"] = [Limit("site", "1/h", paths=["/limited"])]
    jwtlimit = JWTLimit()
    for step in (jwtlimit.init_app, answers_exceptions) if first == "ours" else (answers_exceptions, jwtlimit.init_app):
        step(app)
    app.add_url_rule("/limited", "limited", lambda: "hello")
    app.add_url_rule("/decorated", "decorated", jwtlimit.rate_limit("1/h")(lambda: "hello"))
    app.add_url_rule("/token", "token", lambda: jwtlimit.processor.create({"sub": "ann"}))
    app.add_url_rule("/broken", "broken", lambda: 1 / 0)
    client = app.test_client()
    assert client.get(path).status_code == 200
    refused = client.get(path)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "3600")
    assert client.get("/broken").text == "it broke"


def sliding(app: Flask, jwtlimit: JWTLimit) -> FlaskClient:
    """Return a client of *app*, which issues a new token with each answer of its view."""
    app.add_url_rule("/", "view", lambda: "hello")

    @app.after_request
    def slide(answer: Response) -> Response:
        answer.headers["X-Token"] = jwtlimit.processor.create({"sub": "ann"})
        return answer

    return app.test_client()


def test_refusal_after_the_view_is_answered(make_app: MakeApp, jwtlimit: JWTLimit) -> None:
    app = make_app(SECRET_KEY="s" * 32, ISSUE_RATE="1/h")
    client = sliding(app, jwtlimit)
    assert client.get("/").headers["X-Token"]
    refused = client.get("/")
    assert (refused.status_code, refused.headers["Retry-After"], refused.is_json) == (429, "3600", True)


def test_refusal_after_one_that_was_answered_is_answered_too(make_app: MakeApp, jwtlimit: JWTLimit) -> None:
    app = make_app(SECRET_KEY="s" * 32, ISSUE_RATE="1/h", LIMITS=[Limit("site", "1/m")])
    client = sliding(app, jwtlimit)
    assert client.get("/").status_code == 200
    refused = client.get("/")
    assert (refused.status_code, refused.get_json()["violated-policies"]) == (429, ["issue"])


def test_refund_when_is_asked_once_about_an_answer_that_begins_and_then_fails() -> None:
    app, jwtlimit, asked = Flask("broken off"), JWTLimit(), list[int]()
    inner = app.wsgi_app

    def breaking_off(environ: Any, start: Any) -> Any:
        inner(environ, start)
        raise OSError("the client is gone")

    app.wsgi_app = breaking_off  # type: ignore[method-assign]
    jwtlimit.init_app(app)
    limited = jwtlimit.rate_limit("9/h", refund_when=lambda status, _: bool(asked.append(status)))
    app.add_url_rule("/", "view", limited(lambda: "hello"))
    with pytest.raises(OSError, match="the client is gone"):
        app.test_client().get("/")
    assert asked == [200]


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_environ_that_is_copied_on_its_way_loses_nothing(place: str) -> None:
    app, jwtlimit = Flask("copied"), JWTLimit()

    def copying(inner: Any) -> Any:
        return lambda environ, start: inner({**environ, "HTTP_X_SEEN": "1"}, start)

    if place == "inside":
        app.wsgi_app = copying(app.wsgi_app)  # type: ignore[method-assign]
    jwtlimit.init_app(app)
    if place == "outside":
        app.wsgi_app = copying(app.wsgi_app)  # type: ignore[method-assign]
    succeeds = jwtlimit.rate_limit("1/h", name="failures", refund_when=lambda status, _: status == 200)
    app.add_url_rule("/in", "in", succeeds(lambda: "in"))
    app.add_url_rule("/out", "out", jwtlimit.rate_limit("1/h")(lambda: "out"))
    client = app.test_client()
    assert [client.get("/in").status_code for _ in range(3)] == [200] * 3
    assert "RateLimit" in client.get("/out").headers
    assert "Retry-After" in client.get("/out").headers


def test_view_that_hands_its_environ_to_another_application_keeps_its_own_passage() -> None:
    jwtlimit, outer, inner = JWTLimit(), Flask("outer"), Flask("inner")
    for app in (outer, inner):
        jwtlimit.init_app(app)
    inner.add_url_rule("/", "view", jwtlimit.rate_limit("5/h", name="inner")(lambda: "inner"))
    asked: list[int] = []

    def forward() -> WSGIResponse:
        told: list[Any] = []
        body = b"".join(inner(request.environ, lambda status, headers, *_: told.extend((status, headers))))
        jwtlimit.rate_limit("9/h", name="after")(lambda: None)()
        return Response(body + b" in outer", told[0], dict(told[1]))

    limited = jwtlimit.rate_limit("1/h", name="outer", refund_when=lambda status, _: asked.append(status) or status == 200)
    outer.add_url_rule("/", "view", limited(forward))
    client = outer.test_client()
    answers = [client.get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert asked == [200] * 3
    expected = [f'"outer";r=0;t=3600, "after";r={left};t=400' for left in (8, 7, 6)]
    assert [answer.headers["RateLimit"] for answer in answers] == expected


@pytest.mark.parametrize("propagate", [None, True])
def test_refund_when_is_asked_about_a_view_that_fails_where_exceptions_propagate(propagate: bool | None) -> None:
    app, jwtlimit = Flask("failing"), JWTLimit()
    app.config["PROPAGATE_EXCEPTIONS"] = propagate
    app.logger.disabled = True
    jwtlimit.init_app(app)
    asked: list[int] = []
    limited = jwtlimit.rate_limit("1/h", refund_when=lambda status, _: asked.append(status) or status >= 500)
    app.add_url_rule("/", "view", limited(lambda: 1 / 0))
    client = app.test_client()

    def ask() -> Iterable[int]:
        for _ in range(3):
            try:
                yield client.get("/").status_code
            except ZeroDivisionError:
                yield 500

    assert list(ask()) == [500] * 3
    assert asked == [500] * 3


def test_handler_that_is_refused_itself_fails_the_request(make_app: MakeApp, jwtlimit: JWTLimit) -> None:
    app = make_app(SECRET_KEY="s" * 32, ISSUE_RATE="1/h")
    app.testing, app.logger.disabled = False, True
    app.add_url_rule("/", "view", lambda: jwtlimit.processor.create({"sub": "ann"}))
    asked: list[Exception] = []

    @app.errorhandler(RateLimitExceeded)
    def issue_again(error: Exception) -> str:
        asked.append(error)
        return jwtlimit.processor.create({"sub": "ann"})

    client = app.test_client()
    assert [client.get("/").status_code for _ in range(2)] == [200, 500]
    assert len(asked) == 1


def test_handlers_that_are_replaced_for_a_while_are_not_wrapped_again_and_again(make_app: MakeApp) -> None:
    app = make_app()
    app.add_url_rule("/", "view", lambda: "hello")
    client = app.test_client()
    client.get("/")
    before = app.handle_user_exception, app.handle_exception
    for _ in range(3):
        with mock.patch.object(app, "handle_user_exception", lambda error: Response(str(error), 500)):
            assert client.get("/").status_code == 200
    assert (app.handle_user_exception, app.handle_exception) == before


def test_nothing_of_a_request_waits_for_the_garbage_collector(make_app: MakeApp) -> None:
    app, seen = make_app(LIMITS=[Limit("site", "9/m"), Limit("me", "9/m", key="subject")]), list[Any]()

    def view() -> str:
        seen.append(weakref.ref(request._get_current_object()))  # type: ignore[attr-defined]
        seen.append(g.jwtlimit)
        return "hello"

    app.add_url_rule("/", "view", view)
    gc.disable()
    try:
        for _ in range(2):
            environ = EnvironBuilder(headers={"Authorization": "Bearer none"}).get_environ()
            body = app(environ, lambda *_: None)
            assert b"".join(body) == b"hello"
            body.close()
            del environ, body
        assert [ref() for ref in seen[::2]] == [None, None]
        assert [(admission.claims, admission.decision.name) for admission in seen[1::2]] == [(None, "site")] * 2
    finally:
        gc.enable()
