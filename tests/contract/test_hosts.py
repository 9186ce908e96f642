"""What every framework does with limits: the same, wherever is counted."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import http_sf
import pytest

from hosts import Client, Reply, Request, Route, hello
from jwtlimit_core import Config, ConfigError, Limit, Processor

Serve = Callable[..., Client]
SECRET = "s" * 32
OUR_HEADERS = ("retry-after", "ratelimit-policy", "ratelimit")


def limit(rate: str = "2/h", **options: Any) -> dict[str, Any]:
    return {"rate": rate, **options}


def fields(answer: Any, name: str) -> dict[str, dict[str, int]]:
    """Return the parameters of each item of a structured field, read by a parser that is not ours; the field is there once."""
    (value,) = answer.headers.get_list(name)
    parsed: Any = http_sf.parse(value.encode("ascii"), tltype="list")
    return {item: dict(parameters) for item, parameters in parsed}


class Counted:
    """A view that counts its calls."""

    def __init__(self, *replies: Reply) -> None:
        self.calls = 0
        self._replies = replies or (Reply(),)

    async def __call__(self, request: Request) -> Reply:
        reply = self._replies[self.calls % len(self._replies)]
        self.calls += 1
        return reply


# Let pass, and refused -------------------------------------------------------------------------------------------


def test_view_within_its_limit_answers_as_ever_with_our_fields(serve: Serve) -> None:
    client = serve(Route(handler=Counted(Reply("made", 201, {"X-Own": "kept"})), limits=[limit(name="view")]))
    answer = client.ask("POST")
    assert (answer.status_code, answer.text, answer.headers["X-Own"]) == (201, "made", "kept")
    assert fields(answer, "ratelimit-policy") == {"view": {"q": 2, "w": 3600}}
    assert fields(answer, "ratelimit")["view"]["r"] == 1
    assert 1790 <= fields(answer, "ratelimit")["view"]["t"] <= 1800
    assert "retry-after" not in answer.headers
    assert "no-store" not in answer.headers.get("cache-control", "")


def test_view_over_its_limit_is_429_with_problem_details(serve: Serve) -> None:
    client = serve(Route(limits=[limit("1/h", name="view")]))
    assert client.statuses(2) == [200, 429]
    answer = client.ask()
    assert answer.headers["content-type"] == "application/problem+json"
    problem = json.loads(answer.content)
    assert (problem["status"], problem["violated-policies"]) == (429, ["view"])
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
    assert problem["detail"].endswith(f"Try again in {answer.headers['retry-after']} seconds.")


def test_refusal_has_each_of_its_headers_once(serve: Serve) -> None:
    client = serve(Route(limits=[limit("1/h", name="view")]))
    client.ask()
    answer = client.ask()
    assert answer.headers.get_list("cache-control") == ["no-store"]
    (wait,) = answer.headers.get_list("retry-after")
    assert 3590 <= int(wait) <= 3600
    assert fields(answer, "ratelimit-policy") == {"view": {"q": 1, "w": 3600}}
    assert fields(answer, "ratelimit") == {"view": {"r": 0, "t": int(wait)}}


def test_view_is_called_once_for_each_request_that_passes_and_never_for_one_that_is_refused(serve: Serve) -> None:
    decorated, all_of_site = Counted(), Counted()
    client = serve(
        Route("/a", decorated, [limit("2/h")]), Route("/b", all_of_site), LIMITS=[Limit("site", "3/h", paths=["/b"])]
    )
    assert client.statuses(4, path="/a") == [200, 200, 429, 429]
    assert client.statuses(5, path="/b") == [200, 200, 200, 429, 429]
    assert (decorated.calls, all_of_site.calls) == (2, 3)


def test_headers_can_be_switched_off_for_good_answers(serve: Serve) -> None:
    client = serve(Route(limits=[limit("1/h")]), HEADERS=False)
    assert not set(OUR_HEADERS) & set(client.ask().headers)
    assert set(OUR_HEADERS) <= set(client.ask().headers)


def test_own_fields_of_a_view_give_way_to_ours(serve: Serve) -> None:
    client = serve(Route(handler=Counted(Reply(headers={"RateLimit": "mine"})), limits=[limit(name="view")]))
    assert list(fields(client.ask(), "ratelimit")) == ["view"]


def test_own_429_of_a_view_stays_its_own(serve: Serve) -> None:
    client = serve(Route(handler=Counted(Reply("busy", 429, {"Retry-After": "7"})), limits=[limit("9/h")]))
    answer = client.ask()
    assert (answer.text, answer.headers["retry-after"]) == ("busy", "7")
    assert "ratelimit" not in answer.headers


def test_view_without_limits_has_no_fields(serve: Serve) -> None:
    answer = serve(Route()).ask()
    assert (answer.status_code, answer.text) == (200, "hello")
    assert not set(OUR_HEADERS) & set(answer.headers)


def test_requests_at_once_get_exactly_the_limit(serve: Serve) -> None:
    client = serve(Route(limits=[limit("7/h")]))
    assert sorted(answer.status_code for answer in client.ask_at_once(20)) == [200] * 7 + [429] * 13


# The limits of the settings --------------------------------------------------------------------------------------


def test_limit_of_the_settings_meets_every_view(serve: Serve) -> None:
    client = serve(Route("/a"), Route("/b"), LIMITS=[Limit("site", "3/h")])
    assert [client.ask(path=path).status_code for path in ("/a", "/b", "/a", "/b")] == [200, 200, 200, 429]
    assert client.ask(path="/a", peer="192.0.2.2").status_code == 200


def test_limit_of_the_settings_meets_what_there_is_not(serve: Serve) -> None:
    client = serve(Route(), LIMITS=[Limit("all", "2/h", key="global")])
    assert client.statuses(3, path="/nothing/here") == [404, 404, 429]


def test_limit_of_the_settings_may_be_for_paths_and_methods(serve: Serve) -> None:
    client = serve(Route("/a"), Route("/b"), LIMITS=[{"name": "write", "rate": "1/h", "paths": ["/a"], "methods": ["post"]}])
    assert client.statuses(2, "POST", "/a") == [200, 429]
    assert client.statuses(2, "GET", "/a") == client.statuses(2, "POST", "/b") == [200, 200]


def test_global_limit_is_charged_once_for_each_request(serve: Serve) -> None:
    client = serve(Route(limits=[limit("90/h")]), LIMITS=[Limit("all", "10/h", key="global")])
    statuses = [client.ask(peer=f"192.0.2.{number}").status_code for number in range(12)]
    assert statuses == [200] * 10 + [429] * 2


def test_exempt_view_and_path_pass_when_all_is_spent(serve: Serve) -> None:
    client = serve(
        Route("/"),
        Route("/healthz"),
        Route("/free", exempt=True),
        LIMITS=[Limit("all", "1/h", key="global")],
        EXEMPT_PATHS=["/healthz"],
    )
    assert client.statuses(2) == [200, 429]
    for path in ("/healthz", "/free"):
        assert client.statuses(2, path=path) == [200, 200]
        assert "ratelimit" not in client.ask(path=path).headers


def test_exempt_view_keeps_its_own_limits(serve: Serve) -> None:
    client = serve(Route(exempt=True, limits=[limit("2/h")]), LIMITS=[Limit("all", "1/h", key="global")])
    assert client.statuses(3) == [200, 200, 429]


def test_answer_lists_the_limits_of_all_phases(serve: Serve) -> None:
    client = serve(
        Route(limits=[limit("9/h", name="view")]), LIMITS=[Limit("all", "90/h", key="global"), Limit("site", "50/h")]
    )
    assert {name: item["r"] for name, item in fields(client.ask(), "ratelimit").items()} == {"site": 49, "all": 89, "view": 8}


# Several limits on one view --------------------------------------------------------------------------------------


def test_stacked_limits_are_charged_together_or_not_at_all(serve: Serve) -> None:
    narrow, wide = limit("1/h", name="narrow"), limit("5/h", name="wide")
    client = serve(Route("/both", limits=[wide, narrow]), Route("/wide", limits=[wide]))
    assert client.statuses(4, path="/both") == [200, 429, 429, 429]
    assert list(fields(client.ask(path="/both"), "ratelimit")) == ["narrow"]
    assert client.statuses(5, path="/wide") == [200] * 4 + [429]


def test_refusal_by_a_view_gives_back_what_the_settings_charged_but_by_address(serve: Serve) -> None:
    client = serve(
        Route("/tight", limits=[limit("1/h")]),
        Route("/"),
        LIMITS=[Limit("site", "6/h"), Limit("all", "4/h", key="global")],
    )
    assert client.statuses(4, path="/tight") == [200, 429, 429, 429]
    assert {name: item["r"] for name, item in fields(client.ask(), "ratelimit").items()} == {"site": 1, "all": 2}


def test_refund_when_lets_only_failed_log_ins_count(serve: Serve) -> None:
    log_in = Counted(Reply(), Reply(status=401))
    login = limit("3/h", name="login", refund_when=lambda status, headers: status < 400)
    client = serve(Route(handler=log_in, limits=[login]))
    assert client.statuses(7, "POST") == [200, 401, 200, 401, 200, 401, 429]


def test_refund_when_sees_the_headers_of_the_answer(serve: Serve) -> None:
    login = limit("1/h", refund_when=lambda status, headers: headers.get("X-Cached") == "yes")
    client = serve(Route(handler=Counted(Reply(headers={"X-Cached": "yes"}), Reply()), limits=[login]))
    assert client.statuses(3) == [200, 200, 429]


def test_refund_when_sees_our_headers_on_what_was_refused_inside(serve: Serve) -> None:
    async def issue(request: Request) -> Reply:
        return Reply(await request.create("ann"))

    login = limit("2/h", name="login", refund_when=lambda status, headers: status == 429 and "Retry-After" in headers)
    client = serve(Route(handler=issue, limits=[login]), SECRET_KEY=SECRET, ISSUE_RATE="1/h")
    assert client.statuses(1) == [200]
    for _ in range(4):
        assert list(fields(client.ask(), "ratelimit")) == ["issue"]


# Methods ---------------------------------------------------------------------------------------------------------


def test_head_counts_with_get(serve: Serve) -> None:
    client = serve(Route(limits=[limit("2/h", methods=["get"])]))
    assert [client.ask(method).status_code for method in ("GET", "HEAD", "HEAD", "POST")] == [200, 200, 429, 200]


def test_preflight_is_never_charged_and_other_options_are(serve: Serve) -> None:
    client = serve(Route(limits=[limit("2/h")]), LIMITS=[Limit("site", "3/h")])
    preflight = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    assert 429 not in client.statuses(9, "OPTIONS", headers=preflight)
    assert client.statuses(3, "OPTIONS") == [200, 200, 429]


# Exceptions ------------------------------------------------------------------------------------------------------


def test_exception_of_a_view_stays_and_the_view_is_called_once(serve: Serve) -> None:
    calls = count()

    async def broken(_request: Request) -> Reply:
        next(calls)
        raise ValueError("broken")

    client = serve(Route(handler=broken, limits=[limit()]), LIMITS=[Limit("site", "9/h")])
    assert client.statuses(3) == [500, 500, 429]
    assert next(calls) == 2


def test_refusal_by_a_processor_of_its_own_is_answered_too(serve: Serve) -> None:
    own = Processor(Config(secret_key=SECRET, enable_rate_limit=True, rate_limit_rate=1, rate_limit_window=3600))

    async def issue(_request: Request) -> Reply:
        return Reply(own.create({"sub": "ann"}))

    client = serve(Route(handler=issue))
    assert client.statuses(1) == [200]
    answer = client.ask()
    assert (answer.status_code, list(fields(answer, "ratelimit"))) == (429, ["issue"])


def test_tokens_are_limited_for_each_subject(serve: Serve) -> None:
    async def issue(request: Request) -> Reply:
        return Reply(await request.create(request.body.decode()))

    client = serve(Route(handler=issue, limits=[limit("90/h")]), SECRET_KEY=SECRET, ISSUE_RATE="2/h")
    assert client.statuses(3, "POST", content="ann") == [200, 200, 429]
    assert client.statuses(1, "POST", content="bob") == [200]
    assert client.ask("POST", content="ann").headers.get_list("retry-after") != []


# Custom answers, streams, switches -------------------------------------------------------------------------------


def test_custom_answer_wins_and_gets_our_headers(serve: Serve) -> None:
    custom = Reply("slow down", 418, {"Retry-After": "7", "Cache-Control": "public", "X-Own": "kept"})
    client = serve(
        Route("/a", limits=[limit("1/h")]),
        Route("/b"),
        custom=lambda error: custom,
        LIMITS=[Limit("site", "9/h"), Limit("all", "1/h", key="global", paths=["/b"])],
    )
    for path in ("/a", "/b"):
        client.ask(path=path)
        answer = client.ask(path=path)
        assert (answer.status_code, answer.text, answer.headers["X-Own"]) == (418, "slow down", "kept")
        assert answer.headers.get_list("cache-control") == ["no-store"]
        assert int(answer.headers["retry-after"]) >= 3590
        assert "site" not in fields(answer, "ratelimit")


def test_stream_passes_as_it_is(serve: Serve) -> None:
    client = serve(Route(handler=Counted(Reply(chunks=["one ", "two ", "three"])), limits=[limit("1/h", name="view")]))
    answer = client.ask()
    assert (answer.text, fields(answer, "ratelimit")["view"]["r"]) == ("one two three", 0)
    assert client.ask().status_code == 429


def test_switched_off_nothing_is_charged_or_added(serve: Serve) -> None:
    client = serve(Route(limits=[limit("1/h")]), LIMITS=[Limit("all", "1/h", key="global")], ENABLED=False, SECRET_KEY=SECRET)
    assert client.statuses(4) == [200] * 4
    assert not set(OUR_HEADERS) & set(client.ask().headers)


def test_switch_is_asked_for_each_request(serve: Serve) -> None:
    states: list[bool] = []

    def is_enabled() -> bool:
        return states[0]

    client = serve(Route(limits=[limit("1/h")]), ENABLED=is_enabled)
    found = []
    for state in (True, True, False, True):
        states[:] = [state]
        found.append(client.ask().status_code)
    assert found == [200, 429, 200, 429]


def test_reset_all_gives_everybody_the_quota_back(serve: Serve) -> None:
    client = serve(Route(limits=[limit("1/h")]), LIMITS=[Limit("site", "5/h")])
    for _ in range(2):
        assert client.statuses(2) == [200, 429]
        client.reset_all()


def test_view_sees_the_decision_and_the_verified_claims(serve: Serve) -> None:
    async def show(request: Request) -> Reply:
        admission = request.admission
        return Reply(f"{admission.decision.name} {admission.decision.remaining} {admission.claims and admission.claims.sub}")

    client = serve(Route(handler=show, limits=[limit("9/h", name="view")]), SECRET_KEY=SECRET)
    token = Processor(Config(secret_key=SECRET)).create({"sub": "ann"})
    assert client.ask(headers={"Authorization": f"Bearer {token}"}).text == "view 8 ann"
    assert client.ask(headers={"Authorization": "Bearer nonsense"}).text == "view 7 None"


def test_settings_that_cannot_work_stop_the_application(serve: Serve) -> None:
    with pytest.raises(ConfigError, match=r"(?i)limit.* is no setting: did you mean .*limits"):
        serve(Route(handler=hello), LIMIT=[Limit("site", "5/h")])
