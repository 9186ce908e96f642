"""The Flask extension over a shared store: one limit for several workers, and what an outage looks like."""

import sys
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from jwtlimit_core import ConfigError, RateLimiter
from jwtlimit_flask import JWTLimit
from servers import Server, free_port

SECRET = "x" * 32


def worker(**settings: Any) -> tuple[FlaskClient, JWTLimit]:
    """Make one more application with the same code, as another worker process has it."""
    app = Flask("app")
    app.config.update(JWTLIMIT_SECRET_KEY=SECRET, **{f"JWTLIMIT_{name}": value for name, value in settings.items()})
    jwtlimit = JWTLimit(app)

    @app.post("/token/<user>")
    def token(user: str) -> str:
        return jwtlimit.processor.create({"sub": user})

    @app.get("/limited")
    @jwtlimit.rate_limit("1/h", name="outer")
    @jwtlimit.rate_limit("3/h", name="inner")
    def limited() -> str:
        return "served"

    return app.test_client(), jwtlimit


@pytest.fixture
def settings(server: Server, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"STORE": server.url, "STORE_TIMEOUT": 20, "KEY_PREFIX": request.node.name.replace("[", "-"), "ISSUE_RATE": "3/h"}


@pytest.mark.parametrize("strategy", ["token_bucket", "fixed_window"])
def test_flask_workers_of_one_store_hold_one_limit(settings: dict[str, Any], strategy: str) -> None:
    clients = [worker(STRATEGY=strategy, **settings)[0] for _ in range(2)]
    statuses = [clients[turn % 2].post("/token/alice").status_code for turn in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert clients[0].post("/token/bob").status_code == 200
    refused = clients[1].post("/token/alice")
    waits = {"token_bucket": range(1190, 1201), "fixed_window": range(3590, 3601)}
    assert int(refused.headers["Retry-After"]) in waits[strategy]


def test_flask_stacked_limits_on_a_store_are_one_admission(settings: dict[str, Any], server: Server) -> None:
    client, _ = worker(**settings)
    assert [client.get("/limited").status_code for _ in range(3)] == [200, 429, 429]
    with server.client() as store:
        (inner,) = store.scan_iter(match=f"{settings['KEY_PREFIX']}:inner:*", count=1000)
        level, unit = store.get(inner)[1:].split(b"@")[0].split(b"/")
        assert int(level) // int(unit) == 2  # charged once, though asked three times


def test_flask_store_that_is_down_answers_503_never_429() -> None:
    client, _ = worker(STORE=f"redis://127.0.0.1:{free_port()}/0")
    for path, method in (("/token/alice", client.post), ("/limited", client.get)):
        answer = method(path)
        assert (answer.status_code, answer.headers["Retry-After"], answer.mimetype) == (503, "1", "application/problem+json")
        assert answer.json is not None
        assert answer.json["type"].endswith("#temporary-reduced-capacity")
        assert "RateLimit" not in answer.headers


@pytest.mark.parametrize(("policy", "statuses"), [("local", [200, 200, 200, 429]), ("allow", [200] * 4)])
def test_flask_store_that_is_down_follows_the_policy(policy: str, statuses: list[int]) -> None:
    client, _ = worker(STORE=f"redis://127.0.0.1:{free_port()}/0", ON_FAILURE=policy, ISSUE_RATE="3/h")
    assert [client.post("/token/alice").status_code for _ in range(4)] == statuses


def test_flask_reset_all_forgets_the_counts_of_the_store(settings: dict[str, Any]) -> None:
    client, jwtlimit = worker(**settings)
    assert [client.post("/token/alice").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert [client.get("/limited").status_code for _ in range(2)] == [200, 429]
    with client.application.app_context():
        jwtlimit.reset_all()
    assert (client.post("/token/alice").status_code, client.get("/limited").status_code) == (200, 200)


def test_flask_store_that_is_a_limiter_of_the_application_limits_issuance() -> None:
    limiter = RateLimiter(1, 60)
    client, jwtlimit = worker(STORE=limiter, ISSUE_RATE="100/h")
    assert [client.post("/token/alice").status_code for _ in range(2)] == [200, 429]
    assert "alice" in limiter
    with client.application.app_context():
        jwtlimit.reset_all()
    assert client.post("/token/alice").status_code == 200


def test_flask_provider_with_three_methods_makes_the_window_the_wait() -> None:
    class Closed:
        def allow(self, key: str) -> bool:
            return False

        def reset(self, key: str) -> None:
            raise AssertionError("nobody asked")

        def close(self) -> None:
            raise AssertionError("it is the application's")

    client, jwtlimit = worker(STORE=Closed(), ISSUE_RATE="100/2m")
    answer = client.post("/token/alice")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "120")
    with client.application.app_context():
        jwtlimit.reset_all()  # passes over what it cannot reset


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"STRATEGY": "fixed_window"}, "JWTLIMIT_STRATEGY 'fixed_window' needs a store"),
        ({"STRATEGY": "leaky"}, "JWTLIMIT_STRATEGY must be 'token_bucket' or 'fixed_window', not 'leaky'"),
        ({"STORE": "memcached://x"}, "JWTLIMIT_STORE must be 'memory', a URL"),
        ({"STORE": "redis://:hidden@host:port/0"}, "the URL of the store must read like"),
        ({"STORE": object()}, r"JWTLIMIT_STORE must have allow\(\), reset\(\) and close\(\)"),
        ({"ON_FAILURE": "hope"}, "JWTLIMIT_ON_FAILURE must be 'deny' or 'allow' or 'local', not 'hope'"),
        ({"KEY_PREFIX": ""}, "JWTLIMIT_KEY_PREFIX must be a str of 1 or more characters"),
        (
            {"STORE": "redis://localhost", "STRATEGY": "fixed_window", "ISSUE_RATE": "1/m;burst=2"},
            "a fixed window has no burst: limit 'issue' cannot be 1/m;burst=2",
        ),
    ],
)
def test_flask_store_settings_that_cannot_work_stop_the_application(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        worker(**settings)
    assert "hidden" not in str(caught.value)


def test_flask_store_at_a_url_without_redis_py_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("jwtlimit_core.redis")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "redis", None)  # what the import system puts there for a module that must not be found
    with pytest.raises(ConfigError, match=r"pip install 'jwtlimit\[redis\]'"):
        worker(STORE="redis://localhost")


def test_flask_on_refused_that_cannot_be_called_stops_the_application() -> None:
    with pytest.raises(ConfigError, match="JWTLIMIT_ON_REFUSED must be a function or None, not 7"):
        JWTLimit(Flask("app"), on_refused=7)  # type: ignore[arg-type]
