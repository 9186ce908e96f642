"""Where requests and tokens are counted: in this process, or in a store that many share."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, Protocol, cast

from jwtlimit_core.clock import Clock
from jwtlimit_core.errors import ConfigError, LimiterUnavailable
from jwtlimit_core.flow import Call, Flow, awaits
from jwtlimit_core.limit import Limit, OnFailure, Phase
from jwtlimit_core.limiter import RateLimiter
from jwtlimit_core.rate import Rate

__all__ = ["Counters", "InProcess", "InStore", "Limiters"]

_MOST_PHASES = 10_000  # to remember

Plain = tuple[bool, Sequence[tuple[Limit, RateLimiter | None, int]]]


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
        self,
        url: str,
        *,
        strategy: str,
        on_failure: OnFailure,
        timeout: float,
        key_prefix: str,
        key_secret: bytes | None,
        clock: Clock,
    ) -> None:
        try:
            import jwtlimit_core.redis as stores
        except ModuleNotFoundError as error:
            raise ConfigError(str(error)) from error
        self._stores = {
            False: stores.open_store(url, timeout=timeout, clock=clock),
            True: stores.open_async_store(url, timeout=timeout, clock=clock),
        }
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
            self._stores[False].delete_all(prefix_pattern(self._options["prefix"]))()
        except StoreDown as error:
            if self._on_failure == "deny":
                raise LimiterUnavailable("the store does not answer: nothing was reset") from error

    def close(self, *, on_loop: bool) -> Flow[None]:
        """Close the client."""
        yield from self._stores[on_loop].close()


class Limiters:
    """The limiters of one application, each made when it is needed first.

    Args:
        counters: Makes them.

    Attributes:
        plain: What `plain_in` found of phases, for code off an event loop and on one.
    """

    def __init__(self, counters: Counters) -> None:
        self.plain: tuple[dict[Phase, Plain], dict[Phase, Plain]] = ({}, {})
        self._counters = counters
        self._made: dict[tuple[str, Rate, OnFailure | None, bool, bool], Any] = {}

    def of(self, limit: Limit, rate: Rate, *, on_loop: bool) -> Any:
        """Return the limiter that counts for *limit* at *rate*, one of its own."""
        refunds = limit.refund_when is not None
        return self.named(limit.name, rate, on_loop=on_loop, on_failure=limit.on_failure, refunds=refunds)

    def plain_in(self, phase: Phase, *, on_loop: bool) -> Plain:
        """Return whether all of *phase* holds for every request, and its limits with their limiters and costs.

        The limiter is None where more than an address has to be asked for, it counts elsewhere, or the phase has it already.
        """
        found: list[tuple[Limit, RateLimiter | None, int]] = []
        for limit in phase:
            limiter, cost = None, 0
            if limit.is_plain:
                with suppress(ConfigError):  # told to those whom the limit meets
                    limiter, cost = self.of(limit, cast("Rate", limit.rate), on_loop=on_loop), cast("int", limit.cost)
            is_short = isinstance(limiter, RateLimiter) and all(limiter is not other for _, other, _ in found)
            found.append((limit, limiter if is_short else None, cost))
        everywhere = bool(phase) and all(limit.is_everywhere for limit in phase)
        if len(self.plain[on_loop]) >= _MOST_PHASES:
            self.plain[on_loop].clear()
        return self.plain[on_loop].setdefault(phase, (everywhere, found))

    def named(self, name: str, rate: Rate, *, on_loop: bool, on_failure: OnFailure | None = None, refunds: bool = False) -> Any:
        """Return the limiter of a name and a rate; see `Counters.make`."""
        shared = self._counters.shared
        which = (name, rate, on_failure, on_loop and shared, refunds and shared)
        known = self._made.get(which)
        if known is not None:
            return known
        made = self._counters.make(name, rate, on_loop=on_loop, on_failure=on_failure, refunds=refunds)
        return self._made.setdefault(which, made)  # of first requests at once, one makes it

    def reset(self, name: str, key: str, any_rate: Rate, *, on_loop: bool) -> Flow[None]:
        """Give *key* its full quota of all limits called *name* back.

        Raises:
            LimiterUnavailable: The store gave no answer.
        """
        shared = self._counters.shared
        colour = on_loop and shared
        called_so = [(which, limiter) for which, limiter in list(self._made.items()) if which[0] == name]
        limiters = [limiter for which, limiter in called_so if which[3] is colour]
        if shared and not limiters:  # another process may have used it; the rate is not in the store
            limiters = [self.named(name, any_rate, on_loop=on_loop)]
        for limiter in limiters:
            yield Call(limiter.reset, (key,), awaits(limiter.reset))
        for which, limiter in called_so:
            if which[3] is not colour:
                limiter.forget(key)  # those of the other colour remember refusals, too

    def reset_all(self) -> None:
        """Give everybody the full quota back.

        Raises:
            LimiterUnavailable: The store gave no answer, and its policy is to deny.
        """
        self._counters.reset_all()
        for limiter in list(self._made.values()):
            # One over a store remembers refusals, of whatever colour it is.
            limiter.forget() if self._counters.shared else limiter.reset_all()

    def close(self, *, on_loop: bool) -> Flow[None]:
        """Let go of what was opened, for code on an event loop or for other code."""
        return self._counters.close(on_loop=on_loop)
