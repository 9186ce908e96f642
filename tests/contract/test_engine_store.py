"""The engine over a shared store: what other processes and the other colour see of what is done by hand."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jwtlimit_core import Claims, Engine, Limit, RateLimiter, RateLimitExceeded
from jwtlimit_core.flow import run, run_async
from jwtlimit_core.settings import build_engine
from servers import Server
from views import View, enters

_numbers = itertools.count()
SITE = Limit("site", "2/h")

Make = Callable[..., Engine]


@pytest.fixture
def make(server: Server) -> Iterator[Make]:
    """Engines that share their counts, as those of several processes do."""
    prefix, made = f"engine-{next(_numbers)}", []

    def make_engine(**settings: Any) -> Engine:
        values = {"STORE": server.url, "KEY_PREFIX": prefix, "SECRET_KEY": "s" * 32, "LIMITS": [SITE], **settings}
        made.append(build_engine(values))
        return made[-1]

    yield make_engine
    for engine in made:
        run(engine.close(on_loop=False))


def passed(engine: Engine, count: int = 4) -> list[bool]:
    return [enters(engine, View()) for _ in range(count)]


async def passed_on_loop(engine: Engine, count: int = 4) -> list[bool]:
    found = []
    for _ in range(count):
        view = View(awaits=True)
        try:
            await run_async(engine.enter(view, engine.admission(view)))
        except RateLimitExceeded:
            found.append(False)
        else:
            found.append(True)
    return found


def test_reset_in_a_process_that_never_used_the_limit_is_for_all(make: Make) -> None:
    assert passed(make()) == [True, True, False, False]
    run(make().reset("site", "ip=192.0.2.1", on_loop=False))
    assert passed(make()) == [True, True, False, False]


def test_reset_drops_what_both_colours_remember(make: Make) -> None:
    engine = make()

    async def main() -> list[list[bool]]:
        found = [await passed_on_loop(engine)]
        await run_async(engine.reset("site", "ip=192.0.2.1", on_loop=True))
        found.append(await passed_on_loop(engine))
        await asyncio.to_thread(run, engine.reset("site", "ip=192.0.2.1", on_loop=False))
        found.append(await passed_on_loop(engine))
        await asyncio.to_thread(engine.reset_all)
        found.append(await passed_on_loop(engine))
        await run_async(engine.close(on_loop=True))
        return found

    assert asyncio.run(main()) == [[True, True, False, False]] * 4


def test_reset_of_issuance_reaches_the_store(make: Make) -> None:
    first, second = make(ISSUE_RATE="1/h"), make(ISSUE_RATE="1/h")
    first.processor().create(Claims(sub="ann"))
    with pytest.raises(RateLimitExceeded):
        first.processor().create(Claims(sub="ann"))
    run(first.reset("issue", "ann", on_loop=False))
    second.processor().create(Claims(sub="ann"))


def test_reset_of_issuance_reaches_a_limiter_of_the_application(make: Make) -> None:
    engine = make(STORE=RateLimiter(1, 3600))
    engine.processor().create(Claims(sub="ann"))
    run(engine.reset("issue", "ann", on_loop=False))
    engine.processor().create(Claims(sub="ann"))
    engine.reset_all()
    engine.processor().create(Claims(sub="ann"))


def test_refund_reaches_the_store_from_either_colour(make: Make) -> None:
    login = Limit("login", "1/h", refund_when=lambda status, headers: status == 200)
    engine = make(LIMITS=[login])

    async def main() -> None:
        view = View(awaits=True)
        admission = engine.admission(view)
        await run_async(engine.enter(view, admission))
        await asyncio.to_thread(run, engine.settle(View(), admission, 200, {}))
        assert await passed_on_loop(engine, 2) == [True, False]
        await run_async(engine.close(on_loop=True))

    asyncio.run(main())
