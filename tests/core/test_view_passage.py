"""Requests on their way to a view and back, in a framework that is none: its responses are pairs of a status and headers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jwtlimit_core import Engine, Limit, RateLimitExceeded
from jwtlimit_core.flow import Call, Flow, run, run_async
from jwtlimit_core.http import Refusal
from jwtlimit_core.limit import phase_of
from jwtlimit_core.settings import build_engine
from jwtlimit_core.testing import ManualClock
from jwtlimit_core.view_passage import ViewPassage
from views import View

OURS = {"RateLimit-Policy": '"site";q=1;w=60', "RateLimit": '"site";r=0;t=60'}
Answer = tuple[int, dict[str, str]]


class Passage(View, ViewPassage):
    def __init__(self, engine: Engine, store: dict[str, Any], *, awaits: bool = False) -> None:
        View.__init__(self)
        self.awaits = awaits
        self.begin(engine, store)

    def refused(self, error: Refusal) -> Flow[Answer]:
        answer = self.engine.refuse(error, self)
        yield Call(lambda: None)  # a handler of the application may be called
        return answer.status, dict(answer.headers)

    def tell(self, response: Any) -> tuple[int, object] | None:
        if response is None:
            return None
        status, headers = response
        headers.update(self.engine.headers(self.admission, status))
        return status, headers


class Unanswered(ViewPassage):
    """A framework that has not said how it answers."""


def engine_of(*limits: Limit) -> Engine:
    return build_engine({"LIMITS": limits, "CLOCK": ManualClock()})


def answers(status: int) -> Callable[[], Answer]:
    return lambda: (status, {})


def answer_of(engine: Engine, view: Callable[[], Any], store: dict[str, Any] | None = None) -> Any:
    store = {} if store is None else store
    passage = Passage(engine, store)
    answer = run(passage.through(engine.enter, Call(view)))
    assert "_jwtlimit" not in store or not passage.outermost
    return answer


def test_view_passage_answers_with_headers_and_refuses_without_the_view() -> None:
    engine = engine_of(Limit("site", "1/m"))
    assert answer_of(engine, answers(200)) == (200, OURS)
    status, headers = answer_of(engine, lambda: pytest.fail("it was called"))
    assert (status, headers["Retry-After"]) == (429, "60")


def test_view_passage_awaits_what_awaits() -> None:
    async def view() -> Answer:
        return 200, {}

    engine = engine_of(Limit("site", "1/m"))
    flow = Passage(engine, {}, awaits=True).through(engine.enter, Call(view, (), awaits=True))
    assert asyncio.run(run_async(flow)) == (200, OURS)


def test_view_passages_around_one_request_are_one_admission_and_the_outermost_sees_to_the_answer() -> None:
    engine = engine_of(Limit("site", "1/m"))
    store: dict[str, Any] = {}

    def view() -> Answer:
        inner = Passage(engine, store)
        assert (inner.outermost, inner.admission) == (False, store["jwtlimit"])
        found = run(inner.through(lambda *given: engine.admit(*given, phase_of(Limit("page", "9/m"))), Call(answers(200))))
        assert found == (200, {})
        return 200, {}

    _, headers = answer_of(engine, view, store)
    assert headers["RateLimit"] == '"site";r=0;t=60, "page";r=8;t=7'
    assert store["jwtlimit"].decision.remaining == 0
    assert Passage(engine, store).outermost


def test_view_passage_without_a_charge_only_sees_to_the_answer() -> None:
    engine = engine_of(Limit("site", "1/m"))
    assert [run(Passage(engine, {}).through(None, Call(answers(200)))) for _ in range(2)] == [(200, {})] * 2


def test_view_passage_settles_by_what_goes_out() -> None:
    seen: list[Any] = []
    engine = engine_of(Limit("site", "9/m", refund_when=lambda status, headers: bool(seen.append((status, headers)))))

    def fails() -> None:
        raise LookupError("mine")

    assert answer_of(engine, answers(401))[0] == 401
    with pytest.raises(LookupError, match="mine"):
        answer_of(engine, fails)
    assert answer_of(engine, lambda: None) is None
    assert [status for status, _ in seen] == [401, 500]
    assert "RateLimit" in seen[0][1]
    assert seen[1][1] == {}


def test_view_passage_leaves_the_answers_to_the_framework() -> None:
    passage = Unanswered()
    with pytest.raises(NotImplementedError):
        passage.tell(None)
    with pytest.raises(NotImplementedError):
        passage.refused(RateLimitExceeded(engine_of()))  # type: ignore[arg-type]
