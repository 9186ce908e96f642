"""The Django middleware: the limits of the settings, and all that it must leave alone."""

import gc
import logging
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import RequestFactory, override_settings

from adapters.django_project import OURS, SECRET, Site, hello, hello_async
from jwtlimit_core import ConfigError, Limit, Processor, RateLimitExceeded
from jwtlimit_core.config import Config
from jwtlimit_django import areset, get_async_processor, get_processor, rate_limit, reset, reset_all
from jwtlimit_django.middleware import RateLimitMiddleware

BY_IP = Limit("all", "2/m")


def test_django_switch_in_the_settings_is_looked_at_for_each_request(site: Site) -> None:
    site.serve(hello, LIMITS=[BY_IP])
    found = []
    for enabled in (True, False, True):
        site.settings.JWTLIMIT["ENABLED"] = enabled
        found.append(site.statuses())
    assert found == [[200, 200, 429], [200] * 3, [429] * 3]


def test_django_switch_is_found_in_settings_that_were_replaced_without_a_signal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.serve(hello, LIMITS=[BY_IP])
    assert site.statuses() == [200, 200, 429]
    with monkeypatch.context() as replaced:
        replaced.setattr(django_settings, "JWTLIMIT", django_settings.JWTLIMIT | {"ENABLED": False})
        assert site.statuses() == [200] * 3
    assert site.statuses(count=1) == [429]


# Limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [hello, hello_async])
def test_django_limit_of_the_settings_answers_429_with_headers(site: Site, view: Any) -> None:
    site.serve(view, LIMITS=[BY_IP])
    first, second, third = (site.get() for _ in range(3))
    assert [answer.status_code for answer in (first, second, third)] == [200, 200, 429]
    assert first.headers["RateLimit"] == '"all";r=1;t=30'
    assert "Retry-After" not in first.headers
    assert third.headers["Retry-After"] == "30"
    assert third.headers["Cache-Control"] == "no-store"
    assert third.headers["RateLimit"] == '"all";r=0;t=30'
    assert third.headers["Content-Type"] == "application/problem+json"
    assert third.json()["violated-policies"] == ["all"]
    assert third.json()["detail"].endswith("Try again in 30 seconds.")
    site.clock.advance(30)
    assert site.statuses(count=2) == [200, 429]


def test_django_clients_are_told_apart_by_the_peer_not_by_what_they_write(site: Site) -> None:
    site.serve(hello, LIMITS=[BY_IP])
    forged = [site.get(headers={"X-Forwarded-For": f"203.0.113.{n}"}).status_code for n in range(3)]
    assert forged == [200, 200, 429]


@pytest.mark.parametrize("peer", ["", None])
def test_django_request_without_an_address_is_charged_to_one_bucket(settings: Any, peer: str | None) -> None:
    settings.JWTLIMIT = {"LIMITS": [BY_IP]}
    request = RequestFactory(REMOTE_ADDR=peer).get("/")
    if peer is None:
        del request.META["REMOTE_ADDR"]  # as ASGI leaves it out
    middleware = RateLimitMiddleware(hello)
    assert [middleware(request).status_code for _ in range(3)] == [200, 200, 429]


def test_django_admission_is_at_the_request(site: Site) -> None:
    seen: list[Any] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append((request.jwtlimit.decision, request.jwtlimit.claims))
        return HttpResponse()

    site.serve(view, LIMITS=[BY_IP])
    token = Processor(Config(secret_key=SECRET)).create({"sub": "ann"})
    site.get(headers={"Authorization": f"Bearer {token}"})
    site.get()
    (decision, claims), (_, no_claims) = seen
    assert (decision.name, decision.remaining, claims.sub, no_claims) == ("all", 1, "ann", None)


def test_django_limit_by_subject_reads_the_token_and_leaves_headers_to_later_middleware(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.headers.get("Authorization", ""))

    later = "adapters.django_project.middleware.token_in_own_header"
    site.serve(view, middleware=[OURS, later], LIMITS=[Limit("s", "1/m", key="subject")])
    assert site.get(headers={"X-Token": "t"}).content == b"Bearer t"
    token = Processor(Config(secret_key=SECRET)).create({"sub": "ann"})
    headers = {"Authorization": f"Bearer {token}", "X-Token": "t"}
    assert site.statuses(headers=headers) == [200, 429, 429]
    assert site.statuses(headers={"X-Token": "t"}) == [200] * 3


def test_django_limit_by_header_finds_it(site: Site) -> None:
    site.serve(hello, LIMITS=[Limit("key", "1/m", key="header:x-api-key"), Limit("type", "4/m", key="header:content-type")])
    assert site.statuses(count=2, headers={"X-Api-Key": "a"}) == [200, 429]
    assert site.statuses(count=2, headers={"X-Api-Key": "b"}) == [200, 429]
    assert site.statuses(count=2) == [200, 429]


def test_django_paths_of_limits_are_below_the_mount_point(site: Site) -> None:
    site.serve(urls={"api/": hello, "free/": hello}, LIMITS=[Limit("api", "1/m", paths=["/api"])])
    mounted: dict[str, Any] = {} if site.is_async else {"SCRIPT_NAME": "/mount"}
    assert site.statuses("/api/", 2, **mounted) == [200, 429]
    assert site.statuses("/free/", 2) == [200, 200]


def test_django_exempt_paths_pass_and_404_is_charged(site: Site) -> None:
    site.serve(urls={"healthz": hello}, LIMITS=[Limit("all", "2/m", key="global")], EXEMPT_PATHS=["/healthz"])
    assert site.statuses("/unknown") == [404, 404, 429]
    assert site.statuses("/healthz") == [200, 200, 200]


def test_django_preflight_is_not_charged_but_options_is(site: Site) -> None:
    site.serve(hello, LIMITS=[BY_IP])
    headers = {"Access-Control-Request-Method": "POST", "Origin": "https://a.example"}
    assert [site.request("OPTIONS", headers=headers).status_code for _ in range(3)] == [200] * 3
    assert [site.request("OPTIONS").status_code for _ in range(3)] == [200, 200, 429]


def test_django_head_is_charged_with_get_and_answered(site: Site) -> None:
    site.serve(hello, LIMITS=[Limit("all", "2/m", methods=["get"])])
    answers = [site.request("HEAD") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["Retry-After"] == "30"


def test_django_refund_is_made_before_the_answer_goes_out(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=204 if "good" in request.GET else 401)

    limit = Limit("login", "2/m", refund_when=lambda status, headers: status == 204 and "Content-Type" in headers)
    site.serve(view, LIMITS=[limit])
    assert [site.get("/?good").status_code for _ in range(4)] == [204] * 4
    assert site.statuses() == [401, 401, 429]


def test_django_on_refused_sees_decision_and_request(site: Site) -> None:
    told: list[Any] = []
    site.serve(
        hello, LIMITS=[BY_IP], ON_REFUSED=lambda decision, view: told.append((decision.name, view.raw.path, view.method))
    )
    site.statuses()
    assert told == [("all", "/", "GET")]


def test_django_middleware_that_stands_twice_charges_once(site: Site) -> None:
    site.serve(hello, middleware=[OURS, OURS], LIMITS=[BY_IP])
    assert site.statuses() == [200, 200, 429]


# What is left alone ----------------------------------------------------------------------------------------------


def test_django_exceptions_of_views_pass_unchanged_and_views_run_once(site: Site) -> None:
    calls: list[str] = []
    error = ValueError("mine")

    def view(request: HttpRequest) -> HttpResponse:
        calls.append(request.path)
        raise error

    site.serve(view, LIMITS=[BY_IP])
    with pytest.raises(ValueError, match="mine") as caught:
        site.get()
    assert caught.value is error
    site.client.raise_request_exception = False
    assert site.statuses(count=2) == [500, 429]
    assert calls == ["/", "/"]


@pytest.mark.parametrize("view", [hello, hello_async])
def test_django_function_of_a_limit_that_stops_an_iteration_is_an_error_as_any(site: Site, view: Any) -> None:
    site.serve(view, LIMITS=[Limit("all", "1/m", key=lambda request: next(iter(())))])
    site.client.raise_request_exception = False
    assert site.statuses() == [500] * 3


def test_django_functions_of_limits_that_raise_charge_nothing(site: Site) -> None:
    def key(request: HttpRequest) -> str:
        assert isinstance(request, HttpRequest)
        raise LookupError("mine")

    limits = [
        Limit("all", "1/m", key="global"),
        Limit("mine", "1/m", key=key, exempt_when=lambda request: "free" in request.GET),
    ]
    site.serve(hello, LIMITS=limits)
    for _ in range(2):
        with pytest.raises(LookupError, match="mine"):
            site.get()
    assert site.statuses("/?free", 2) == [200, 429]


def test_django_streams_pass_piece_by_piece(site: Site) -> None:
    made: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            made.append(number)
            yield b"%d" % number

    async def pieces_async() -> AsyncIterator[bytes]:
        for piece in pieces():
            yield piece

    def view(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(pieces_async() if site.is_async else pieces())

    site.serve(view, LIMITS=[BY_IP])
    answer = site.get()
    assert answer.streaming
    assert made == []
    assert answer.headers["RateLimit"] == '"all";r=1;t=30'
    assert answer.getvalue() == b"012" if not site.is_async else True


def test_django_headers_replace_those_of_the_view_and_can_be_left_out(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"RateLimit": "mine", "X-Own": "kept"})

    site.serve(view, LIMITS=[BY_IP])
    answer = site.get()
    assert (answer.headers["RateLimit"], answer.headers["X-Own"]) == ('"all";r=1;t=30', "kept")
    site.configure(LIMITS=[BY_IP], HEADERS=False)
    assert site.get().headers["RateLimit"] == "mine"


# Settings --------------------------------------------------------------------------------------------------------


def test_django_enabled_is_asked_for_each_request(site: Site) -> None:
    enabled = [True]
    site.serve(hello, LIMITS=[BY_IP, Limit("u", "1/m", key="user")], ENABLED=lambda: enabled[0], ISSUE_RATE="1/m")
    enabled[0] = False
    assert site.statuses(count=4) == [200] * 4
    for _ in range(3):
        get_processor().create({"sub": "ann"})
        async_to_sync(get_async_processor().create)({"sub": "ann"})
    assert "RateLimit" not in site.get().headers
    enabled[0] = True
    with pytest.raises(ConfigError, match=r"request\.user is not there"):
        site.get()


def test_django_overridden_settings_hold_while_they_are_overridden(site: Site) -> None:
    site.serve(hello, LIMITS=[BY_IP])
    assert site.statuses() == [200, 200, 429]
    with override_settings(JWTLIMIT={"LIMITS": [Limit("all", "1/m")]}):
        assert site.statuses(count=2) == [200, 429]
    with override_settings(ALLOWED_HOSTS=["testserver"]):
        pass
    assert site.statuses() == [200, 200, 429]  # an engine of its own again, with counts of its own
    with override_settings(ALLOWED_HOSTS=["testserver"]):
        assert site.statuses(count=1) == [429]  # and other settings do not touch it


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        ({"LIMIT": []}, ['JWTLIMIT["LIMIT"] is no setting: did you mean JWTLIMIT["LIMITS"]?']),
        ({5: 1, "HEADERS": 2}, ['JWTLIMIT["5"] is no setting', 'JWTLIMIT["HEADERS"] must be True or False, not 2']),
        ([], ["JWTLIMIT must be a dict of settings, not list"]),
    ],
)
def test_django_bad_settings_raise_when_used_and_keep_the_server_from_starting(
    settings: Any, values: Any, problems: list[str]
) -> None:
    settings.JWTLIMIT = values
    for use in (get_processor, lambda: RateLimitMiddleware(hello)):
        with pytest.raises(ConfigError) as caught:
            use()
        assert list(caught.value.problems) == problems


def test_django_without_settings_limits_nothing_and_has_no_processor(settings: Any) -> None:
    del settings.JWTLIMIT
    assert RateLimitMiddleware(hello)(RequestFactory().get("/")).status_code == 200
    with pytest.raises(ConfigError, match=r'set JWTLIMIT\["SECRET_KEY"\]|set SECRET_KEY'):
        get_processor()


def test_django_refusals_are_not_logged_by_django_either(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.serve(rate_limit("1/m", name="view")(hello), LIMITS=[Limit("site", "2/m")])
    assert site.statuses(count=3) == [200, 429, 429]
    assert [record for record in caplog.records if record.name == "django.request"] == []


def test_django_start_is_logged_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="jwtlimit"):
        site.serve(hello, LIMITS=[BY_IP])
        site.statuses(count=5)
    assert [record.levelname for record in caplog.records if record.name == "jwtlimit"] == ["INFO"]


# By hand ---------------------------------------------------------------------------------------------------------


def test_django_reset_gives_one_key_its_quota_back(site: Site) -> None:
    site.serve(hello, LIMITS=[BY_IP])
    assert site.statuses() == [200, 200, 429]
    reset("all", "ip=192.0.2.1")
    assert site.statuses(count=1) == [429]
    reset("all", "ip=127.0.0.1")
    assert site.statuses() == [200, 200, 429]
    reset_all()
    assert site.statuses() == [200, 200, 429]


async def areset_and_create() -> list[str]:
    tokens = [await get_async_processor().create({"sub": "ann"}) for _ in range(2)]
    await areset("issue", "ann")
    return [*tokens, await get_async_processor().create({"sub": "ann"})]


def test_django_async_processor_and_reset_share_the_counts_of_this_process(site: Site) -> None:
    site.configure(ISSUE_RATE="2/m")
    assert len(async_to_sync(areset_and_create)()) == 3
    assert get_processor().create({"sub": "ann"})
    with pytest.raises(RateLimitExceeded, match="rate limit 'issue'"):
        get_processor().create({"sub": "ann"})


@pytest.mark.parametrize("site", ["wsgi"], indirect=True)
def test_nothing_of_a_django_request_waits_for_the_garbage_collector(site: Site) -> None:
    seen: list[Any] = []

    @rate_limit("9/m", name="view", key="subject")
    def view(request: HttpRequest) -> HttpResponse:
        seen.append((weakref.ref(request), request.jwtlimit))
        return HttpResponse("hello")

    site.serve(view, LIMITS=[Limit("site", "9/m")])
    gc.disable()
    try:
        handler = WSGIHandler()
        for _ in range(2):
            response = handler.get_response(RequestFactory().get("/", HTTP_AUTHORIZATION="Bearer none"))
            assert response.content == b"hello"
            del response
        assert [ref() for ref, _ in seen] == [None, None]
        assert [(admission.claims, admission.decision.name) for _, admission in seen] == [(None, "site")] * 2
    finally:
        gc.enable()


@pytest.mark.parametrize("limits", [[Limit("site", "1/h")], []])
def test_nothing_of_a_refusal_that_the_application_answers_waits_for_the_garbage_collector(site: Site, limits: Any) -> None:
    seen: list[Any] = []

    def handler429(request: HttpRequest, exception: Exception) -> HttpResponse:
        seen.append(weakref.ref(request))
        return HttpResponse("slow down", status=429)

    view = hello if limits else rate_limit("1/h")(lambda request: hello(request))
    site.serve(view, LIMITS=limits, handlers={"handler429": handler429})
    handler = WSGIHandler()
    gc.disable()
    try:
        statuses = [handler.get_response(RequestFactory().get("/")).status_code for _ in range(3)]
        assert statuses == [200, 429, 429]
        assert [ref() for ref in seen] == [None, None]
    finally:
        gc.enable()
