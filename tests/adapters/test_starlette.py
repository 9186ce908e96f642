"""The Starlette middleware: what is limited, for whom, and how it is set up."""

import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from adapters.starlette_client import SECRET, get, hello, make_app, statuses
from jwtlimit_core import Claims, Config, ConfigError, Limit, Processor, RateLimiter
from jwtlimit_core.testing import ManualClock
from jwtlimit_starlette import RateLimitMiddleware, rate_limit

ONE = [Limit("api", "1/m")]
THREE = [Limit("api", "3/m")]


def test_application_over_its_limit_is_answered_with_429() -> None:
    app = make_app(limits=THREE)
    answers = [get(app) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    first, refused = answers[0], answers[-1]
    assert first.ours == [[], [], ['"api";q=3;w=60'], ['"api";r=2;t=20']]
    assert refused.ours == [["no-store"], ["20"], ['"api";q=3;w=60'], ['"api";r=0;t=20']]
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["content-length"]) == len(refused.text)
    assert (refused.json["status"], refused.json["violated-policies"]) == (429, ["api"])
    assert "in 20 seconds" in refused.json["detail"]


def test_retry_after_is_exact(clock: ManualClock) -> None:
    app = make_app(limits=ONE, clock=clock)
    assert statuses(app, count=2) == [200, 429]
    clock.advance(59)
    assert statuses(app, count=1) == [429]
    clock.advance(1)
    assert statuses(app, count=2) == [200, 429]


@pytest.mark.parametrize(
    ("peer", "same", "other"),
    [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        (None, None, "192.0.2.1"),
    ],
)
def test_limit_by_address_is_for_one_line(peer: str | None, same: str | None, other: str) -> None:
    app = make_app(limits=ONE)
    assert statuses(app, peer=peer, count=2) == [200, 429]
    assert statuses(app, peer=same, count=1) == [429]
    assert statuses(app, peer=other, count=1) == [200]


def test_limit_by_address_ignores_what_the_client_says_of_itself() -> None:
    app = make_app(limits=ONE)
    answers = [get(app, headers={"X-Forwarded-For": f"192.0.2.{n}", "Forwarded": f"for=192.0.2.{n}"}) for n in range(2)]
    assert [answer.status for answer in answers] == [200, 429]


def test_limit_by_a_header_takes_its_bytes_and_no_repetition() -> None:
    app = make_app(limits=[Limit("api", "1/m", key="header:X-Key")])
    assert statuses(app, headers={"x-key": "\xe4"}, count=2) == [200, 429]
    assert statuses(app, headers={"X-KEY": "b"}, count=2) == [200, 429]
    assert statuses(app, count=2) == [200, 429]  # without one, by address


def test_refused_request_does_not_reach_the_application() -> None:
    calls: list[str] = []

    async def count(request: Request) -> PlainTextResponse:
        calls.append(request.method)
        return PlainTextResponse("")

    assert statuses(make_app(Route("/", count), limits=ONE), count=3) == [200, 429, 429]
    assert calls == ["GET"]


def test_what_is_not_found_is_charged_too() -> None:
    assert statuses(make_app(limits=ONE), "/nowhere", 2) == [404, 429]


def test_preflight_is_not_charged_and_other_options_are() -> None:
    app = make_app(Route("/", hello, methods=["GET", "OPTIONS"]), limits=ONE)
    preflight = {"Access-Control-Request-Method": "GET", "Origin": "https://example.com"}
    assert statuses(app, method="OPTIONS", headers=preflight) == [200] * 4
    assert statuses(app, method="OPTIONS", count=2) == [200, 429]


@pytest.mark.parametrize("enabled", [False, lambda: False])
def test_disabled_middleware_lets_pass_and_keeps_its_state(enabled: Any) -> None:
    async def state(request: Request) -> JSONResponse:
        return JSONResponse([request.state.jwtlimit.decision, request.state.jwtlimit.claims])

    app = make_app(Route("/", state), limits=ONE, enabled=enabled)
    assert statuses(app, count=3) == [200] * 3
    assert get(app).json == [None, None]
    assert get(app).ours == [[], [], [], []]


def test_enabled_is_asked_for_each_request() -> None:
    now = {"on": True}
    app = make_app(limits=ONE, enabled=lambda: now["on"])
    assert statuses(app, count=2) == [200, 429]
    now["on"] = False
    assert statuses(app, count=2) == [200, 200]
    now["on"] = True
    assert statuses(app, count=1) == [429]


def test_headers_can_be_left_out_of_good_answers() -> None:
    app = make_app(limits=ONE, headers=False)
    assert get(app).ours == [[], [], [], []]
    assert get(app).headers["retry-after"] == "60"


def test_state_of_a_request_has_its_decision_and_claims() -> None:
    async def state(request: Request) -> JSONResponse:
        admission = request.state.jwtlimit
        return JSONResponse([admission.decision.remaining, admission.claims and admission.claims.sub])

    clock = ManualClock()
    app = make_app(Route("/", state), limits=THREE, secret_key=SECRET, clock=clock)
    token = Processor(Config(secret_key=SECRET, clock=clock)).create(Claims(sub="ann"))
    assert get(app, headers={"Authorization": f"Bearer {token}"}).json == [2, "ann"]
    assert get(app, headers={"Authorization": "Bearer x"}).json == [1, None]


# Paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "path", "passes"),
    [
        ("", "/health", True),
        ("", "/health/deep", True),
        ("", "/healthy", False),
        ("/v1", "/v1/health", True),
        ("/v1", "/v1health", False),
        ("/v1", "/v2/health", False),
        ("/v2", "/v2health", True),
        ("/health", "/health", False),
    ],
)
def test_exempt_paths_are_below_the_root_path(root: str, path: str, passes: bool) -> None:
    app = make_app(limits=ONE, exempt_paths=["/health", "/v2health"])
    assert statuses(app, path, 2, root_path=root)[1] == (404 if passes else 429)


def test_middleware_of_a_mount_sees_the_paths_below_it_even_after_the_application_has_run(caplog: Any) -> None:
    seen: list[str] = []
    limits = [Limit("api", "1/m", paths=["/a"])]
    inner = RateLimitMiddleware(
        Starlette(routes=[Mount("/a", routes=[Route("/b", hello)]), Route("/c", hello)]),
        limits=limits,
        on_refused=lambda decision, view: seen.append(view.path),
    )
    app = Starlette(routes=[Mount("/v1", inner)])
    assert statuses(app, "/v1/a/b", 2) == [200, 429]
    assert statuses(app, "/v1/c", 2) == [200, 200]
    assert seen == ["/a/b"]


# Users -----------------------------------------------------------------------------------------------------------


class ByHeader(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> Any:
        name = conn.headers.get("X-User")
        if name is None:
            return None
        return AuthCredentials(), SimpleUser(name) if name == "simple" else Identified(name)


class Identified(BaseUser):
    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_authenticated(self) -> bool:
        return self.name != "guest"

    @property
    def identity(self) -> str:
        if self.name == "nobody":
            raise NotImplementedError
        return self.name


def test_limit_by_user_takes_the_identity_of_whom_authentication_found() -> None:
    app = make_app(limits=[Limit("api", "1/m", key="user")], around=[Middleware(AuthenticationMiddleware, backend=ByHeader())])
    for name in ("ann", "bob"):
        assert statuses(app, count=2, headers={"X-User": name}) == [200, 429]
    assert statuses(app, count=3) == [200] * 3
    assert statuses(app, count=3, headers={"X-User": "guest"}) == [200] * 3
    with pytest.raises(ConfigError, match="Identified has no identity: set user_key"):
        get(app, headers={"X-User": "nobody"})


def test_limit_by_user_without_authentication_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="AuthenticationMiddleware outside of RateLimitMiddleware, or set user_key"):
        get(make_app(limits=[Limit("api", "1/m", key="user")]))


def test_limit_by_user_asks_user_key_which_may_be_a_coroutine_function() -> None:
    async def user_of(request: Request) -> str | None:
        return request.headers.get("X-User")

    app = make_app(limits=[Limit("api", "1/m", key="user")], user_key=user_of)
    assert statuses(app, count=2, headers={"X-User": "ann"}) == [200, 429]
    assert statuses(app, count=3) == [200] * 3


# Setting up ------------------------------------------------------------------------------------------------------


class SyncStore:
    """A provider that would stall the loop."""

    def allow(self, key: str) -> bool:
        return True

    def reset(self, key: str) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"limit": ONE}, "limit is no setting: did you mean limits"),
        ({"limits": "5/m"}, "limits must be a list"),
        ({"issue_rate": "often", "leeway": "soon", "secret_key": SECRET}, "issue_rate: .*; leeway must"),
        ({"store": SyncStore(), "secret_key": SECRET}, "store must be a RateLimiter or have coroutine functions"),
        ({"limits": [Limit("api", "1/m", key="subject")]}, "by subject: set secret_key"),
    ],
)
def test_settings_that_cannot_work_stop_the_application(settings: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        RateLimitMiddleware(hello, **settings)


def test_two_applications_count_each_for_itself() -> None:
    assert [statuses(make_app(limits=ONE), count=2) for _ in range(2)] == [[200, 429]] * 2


def test_thousand_refusals_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def own(request: Request) -> PlainTextResponse:  # other modules limit `hello`, and it would be told of that
        return PlainTextResponse("")

    app = make_app(Route("/", own), limits=ONE)
    get(app)
    caplog.set_level(logging.DEBUG, logger="jwtlimit")
    assert set(statuses(app, count=1000)) == {429}
    assert caplog.records == []


def test_store_that_is_a_limiter_of_the_application_is_taken() -> None:
    assert RateLimitMiddleware(hello, store=RateLimiter(1, 60), secret_key=SECRET).engine.config is not None


def test_limit_by_user_on_an_endpoint_sees_whom_an_application_below_found() -> None:
    async def page(_request: Request) -> Response:
        return PlainTextResponse("ok")

    below = Starlette(
        routes=[Route("/page", rate_limit("1/m", key="user")(page))],
        middleware=[Middleware(AuthenticationMiddleware, backend=ByHeader())],
    )
    app = Starlette(routes=[Mount("/below", below)], middleware=[Middleware(RateLimitMiddleware)])
    for name in ("ann", "bob"):
        assert statuses(app, "/below/page", count=2, headers={"X-User": name}) == [200, 429]
    assert statuses(app, "/below/page", count=3) == [200] * 3
