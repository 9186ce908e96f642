"""`JWTLimit.rate_limit` on every kind of view: it limits, and else it cannot be told from the view."""

from __future__ import annotations  # the annotations of the views here are text, as in many applications

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest
from flask import Blueprint, Flask, request
from flask.testing import FlaskClient
from flask.views import MethodView

from jwtlimit_core import ConfigError
from jwtlimit_core.testing import ManualClock
from jwtlimit_flask import JWTLimit


def statuses(client: FlaskClient, path: str = "/", count: int = 3) -> list[int]:
    return [client.get(path).status_code for _ in range(count)]


def foreign(view: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as any library does; `functools.wraps` copies the attributes of the view."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


# What the view keeps ---------------------------------------------------------------------------------------------


def plain(name: str, *, page: int = 1) -> str:
    """Say whose page it is."""
    return f"{name} {page}"


async def asynchronous(name: str, *, page: int = 1) -> str:
    """Say whose page it is."""
    return f"{name} {page}"


@pytest.mark.parametrize("view", [plain, asynchronous])
def test_decorated_view_keeps_name_signature_and_kind(
    jwtlimit: JWTLimit, view: Callable[..., str] | Callable[..., Awaitable[str]]
) -> None:
    decorated: Any = jwtlimit.rate_limit("2/m")(jwtlimit.rate_limit("9/h")(view))
    assert (decorated.__name__, decorated.__qualname__, decorated.__module__) == (view.__name__, view.__qualname__, __name__)
    assert decorated.__doc__ == "Say whose page it is."
    assert inspect.unwrap(decorated) is view
    assert inspect.signature(decorated) == inspect.signature(view)
    assert inspect.iscoroutinefunction(decorated) is inspect.iscoroutinefunction(view)


@pytest.mark.parametrize("view", [plain, asynchronous])
def test_decorated_view_gets_its_arguments_and_is_called_once_for_each_admission(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, view: Callable[..., Any]
) -> None:
    calls: list[dict[str, Any]] = []
    if inspect.iscoroutinefunction(view):

        @wraps(view)
        async def counted(**arguments: Any) -> Any:
            calls.append(arguments)
            return await view(**arguments)

    else:

        @wraps(view)
        def counted(**arguments: Any) -> Any:
            calls.append(arguments)
            return view(**arguments)

    app.get("/<name>/<int:page>")(jwtlimit.rate_limit("2/m")(counted))
    assert client.get("/ann/7").data == b"ann 7"
    assert statuses(client, "/ann/7") == [200, 429, 429]
    assert calls == [{"name": "ann", "page": 7}] * 2


def test_decorated_view_may_call_its_argument_anything_but_request(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    @app.get("/<request_>")
    @jwtlimit.rate_limit("2/m")
    def view(request_: str) -> tuple[str, int, dict[str, str]]:
        return request_ + request.path, 202, {"RateLimit": "mine", "X-Own": "kept"}

    answer = client.get("/a")
    assert (answer.status_code, answer.data, answer.headers["X-Own"]) == (202, b"a/a", "kept")
    assert len(answer.headers.getlist("RateLimit")) == 1
    assert answer.headers["RateLimit"].endswith(";r=1;t=30")
    assert statuses(client, "/b") == [202, 429, 429]


def test_decorated_async_view_is_limited_and_answers(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    @app.get("/")
    @jwtlimit.rate_limit("2/m")
    async def view() -> dict[str, str]:
        return {"path": request.path}

    assert client.get("/").json == {"path": "/"}
    assert statuses(client) == [200, 429, 429]


def test_decorated_blueprint_view_is_limited(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    blueprint = Blueprint("api", __name__)
    blueprint.add_url_rule("/", view_func=jwtlimit.rate_limit("2/m")(lambda: "hello"), endpoint="hello")
    app.register_blueprint(blueprint, url_prefix="/api")
    assert statuses(client, "/api/") == [200, 200, 429]


def test_decorated_method_view_is_limited_under_its_own_name(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    class Pages(MethodView):
        decorators = (jwtlimit.rate_limit("2/m"), jwtlimit.rate_limit("1/m", methods=["post"]))

        def get(self) -> str:
            return "get"

        async def post(self) -> str:
            return "post"

    app.add_url_rule("/", view_func=Pages.as_view("pages"))
    posted = [client.post("/") for _ in range(2)]
    assert [answer.status_code for answer in posted] == [200, 429]
    assert statuses(client) == [200, 429, 429]
    refused = client.get("/")
    assert refused.json is not None
    assert refused.json["violated-policies"] == [f"{__name__}.pages"]


# Several limits on one view --------------------------------------------------------------------------------------


def test_stacked_limits_are_charged_together_or_not_at_all(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, clock: ManualClock
) -> None:
    @app.get("/")
    @jwtlimit.rate_limit("1/s", name="second")
    @jwtlimit.rate_limit("3/h", name="hour")
    @jwtlimit.rate_limit("5/d", name="day", cost=2)
    def view() -> str:
        return "hello"

    assert client.get("/").headers["RateLimit"] == '"day";r=3;t=17280, "hour";r=2;t=1200, "second";r=0;t=1'
    assert statuses(client) == [429, 429, 429]  # and these cost nothing, of any limit
    clock.advance(1)
    answers = [client.get("/") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert '"hour";r=1' in answers[0].headers["RateLimit"]
    assert '"day";r=1' in answers[0].headers["RateLimit"]
    assert answers[1].headers["RateLimit-Policy"] == '"day";q=5;w=86400, "second";q=1;w=1'
    assert int(answers[1].headers["Retry-After"]) > 8000


def test_stacked_limits_around_a_foreign_decorator_are_two_admissions(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit
) -> None:
    def view() -> str:
        return "hello"

    app.get("/")(jwtlimit.rate_limit("3/m")(foreign(jwtlimit.rate_limit("1/m")(view))))
    name = f"{__name__}.{view.__qualname__}"
    answers = [client.get("/") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 429, 429, 429]
    # The outer limit is charged on its own, before the inner one is asked; then it refuses itself.
    assert [answer.json and answer.json["violated-policies"] for answer in answers] == [None, [name], [name], [f"{name}#2"]]


def test_stacked_limits_of_two_extensions_stay_with_their_own(make_app: Callable[..., Flask], clock: ManualClock) -> None:
    inner, outer = JWTLimit(clock=clock), JWTLimit(clock=clock)
    app = make_app(inner, outer)
    app.get("/")(outer.rate_limit("9/m")(inner.rate_limit("1/m")(lambda: "hello")))
    assert statuses(app.test_client(), count=2) == [200, 429]
    with app.app_context():
        outer.reset_all()
    assert statuses(app.test_client(), count=1) == [429]
    with app.app_context():
        inner.reset_all()
    assert statuses(app.test_client(), count=1) == [200]


def test_limits_without_a_name_are_named_after_their_views_and_count_apart(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit
) -> None:
    for path in ("/a", "/b"):
        app.add_url_rule(path, view_func=jwtlimit.rate_limit("1/m")(lambda: "hello"), endpoint=path)
    assert [statuses(client, path, 2) for path in ("/a", "/b")] == [[200, 429]] * 2
    name = f"{__name__}.{test_limits_without_a_name_are_named_after_their_views_and_count_apart.__name__}.<locals>.<lambda>"
    policies = [client.get(path).headers["RateLimit-Policy"] for path in ("/a", "/b")]
    assert policies == [f'"{name}";q=1;w=60', f'"{name}#2";q=1;w=60']


def test_limits_of_one_name_and_rate_share_their_counts(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    for path in ("/a", "/b"):
        app.add_url_rule(path, view_func=jwtlimit.rate_limit("2/m", name="both")(lambda: "hello"), endpoint=path)
    assert [*statuses(client, "/a", 1), *statuses(client, "/b", 2), *statuses(client, "/a", 1)] == [200, 200, 429, 429]


def test_rate_limit_with_bad_values_is_a_config_error_at_decoration(jwtlimit: JWTLimit) -> None:
    with pytest.raises(ConfigError) as caught:
        jwtlimit.rate_limit("often", cost=0)(plain)
    assert len(caught.value.problems) == 2


# The wrong order -------------------------------------------------------------------------------------------------


def test_limit_above_the_route_is_warned_of_once(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, caplog: pytest.LogCaptureFixture
) -> None:
    @jwtlimit.rate_limit("1/m")
    @app.get("/")
    def wrong() -> str:
        return "hello"

    assert statuses(client) == [200, 200, 200]
    assert [(record.name, record.levelname) for record in caplog.records] == [("jwtlimit", "WARNING")]
    assert f"rate_limit of {__name__}.wrong limits nothing: put it below @app.route" in caplog.text


def test_limit_above_the_route_over_one_below_is_warned_of(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, caplog: pytest.LogCaptureFixture
) -> None:
    @jwtlimit.rate_limit("1/m")
    @app.get("/")
    @jwtlimit.rate_limit("2/m")
    def half() -> str:
        return "hello"

    assert statuses(client) == [200, 200, 429]
    assert caplog.text.count("half limits nothing") == 1


def test_limits_in_the_right_order_are_not_warned_of(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, caplog: pytest.LogCaptureFixture
) -> None:
    app.get("/")(jwtlimit.rate_limit("2/m")(jwtlimit.rate_limit("1/m")(plain)))
    app.get("/foreign/<name>")(foreign(jwtlimit.rate_limit("1/m")(asynchronous)))
    app.get("/free/<name>", endpoint="free")(plain)
    app.get("/limited/<name>", endpoint="limited")(jwtlimit.rate_limit("1/m")(plain))
    assert statuses(client, "/limited/ann") == [200, 429, 429]
    assert statuses(client, "/free/ann") == [200, 200, 200]
    assert caplog.records == []


@pytest.mark.parametrize("wrong", [lambda: "a view, since the parentheses were left out", 5, "often"])
def test_rate_limit_of_what_is_no_rate_is_told_at_decoration(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a rate must read like"):
        JWTLimit().rate_limit(wrong)


def test_rate_limit_of_a_class_says_where_it_belongs() -> None:
    class Page:
        pass

    with pytest.raises(ConfigError, match="into the `decorators` of Page"):
        JWTLimit().rate_limit("5/m")(Page)
