"""Header fields and problem details, read back by an independent parser of structured fields."""

import json
from typing import Any

import http_sf
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jwtlimit_core import Decision, LimiterUnavailable, Rate, RateLimiter, RateLimitExceeded, acquire_all
from jwtlimit_core.http import Response, rate_limit_headers, refusal
from jwtlimit_core.testing import ManualClock

SECOND = 1_000_000_000
TEN_YEARS_NS = 10 * 366 * 86_400 * SECOND
LARGEST_INTEGER = 999_999_999_999_999

rates = st.builds(
    Rate,
    st.integers(1, 10_000),
    st.one_of(st.integers(1, 10**6), st.fractions(min_value="1/1000000000", max_value=10**6)),
    st.none() | st.integers(1, 20_000),
)


def refused(retry_after_ns: int | None = SECOND, *, name: str = "login", rate: str = "5/m") -> Decision:
    return Decision(False, Rate.parse(rate), name, 0, retry_after_ns, Rate.parse(rate).window_ns)


def items(value: str) -> list[Any]:
    """Return the items of a structured List, each with its parameters."""
    parsed: list[Any] = http_sf.parse(value.encode("ascii"), tltype="list")
    return parsed


def answer(*decisions: Decision) -> tuple[Response, dict[str, str]]:
    waits = [part.retry_after_ns for part in decisions]
    wait = None if None in waits else max(ns for ns in waits if ns is not None)
    response = refusal(RateLimitExceeded(decisions[0]._replace(retry_after_ns=wait, parts=decisions)))
    return response, dict(response.headers)


# Retry-After -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait_ns", "header"),
    [(1, "1"), (SECOND - 1, "1"), (SECOND, "1"), (SECOND + 1, "2"), (59 * SECOND + 1, "60"), (60 * SECOND, "60")],
)
def test_retry_after_is_rounded_up_to_whole_seconds(wait_ns: int, header: str) -> None:
    _, headers = answer(refused(wait_ns))
    assert headers["Retry-After"] == header


def test_retry_after_of_no_wait_is_still_one() -> None:
    _, headers = answer(refused(0))
    assert headers["Retry-After"] == "1"


def test_retry_after_when_waiting_never_helps_is_left_out() -> None:
    response, headers = answer(refused(None))
    assert "Retry-After" not in headers
    assert json.loads(response.body)["detail"].endswith("Waiting does not help.")


@given(st.integers(1, TEN_YEARS_NS))
def test_retry_after_of_any_wait_is_a_plain_positive_integer(wait_ns: int) -> None:
    _, headers = answer(refused(wait_ns))
    value = headers["Retry-After"]
    assert value.isascii()
    assert value.isdigit()
    assert wait_ns <= int(value) * SECOND < wait_ns + SECOND


@pytest.mark.parametrize(
    ("wait_ns", "words"), [(1, "in 1 second."), (SECOND + 1, "in 2 seconds."), (61 * SECOND, "in 61 seconds.")]
)
def test_refusal_says_one_number_in_exception_header_and_body(wait_ns: int, words: str) -> None:
    error = RateLimitExceeded(refused(wait_ns))
    response = refusal(error)
    header = dict(response.headers)["Retry-After"]
    assert f"in {header} second" in json.loads(response.body)["detail"]
    assert json.loads(response.body)["detail"].endswith(words)
    assert error.retry_after is not None
    assert int(header) - 1 < error.retry_after <= int(header)


# The whole answer ------------------------------------------------------------------------------------------------


def test_refusal_of_a_limit_is_problem_details_with_429() -> None:
    response, headers = answer(refused())
    assert (response.status, response.content_type) == (429, "application/problem+json")
    assert json.loads(response.body) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "A limit on requests was exceeded. Try again in 1 second.",
        "violated-policies": ["login"],
    }
    assert headers == {
        "Cache-Control": "no-store",
        "Retry-After": "1",
        "RateLimit-Policy": '"login";q=5;w=60',
        "RateLimit": '"login";r=0;t=12',
    }


@pytest.mark.parametrize(("retry_after", "header"), [(0.0, "1"), (0.25, "1"), (1.0, "1"), (2.5, "3")])
def test_refusal_without_an_answer_of_the_store_is_503(retry_after: float, header: str) -> None:
    response = refusal(LimiterUnavailable("the store is at 10.0.0.7", retry_after=retry_after))
    problem = json.loads(response.body)
    assert (response.status, response.content_type) == (503, "application/problem+json")
    assert response.headers == (("Cache-Control", "no-store"), ("Retry-After", header))
    assert problem["type"] == "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    assert (problem["title"], problem["status"]) == ("Service Unavailable", 503)
    assert f"Try again in {header} second" in problem["detail"]
    assert b"10.0.0.7" not in response.body


def test_refusal_that_was_raised_by_hand_for_a_decision_that_allows_is_429() -> None:
    response = refusal(RateLimitExceeded(RateLimiter(5, 60, name="login").peek("a")))
    assert response.status == 429
    assert json.loads(response.body)["violated-policies"] == ["login"]
    assert dict(response.headers)["RateLimit"] == '"login";r=5'


def test_refusal_lists_only_the_limits_that_refuse() -> None:
    allowed = refused(name="day")._replace(allowed=True, remaining=3, retry_after_ns=0)
    response, headers = answer(refused(name="minute"), allowed, refused(name="hour"))
    assert [name for name, _ in items(headers["RateLimit"])] == ["minute", "hour"]
    assert [name for name, _ in items(headers["RateLimit-Policy"])] == ["minute", "hour"]
    assert json.loads(response.body)["violated-policies"] == ["minute", "hour"]


@pytest.mark.parametrize("error", [RateLimitExceeded(refused()), LimiterUnavailable("down")])
def test_refusal_has_no_header_twice(error: RateLimitExceeded | LimiterUnavailable) -> None:
    names = [name.lower() for name, _ in refusal(error).headers]
    assert len(names) == len(set(names))


# RateLimit-Policy and RateLimit ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "policy"),
    [
        ("100/m", {"q": 100, "w": 60}),
        ("10/s;burst=50", {"q": 50, "w": 5}),  # the time in which a whole burst comes back
        ("2/s;burst=3", {"q": 3}),  # 1.5 s
        ("100/500ms", {"q": 100}),
        ("1/999999d;burst=999999999999999", {"q": LARGEST_INTEGER}),  # more seconds than the field can carry
    ],
)
def test_policy_has_the_burst_and_a_window_of_whole_seconds(rate: str, policy: dict[str, int]) -> None:
    headers = dict(rate_limit_headers([refused(rate=rate)]))
    assert items(headers["RateLimit-Policy"]) == [("login", policy)]


def test_state_of_a_full_bucket_has_no_t() -> None:
    clock = ManualClock()
    headers = dict(rate_limit_headers([RateLimiter(5, 60, clock=clock).peek("k")]))
    assert items(headers["RateLimit"]) == [("default", {"r": 5})]


def test_state_says_when_there_is_one_token_more() -> None:
    clock = ManualClock()
    limiter = RateLimiter(5, 60, clock=clock)
    states = []
    for seconds in (0, 0, 0.5):
        clock.advance(seconds)
        states += items(dict(rate_limit_headers([limiter.acquire("k")]))["RateLimit"])
    assert [parameters for _, parameters in states] == [{"r": 4, "t": 12}, {"r": 3, "t": 12}, {"r": 2, "t": 12}]
    clock.advance(11.5)
    assert items(dict(rate_limit_headers([limiter.peek("k")]))["RateLimit"]) == [("default", {"r": 3, "t": 12})]


def test_state_of_a_very_slow_rate_stays_an_integer_of_structured_fields() -> None:
    clock = ManualClock()
    limiter = RateLimiter.from_rate("1/999999999d", clock=clock)
    limiter.acquire("k")
    clock.advance_ns(-(10**25))  # a clock set back: the wait grows by what it lost
    headers = dict(rate_limit_headers([limiter.peek("k")]))
    assert items(headers["RateLimit"]) == [("default", {"r": 0, "t": LARGEST_INTEGER})]


@given(rates, st.data())
@example(Rate(7, 8, 2), None)  # the tokens after the next one come at fractions of a nanosecond
def test_state_of_a_refusal_has_no_t_after_retry_after(rate: Rate, data: st.DataObject | None) -> None:
    clock = ManualClock()
    limiter = RateLimiter.from_rate(rate, clock=clock)
    other = RateLimiter(1, 1, name="other", clock=clock)
    cost = data.draw(st.integers(1, rate.burst)) if data else 1
    limiter.acquire("k", rate.burst)
    clock.advance_ns(data.draw(st.integers(0, rate.window_ns)) if data else 142_857_143)
    spends = [(limiter, "k", cost), (other, "k", 1)]
    decision = acquire_all(spends)
    if decision.allowed:
        decision = acquire_all(spends)  # other refuses now
    headers = dict(refusal(RateLimitExceeded(decision)).headers)
    states = items(headers["RateLimit"])
    assert states
    assert all(0 < parameters["t"] <= int(headers["Retry-After"]) for _, parameters in states)


@given(rates, st.integers(0, TEN_YEARS_NS))
def test_headers_of_any_state_are_read_back_by_a_parser(rate: Rate, passed_ns: int) -> None:
    clock = ManualClock()
    limiter = RateLimiter.from_rate(rate, clock=clock)
    limiter.acquire("k", rate.burst)
    clock.advance_ns(passed_ns)
    decision = limiter.acquire("k")
    headers = dict(rate_limit_headers([decision, decision]))
    policies, states = items(headers["RateLimit-Policy"]), items(headers["RateLimit"])
    assert [parameters["q"] for _, parameters in policies] == [rate.burst] * 2
    assert all(set(parameters) <= {"q", "w"} and parameters.get("w", 1) > 0 for _, parameters in policies)
    assert [parameters["r"] for _, parameters in states] == [decision.remaining] * 2
    assert all(set(parameters) <= {"r", "t"} and parameters.get("t", 1) > 0 for _, parameters in states)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ('say "hi"', 'say "hi"'),
        ("back\\slash\\", "back\\slash\\"),
        ("a, b;q=9", "a, b;q=9"),
        ("é", "%C3%A9"),
        ("a\r\nSet-Cookie: x", "a%0D%0ASet-Cookie: x"),
        ("\x00\x7f", "%00%7F"),
        ("\ud800", "%3F"),
        ("\U0001f512", "%F0%9F%94%92"),
    ],
)
def test_names_of_any_characters_are_alike_in_headers_and_body(name: str, read: str) -> None:
    response, headers = answer(refused(name=name))
    assert items(headers["RateLimit"])[0][0] == read
    assert items(headers["RateLimit-Policy"])[0][0] == read
    assert json.loads(response.body)["violated-policies"] == [read]


@given(st.text(min_size=1))
def test_names_of_any_text_make_headers_of_printable_ascii(name: str) -> None:
    response, headers = answer(refused(name=name))
    assert all(" " <= char <= "~" for value in headers.values() for char in value)
    assert [found for found, _ in items(headers["RateLimit"])] == json.loads(response.body)["violated-policies"]
