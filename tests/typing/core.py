"""User code that is checked and never run: the types that the core gives. A marked line is wrong, and must stay an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from jwtlimit_core import (
    AsyncProcessor,
    AsyncRateLimitProvider,
    Claims,
    Clock,
    Config,
    Decision,
    Limit,
    LimiterUnavailable,
    Processor,
    Rate,
    RateLimiter,
    RateLimitExceeded,
    RateLimitProvider,
    RegisteredClaims,
    RequestView,
    acquire_all,
    acquire_all_async,
    resolve_key,
)
from jwtlimit_core.testing import ManualClock


@dataclass(kw_only=True)
class Session(RegisteredClaims):
    device: str = ""

    def validate(self) -> None:
        if not self.device:
            raise ValueError("no device")

    def rate_limit_key(self) -> str:
        return self.device


class Store:
    """A limiter of the application's own."""

    def allow(self, key: str) -> bool:
        return True

    def reset(self, key: str) -> None: ...

    def close(self) -> None: ...


class AsyncStore:
    async def allow(self, key: str) -> bool:
        return True

    async def reset(self, key: str) -> None: ...

    async def close(self) -> None: ...


def limiters(clock: Clock) -> None:
    with RateLimiter(100, timedelta(minutes=1), burst=5, name="api", clock=clock) as limiter:
        assert_type(limiter, RateLimiter)
        assert_type(limiter.allow("ann"), bool)
        assert_type(limiter.allow_n("ann", 2), bool)
        assert_type(limiter.peek("ann"), Decision)
        assert_type(limiter.acquire("ann", 2).retry_after, float | None)
        assert_type(limiter.acquire("ann").retry_after_ns, int | None)
        assert_type(acquire_all([(limiter, "ann", 1)]).parts, tuple[Decision, ...])
        assert_type(len(limiter), int)
    assert_type(RateLimiter.from_rate("5/m", clock=ManualClock()), RateLimiter)
    assert_type(Rate.parse("5/m").burst, int)
    limiter.allow(7)  # type: ignore[arg-type]
    limiter.allow_n("ann", 1.5)  # type: ignore[arg-type]
    limiter.allow_n("ann")  # type: ignore[call-arg]
    RateLimiter(100, 60, 5)  # type: ignore[call-arg]
    RateLimiter(100, 60, clock=7)  # type: ignore[arg-type]
    Rate.parse("5/m").burst = 6  # type: ignore[misc]


async def together(limiter: RateLimiter) -> None:
    assert_type(await acquire_all_async([(limiter, "ann", 1)]), Decision)


def processors(token: str) -> None:
    with Processor(Config(secret_key=b"s" * 32, access_token_ttl=60, rate_limiter=Store())) as processor:
        assert_type(processor, Processor)
        assert_type(processor.create({"sub": "ann"}), str)
        assert_type(processor.create_refresh(Claims(sub="ann")), str)
        assert_type(processor.refresh(token), str)
        assert_type(processor.refresh_into(token, Session), str)
        assert_type(processor.validate(token), Claims)
        assert_type(processor.validate_into(token, Session), Session)
        assert_type(processor.validate_into(token, Session).device, str)
    processor.create("ann")  # type: ignore[arg-type]
    processor.validate(token.encode())  # type: ignore[arg-type]
    processor.validate_into(token, dict)  # type: ignore[type-var]
    Claims("ann")  # type: ignore[call-arg]
    Claims(sub=7)  # type: ignore[arg-type]
    Config(secret_key=7)  # type: ignore[arg-type]
    Config(rate_limiter=object())  # type: ignore[arg-type]
    processor.config.issuer = "other"  # type: ignore[misc]


async def async_processors(token: str) -> None:
    async with AsyncProcessor(Config(secret_key="s" * 32, rate_limiter=AsyncStore())) as processor:
        assert_type(processor, AsyncProcessor)
        assert_type(await processor.create(Session(device="d")), str)
        assert_type(await processor.validate(token), Claims)
        assert_type(await processor.validate_into(token, Session), Session)
    assert_type(processor.validate(token), Claims)  # type: ignore[assert-type, unused-coroutine]


async def refuse_disabled(claims: RegisteredClaims) -> None: ...


def hooks() -> None:
    Config(before_issue=refuse_disabled, normalize_key=str.casefold)
    Config(before_issue=lambda claims: claims.sub != "eve")
    Config(before_issue=lambda: None)  # type: ignore[arg-type]


def takes_providers(providers: Sequence[RateLimitProvider], waiting: AsyncRateLimitProvider) -> None: ...


def protocols() -> None:
    takes_providers([Store(), RateLimiter()], AsyncStore())
    takes_providers([AsyncStore()], AsyncStore())  # type: ignore[list-item]
    takes_providers([], Store())  # type: ignore[arg-type]
    assert_type(resolve_key(Claims(sub="ann")), str)


def user_of(request: Any) -> str | None:
    return None


def limits(view: RequestView) -> None:
    assert_type(Limit("login", "5/m", key=user_of, methods={"POST"}).methods, frozenset[str] | None)
    assert_type(view.header("Origin"), str | None)
    Limit("login", 5)  # type: ignore[arg-type]
    Limit("login", "5/m", lambda request: "k")  # type: ignore[call-arg]
    Limit("login", "5/m", key=lambda: "k")  # type: ignore[arg-type]
    view.method = "POST"  # type: ignore[misc]


def errors(error: RateLimitExceeded | LimiterUnavailable) -> None:
    assert_type(error.retry_after, float | None)
    if isinstance(error, RateLimitExceeded):
        assert_type(error.decision.rate, Rate)
        assert_type(error.limit, int)
