"""Steps of I/O written once, for callers with and without an event loop.

A flow is a generator: it yields a `Call` when it needs something done outside, and is sent the answer (or thrown the error).
What must be decided stays in the flow; whether the call is awaited is known when the call is made, not found out from its answer.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

__all__ = ["Call", "Flow", "run", "run_async"]

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Call:
    """One thing to do outside: call *function* with *arguments*, and await the answer if *awaits*."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    awaits: bool = False


Flow = Generator[Call, Any, _Result]


def run(flow: Flow[_Result]) -> _Result:
    """Run *flow* to its result; none of its calls may need an await."""
    try:
        call = next(flow)
        while True:
            try:
                answer = call.function(*call.arguments)
            except BaseException as error:  # everything goes to the flow, which may tidy up; it is raised from there
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as stop:
        return cast(_Result, stop.value)


async def run_async(flow: Flow[_Result]) -> _Result:
    """Run *flow* to its result, and await what needs it."""
    try:
        call = next(flow)
        while True:
            try:
                answer = call.function(*call.arguments)
                if call.awaits:
                    answer = await cast(Awaitable[Any], answer)
            except BaseException as error:  # everything goes to the flow, a cancellation too
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as stop:
        return cast(_Result, stop.value)
