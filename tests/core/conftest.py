"""Every promise of the processors is tested over both of them, through one adapter."""

import asyncio
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jwtlimit_core import AsyncProcessor, Config, Processor
from jwtlimit_core.testing import ManualClock

SECRET = bytes(range(64))  # that of `forge`


class Driven:
    """A processor of either colour, whose methods are plain functions here."""

    def __init__(self, processor: Processor | AsyncProcessor) -> None:
        self.processor = processor

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.processor, name)
        return lambda *arguments: asyncio.run(method(*arguments)) if inspect.iscoroutinefunction(method) else method(*arguments)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time_ns=1_900_000_000_999_999_999)


@pytest.fixture(params=[Processor, AsyncProcessor], ids=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> type[Processor | AsyncProcessor]:
    kind: type[Processor | AsyncProcessor] = request.param
    return kind


@pytest.fixture
def make(colour: type[Processor | AsyncProcessor], clock: ManualClock) -> Callable[..., Driven]:
    """Return the maker of processors: it takes what a configuration takes."""

    def make(**config: Any) -> Driven:
        if not config.keys() & {"secret_key", "signing_key", "verification_key"}:
            config["secret_key"] = SECRET
        return Driven(colour(Config(**({"clock": clock} | config))))

    return make


@pytest.fixture
def provider(colour: type[Processor | AsyncProcessor]) -> Callable[..., Any]:
    """Return the maker of limiters that only have the three methods, plain or coroutines as the processor takes them."""

    def as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*arguments: Any) -> Any:
            await asyncio.sleep(0)
            return function(*arguments)

        return called

    def make(
        allow: Callable[[str], object] = lambda key: True, close: Callable[[], object] = lambda: None, **others: Any
    ) -> Any:
        methods = {"allow": allow, "reset": lambda key: None, "close": close, **others}
        paint = as_coroutine if colour is AsyncProcessor else lambda function: function
        return SimpleNamespace(**{name: paint(method) for name, method in methods.items()})

    return make
