"""The engine over a shared store: what other processes and the other colour see of what is done by hand."""

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import trio

from jwtlimit_core import Claims, ConfigError, Engine, Limit, LimiterUnavailable, Phase, RateLimiter, RateLimitExceeded
from jwtlimit_core.flow import run, run_async
from jwtlimit_core.settings import build_engine
from outages import closed_url
from servers import Server
from views import View, admit, enters, passes

_numbers = itertools.count()
SITE = Limit("site", "2/h")

Make = Callable[..., Engine]


@pytest.fixture
def make(server: Server) -> Iterator[Make]:
    """Engines that share their counts, as those of several processes do."""
    prefix, made = f"engine-{next(_numbers)}", []

    def make_engine(**settings: Any) -> Engine:
        values = {
            "STORE": server.url,
            "KEY_PREFIX": prefix,
            "SECRET_KEY": "s" * 32,
            "LIMITS": [SITE],
            "STORE_TIMEOUT": 20,
            **settings,
        }
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


def test_reset_all_is_for_what_other_processes_counted_and_for_no_other_prefix(make: Make, server: Server) -> None:
    assert passed(make()) == [True, True, False, False]
    prefix = f"engine-{next(_numbers)}*"
    other = make(KEY_PREFIX=prefix)
    assert passed(other, 2) == [True, True]
    make().reset_all()
    assert passed(make()) == [True, True, False, False]
    assert passed(make(KEY_PREFIX=prefix), 1) == [False]


def test_setting_of_the_time_out_reaches_both_stores(make: Make) -> None:
    engine = make(STORE_TIMEOUT=timedelta(seconds=2))
    stores = [engine._limiters.of(SITE, SITE.rate, on_loop=on_loop)._store for on_loop in (False, True)]
    assert [store._timeout for store in stores] == [2.0, 2.0]


def test_reset_all_without_the_store_follows_the_policy(make: Make) -> None:
    make(STORE=closed_url(), ON_FAILURE="local").reset_all()
    with pytest.raises(LimiterUnavailable, match="nothing was reset"):
        make(STORE=closed_url()).reset_all()


def test_limits_alike_but_for_refunds_have_limiters_of_their_own(make: Make) -> None:
    login = Limit("login", "1/h")
    refunded = Limit("login", "1/h", refund_when=lambda status, headers: status == 200)
    engine = make(LIMITS=[login])
    enters(engine, View())
    assert not enters(engine, View())
    with pytest.raises(RateLimitExceeded):
        admit(engine, View(), refunded)
    logins = [limiter for limiter in engine._limiters._made.values() if limiter.name == "login" and not limiter.awaits]
    assert [limiter._refusals.wait_ns("ip=192.0.2.1", 1) > 0 for limiter in logins] == [True, False]


@pytest.mark.parametrize("strategy", ["token_bucket", "fixed_window"])
def test_fields_of_a_refusal_agree_whoever_refuses(make: Make, strategy: str) -> None:
    engine = make(LIMITS=[Limit("site", "50/h", cost=25)], STRATEGY=strategy)
    assert passed(engine, 2) == [True, True]
    for _ in range(3):  # by the store, and then from memory
        admission = engine.admission(View())
        with pytest.raises(RateLimitExceeded) as caught:
            run(engine.enter(View(), admission))
        fields = dict(engine.refuse(caught.value, None).headers)
        found = re.fullmatch(r'"site";r=0;t=(\d+)', fields["RateLimit"])
        assert found is not None
        wait_s = int(fields["Retry-After"])
        assert 1 <= int(found[1]) <= wait_s
        if strategy == "fixed_window":
            assert int(found[1]) == wait_s


def test_store_shows_no_key_where_there_is_a_secret(make: Make, server: Server) -> None:
    prefix = f"engine-{next(_numbers)}"
    engine = make(KEY_PREFIX=prefix, KEY_SECRET=b"pepper", LIMITS=[Limit("api", "2/h", key="header:x-api-key")])
    view = View(headers={"X-Api-Key": "k-of-ann"})
    assert [enters(engine, view) for _ in range(3)] == [True, True, False]
    with server.client() as client:
        stored = list(client.scan_iter(f"{prefix}:api:*"))
    assert len(stored) == 1
    assert b"k-of-ann" not in stored[0]
    run(engine.reset("api", "header:x-api-key=k-of-ann", on_loop=False))
    assert enters(engine, view)


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


def test_limit_that_does_not_apply_is_not_made(make: Make) -> None:
    engine = make(STRATEGY="fixed_window", LIMITS=[])
    phase = Phase([Limit("view", "5/m;burst=9", methods=["POST"])])  # which no fixed window can have
    admission = engine.admission(View())
    run(engine.admit(View(method="GET"), admission, phase))
    with pytest.raises(ConfigError, match="burst"):
        run(engine.admit(View(method="POST"), admission, phase))


@pytest.mark.parametrize("key", ["ip", "global"])
@pytest.mark.parametrize("store", ["memory", None])
def test_plans_of_one_limit_count_apart_in_every_store(make: Make, store: str | None, key: str) -> None:
    engine = make(**({"STORE": store} if store else {}))
    limit = Limit("api", rates={"free": "1/h", "pro": "4/h"}, plan=lambda view: view.name, key=key)
    names = ("pro", "free", "pro", "free", "pro", "pro", "pro")
    assert [passes(engine, View(name=name), limit) for name in names] == [True, True, True, False, True, True, False]


def test_store_without_the_event_loop_of_asyncio_is_a_config_error(make: Make) -> None:
    engine = make()

    async def main() -> None:
        view = View(awaits=True)
        with pytest.raises(ConfigError, match="needs the event loop of asyncio"):
            await run_async(engine.enter(view, engine.admission(view)))

    trio.run(main)


def test_engine_over_a_store_does_not_count_alone(make: Make) -> None:
    assert not make().counts_alone
