"""The engine without a framework: who is charged for what, and what is answered."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from jwtlimit_core import (
    Claims,
    Config,
    ConfigError,
    Decision,
    Engine,
    Limit,
    LimiterUnavailable,
    Rate,
    RateLimiter,
    RateLimitExceeded,
    RequestView,
)
from jwtlimit_core.client_address import ClientAddresses
from jwtlimit_core.counters import InProcess
from jwtlimit_core.engine import OnRefused
from jwtlimit_core.settings import build_engine
from jwtlimit_core.testing import ManualClock
from views import View, admit, headers, passed, passes

SECRET = "s" * 32
LOGIN = Limit("login", "3/m")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(clock: ManualClock) -> Callable[..., Engine]:
    def make_engine(*, secret: str | None = None, on_refused: OnRefused | None = None, **options: Any) -> Engine:
        config = Config(secret_key=secret, clock=clock) if secret else None
        options = {"issue_rate": Rate(2, 60), "counters": InProcess(clock), "addresses": ClientAddresses()} | options
        return Engine(config=config, on_refused=on_refused, **options)

    return make_engine


@pytest.fixture
def engine(make: Callable[..., Engine]) -> Engine:
    return make()


# Who is charged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["ip", "global", ("ip", "header:x-key"), lambda _: "a"])
def test_refusal_by_one_limit_is_of_that_alone(engine: Engine, key: Any) -> None:
    limit = Limit("one", "1/m", key=key)
    admit(engine, View(), limit)
    with pytest.raises(RateLimitExceeded) as caught:
        admit(engine, View(), limit)
    assert (caught.value.decision.name, caught.value.decision.parts) == ("one", ())


def test_admit_up_to_the_burst_returns_headers_and_then_raises(engine: Engine, clock: ManualClock) -> None:
    assert headers(engine, View(), LOGIN) == (
        ("RateLimit-Policy", '"login";q=3;w=60'),
        ("RateLimit", '"login";r=2;t=20'),
    )
    assert passed(engine, View(), LOGIN) == 2
    with pytest.raises(RateLimitExceeded) as caught:
        headers(engine, View(), LOGIN)
    assert caught.value.retry_after == 20
    clock.advance_ns(20_000_000_000 - 1)
    assert not passes(engine, View(), LOGIN)
    clock.advance_ns(1)
    assert passes(engine, View(), LOGIN)


def test_admit_with_headers_switched_off_returns_none(make: Callable[..., Engine]) -> None:
    assert headers(make(headers=False), View(), LOGIN) == ()


def test_admit_groups_peers_by_line(engine: Engine) -> None:
    assert passed(engine, View(peer="2001:db8::1"), LOGIN) == 3
    assert not passes(engine, View(peer="2001:db8::2"), LOGIN)
    assert passes(engine, View(peer="2001:db8:0:1::1"), LOGIN)
    assert passes(engine, View(peer="192.0.2.9"), LOGIN)


def test_admit_groups_ipv6_by_the_configured_prefix(make: Callable[..., Engine]) -> None:
    engine = make(addresses=ClientAddresses(ipv6_prefix=128))
    assert [passed(engine, View(peer=peer), LOGIN) for peer in ("2001:db8::1", "2001:db8::2")] == [3, 3]


def test_admit_of_peers_without_an_address_shares_one_bucket_and_warns_once(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    assert [passed(engine, View(peer=peer), LOGIN, of=2) for peer in ("", None, "")] == [2, 1, 0]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "without an address" in caplog.text


def test_admit_charges_limits_of_one_name_and_rate_together(engine: Engine) -> None:
    assert passed(engine, View(), LOGIN) == 3
    assert not passes(engine, View(), Limit("login", "3/m"))
    assert passes(engine, View(), Limit("refresh", "3/m"))
    assert passes(engine, View(), Limit("login", "4/m"))


def test_admit_charges_the_cost(engine: Engine) -> None:
    assert passed(engine, View(), Limit("export", "10/m", cost=4)) == 2


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_admit_folds_the_methods_of_a_limit(engine: Engine, method: str) -> None:
    limit = Limit("login", "3/m", methods=["post", "pUT"])
    assert passed(engine, View(method), limit) == 3
    assert headers(engine, View("GET"), limit) == ()


def test_admit_of_a_preflight_charges_nothing(engine: Engine) -> None:
    preflight = View("OPTIONS", headers={"Origin": "https://example.org", "Access-Control-Request-Method": "POST"})
    assert passed(engine, preflight, LOGIN) == 10
    assert passed(engine, View("OPTIONS"), LOGIN) == 3  # this one is no preflight, nor is the next
    assert not passes(
        engine, View("POST", headers={"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}), LOGIN
    )


# Key functions ---------------------------------------------------------------------------------------------------


def by_name(request: View) -> str | None:
    return request.headers["name"]


def test_admit_by_a_key_function_separates_its_keys(engine: Engine) -> None:
    limit = Limit("login", "3/m", key=by_name)
    assert [passed(engine, View(headers={"name": name}), limit) for name in ("ann", "bob", "ann")] == [3, 3, 0]


@pytest.mark.parametrize("key", [None, ""])
def test_admit_by_a_key_function_without_a_key_skips_that_limit(engine: Engine, key: str | None) -> None:
    assert headers(engine, View(), Limit("user", "1/m", key=lambda request: key)) == ()
    assert passed(engine, View(), Limit("user", "1/m", key=lambda request: key), LOGIN) == 3


def test_admit_with_a_key_function_that_raises_charges_nothing(engine: Engine) -> None:
    with pytest.raises(KeyError):
        admit(engine, View(), LOGIN, Limit("user", "1/m", key=by_name))
    assert passed(engine, View(), LOGIN) == 3


@pytest.mark.parametrize("key", [7, 0, False, b"ann"])
def test_admit_with_a_key_that_is_no_text_is_a_type_error_and_charges_nothing(engine: Engine, key: Any) -> None:
    with pytest.raises(TypeError, match="the key of limit 'user' must be a str or None, not"):
        admit(engine, View(), LOGIN, Limit("user", "1/m", key=lambda request: key))
    assert passed(engine, View(), LOGIN) == 3


def test_admit_to_several_limits_charges_all_or_none(engine: Engine) -> None:
    strict = Limit("strict", "1/m")
    assert headers(engine, View(), LOGIN, strict)[1] == ("RateLimit", '"login";r=2;t=20, "strict";r=0;t=60')
    with pytest.raises(RateLimitExceeded) as caught:
        headers(engine, View(), LOGIN, strict)
    assert caught.value.decision.name == "strict"
    assert passed(engine, View(), LOGIN) == 2


def test_admit_of_first_requests_at_once_counts_with_one_limiter(make: Callable[..., Engine], clock: ManualClock) -> None:
    threads = 50
    all_making = Barrier(threads, timeout=30)

    class Slow(InProcess):
        def make(self, name: str, rate: Rate, **options: object) -> RateLimiter:
            all_making.wait()  # nobody has kept a limiter yet
            return super().make(name, rate, **options)

    engine = make(counters=Slow(clock))
    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(lambda limit: passes(engine, View(), limit), [Limit("new", "7/h")] * threads))
    assert sum(answers) == 7


# Refusals --------------------------------------------------------------------------------------------------------


def exceeded() -> RateLimitExceeded:
    return RateLimitExceeded(Decision(False, Rate(3, 60), "login", 0, 20_000_000_000, 60_000_000_000))


def test_refuse_calls_the_hook_once_for_each_refusal(make: Callable[..., Engine], caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[Decision, RequestView]] = []
    engine = make(on_refused=lambda decision, view: seen.append((decision, view)))
    error, view = exceeded(), View()
    assert engine.refuse(error, view).status == 429
    assert seen == [(error.decision, view)]
    assert engine.refuse(LimiterUnavailable("down"), view).status == 503
    assert len(seen) == 1  # nobody was refused
    assert "failed" not in caplog.text


def test_refuse_with_a_hook_that_raises_answers_all_the_same(
    make: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    engine = make(on_refused=lambda decision, view: 1 / 0)
    assert engine.refuse(exceeded(), View()) == make().refuse(exceeded(), View())
    assert [record.message for record in caplog.records] == ["on_refused failed"]
    assert "ZeroDivisionError" in caplog.text


def test_refuse_a_thousand_times_logs_nothing(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    passed(engine, View(), LOGIN, of=3)
    for _ in range(1000):
        with pytest.raises(RateLimitExceeded) as caught:
            headers(engine, View(), LOGIN)
        engine.refuse(caught.value, View())
    assert caplog.records == []


# Issuance --------------------------------------------------------------------------------------------------------


def issued(engine: Engine, *, enabled: bool) -> int:
    count = 0
    for _ in range(5):
        try:
            engine.processor(enabled=enabled).create(Claims(sub="ann"))
        except RateLimitExceeded:
            continue
        count += 1
    return count


def test_processor_limits_only_when_enabled(make: Callable[..., Engine]) -> None:
    engine = make(secret=SECRET)
    assert [issued(engine, enabled=enabled) for enabled in (False, True, False, True)] == [5, 2, 5, 0]
    token = engine.processor(enabled=False).create(Claims(sub="ann"))
    assert engine.processor(enabled=True).validate(token).sub == "ann"


def test_processor_without_a_key_is_a_config_error(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="no key is set: set SECRET_KEY"):
        engine.processor(enabled=True)
    assert passed(engine, View(), LOGIN) == 3


@pytest.mark.parametrize(
    ("secret", "sentence"), [(SECRET, "tokens are issued at 2/m for each subject"), (None, "no key is set")]
)
def test_engine_at_start_logs_what_is_limited_and_the_process(
    make: Callable[..., Engine], caplog: pytest.LogCaptureFixture, secret: str | None, sentence: str
) -> None:
    caplog.set_level(logging.INFO)
    make(secret=secret)
    assert sentence in caplog.text
    assert "in this process alone (pid " in caplog.text
    assert SECRET not in caplog.text


def test_reset_all_gives_requests_and_issuance_their_quota_back(make: Callable[..., Engine], engine: Engine) -> None:
    for tested in (make(secret=SECRET), engine):
        for _ in range(2):
            assert passed(tested, View(), LOGIN) == 3
            if tested is not engine:
                assert issued(tested, enabled=True) == 2
            tested.reset_all()


@pytest.mark.parametrize(
    ("values", "alone"),
    [
        ({}, True),
        ({"STORE": "memory", "SECRET_KEY": SECRET}, True),
        ({"STORE": RateLimiter(), "SECRET_KEY": SECRET}, False),  # issuance is counted there, and nothing else is limited
        ({"STORE": RateLimiter(), "SECRET_KEY": SECRET, "LIMITS": [LOGIN]}, True),
    ],
)
def test_engine_counts_alone_unless_a_store_or_a_limiter_of_the_application_has_all_counts(
    values: dict[str, Any], alone: bool
) -> None:
    assert build_engine(values).counts_alone is alone
