"""Limits by address in memory are charged by a short way: it decides as the long one does, request by request."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jwtlimit_core import Engine, Limit, Phase, RateLimitExceeded, counters
from jwtlimit_core.counters import InProcess, Limiters
from jwtlimit_core.flow import run
from jwtlimit_core.limit import phase_of
from jwtlimit_core.settings import build_engine
from jwtlimit_core.testing import ManualClock
from views import View

RATES = st.sampled_from(["2/m", "3/m", "5/10s", "2/m;burst=4"])
LIMIT = st.fixed_dictionaries(
    {
        "name": st.sampled_from("abc"),
        "rate": RATES,
        "cost": st.sampled_from([1, 1, 1, 2]),
        "methods": st.sampled_from([None, None, ["POST"]]),
        "paths": st.sampled_from([None, None, ["/token"]]),
    }
)
OF_SETTINGS = st.lists(LIMIT, max_size=3, unique_by=lambda limit: limit["name"])
OF_VIEWS = st.lists(LIMIT, max_size=3)  # two may share a name, and so a bucket, with one another or with one of the settings
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["GET", "POST", "OPTIONS"]),
        st.sampled_from(["/", "/token"]),
        st.sampled_from(["192.0.2.1", "192.0.2.2"]),
        st.integers(0, 30),
    ),
    max_size=25,
)


def engine(clock: ManualClock, **settings: Any) -> Engine:
    return build_engine({"CLOCK": clock, **settings})


def asked(engine: Engine, view: View, limits: list[Limit]) -> Any:
    """Return what became of a request that meets the limits of the settings and then *limits*."""
    admission = engine.admission(view)
    try:
        run(engine.enter(view, admission))
        run(engine.admit(view, admission, Phase(limits)))
    except RateLimitExceeded as error:
        return error.decision
    return admission.decision, engine.headers(admission, 200)


@given(site=OF_SETTINGS, of_view=OF_VIEWS, requests=REQUESTS)
def test_short_way_decides_as_the_long_one(
    site: list[dict[str, Any]], of_view: list[dict[str, Any]], requests: list[tuple[str, str, str, int]]
) -> None:
    def limits(kinds: list[dict[str, Any]], **more: Any) -> list[Limit]:
        return [Limit(**kind, **more) for kind in kinds]

    clock, never = ManualClock(), {"refund_when": lambda *_: False}
    short, long = engine(clock, LIMITS=limits(site)), engine(clock, LIMITS=limits(site, **never))
    views = limits(of_view), limits(of_view, **never)
    for method, path, peer, seconds in requests:
        clock.advance(seconds)
        view = View(method=method, path=path, peer=peer)
        assert asked(short, view, views[0]) == asked(long, replace(view), views[1])


def test_phases_are_the_same_for_the_same_limits_and_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert phase_of(Limit("a", "1/m"), Limit("b", "1/m")) is phase_of(Limit("a", "1/m"), Limit("b", "1/m"))
    assert phase_of(Limit("a", "1/m")) is not phase_of(Limit("a", "2/m"))
    monkeypatch.setattr(counters, "_MOST_PHASES", 3)
    limiters = Limiters(InProcess(ManualClock()))
    for _ in range(9):
        limiters.plain_in(Phase([Limit("a", "1/m")]), on_loop=False)
        assert 1 <= len(limiters.plain[False]) <= 3


def test_short_way_is_not_taken_where_something_may_have_to_be_put_back() -> None:
    engine = build_engine({"CLOCK": ManualClock(), "LIMITS": [Limit("all", "9/m", key="global")]})
    view, phase, left = View(), Phase([Limit("view", "1/m")]), []
    for _ in range(4):
        admission = engine.admission(view)
        run(engine.enter(view, admission))
        left.append(admission.decisions[0].remaining)
        with suppress(RateLimitExceeded):
            run(engine.admit(view, admission, phase))
    assert left == [8, 7, 7, 7]  # what the view refused is put back
