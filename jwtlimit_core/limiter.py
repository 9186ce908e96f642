"""The limiter for one process: a bounded map of token buckets behind one lock."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from types import TracebackType
from typing import NoReturn, Self

from jwtlimit_core.bucket import State, decide, outlook, refunded, take
from jwtlimit_core.clock import Clock
from jwtlimit_core.decision import Decision, impossible
from jwtlimit_core.errors import ConfigError, LimiterUnavailable
from jwtlimit_core.eviction import idle_limit_ns, make_room
from jwtlimit_core.keys import StoredKey, stored_key
from jwtlimit_core.provider import missing_methods
from jwtlimit_core.rate import Rate, shown
from jwtlimit_core.turn import Turn, give_back

__all__ = ["RateLimiter", "acquire_together"]


class RateLimiter:
    """A token bucket for each key, in the memory of this process.

    Safe to share between threads, usable in a forked child at once, and bounded: at most *max_buckets* keys are kept (see
    `jwtlimit_core.eviction` for who goes). Several processes count each for itself.

    Args:
        max_rate: Tokens that come back in one window.
        window: A `timedelta`, or seconds.
        burst: The size of a bucket; *max_rate* where it is left out.
        name: What this limit is called in headers, errors and logs.
        max_buckets: The most keys to keep, 1 or more.
        clock: Where the time comes from; only its ``monotonic_ns`` is read.

    Raises:
        ConfigError: A value is out of its bounds.
    """

    __slots__ = (
        "_buckets",
        "_capacity",
        "_closed",
        "_idle_ns",
        "_move_to_end",
        "_now_ns",
        "_pop_turn",
        "_push_turn",
        "_refill",
        "_turn",
        "_unit",
        "max_buckets",
        "name",
        "rate",
    )

    def __init__(
        self,
        max_rate: int = 100,
        window: timedelta | float | Fraction = timedelta(minutes=1),
        *,
        burst: int | None = None,
        name: str = "default",
        max_buckets: int = 10_000,
        clock: Clock = time,
    ) -> None:
        self.rate = Rate(max_rate, window, burst)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"name must be a str of 1 or more characters, not {shown(name)}")
        if not isinstance(max_buckets, int) or isinstance(max_buckets, bool) or max_buckets < 1:
            raise ConfigError(f"max_buckets must be an int of 1 or more, not {shown(max_buckets)}")
        if missing_methods(clock, "monotonic_ns"):
            raise ConfigError(f"clock must have monotonic_ns(), as the time module has, not {shown(clock)}")
        self.name = name
        self.max_buckets = max_buckets
        self._now_ns = clock.monotonic_ns  # bound here: a test that freezes time later does not date buckets decades ahead
        self._idle_ns = idle_limit_ns(self.rate)
        self._buckets: OrderedDict[StoredKey, State] = OrderedDict()
        self._closed = False
        self._turn = Turn()
        # What the hot path needs, one step away.
        self._move_to_end, self._pop_turn, self._push_turn = self._buckets.move_to_end, self._turn.pop, self._turn.append
        self._refill, self._unit, self._capacity = self.rate.refill, self.rate.unit, self.rate.capacity

    @classmethod
    def from_rate(cls, rate: Rate | str, *, name: str = "default", max_buckets: int = 10_000, clock: Clock = time) -> Self:
        """Make a limiter for *rate*, a `Rate` or a text that `Rate.parse` reads."""
        if not isinstance(rate, Rate):
            rate = Rate.parse(rate)
        window = Fraction(rate.window_ns, 1_000_000_000)
        return cls(rate.limit, window, burst=rate.burst, name=name, max_buckets=max_buckets, clock=clock)

    # The questions ---------------------------------------------------------------------------------------------

    def allow(self, key: str) -> bool:
        """Take one token from the bucket of *key* if it is there; the same as ``allow_n(key, 1)``.

        Raises:
            TypeError: *key* is not a str.
        """
        if key.__class__ is not str:
            check_question(key, 1)
        if not key:
            return False
        try:
            try:
                self._pop_turn()
            except IndexError:
                self._turn.take()
            state = self._buckets.get(key)
            if state is None:
                return not self._closed and self._take(key, 1)[0]
            # The hot path: `take` of jwtlimit_core.bucket, written out and in place.
            self._move_to_end(key)
            level, seen_ns = state
            now_ns = self._now_ns()
            if now_ns > seen_ns:
                state[1] = now_ns  # before the level: whoever is interrupted here has refilled too little, not twice
                level += self._refill * (now_ns - seen_ns)
                if level > self._capacity:
                    level = self._capacity
            if level < self._unit:
                state[0] = level
                return False
            state[0] = level - self._unit
            return True
        finally:
            self._push_turn(None)

    def allow_n(self, key: str, n: int) -> bool:
        """Take *n* tokens from the bucket of *key* if all of them are there.

        One atomic step; nothing is taken when the answer is False. In this order: False for n below 0, True for n of 0,
        False for n above the burst, for an empty key, and after `close`; none of these makes a bucket.

        Raises:
            TypeError: *key* is not a str or *n* is not an int.
        """
        check_question(key, n)
        if n == 0:
            return True
        if not self._possible(key, n):
            return False
        try:
            self._turn.take()
            return not self._closed and self._take(key, n)[0]
        finally:
            self._push_turn(None)

    def acquire(self, key: str, n: int = 1) -> Decision:
        """Take *n* tokens from the bucket of *key* if all of them are there, and say how things stand.

        One atomic step; nothing is taken when the answer is no.

        Args:
            key: Who is charged, 1 or more characters.
            n: Tokens to take, 0 or more.

        Returns:
            The decision; its times are integer nanoseconds from now.

        Raises:
            TypeError: *key* is not a str or *n* is not an int.
            LimiterUnavailable: The limiter is closed (and *n* and *key* could have been served).
        """
        if key.__class__ is not str or n.__class__ is not int:
            check_question(key, n)
        rate = self.rate
        try:
            try:
                self._pop_turn()
            except IndexError:
                self._turn.take()
            if not 0 < n <= rate.burst:
                return self._look(key, n)
            state = self._buckets.get(key)
            if state is None:
                if not key:
                    return self._look(key, n)
                self._check_open()
                allowed, (level, seen_ns), now_ns = self._take(key, n)
            else:  # `take` of jwtlimit_core.bucket in place, as in `allow`
                self._move_to_end(key)
                level, seen_ns = state
                now_ns = self._now_ns()
                if now_ns > seen_ns:
                    state[1] = now_ns
                    level += self._refill * (now_ns - seen_ns)
                    seen_ns = now_ns
                    if level > self._capacity:
                        level = self._capacity
                allowed = level >= n * self._unit
                if allowed:
                    level -= n * self._unit
                state[0] = level
        finally:
            self._push_turn(None)
        if allowed and now_ns == seen_ns:  # `outlook` in place
            remaining, retry_after_ns, reset_after_ns = level // self._unit, 0, -((level - self._capacity) // self._refill)
        else:
            remaining, retry_after_ns, reset_after_ns = outlook(level, seen_ns, rate, now_ns, n, allowed)
        # What Decision(...) does, for two thirds of what that costs.
        return tuple.__new__(Decision, (allowed, rate, self.name, remaining, retry_after_ns, reset_after_ns, (), None))

    def peek(self, key: str, n: int = 1) -> Decision:
        """Say what `acquire` would answer now, and change nothing.

        To peek first and to charge later is a race: between the two, others spend. Use `acquire`.

        Raises:
            TypeError: *key* is not a str or *n* is not an int.
            LimiterUnavailable: The limiter is closed.
        """
        check_question(key, n)
        try:
            self._turn.take()
            self._check_open()
            return self._look(key, n)
        finally:
            self._push_turn(None)

    # The upkeep ------------------------------------------------------------------------------------------------

    def refund(self, key: str, n: int = 1) -> None:
        """Put *n* tokens back into the bucket of *key*, never above the burst; below 1 it does nothing.

        A key without a bucket has its full quota already and gets none.

        Raises:
            TypeError: *key* is not a str or *n* is not an int.
        """
        check_question(key, n)
        try:
            self._turn.take()
            found = stored_key(key)
            state = self._buckets.get(found)
            if state is not None and n > 0:
                self._buckets[found] = refunded(state, self.rate, n)
        finally:
            self._push_turn(None)

    def reset(self, key: str) -> None:
        """Give *key* its full quota back, and no other key.

        Raises:
            TypeError: *key* is not a str.
        """
        check_question(key, 1)
        try:
            self._turn.take()
            self._buckets.pop(stored_key(key), None)
        finally:
            self._push_turn(None)

    def reset_all(self) -> None:
        """Give every key its full quota back; meant for tests."""
        try:
            self._turn.take()
            self._buckets.clear()
        finally:
            self._push_turn(None)

    def close(self) -> None:
        """Forget all buckets and admit nobody any more; closing twice is closing once."""
        try:
            self._turn.take()
            self._closed = True
            self._buckets.clear()
        finally:
            self._push_turn(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._buckets)

    def __bool__(self) -> bool:
        return True  # an empty limiter is a limiter: ``limiter or other`` must not replace it

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and stored_key(key) in self._buckets

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.rate} with {len(self)} of {self.max_buckets} buckets>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} counts in one process and cannot be pickled or copied: make one there")

    # With the turn ---------------------------------------------------------------------------------------------

    def _possible(self, key: str, n: int) -> bool:
        """Say whether *n* tokens for *key* could ever be had."""
        return 0 <= n <= self.rate.burst and key != ""

    def _check_open(self) -> None:
        if self._closed:
            raise LimiterUnavailable(f"limiter {self.name!r} is closed")

    def _take(self, key: str, n: int) -> tuple[bool, State, int]:
        """Take *n* tokens, 1 to burst, if they are there; return whether they were, the state that follows, and now."""
        now_ns = self._now_ns()
        found = stored_key(key)
        allowed, after = take(self._buckets.get(found), self.rate, now_ns, n)
        self._store(found, after, now_ns)
        return allowed, after, now_ns

    def _store(self, found: StoredKey, state: State, now_ns: int) -> None:
        """Make *state* that of the key *found*, and that key the one used last."""
        if found in self._buckets:
            self._buckets.move_to_end(found)
        elif len(self._buckets) >= self.max_buckets:
            make_room(self._buckets, now_ns=now_ns, idle_ns=self._idle_ns, max_buckets=self.max_buckets)
        self._buckets[found] = state

    def _look(self, key: str, n: int) -> Decision:
        """Describe the bucket of *key*, which may be any text, to somebody who asks for *n*, which may be any number."""
        if n and not self._possible(key, n):
            return impossible(self.rate, self.name)
        return decide(self._buckets.get(stored_key(key)), self.rate, self._now_ns(), n, name=self.name)


def check_question(key: object, n: object) -> None:
    """Raise the TypeError for a key or an *n* of another type."""
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, not {type(key).__name__}")
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"n must be an int, not {type(n).__name__}")


def acquire_together(spends: Sequence[tuple[RateLimiter, str, int]]) -> list[Decision]:
    """Spend from several limiters of this process at one instant: all, or none.

    Args:
        spends: Limiter, key and tokens; no pair of limiter and key twice.

    Returns:
        The single decisions. Where one refuses, none has been charged; each then says what `RateLimiter.peek` would.

    Raises:
        LimiterUnavailable: One of the limiters is closed; none has been charged.
    """
    turns: list[Turn] = []
    try:
        for limiter in sorted({limiter for limiter, _, _ in spends}, key=id):  # one order for all: no deadlock
            turns.append(limiter._turn)
            limiter._turn.take()
        decisions: list[Decision] = []
        steps: list[tuple[int, StoredKey, State | None, State, int]] = []
        for index, (limiter, key, n) in enumerate(spends):
            if n == 0 or not limiter._possible(key, n):
                decisions.append(limiter._look(key, n))
                continue
            limiter._check_open()
            now_ns, found = limiter._now_ns(), stored_key(key)
            before = limiter._buckets.get(found)
            allowed, after = take(before, limiter.rate, now_ns, n)
            decisions.append(decide(after, limiter.rate, now_ns, n, name=limiter.name, allowed=allowed))
            steps.append((index, found, before, after, now_ns))
        charge = all(decision.allowed for decision in decisions)
        for index, found, before, after, now_ns in steps:
            limiter, _, n = spends[index]
            if charge:
                limiter._store(found, after, now_ns)
            else:
                untouched = None
                if before is not None:  # a refused call is a use, but takes nothing
                    _, untouched = take(before, limiter.rate, now_ns, 0)
                    limiter._store(found, untouched, now_ns)
                decisions[index] = decide(untouched, limiter.rate, now_ns, n, name=limiter.name)
        return decisions
    finally:
        list(map(give_back, turns))
