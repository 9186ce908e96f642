"""Steps of I/O written once, for callers with and without an event loop.

A flow is a generator: it yields a `Call` when it needs something done outside, and is sent the answer (or thrown the error).
What must be decided stays in the flow. Whether a call is awaited is known when it is made, not found out from its answer.
"""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

__all__ = ["DONE", "Call", "Flow", "awaits", "is_on_loop", "run", "run_async"]

_Result = TypeVar("_Result")


@dataclass(slots=True)
class Call:
    """One thing to do outside: call *function* with *arguments*, and await the answer if *awaits*."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    awaits: bool = False

    def __call__(self) -> Any:
        """Make the call; of one that awaits, return what to await."""
        return self.function(*self.arguments)


Flow = Generator[Call, Any, _Result]
DONE = cast("Flow[Any]", iter(()))  # a flow with nothing to do and no result, where what it would do was done at once


def awaits(function: object) -> bool:
    """Say whether *function* is a coroutine function, or an object that is called as one."""
    asked = (function, type(function).__call__) if callable(function) else ()
    return any(map(inspect.iscoroutinefunction, asked))


def is_on_loop() -> bool:
    """Say whether this runs on an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = getattr(sys.modules.get("trio"), "lowlevel", None)  # a loop of its own, of which asyncio knows nothing
        return bool(getattr(trio, "in_trio_run", bool)())
    return True


def run(flow: Flow[_Result]) -> _Result:
    """Run *flow* to its result; none of its calls may need an await."""
    if flow is DONE:
        return None  # type: ignore[return-value]
    stopped: StopIteration | None = None  # no other error: this frame would hold it, and it this frame
    try:
        call = next(flow)
        while True:
            try:
                answer = call.function(*call.arguments)
            except BaseException as error:  # noqa: BLE001  the flow may tidy up; it raises what it does not handle
                stopped = error if isinstance(error, StopIteration) else None
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        # So a generator raises the StopIteration of a call (PEP 479); a coroutine has none.
        if stopped is None or error.__cause__ is not stopped:
            raise
    raise stopped  # out here, where it gets no context that it did not have


async def run_async(flow: Flow[_Result]) -> _Result:
    """Run *flow* to its result, and await what needs it."""
    if flow is DONE:
        return None  # type: ignore[return-value]
    try:
        call = next(flow)
        while True:
            try:
                answer = call.function(*call.arguments)
                if call.awaits:
                    answer = await cast("Awaitable[Any]", answer)
            except BaseException as error:  # noqa: BLE001  as above, a cancellation too
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
