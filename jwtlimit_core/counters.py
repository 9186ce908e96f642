"""Where requests and tokens are counted: in this process, or in a store that many share."""

import os
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

from jwtlimit_core.clock import Clock
from jwtlimit_core.errors import ConfigError, LimiterUnavailable
from jwtlimit_core.flow import Flow, run
from jwtlimit_core.limit import OnFailure
from jwtlimit_core.limiter import RateLimiter
from jwtlimit_core.rate import Rate

__all__ = ["Counters", "InProcess", "InStore"]


class Counters(Protocol):
    """Makes the limiters of an application."""

    @property
    def shared(self) -> bool:
        """Whether limiters of one name count together, in whatever process; else one limiter serves all callers of this one."""

    @property
    def place(self) -> str:
        """Where is counted, for the log."""

    def make(self, name: str, rate: Rate, *, on_loop: bool, on_failure: OnFailure | None, refunds: bool) -> Any:
        """Make a limiter.

        Args:
            name: What to call it.
            rate: How much.
            on_loop: Whether it is for code on an event loop.
            on_failure: What to do while the store does not answer; None for what is usual here.
            refunds: Whether tokens will often be put back, by whatever process.
        """

    def reset_all(self) -> None:
        """Give everybody the full quota back, as far as counts are not kept by the limiters themselves."""

    def close(self, *, on_loop: bool) -> Flow[None]:
        """Let go of what was opened, for code on an event loop or for other code."""


class InProcess:
    """Counts in this process alone; the methods are those of `Counters`."""

    shared = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def place(self) -> str:
        """Return the process."""
        return f"in this process alone (pid {os.getpid()}): each worker has the whole limit for itself"

    def make(self, name: str, rate: Rate, **_of_stores: object) -> RateLimiter:
        """Make a limiter."""
        return RateLimiter.from_rate(rate, name=name, clock=self._clock)

    def reset_all(self) -> None:
        """Do nothing: the limiters count."""

    def close(self, *, on_loop: bool) -> Flow[None]:  # noqa: ARG002
        """Do nothing: nothing was opened."""
        yield from ()


class InStore:
    """Counts in Redis or Valkey; all limiters of one colour are on one client, so that they can be spent in one step.

    Raises:
        ConfigError: *url* does not read like one, or redis-py is not installed.
    """

    shared = True

    def __init__(
        self, url: str, *, strategy: str, on_failure: OnFailure, key_prefix: str, key_secret: bytes | None, clock: Clock
    ) -> None:
        try:
            import jwtlimit_core.redis as stores
        except ModuleNotFoundError as error:
            raise ConfigError(str(error)) from error
        self._stores = {False: stores.open_store(url, clock=clock), True: stores.open_async_store(url, clock=clock)}
        self._options: dict[str, Any] = {"prefix": key_prefix, "key_secret": key_secret, "clock": clock}
        self._on_failure = on_failure
        kinds: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
            "token_bucket": (stores.RedisTokenBucket, stores.AsyncRedisTokenBucket),
            "fixed_window": (stores.RedisFixedWindow, stores.AsyncRedisFixedWindow),
        }
        self._kinds = kinds[strategy]
        self._has_burst = strategy == "token_bucket"

    @property
    def place(self) -> str:
        """Return the policy, too; the URL may hold a password."""
        return f"in the shared store, {self._on_failure} while it does not answer"

    def make(self, name: str, rate: Rate, *, on_loop: bool, on_failure: OnFailure | None, refunds: bool) -> Any:
        """Make a limiter; one that is refunded elsewhere remembers no refusals.

        Raises:
            ConfigError: A fixed window cannot have *rate*.
        """
        options = {**self._options, "name": name, "on_failure": on_failure or self._on_failure, "local_refusal": not refunds}
        if self._has_burst:
            options["burst"] = rate.burst
        elif rate.burst != rate.limit:
            raise ConfigError(f"a fixed window has no burst: limit {name!r} cannot be {rate}")
        window = Fraction(rate.window_ns, 1_000_000_000)
        return self._kinds[on_loop](self._stores[on_loop], rate.limit, window, **options)

    def reset_all(self) -> None:
        """Delete all that is under the prefix, by whichever process it was counted."""
        from jwtlimit_core.redis.store import StoreDown
        from jwtlimit_core.redis.wire import prefix_pattern

        try:
            run(self._stores[False].delete_all(prefix_pattern(self._options["prefix"])))
        except StoreDown as error:
            if self._on_failure == "deny":
                raise LimiterUnavailable("the store does not answer: nothing was reset") from error

    def close(self, *, on_loop: bool) -> Flow[None]:
        """Close the client."""
        yield from self._stores[on_loop].close()
