"""Flows: one generator, run with and without an event loop, gives the same results and the same errors."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from jwtlimit_core.flow import Call, Flow, awaits, is_on_loop, run, run_async

Runner = Callable[[Flow[Any]], Any]


@pytest.fixture(params=[run, lambda flow: asyncio.run(run_async(flow))], ids=["sync", "async"])
def drive(request: pytest.FixtureRequest) -> Runner:
    runner: Runner = request.param
    return runner


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_a_flow_is_sent_the_answers_in_order_and_its_result_is_returned(drive: Runner) -> None:
    def flow() -> Flow[list[int]]:
        first = yield Call(divmod, (7, 2))
        second = yield Call(sum, ([*first, 1],))
        return [*first, second]

    assert drive(flow()) == [3, 1, 5]


def test_a_flow_without_calls_returns_at_once(drive: Runner) -> None:
    def flow() -> Flow[str]:
        return "done"
        yield

    assert drive(flow()) == "done"


def test_an_error_of_a_call_is_thrown_into_the_flow_which_may_go_on(drive: Runner) -> None:
    def flow() -> Flow[str]:
        try:
            yield Call(int, ("x",))
        except ValueError:
            return (yield Call(str, (1,)))
        return "not reached"

    assert drive(flow()) == "1"


class Stop(BaseException):
    """No Exception, like KeyboardInterrupt and a cancellation."""


@pytest.mark.parametrize("error", [LookupError("no"), Stop()], ids=repr)
def test_an_error_that_the_flow_does_not_handle_is_raised_unchanged_after_it_tidied_up(
    drive: Runner, error: BaseException
) -> None:
    tidied = []

    def fail() -> None:
        raise error

    def flow() -> Flow[None]:
        try:
            yield Call(fail)
        finally:
            tidied.append(True)

    with pytest.raises(type(error)) as caught:
        drive(flow())
    assert caught.value is error
    assert tidied == [True]


def raising(error: BaseException) -> Call:
    def fail() -> None:
        raise error

    return Call(fail)


def test_a_stop_iteration_of_a_call_is_no_result_but_an_error_like_any() -> None:
    def flow() -> Flow[None]:
        yield raising(error)

    def outer() -> Flow[None]:
        yield from flow()

    error = StopIteration("mine")
    for made in (flow, outer):
        with pytest.raises(StopIteration) as caught:
            run(made())
        assert caught.value is error
        assert error.__context__ is None
        with pytest.raises(RuntimeError) as stopped:  # as of any coroutine
            asyncio.run(run_async(made()))
        assert stopped.value.__cause__ is error


def test_a_runtime_error_is_raised_unchanged_whatever_it_comes_from(drive: Runner) -> None:
    def flow(first: BaseException) -> Flow[None]:
        with suppress(LookupError, StopIteration):
            yield raising(first)
        yield raising(error)

    error = RuntimeError("mine")
    error.__cause__ = StopIteration()
    for first in (StopIteration("first"), LookupError()):
        with pytest.raises(RuntimeError) as caught:
            drive(flow(first))
        assert caught.value is error


def test_a_runtime_error_of_the_flow_itself_is_raised_after_a_stop_iteration_of_a_call(drive: Runner) -> None:
    def flow() -> Flow[None]:
        try:
            yield raising(StopIteration("first"))
        except StopIteration:
            raise error from LookupError()

    error = RuntimeError("mine")
    with pytest.raises(RuntimeError) as caught:
        drive(flow())
    assert caught.value is error


def test_run_async_awaits_what_is_marked_and_nothing_else() -> None:
    def flow() -> Flow[tuple[int, object]]:
        awaited = yield Call(double, (4,), awaits=True)
        plain = yield Call(double, (5,))
        return awaited, plain

    awaited, plain = asyncio.run(run_async(flow()))
    assert awaited == 8
    assert asyncio.run(plain) == 10


def test_run_async_that_is_cancelled_throws_the_cancellation_into_the_flow() -> None:
    seen = []

    def flow() -> Flow[None]:
        try:
            yield Call(asyncio.Event().wait, (), awaits=True)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def cancel() -> None:
        task = asyncio.ensure_future(run_async(flow()))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
    assert seen == ["cancelled"]


class Callee:
    async def __call__(self) -> None:
        """Do nothing, later."""

    async def method(self) -> None:
        """Do nothing, later."""


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        (double, True),
        (partial(double, 1), True),
        (Callee(), True),
        (Callee().method, True),
        (Callee, False),
        (len, False),
        (lambda: None, False),
        (None, False),
    ],
    ids=lambda part: None if isinstance(part, bool) else type(part).__name__,
)
def test_awaits_of_a_function_says_whether_its_answer_is_awaited(function: object, answer: bool) -> None:
    assert awaits(function) is answer


def test_loop_is_found_whoever_runs_it() -> None:
    async def asks() -> bool:
        return is_on_loop()

    assert [is_on_loop(), asyncio.run(asks()), is_on_loop()] == [False, True, False]
