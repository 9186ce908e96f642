"""The Flask extension: what is limited, for whom, and how it is set up."""

import json
import logging
from collections.abc import Callable, Iterator

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient
from werkzeug.exceptions import Forbidden
from werkzeug.middleware.proxy_fix import ProxyFix

from jwtlimit_core import Claims, ConfigError, RegisteredClaims
from jwtlimit_core.testing import ManualClock
from jwtlimit_flask import JWTLimit

MakeApp = Callable[..., Flask]


def statuses(client: FlaskClient, path: str = "/", count: int = 4, **options: object) -> list[int]:
    return [client.get(path, **options).status_code for _ in range(count)]


def hello() -> str:
    return "hello"


@pytest.fixture
def limited(app: Flask, jwtlimit: JWTLimit) -> None:
    app.add_url_rule("/", view_func=jwtlimit.rate_limit("3/m", name="hello")(hello))


@pytest.fixture
def issuing(app: Flask, jwtlimit: JWTLimit) -> None:
    @app.get("/token/<name>")
    def token(name: str) -> str:
        return jwtlimit.processor.create(Claims(sub=name))


# The limit on requests -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("limited")
def test_view_over_its_limit_is_answered_with_429(client: FlaskClient) -> None:
    answers = [client.get("/") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    first, refused = answers[0], answers[-1]
    assert (first.headers["RateLimit-Policy"], first.headers["RateLimit"]) == ('"hello";q=3;w=60', '"hello";r=2;t=20')
    assert not {"Retry-After", "Cache-Control"} & set(first.headers.keys())
    assert refused.content_type == "application/problem+json"
    assert refused.headers["Cache-Control"] == "no-store"
    assert refused.headers["Retry-After"] == "20"
    assert refused.headers["RateLimit"] == '"hello";r=0;t=20'
    problem = json.loads(refused.data)
    assert (problem["status"], problem["violated-policies"]) == (429, ["hello"])
    assert "in 20 seconds" in problem["detail"]


@pytest.mark.usefixtures("limited")
def test_retry_after_of_a_view_is_exact(client: FlaskClient, clock: ManualClock) -> None:
    statuses(client)
    wait_s = int(client.get("/").headers["Retry-After"])
    clock.advance(wait_s - 1)
    assert statuses(client, count=1) == [429]
    assert client.get("/").headers["Retry-After"] == "1"
    clock.advance(1)
    assert statuses(client, count=2) == [200, 429]


@pytest.mark.usefixtures("issuing")
def test_retry_after_of_issuance_is_exact_and_for_one_subject(client: FlaskClient, clock: ManualClock) -> None:
    assert statuses(client, "/token/ann") == [200, 200, 429, 429]
    refused = client.get("/token/ann")
    assert (refused.headers["RateLimit"], refused.headers["Retry-After"]) == ('"issue";r=0;t=30', "30")
    clock.advance(29)
    assert statuses(client, "/token/ann", 1) == [429]
    assert statuses(client, "/token/bob", 1) == [200]
    clock.advance(1)
    assert statuses(client, "/token/ann", 2) == [200, 429]


@pytest.mark.parametrize(
    ("peer", "same", "other"),
    [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"),
        ("", "", "192.0.2.1"),
    ],
)
@pytest.mark.usefixtures("limited")
def test_limit_by_address_is_for_one_line(client: FlaskClient, peer: str, same: str, other: str) -> None:
    assert statuses(client, environ_overrides={"REMOTE_ADDR": peer}) == [200, 200, 200, 429]
    assert statuses(client, count=1, environ_overrides={"REMOTE_ADDR": same}) == [429]
    assert statuses(client, count=1, environ_overrides={"REMOTE_ADDR": other}) == [200]


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP"])
@pytest.mark.usefixtures("limited")
def test_limit_by_address_ignores_what_the_client_says_of_itself(client: FlaskClient, header: str) -> None:
    answers = [
        client.get("/", headers={header: f"for=192.0.2.{n}" if header == "Forwarded" else f"192.0.2.{n}"}) for n in range(4)
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]


@pytest.mark.usefixtures("limited")
def test_limit_by_address_takes_the_peer_that_proxy_fix_found_and_does_not_warn(
    app: Flask, client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1)  # type: ignore[method-assign]
    assert statuses(client, headers={"X-Forwarded-For": "203.0.113.9, 192.0.2.1"}) == [200, 200, 200, 429]
    assert statuses(client, count=1, headers={"X-Forwarded-For": "192.0.2.1, 203.0.113.9"}) == [200]
    assert caplog.records == []


def test_limit_by_a_key_function_gets_the_request_itself(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    limit = jwtlimit.rate_limit("1/m", key=lambda request: request.args.get("user"), methods=["get"])
    app.add_url_rule("/", view_func=limit(hello), methods=["GET", "POST"])
    assert [statuses(client, path, 2) for path in ("/?user=ann", "/?user=bob", "/")] == [[200, 429], [200, 429], [200, 200]]
    assert client.post("/?user=ann").status_code == 200


def test_preflight_that_the_application_answers_itself_is_not_charged(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit
) -> None:
    app.add_url_rule("/", view_func=jwtlimit.rate_limit("1/m")(hello), methods=["GET", "OPTIONS"])
    for _ in range(3):
        assert (
            client.options("/", headers={"Origin": "https://example.org", "Access-Control-Request-Method": "GET"}).data
            == b"hello"
        )
    assert statuses(client, count=2) == [200, 429]


@pytest.mark.usefixtures("limited")
def test_answer_headers_do_not_leak_into_other_requests(app: Flask, client: FlaskClient) -> None:
    app.add_url_rule("/free", view_func=lambda: "free", endpoint="free")
    with app.app_context():
        assert statuses(client) == [200, 200, 200, 429]
        free = client.get("/free")
    assert free.status_code == 200
    assert not {"Retry-After", "RateLimit", "RateLimit-Policy", "Cache-Control"} & set(free.headers.keys())


def test_streaming_answer_of_a_limited_view_passes_as_it_is(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    made: list[int] = []

    def chunks() -> Iterator[str]:
        for number in range(3):
            made.append(number)
            yield f"{number}\n"

    app.add_url_rule("/", view_func=jwtlimit.rate_limit("1/m")(lambda: Response(chunks())), endpoint="stream")
    answer = client.get("/", buffered=False)
    assert next(answer.iter_encoded()) == b"0\n"
    assert made == [0]
    assert statuses(client, count=1) == [429]


# Setting up ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("issuing")
def test_enabled_flipped_between_requests_switches_requests_and_issuance(
    app: Flask, client: FlaskClient, jwtlimit: JWTLimit
) -> None:
    app.add_url_rule("/", view_func=jwtlimit.rate_limit("3/m")(hello))
    for enabled, hellos, tokens in [(False, [200] * 4, [200] * 4), (True, [200] * 3 + [429], [200, 200, 429, 429])]:
        app.config["JWTLIMIT_ENABLED"] = enabled
        assert (statuses(client), statuses(client, "/token/ann")) == (hellos, tokens)
    app.config["JWTLIMIT_ENABLED"] = False
    assert (statuses(client), statuses(client, "/token/ann")) == ([200] * 4, [200] * 4)


@pytest.mark.parametrize("enabled", ["False", None, 0])
@pytest.mark.usefixtures("limited")
def test_enabled_changed_to_anything_but_false_goes_on_limiting(app: Flask, client: FlaskClient, enabled: object) -> None:
    app.config["JWTLIMIT_ENABLED"] = enabled
    assert statuses(client) == [200, 200, 200, 429]


def test_application_without_a_key_limits_requests_and_issues_nothing(make_app: MakeApp, jwtlimit: JWTLimit) -> None:
    app = make_app(SECRET_KEY=None)
    app.add_url_rule("/", view_func=jwtlimit.rate_limit("3/m")(hello))
    assert statuses(app.test_client()) == [200, 200, 200, 429]
    with app.app_context(), pytest.raises(ConfigError, match="no key is set"):
        _ = jwtlimit.processor


def test_init_app_with_bad_settings_names_them_all(make_app: MakeApp) -> None:
    with pytest.raises(ConfigError, match="JWTLIMIT_LEEWEY is no setting: did you mean JWTLIMIT_LEEWAY") as caught:
        make_app(LEEWEY=1, ISSUE_RATE="often")
    assert len(caught.value.problems) == 2


def test_extension_without_init_app_is_a_config_error(jwtlimit: JWTLimit) -> None:
    app = Flask("bare")
    app.testing = True
    app.add_url_rule("/", view_func=jwtlimit.rate_limit("3/m")(hello))
    with pytest.raises(ConfigError, match=r"nothing of the application 'bare': call init_app\(app\)"):
        app.test_client().get("/")
    with app.app_context(), pytest.raises(ConfigError, match="call init_app"):
        jwtlimit.reset_all()


@pytest.mark.usefixtures("limited")
def test_init_app_twice_charges_and_answers_once(app: Flask, client: FlaskClient, clock: ManualClock) -> None:
    seen: list[object] = []
    again = JWTLimit(app, clock=clock, on_refused=lambda decision, view: seen.append(decision))
    again.init_app(app)
    assert statuses(client, count=2) == [200, 200]
    again.init_app(app)
    assert statuses(client, count=2) == [200, 429]
    assert len(seen) == 1


def test_one_extension_counts_for_each_application(make_app: MakeApp, jwtlimit: JWTLimit) -> None:
    apps = [make_app(), make_app()]
    view = jwtlimit.rate_limit("3/m")(hello)
    for app in apps:
        app.add_url_rule("/", view_func=view)
    assert [statuses(app.test_client()) for app in apps] == [[200, 200, 200, 429]] * 2
    with apps[0].app_context():
        jwtlimit.reset_all()
    assert [statuses(app.test_client(), count=1) for app in apps] == [[200], [429]]


def test_two_extensions_of_one_application_count_and_tell_their_hooks(make_app: MakeApp, clock: ManualClock) -> None:
    seen: list[str] = []
    first, second = (
        JWTLimit(clock=clock, on_refused=lambda decision, view, n=n: seen.append(f"{n}: {decision.name}")) for n in "ab"
    )
    app = make_app(first, second)
    app.add_url_rule("/a", view_func=first.rate_limit("1/m", name="x")(hello), endpoint="a")
    app.add_url_rule("/b", view_func=second.rate_limit("1/m", name="x")(hello), endpoint="b")
    client = app.test_client()
    assert [statuses(client, path, 2) for path in ("/a", "/b")] == [[200, 429]] * 2
    assert seen == ["a: x", "b: x"] * 2
    with app.app_context():
        first.reset_all()
    assert [statuses(client, path, 1) for path in ("/a", "/b")] == [[200], [429]]


@pytest.mark.parametrize("run", [1, 2])
def test_counts_of_one_test_do_not_reach_the_next(make_app: MakeApp, run: int) -> None:
    extension = JWTLimit()
    app = make_app(extension)
    app.add_url_rule("/", view_func=extension.rate_limit("3/d", name="shared")(hello))
    assert statuses(app.test_client()) == [200, 200, 200, 429], f"run {run}"


@pytest.mark.usefixtures("limited", "issuing")
def test_reset_all_gives_everybody_the_quota_back(app: Flask, client: FlaskClient, jwtlimit: JWTLimit) -> None:
    for _ in range(2):
        assert statuses(client) == [200, 200, 200, 429]
        assert statuses(client, "/token/ann", 3) == [200, 200, 429]
        with app.app_context():
            jwtlimit.reset_all()


# Hooks -----------------------------------------------------------------------------------------------------------


def test_before_issue_that_refuses_issues_and_charges_nothing(make_app: MakeApp) -> None:
    disabled = {"ann"}

    def refuse(claims: RegisteredClaims) -> None:
        if claims.sub in disabled:
            raise Forbidden

    extension = JWTLimit(before_issue=refuse)
    app = make_app(extension)
    app.add_url_rule("/token", view_func=lambda: extension.processor.create(Claims(sub="ann")), endpoint="token")
    assert statuses(app.test_client(), "/token") == [403] * 4
    disabled.clear()
    assert statuses(app.test_client(), "/token") == [200, 200, 429, 429]


@pytest.mark.usefixtures("limited")
def test_thousand_refusals_log_nothing(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    statuses(client, count=3)
    caplog.set_level(logging.DEBUG, logger="jwtlimit")
    assert set(statuses(client, count=1000)) == {429}
    assert caplog.records == []
