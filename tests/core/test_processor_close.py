"""Closing: which limiter goes with the processor, and what becomes of calls under way; and what each colour takes."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jwt
import pytest

from jwtlimit_core import (
    AsyncProcessor,
    Claims,
    Config,
    ConfigError,
    InvalidClaims,
    LimiterUnavailable,
    Processor,
    ProcessorClosed,
    RateLimiter,
    RateLimitExceeded,
)
from jwtlimit_core.http import refusal

SECRET = bytes(range(64))

Make = Callable[..., Any]


def is_open(limiter: RateLimiter) -> bool:
    return limiter.allow("anybody")


def test_close_closes_the_limiter_that_the_processor_made(make: Make) -> None:
    processor = make(enable_rate_limit=True)
    limiter = processor.processor._limiter  # there is no other way to it
    assert is_open(limiter)
    processor.close()
    assert not is_open(limiter)


@pytest.mark.parametrize("owns", [False, True])
def test_close_closes_an_injected_limiter_only_when_it_is_owned(owns: bool, make: Make) -> None:
    limiter = RateLimiter()
    make(rate_limiter=limiter, enable_rate_limit=True, owns_limiter=owns).close()
    assert is_open(limiter) is not owns


def test_close_twice_closes_an_owned_limiter_once(make: Make, provider: Make) -> None:
    closed: list[bool] = []
    processor = make(rate_limiter=provider(close=lambda: closed.append(True)), owns_limiter=True)
    processor.close()
    processor.close()
    assert closed == [True]


def test_close_of_an_owned_limiter_that_fails_raises_limiter_unavailable_and_is_closed(make: Make, provider: Make) -> None:
    def fail() -> None:
        raise OSError("down")

    processor = make(rate_limiter=provider(close=fail), owns_limiter=True)
    with pytest.raises(LimiterUnavailable, match="failed to close with OSError") as caught:
        processor.close()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(ProcessorClosed):
        processor.create({})


def test_a_block_of_with_closes_the_processor() -> None:
    with Processor(Config(secret_key=SECRET)) as processor:
        token = processor.create({"sub": "u1"})
    with pytest.raises(ProcessorClosed):
        processor.validate(token)

    async def block() -> AsyncProcessor:
        async with AsyncProcessor(Config(secret_key=SECRET)) as processor:
            await processor.create({"sub": "u1"})
        return processor

    with pytest.raises(ProcessorClosed):
        asyncio.run(asyncio.run(block()).validate(token))


@pytest.mark.parametrize("outcome", ["refuses", "raises"])
def test_a_call_that_races_with_close_ends_as_closed_and_never_as_a_refusal(outcome: str, make: Make, provider: Make) -> None:
    def allow(_key: str) -> bool:
        processor.processor._closed = True  # what another thread does meanwhile
        if outcome == "raises":
            raise OSError("closed")
        return False

    processor = make(rate_limiter=provider(allow))
    with pytest.raises(ProcessorClosed):
        processor.create({"sub": "u1"})


def test_a_call_whose_own_limiter_is_closed_meanwhile_ends_as_closed(make: Make) -> None:
    class Closing(RateLimiter):
        def allow(self, key: str) -> bool:
            processor.processor._closed = True
            self.close()
            return super().allow(key)

    processor = make(rate_limiter=Closing())
    with pytest.raises(ProcessorClosed):
        processor.create({"sub": "u1"})


def test_a_limiter_that_is_closed_by_others_is_an_outage_and_no_refusal(make: Make) -> None:
    limiter = RateLimiter()
    processor = make(rate_limiter=limiter)
    limiter.close()
    with pytest.raises(LimiterUnavailable, match="limiter 'default' is closed"):
        processor.create({"sub": "u1"})


def test_a_processor_that_is_closed_while_the_hook_runs_issues_and_charges_nothing(make: Make, provider: Make) -> None:
    asked: list[str] = []

    def hook(_claims: Claims) -> None:
        processor.processor._closed = True

    processor = make(before_issue=hook, rate_limiter=provider(lambda key: asked.append(key) or True))
    with pytest.raises(ProcessorClosed):
        processor.create({"sub": "u1"})
    assert asked == []


class AsyncLimiter:
    async def allow(self, key: str) -> bool:
        return True

    async def reset(self, key: str) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class HalfAsyncLimiter(AsyncLimiter):
    def allow(self, key: str) -> bool:  # type: ignore[override]
        return True


class AsyncHook:
    async def __call__(self, claims: object) -> bool:
        return claims.sub != "disabled"  # type: ignore[attr-defined]


def config(**values: Any) -> Config:
    return Config(secret_key=SECRET, **values)


def test_a_processor_refuses_what_belongs_to_the_other_colour() -> None:
    with pytest.raises(ConfigError, match="rate_limiter is asynchronous: use AsyncProcessor"):
        Processor(config(rate_limiter=AsyncLimiter()))
    with pytest.raises(ConfigError, match="rate_limiter is asynchronous: use AsyncProcessor"):
        Processor(config(rate_limiter=HalfAsyncLimiter(), owns_limiter=True))
    for hook in (AsyncHook(), AsyncHook().__call__):
        with pytest.raises(ConfigError, match="before_issue is a coroutine function: use AsyncProcessor"):
            Processor(config(before_issue=hook))
    with pytest.raises(ConfigError, match="rate_limiter must be a RateLimiter or have coroutine functions"):
        AsyncProcessor(config(rate_limiter=HalfAsyncLimiter()))


@pytest.mark.parametrize("hook", [AsyncHook(), AsyncHook().__call__], ids=["object", "function"])
def test_a_coroutine_hook_is_awaited_by_an_async_processor(hook: Any) -> None:
    processor = AsyncProcessor(config(before_issue=hook, rate_limiter=AsyncLimiter()))
    assert asyncio.run(processor.create({"sub": "u1"}))
    with pytest.raises(InvalidClaims, match="before_issue refused"):
        asyncio.run(processor.create({"sub": "disabled"}))


def test_a_hook_that_hides_its_coroutine_lets_nobody_pass(make: Make) -> None:
    hidden: list[Any] = []
    processor = make(before_issue=lambda claims: hidden.append(AsyncHook()(claims)) or hidden[-1])
    with pytest.raises(TypeError, match="before_issue must return None, True or False, not coroutine"):
        processor.create({"sub": "u1"})
    hidden.pop().close()


def test_a_limiter_that_hides_its_coroutine_lets_nobody_pass() -> None:
    hidden: list[Any] = []
    limiter = AsyncLimiter()
    limiter.allow = lambda key: hidden.append(AsyncLimiter.allow(limiter, key)) or hidden[-1]  # type: ignore[method-assign]
    with pytest.raises(LimiterUnavailable, match="answered with coroutine"):
        Processor(config(rate_limiter=limiter)).create({"sub": "u1"})
    hidden.pop().close()


def test_a_cancelled_call_leaves_a_processor_that_works() -> None:
    async def cancel() -> str:
        waiting = asyncio.Event()

        class Slow(AsyncLimiter):
            async def allow(self, key: str) -> bool:
                return key == "fast" or await waiting.wait()

        processor = AsyncProcessor(config(rate_limiter=Slow()))
        tasks = [asyncio.ensure_future(processor.create({"sub": f"u{number}"})) for number in range(100)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
        return await processor.create({"sub": "fast"})

    assert asyncio.run(cancel())


def test_identifiers_of_many_threads_and_of_a_forked_child_are_all_different() -> None:
    processor = Processor(config(enable_rate_limit=True, rate_limit_rate=10**9))
    tokens = [processor.create({"sub": "u1"}) for _ in range(10)]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, " ".join(processor.create({"sub": "u1"}) for _ in range(10)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        tokens += pipe.read().split()
    with ThreadPoolExecutor(16) as pool:
        for more in pool.map(lambda _: [processor.create({"sub": "u1"}) for _ in range(1250)], range(16)):
            tokens += more
    identifiers = {jwt.decode(token, options={"verify_signature": False})["jti"] for token in tokens}
    assert len(identifiers) == 20_020


def test_refusal_of_a_limiter_that_says_yes_or_no_tells_one_wait(make: Make, provider: Make) -> None:
    processor = make(rate_limiter=provider(lambda _: False))
    with pytest.raises(RateLimitExceeded) as caught:
        processor.create(Claims(sub="u1"))
    headers = dict(refusal(caught.value).headers)
    assert (headers["Retry-After"], headers["RateLimit"]) == ("60", '"issue";r=0;t=60')
