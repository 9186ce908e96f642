"""The phases of a request: what each charges, what is put back, and when."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest

from jwtlimit_core import Claims, ConfigError, Engine, Limit, LimiterUnavailable, RateLimitExceeded
from jwtlimit_core.flow import run, run_async
from jwtlimit_core.limit import Phase
from jwtlimit_core.settings import build_engine
from jwtlimit_core.testing import ManualClock
from views import View, admit, enters, form, headers, passed, passes

SECRET = "s" * 32
Make = Callable[..., Engine]


@pytest.fixture
def make() -> Make:
    """An engine for limits of the settings."""
    clock = ManualClock()

    def make_engine(*limits: Limit, **settings: Any) -> Engine:
        return build_engine({"SECRET_KEY": SECRET, "LIMITS": limits, "CLOCK": clock, **settings})

    return make_engine


def bearer(engine: Engine, subject: str) -> dict[str, str | list[str]]:
    return {"Authorization": f"Bearer {engine.processor(enabled=False).create(Claims(sub=subject))}"}


def left(engine: Engine, limit: Limit, view: View) -> int:
    """Return how many more of *view* the limit lets pass; they are spent."""
    return passed(engine, view, limit, of=20)


# What each phase charges -----------------------------------------------------------------------------------------


def test_enter_charges_limits_of_the_settings_that_a_request_meets(make: Make) -> None:
    engine = make(Limit("site", "3/m"), Limit("token", "1/m", paths=["/token"]), Limit("write", "2/m", methods=["put"]))
    assert [enters(engine, View(path="/token")) for _ in range(2)] == [True, False]
    assert [enters(engine, View("PUT")) for _ in range(3)] == [True, True, False]
    assert not enters(engine, View())


def test_enter_passes_exempt_paths_by(make: Make) -> None:
    engine = make(Limit("all", "1/m", key="global"), EXEMPT_PATHS=["/healthz"])
    assert [enters(engine, View()) for _ in range(2)] == [True, False]
    assert [enters(engine, View(path=path)) for path in ("/healthz", "/healthz/live", "/healthz2")] == [True, True, False]


def test_enter_of_a_preflight_charges_no_phase(make: Make) -> None:
    engine = make(Limit("site", "1/m"), Limit("all", "1/m", key="global"))
    assert all(
        enters(engine, View("OPTIONS", headers={"Origin": "https://example.org", "Access-Control-Request-Method": "PUT"}))
        for _ in range(5)
    )
    assert enters(engine, View("OPTIONS"))
    assert not enters(engine, View("OPTIONS"))


def test_global_limit_is_not_spent_by_whom_an_earlier_phase_refuses(make: Make) -> None:
    everybody = Limit("all", "5/m", key="global")
    engine = make(everybody, Limit("site", "2/m"))
    assert [enters(engine, View()) for _ in range(9)].count(True) == 2
    assert left(engine, everybody, View()) == 3


def test_nobody_is_asked_about_a_request_that_its_address_keeps_out(make: Make) -> None:
    asked: list[View] = []
    engine = make(Limit("both", "9/m", key=("ip", lambda view: asked.append(view) or "ann")), Limit("site", "2/m"))
    assert [enters(engine, View()) for _ in range(5)].count(True) == 2
    assert len(asked) == 2


def test_service_wide_limit_counts_each_request_once(make: Make) -> None:
    everybody = Limit("all", "10/m", key="global")
    engine = make(everybody)
    count = 0
    for number in range(20):
        view = View(peer=f"192.0.2.{number}")
        admission = engine.admission(view)
        try:
            run(engine.enter(view, admission))
            run(engine.admit(view, admission, Phase([Limit("view", "9/m")])))
        except RateLimitExceeded:
            continue
        count += 1
    assert count == 10


def test_admission_has_the_decisions_of_all_phases(make: Make) -> None:
    engine = make(Limit("site", "3/m"), Limit("all", "9/m", key="global"))
    view = View()
    admission = engine.admission(view)
    assert admission.decision is None
    run(engine.enter(view, admission))
    run(engine.admit(view, admission, Phase([Limit("view", "2/m")])))
    assert admission.decision is not None
    assert (admission.decision.allowed, admission.decision.name, admission.decision.remaining) == (True, "view", 1)
    assert dict(engine.headers(admission, 200)) == {
        "RateLimit-Policy": '"site";q=3;w=60, "all";q=9;w=60, "view";q=2;w=60',
        "RateLimit": '"site";r=2;t=20, "all";r=8;t=7, "view";r=1;t=30',
    }
    assert engine.headers(admission, 429) == engine.headers(admission, 503) == ()


# What is put back ------------------------------------------------------------------------------------------------


def test_refusal_in_a_later_phase_gives_back_what_was_charged_earlier_but_by_address(make: Make) -> None:
    site, subject, everybody = Limit("site", "9/m"), Limit("me", "9/m", key="subject"), Limit("all", "9/m", key="global")
    named = Limit("named", "9/m", key="header:x-name")
    engine = make(site, named, subject, everybody)
    view = View(headers={**bearer(engine, "ann"), "X-Name": "ann"})
    for _ in range(3):
        admission = engine.admission(view)
        run(engine.enter(view, admission))
        with pytest.raises(RateLimitExceeded):
            run(engine.admit(view, admission, Phase([Limit("view", "1/m", cost=1), Limit("never", "1/m", cost=lambda _: 2)])))
        assert [charge.limit for charge in admission.charges] == [site]
    assert [left(engine, limit, view) for limit in (site, named, subject, everybody)] == [6, 9, 9, 9]
    assert left(engine, Limit("view", "1/m"), view) == 1


def test_refusal_in_the_second_phase_gives_back_the_first_but_by_address(make: Make) -> None:
    named, both = Limit("named", "9/m", key="header:x-name"), Limit("both", "9/m", key=("header:x-name", "ip"))
    engine = make(named, both, Limit("all", "1/m", key="global"))
    view = View(headers={"X-Name": "ann"})
    assert [enters(engine, view) for _ in range(4)] == [True, False, False, False]
    assert [left(engine, limit, view) for limit in (named, both)] == [8, 5]


def test_field_that_became_the_address_is_not_given_back(make: Make) -> None:
    field = Limit("field", "9/m", key="field:user")
    engine = make(field, Limit("all", "1/m", key="global"))
    for view in (form("user=ann"), View()):
        enters(engine, view)
        enters(engine, view)
    assert [left(engine, field, view) for view in (form("user=ann"), View())] == [8, 7]


def failing(_request: object) -> str:
    raise RuntimeError("the database is away")


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        (Limit("broken", "9/m", key=failing), RuntimeError),
        (Limit("broken", "9/m", key=lambda _: 7), TypeError),
        (Limit("broken", "9/m", cost=failing), RuntimeError),
        (Limit("broken", "9/m", cost=lambda _: -1), TypeError),
        (Limit("broken", "9/m", cost=lambda _: True), TypeError),
        (Limit("broken", "9/m", cost=lambda _: 1.5), TypeError),
        (Limit("broken", "9/m", exempt_when=failing), RuntimeError),
        (Limit("broken", rates={"free": "9/m"}, plan=failing), RuntimeError),
        (Limit("broken", rates={"free": "9/m"}, plan=lambda _: "gold"), ValueError),
    ],
)
def test_function_that_fails_charges_nothing(make: Make, limit: Limit, error: type[Exception]) -> None:
    everybody, other = Limit("all", "9/m", key="global"), Limit("other", "9/m", key="header:x")
    engine = make(everybody)
    view = View(headers={"x": "1"})
    admission = engine.admission(view)
    run(engine.enter(view, admission))
    with pytest.raises(error):
        run(engine.admit(view, admission, Phase([other, limit])))
    assert [left(engine, each, view) for each in (everybody, other)] == [9, 9]


# Refunds by the answer -------------------------------------------------------------------------------------------


def good(status: int, _headers: object) -> bool:
    return status < 400


def test_settle_gives_back_what_refund_when_wants_so_that_only_failures_count(make: Make) -> None:
    engine = make(Limit("site", "99/m"))
    login = Limit("login", "3/m", refund_when=good)
    view = View()
    for status in (200, 401, 302, 401, 200, 401):
        admission = engine.admission(view)
        run(engine.enter(view, admission))
        run(engine.admit(view, admission, Phase([login])))
        run(engine.settle(view, admission, status, {}))
        run(engine.settle(view, admission, status, {}))  # a second time changes nothing
    assert left(engine, login, view) == 0
    assert left(engine, Limit("site", "99/m"), view) == 20


def test_settle_gives_back_the_cost_that_was_charged(make: Make) -> None:
    costs = iter([5, 1, 1, 1])
    login = Limit("login", "6/m", cost=lambda _: next(costs), refund_when=good)
    engine = make()
    admission = admit(engine, View(), login)
    run(engine.settle(View(), admission, 200, {}))
    assert passed(engine, View(), login, of=3) == 3
    assert left(engine, Limit("login", "6/m"), View()) == 3


def test_settle_shows_refund_when_the_answer(make: Make) -> None:
    seen = []
    limit = Limit("login", "3/m", refund_when=lambda status, headers: seen.append((status, headers)))
    engine = make()
    run(engine.settle(View(), admit(engine, View(), limit), 201, {"X": "1"}))
    assert seen == [(201, {"X": "1"})]


def test_settle_never_fails(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    broken = Limit("broken", "3/m", refund_when=lambda status, headers: 1 / 0)
    login = Limit("login", "3/m", refund_when=good)
    engine = make()
    admission = admit(engine, View(), broken, login)
    run(engine.settle(View(), admission, 200, {}))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "refund_when of limit 'broken' failed" in caplog.text
    assert [left(engine, limit, View()) for limit in (broken, login)] == [2, 3]


# Cost, plans, exemptions -----------------------------------------------------------------------------------------


def test_cost_may_be_asked_for_each_request_and_be_nothing(make: Make) -> None:
    engine = make()
    limit = Limit("export", "10/m", cost=lambda view: len(view.content))
    assert [passes(engine, View(content=b"x" * size), limit) for size in (6, 5, 4, 0)] == [True, False, True, True]
    assert headers(engine, View(), limit) == ()


def test_cost_above_the_burst_is_refused_for_good(make: Make) -> None:
    engine = make()
    with pytest.raises(RateLimitExceeded) as caught:
        admit(engine, View(), Limit("export", "3/m", cost=lambda _: 4))
    assert caught.value.retry_after is None
    assert "Retry-After" not in dict(engine.refuse(caught.value, View()).headers)


def test_plan_chooses_the_rate_for_each_request(make: Make) -> None:
    engine = make()
    limit = Limit("api", rates={"free": "1/m", "pro": "3/m"}, plan=lambda view: view.name)
    assert [passed(engine, View(name=name), limit) for name in ("free", "pro")] == [1, 3]


def test_plans_count_apart_and_are_reset_apart(make: Make) -> None:
    engine = make()
    limit = Limit("api", rates={"a&b": "1/m", "pro": "1/m"}, plan=lambda view: view.name)
    for_all = Limit("all", rates={"a&b": "1/m", "pro": "1/m"}, plan=lambda view: view.name, key="global")
    for name in ("a&b", "pro"):
        assert [passed(engine, View(name=name), each) for each in (limit, for_all)] == [1, 1]
    run(engine.reset("api", "plan=a%26b&ip=192.0.2.1", on_loop=False))
    run(engine.reset("all", "plan=pro", on_loop=False))
    assert [passed(engine, View(name=name), limit) for name in ("a&b", "pro")] == [1, 0]
    assert [passed(engine, View(name=name), for_all) for name in ("a&b", "pro")] == [0, 1]


def test_exempt_when_is_asked_for_each_request(make: Make) -> None:
    engine = make()
    limit = Limit("site", "1/m", exempt_when=lambda view: view.name == "robot")
    assert [passed(engine, View(name=name), limit, of=5) for name in ("robot", "ann")] == [5, 1]


def unawaited(*_arguments: object) -> Any:
    class Waiting:
        def __await__(self) -> Any: ...

    return Waiting()


def test_answer_that_nobody_awaits_exempts_and_refunds_nothing(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    engine = make()
    site = Limit("site", "1/m", exempt_when=unawaited)
    with pytest.raises(TypeError, match="exempt_when of limit 'site' returned what nobody awaits: make it a plain function"):
        admit(engine, View(), site)
    with pytest.raises(TypeError, match="make it a coroutine function"):
        admit(engine, View(awaits=True), site)
    login = Limit("login", "2/m", refund_when=unawaited)
    run(engine.settle(View(), admit(engine, View(), login), 200, {}))
    assert "refund_when of limit 'login' failed" in caplog.text
    assert left(engine, login, View()) == 1


# On an event loop ------------------------------------------------------------------------------------------------


def test_coroutine_functions_are_awaited_on_an_event_loop(make: Make) -> None:
    async def later(view: View) -> str:
        await asyncio.sleep(0)
        return view.name or ""

    async def cost(_view: View) -> int:
        return 2

    async def no(_view: View) -> bool:
        return False

    limit = Limit("slow", rates={"ann": "4/m"}, plan=later, key=later, cost=cost, exempt_when=no)
    engine = make(Limit("user", "9/m", key="user"), USER_KEY=later)

    async def asked() -> bool:
        view = View(name="ann", awaits=True)
        admission = engine.admission(view)
        try:
            await run_async(engine.enter(view, admission))
            await run_async(engine.admit(view, admission, Phase([limit])))
        except RateLimitExceeded:
            return False
        return True

    async def main() -> list[bool]:
        return [await asked() for _ in range(3)]

    assert asyncio.run(main()) == [True, True, False]


def test_coroutine_function_without_an_event_loop_is_a_config_error_that_charges_nothing(make: Make) -> None:
    async def later(_view: View) -> str:
        return "ann"

    engine = make()
    with pytest.raises(ConfigError, match="limit 'slow' has a coroutine function"):
        admit(engine, View(), Limit("site", "1/m"), Limit("slow", "9/m", key=later))
    assert passes(engine, View(), Limit("site", "1/m"))


def test_both_colours_count_together_in_process(make: Make) -> None:
    engine = make(Limit("site", "2/m"))
    view = View(awaits=True)
    asyncio.run(run_async(engine.enter(view, engine.admission(view))))
    assert [enters(engine, View()) for _ in range(2)] == [True, False]
    processor = engine.async_processor()
    assert processor is engine.async_processor()
    assert engine.processor() is engine.processor()
    for _ in range(50):
        asyncio.run(processor.create(Claims(sub="ann")))
        engine.processor().create(Claims(sub="ann"))
    with pytest.raises(RateLimitExceeded):
        engine.processor().create(Claims(sub="ann"))
    assert inspect.iscoroutinefunction(processor.create)


# By hand ---------------------------------------------------------------------------------------------------------


def test_reset_gives_one_key_of_one_limit_its_quota_back(make: Make) -> None:
    site, login = Limit("site", "1/m"), Limit("login", "1/m")
    engine = make()
    for peer in ("192.0.2.1", "192.0.2.2"):
        assert passes(engine, View(peer=peer), site, login)
    run(engine.reset("site", "ip=192.0.2.1", on_loop=False))
    asyncio.run(run_async(engine.reset("site", "ip=192.0.2.3", on_loop=True)))
    assert [passes(engine, View(peer=peer), site) for peer in ("192.0.2.1", "192.0.2.2")] == [True, False]
    assert not passes(engine, View(), login)


def test_reset_of_issuance_takes_the_subject(make: Make) -> None:
    engine = make(ISSUE_RATE="1/m")
    engine.processor().create(Claims(sub="ann"))
    run(engine.reset("issue", "ann", on_loop=False))
    engine.processor().create(Claims(sub="ann"))


@pytest.mark.parametrize("key", ["192.0.2.1", "IP=192.0.2.1", "ip=", "foo=bar", "header:=a", "field:user", "=", ""])
def test_reset_of_a_key_that_is_no_counted_one_is_a_value_error(make: Make, key: str) -> None:
    with pytest.raises(ValueError, match=r"such as 'ip=192\.0\.2\.1'"):
        run(make().reset("site", key, on_loop=False))


@pytest.mark.parametrize("key", ["ip=2001:db8::7", "ip=2001:db8::/64"])
def test_reset_takes_an_address_for_its_network(make: Make, key: str) -> None:
    engine, site, view = make(), Limit("site", "1/m"), View(peer="2001:db8::9", name="7")
    pair = Limit("pair", "1/m", key=("user", "ip"))
    assert [passed(engine, view, limit) for limit in (site, pair)] == [1, 1]
    run(engine.reset("site", key, on_loop=False))
    run(engine.reset("pair", f"user=7&{key}", on_loop=False))
    assert [passed(engine, view, limit) for limit in (site, pair)] == [1, 1]


class Waiting:
    """A limiter of the application with coroutines."""

    def __init__(self) -> None:
        self.reset_keys: list[str] = []

    async def allow(self, key: str) -> bool:
        return True

    async def reset(self, key: str) -> None:
        self.reset_keys.append(key)

    async def reset_all(self) -> None: ...

    async def close(self) -> None: ...


def test_reset_of_a_limiter_with_coroutines_needs_an_event_loop(make: Make) -> None:
    waiting = Waiting()
    engine = make(STORE=waiting)
    for attempt in (lambda: run(engine.reset("issue", "ann", on_loop=False)), engine.reset_all):
        with pytest.raises(ConfigError, match="reset it on an event loop"):
            attempt()
    asyncio.run(run_async(engine.reset("issue", "ann", on_loop=True)))
    assert waiting.reset_keys == ["ann"]


@pytest.mark.parametrize(("name", "key"), [(None, "ip=192.0.2.1"), ("site", None), ("site", 7)])
def test_reset_of_what_is_no_text_is_a_type_error(make: Make, name: Any, key: Any) -> None:
    with pytest.raises(TypeError, match="name and key must be str, not"):
        run(make().reset(name, key, on_loop=False))


def test_close_in_process_closes_nothing_that_is_counted(make: Make) -> None:
    engine = make(Limit("site", "2/m"))
    enters(engine, View())
    run(engine.close(on_loop=False))
    assert [enters(engine, View()) for _ in range(2)] == [True, False]


def test_refuse_without_a_request_tells_no_hook(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    engine = make(ON_REFUSED=lambda decision, view: 1 / 0)
    caplog.set_level(logging.DEBUG)
    assert engine.refuse(LimiterUnavailable("down"), None).status == 503
    with pytest.raises(RateLimitExceeded) as caught:
        admit(engine, View(), Limit("export", "3/m", cost=lambda _: 4))
    caplog.clear()
    assert engine.refuse(caught.value, None).status == 429
    assert caplog.records == []
