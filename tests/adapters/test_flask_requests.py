"""Requests in Flask before and after the view: the limits of the settings, exemptions, bodies, what the view finds in `g`."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from flask import Blueprint, Flask, Request, g, request
from flask.testing import FlaskClient
from flask.views import MethodView
from werkzeug.test import EnvironBuilder

from jwtlimit_core import Config, ConfigError, Limit, LimiterUnavailable, Processor
from jwtlimit_core.testing import ManualClock
from jwtlimit_flask import JWTLimit

FORM = "application/x-www-form-urlencoded"
MakeApp = Callable[..., Flask]


def statuses(client: FlaskClient, path: str = "/", count: int = 3) -> list[int]:
    return [client.get(path).status_code for _ in range(count)]


# Exemptions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def spent(make_app: MakeApp) -> Flask:
    """An application whose one request for everybody is spent."""
    app = make_app(LIMITS=[Limit("all", "1/h", key="global")])
    app.add_url_rule("/", "root", lambda: "hello")
    return app


def test_exempt_views_classes_and_blueprints_pass(spent: Flask, jwtlimit: JWTLimit) -> None:
    class Health(MethodView):
        def get(self) -> str:
            return "well"

    api, inner = jwtlimit.exempt(Blueprint("api", __name__)), Blueprint("inner", __name__)
    inner.add_url_rule("/deep", "deep", lambda: "deep")
    api.add_url_rule("/flat", "flat", lambda: "flat")
    api.register_blueprint(inner, url_prefix="/inner")
    spent.register_blueprint(api, url_prefix="/api")
    spent.add_url_rule("/free", "free", jwtlimit.exempt(lambda: "free"))
    spent.add_url_rule("/health", "health", jwtlimit.exempt(Health).as_view("health"))
    client = spent.test_client()
    assert statuses(client, count=2) == [200, 429]
    for path in ("/free", "/health", "/api/flat", "/api/inner/deep"):
        assert statuses(client, path) == [200, 200, 200], path


def test_endpoint_of_the_application_may_have_a_dot(make_app: MakeApp) -> None:
    app = make_app(LIMITS=[Limit("all", "1/h", key="global")])
    app.add_url_rule("/", "users.list", lambda: "hello")
    assert statuses(app.test_client()) == [200, 429, 429]


def test_exempt_blueprint_inside_leaves_the_outer_one_limited(spent: Flask, jwtlimit: JWTLimit) -> None:
    api, inner = Blueprint("api", __name__), jwtlimit.exempt(Blueprint("inner", __name__))
    inner.add_url_rule("/deep", "deep", lambda: "deep")
    api.add_url_rule("/flat", "flat", lambda: "flat")
    api.register_blueprint(inner, url_prefix="/inner")
    spent.register_blueprint(api, url_prefix="/api")
    client = spent.test_client()
    assert statuses(client, "/api/inner/deep") == [200, 200, 200]
    assert statuses(client, "/api/flat", 2) == [200, 429]


def test_static_files_under_a_script_name_are_exempt_by_their_path(make_app: MakeApp, tmp_path: Any) -> None:
    app = make_app(LIMITS=[Limit("all", "1/h", key="global")], EXEMPT_PATHS=["/static"])
    (tmp_path / "style.css").write_text("body {}")
    app.static_folder = str(tmp_path)
    client = app.test_client()
    asked = [client.get("/static/style.css", environ_overrides={"SCRIPT_NAME": "/shop"}) for _ in range(3)]
    assert [answer.status_code for answer in asked] == [200] * 3
    for answer in asked:
        answer.close()


# In the view -----------------------------------------------------------------------------------------------------


def test_view_finds_its_admission_in_g(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    @app.get("/")
    @jwtlimit.rate_limit("5/m", name="view")
    def view() -> str:
        return f"{g.jwtlimit.decision.name} {g.jwtlimit.decision.remaining} {g.jwtlimit.claims}"

    assert client.get("/").data == b"view 4 None"


@pytest.mark.parametrize("settings", [{}, {"ENABLED": False}, {"LIMITS": [Limit("site", "9/m")], "ENABLED": False}])
def test_view_without_limits_finds_its_admission_all_the_same(make_app: MakeApp, settings: dict[str, Any]) -> None:
    app = make_app(**settings)
    app.add_url_rule("/", "view", lambda: f"{g.jwtlimit.decision} {g.jwtlimit.claims and g.jwtlimit.claims.sub}")
    token = Processor(Config(secret_key="s" * 32)).create({"sub": "ann"})
    assert app.test_client().get("/", headers={"Authorization": f"Bearer {token}"}).data == b"None ann"


def test_each_request_of_one_context_is_charged_on_its_own(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    app.add_url_rule("/", "view", jwtlimit.rate_limit("2/m", name="view")(lambda: "hello"))
    with app.app_context():  # which keeps `g` over the requests inside
        assert statuses(client) == [200, 200, 429]
        assert client.get("/").headers["RateLimit"] == '"view";r=0;t=30'


def test_two_extensions_with_limits_of_their_own_both_hold(make_app: MakeApp, clock: ManualClock) -> None:
    app = make_app(JWTLimit(clock=clock), JWTLimit(clock=clock), LIMITS=[Limit("site", "2/m")])
    app.add_url_rule("/", "view", lambda: "hello")
    assert statuses(app.test_client()) == [200, 200, 429]


def test_reset_in_a_view_gives_a_key_its_quota_back(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    app.add_url_rule("/", "view", jwtlimit.rate_limit("1/m", name="view")(lambda: "hello"))
    assert statuses(client) == [200, 429, 429]
    with app.app_context():
        jwtlimit.reset("view", "ip=127.0.0.1")
    assert statuses(client) == [200, 429, 429]


def test_limit_by_user_without_user_key_is_a_config_error(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    app.add_url_rule("/", "view", jwtlimit.rate_limit("1/m", key="user")(lambda: "hello"))
    with pytest.raises(ConfigError, match="set JWTLIMIT_USER_KEY"):
        client.get("/")


def test_coroutine_function_as_a_key_is_told_at_decoration(jwtlimit: JWTLimit) -> None:
    async def later(_request: object) -> str:
        return "ann"

    async def view() -> str:
        return "hello"

    for function in (lambda: "hello", view):
        with pytest.raises(ConfigError, match="has a coroutine function"):
            jwtlimit.rate_limit("1/m", key=later)(function)


# After the view --------------------------------------------------------------------------------------------------


def test_later_hooks_of_the_application_see_and_set_the_status_that_counts(make_app: MakeApp, jwtlimit: JWTLimit) -> None:
    app = make_app()
    limit = jwtlimit.rate_limit("1/m", refund_when=lambda status, headers: status == 202)
    app.add_url_rule("/", "view", limit(lambda: "hello"))

    @app.after_request
    def accepted(response: Any) -> Any:
        response.status_code = 202
        return response

    assert statuses(app.test_client()) == [202, 202, 202]


def test_refund_that_fails_in_the_store_leaves_the_answer_alone(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.add_url_rule("/", "view", jwtlimit.rate_limit("9/m", refund_when=lambda status, headers: True)(lambda: "hello"))

    def refund(*_arguments: object) -> None:
        raise LimiterUnavailable("closed")

    monkeypatch.setattr("jwtlimit_core.limiter.RateLimiter.refund", refund)
    assert statuses(client) == [200, 200, 200]


def test_request_over_the_environ_of_another_has_nothing_of_it(jwtlimit: JWTLimit) -> None:
    app = Flask("app")
    app.before_request(lambda: "early" if request.path == "/early" else None)  # before our hook: it never sees this path
    jwtlimit.init_app(app)
    app.add_url_rule("/", "view", jwtlimit.rate_limit("1/m")(lambda: "hello"))
    environ = EnvironBuilder(path="/").get_environ()

    def fields(path: str) -> list[str]:
        environ["PATH_INFO"] = path
        sent: list[Any] = []
        app.wsgi_app(environ, lambda status, headers, exc_info=None: sent.extend(headers))  # type: ignore[arg-type]
        names = dict(sent)
        return [name for name in ("RateLimit", "Retry-After") if name in names]

    assert [fields(path) for path in ("/", "/early", "/", "/early")] == [
        ["RateLimit"],
        [],
        ["RateLimit", "Retry-After"],
        [],
    ]


# Bodies ----------------------------------------------------------------------------------------------------------


def read_as_form() -> Any:
    return dict(request.form)


def read_as_data() -> Any:
    return request.get_data(as_text=True)


def read_as_stream() -> Any:
    return request.stream.read().decode()


def read_nothing() -> Any:
    return ""


@pytest.mark.parametrize("before", [read_as_form, read_as_data, read_nothing])
@pytest.mark.parametrize(
    ("view", "expected"),
    [(read_as_form, b'{"user":"ann"}\n'), (read_as_data, b"user=ann"), (read_as_stream, b"user=ann")],
)
def test_field_is_found_whoever_reads_the_body_before_and_after(
    make_app: MakeApp, jwtlimit: JWTLimit, before: Callable[[], Any], view: Callable[[], Any], expected: bytes
) -> None:
    app = Flask("app")

    @app.before_request
    def read() -> None:
        before()

    app.config["JWTLIMIT_LIMITS"] = [Limit("login", "1/m", key="field:user")]
    jwtlimit.init_app(app)
    app.add_url_rule("/", "view", view, methods=["POST"])
    client = app.test_client()
    answers = [client.post("/", data={"user": "ann"}, environ_base={"REMOTE_ADDR": f"192.0.2.{n}"}) for n in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    if before is read_nothing:  # whoever reads a form leaves nothing for others, limits or not
        assert answers[0].data == expected


@pytest.mark.parametrize(("size", "found"), [(65_536, [200, 429]), (65_537, [200, 200]), (500_000, [200, 200])])
@pytest.mark.parametrize("declared", [True, False])
def test_body_up_to_the_bound_has_fields_and_any_reaches_the_view(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit, size: int, found: list[int], declared: bool
) -> None:
    @app.post("/")
    @jwtlimit.rate_limit("1/m", key="field:user")
    def view() -> str:
        first = request.stream.read(10)
        return str(len(first + request.stream.read()))

    body = b"user=ann&x=" + b"x" * (size - len(b"user=ann&x="))
    answers = []
    for number in range(2):
        environ = {"REMOTE_ADDR": f"192.0.2.{number}"}
        extra: dict[str, Any] = {"content_length": size} if declared else {"environ_overrides": {"wsgi.input_terminated": True}}
        if not declared:
            extra["headers"] = {"Transfer-Encoding": "chunked"}
        answers.append(client.post("/", input_stream=BytesIO(body), content_type=FORM, environ_base=environ, **extra))
    assert [answer.status_code for answer in answers] == found
    assert answers[0].data == str(size).encode()


@pytest.mark.parametrize("is_chunked", [False, True])
def test_form_above_the_bound_has_no_fields_though_a_hook_read_it_before(jwtlimit: JWTLimit, is_chunked: bool) -> None:
    def post(client: FlaskClient, body: bytes) -> int:
        chunked = {"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
        environ = {"wsgi.input": BytesIO(body), **(chunked if is_chunked else {"CONTENT_LENGTH": str(len(body))})}
        return client.post("/", content_type=FORM, environ_overrides=environ).status_code

    app = Flask("app")
    app.before_request(lambda: request.form.get("csrf"))
    app.config["JWTLIMIT_LIMITS"] = [Limit("login", "1/m", key="field:user")]
    jwtlimit.init_app(app)
    app.add_url_rule("/", "view", lambda: request.form["x"], methods=["POST"])
    client = app.test_client()
    for size, found in ((10, [200, 200]), (65_536, [200, 429])):  # long ones are of one address
        assert [post(client, b"user=u%d-%d&x=%b" % (n, size, b"x" * size)) for n in range(2)] == found


def test_body_above_the_limit_of_the_application_is_413_to_who_reads_it_unless_the_view_takes_more(make_app: MakeApp) -> None:
    app = make_app(LIMITS=[Limit("login", "9/m", key="field:user")])
    app.config["MAX_CONTENT_LENGTH"] = 20

    def more() -> str:
        request.max_content_length = 500
        return request.form["x"]

    app.add_url_rule("/form", "form", lambda: request.form["x"], methods=["POST"])
    app.add_url_rule("/more", "more", more, methods=["POST"])
    app.add_url_rule("/raw", "raw", lambda: request.environ["wsgi.input"].read(), methods=["POST"])
    client, data = app.test_client(), {"user": "ann", "x": "x" * 50}
    assert client.post("/form", data=data).status_code == 413
    assert client.post("/raw", data=data).data == b"user=ann&x=" + b"x" * 50
    if isinstance(Request.max_content_length, property) and Request.max_content_length.fset:  # since Flask 3.1
        assert client.post("/more", data=data).data == b"x" * 50


class Trickle(BytesIO):
    """A stream that gives less than there is."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 3, 3) if size is not None and size > 0 else 3)


def test_body_that_trickles_in_reaches_the_view_as_a_whole(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    view = jwtlimit.rate_limit("1/m", key="field:user")(lambda: request.form["x"])
    app.add_url_rule("/", "view", view, methods=["POST"])
    body = b"user=ann&x=12345678"
    answers = [client.post("/", input_stream=Trickle(body), content_type=FORM, content_length=len(body)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[0].data == b"12345678"


@pytest.mark.parametrize("read", [lambda: request.get_data(cache=False), lambda: request.stream.read(3)])
def test_field_that_somebody_has_read_before_and_kept_is_missing(jwtlimit: JWTLimit, read: Callable[[], bytes]) -> None:
    app = Flask("app")
    app.before_request(lambda: setattr(g, "read", read()))
    app.config["JWTLIMIT_LIMITS"] = [Limit("login", "1/m", key="field:user")]
    jwtlimit.init_app(app)
    app.add_url_rule("/", "view", lambda: g.read, methods=["POST"])
    client = app.test_client()
    answers = [client.post("/", data={"user": f"u{n}"}) for n in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[0].data[:3] == b"use"


def test_json_is_read_after_somebody_looked_for_a_form(jwtlimit: JWTLimit) -> None:
    app = Flask("app")
    app.before_request(lambda: request.form.get("csrf"))
    app.config["JWTLIMIT_LIMITS"] = [Limit("login", "1/m", key="field:user")]
    jwtlimit.init_app(app)
    app.add_url_rule("/", "view", lambda: request.get_json()["user"], methods=["POST"])
    client = app.test_client()
    answers = [client.post("/", json={"user": "ann"}, environ_base={"REMOTE_ADDR": f"192.0.2.{n}"}) for n in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


def test_error_handler_that_fails_gets_no_headers_of_a_refusal(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    app.testing = False
    app.register_error_handler(429, lambda error: 1 / 0)
    app.add_url_rule("/", "view", jwtlimit.rate_limit("1/m")(lambda: "hello"))
    client.get("/")
    answer = client.get("/")
    assert (answer.status_code, "Retry-After" in answer.headers) == (500, False)


@pytest.mark.parametrize("view", [5, None, "view"])
def test_limit_and_exemption_of_what_is_no_view_are_told(jwtlimit: JWTLimit, view: Any) -> None:
    with pytest.raises(ConfigError, match="rate_limit takes functions, not"):
        jwtlimit.rate_limit("1/m")(view)
    with pytest.raises(ConfigError, match="exempt takes functions and classes, not"):
        jwtlimit.exempt(view)


def test_status_may_be_any_text(make_app: MakeApp) -> None:
    app = make_app(LIMITS=[Limit("all", "9/h")])
    app.add_url_rule("/", "view", lambda: ("hello", "as you like it"))
    assert app.test_client().get("/").status == "0 as you like it"


def test_request_that_is_dispatched_by_hand_is_answered_before_the_first_of_a_server(make_app: MakeApp) -> None:
    app = make_app(LIMITS=[Limit("all", "1/h")])
    app.add_url_rule("/", "view", lambda: "hello")
    found = []
    for _ in range(2):
        with app.test_request_context("/"):
            found.append(app.full_dispatch_request().status_code)
    assert found == [200, 429]
