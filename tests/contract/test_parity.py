"""Limiters over a store decide as pure functions do: the same histories, and every field of every decision."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jwtlimit_core import ConfigError, Decision, Rate, RateLimiter, redis
from jwtlimit_core.bucket import State, decide, refunded, take
from jwtlimit_core.decision import combine, impossible
from jwtlimit_core.limiter import acquire_together
from jwtlimit_core.redis.wire import SCRIPT
from jwtlimit_core.testing import ManualClock
from stores import Stores

YEAR_US = 365 * 86_400 * 1_000_000
START_US = 1_750_000_000_000_000

Step = tuple[str, str, float, tuple[str, float]]

# An operation, a key, n as a part of the burst, and how far the clock moves before it: some microseconds, a part of the window,
# or the last wait that was told and a microsecond more or less.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acquire", "acquire", "peek", "refund"]),
        st.sampled_from("aab"),
        st.sampled_from([0, 0.01, 0.1, 0.3, 0.5, 1, 1, 1.2]) | st.floats(0, 1.1),
        st.one_of(
            st.just(("us", 0)),
            st.tuples(st.just("us"), st.integers(-50, 50)),
            st.tuples(st.just("windows"), st.floats(-0.2, 0.3) | st.floats(-2, 3)),
            st.tuples(st.just("waits"), st.sampled_from([-1, 0, 0, 1])),
        ),
    ),
    min_size=1,
    max_size=25,
)
COUNTS = st.integers(1, 12) | st.integers(1, 10**6) | st.integers(1, 10**12)
WINDOWS_US = st.one_of(
    st.integers(1, 50), st.integers(1, YEAR_US), st.sampled_from([10**6, 6 * 10**7, 36 * 10**8, 864 * 10**8, YEAR_US])
)
RATES = st.builds(lambda limit, window_us, burst: (limit, window_us, burst or limit), COUNTS, WINDOWS_US, st.none() | COUNTS)

checked = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
)


class PureBucket:
    """The bucket of `jwtlimit_core.bucket` for each key; the clock counts microseconds, which it takes for nanoseconds."""

    def __init__(self, rate: Rate, clock: ManualClock) -> None:
        self.rate, self.clock = rate, clock
        self.states: dict[str, State] = {}

    def acquire(self, key: str, n: int) -> Decision:
        if not 0 < n <= self.rate.burst:
            return self.peek(key, n)
        allowed, self.states[key] = take(self.states.get(key), self.rate, self.clock.monotonic_ns(), n)
        return decide(self.states[key], self.rate, self.clock.monotonic_ns(), n, name="default", allowed=allowed)

    def peek(self, key: str, n: int) -> Decision:
        if n > self.rate.burst:
            return impossible(self.rate, "default")
        return decide(self.states.get(key), self.rate, self.clock.monotonic_ns(), n, name="default")

    def refund(self, key: str, n: int) -> None:
        if key in self.states:
            self.states[key] = refunded(self.states[key], self.rate, n)


class PureWindow:
    """For each key a count, and when its window started; what is refused is not counted."""

    def __init__(self, rate: Rate, clock: ManualClock) -> None:
        self.rate, self.clock = rate, clock
        self.states: dict[str, State] = {}

    def acquire(self, key: str, n: int) -> Decision:
        decision = self.peek(key, n)
        if decision.allowed and n:
            count, start = self._running(key) or (0, self.clock.monotonic_ns())
            self.states[key] = count + n, start
            decision = self.peek(key, 0)
        return decision

    def peek(self, key: str, n: int) -> Decision:
        if n > self.rate.limit:
            return impossible(self.rate, "default")
        count, start = self._running(key) or (0, self.clock.monotonic_ns())
        left = start + self.rate.window_ns - self.clock.monotonic_ns()
        fits = count + n <= self.rate.limit
        reset = left if count else 0
        left_over = self.rate.limit - count
        return Decision(fits, self.rate, "default", left_over, 0 if fits else left, reset, more_after_ns=reset)

    def refund(self, key: str, n: int) -> None:
        if state := self._running(key):
            self.states[key] = max(0, state[0] - n), state[1]

    def _running(self, key: str) -> State | None:
        state = self.states.get(key)
        return state if state and self.clock.monotonic_ns() < state[1] + self.rate.window_ns else None


def true(decision: Decision, rate: Rate) -> Decision:
    """Return *decision* of a model as it is of *rate*, whose microseconds are the nanoseconds of the model."""
    names = ("retry_after_ns", "reset_after_ns", "more_after_ns")
    times = {name: time and time * 1000 for name in names for time in (getattr(decision, name),)}
    return decision._replace(rate=rate, **times)


def move(clock: ManualClock, by: tuple[str, float], window_us: int, wait_us: int) -> None:
    unit, amount = by
    clock.advance_ns({"us": int(amount), "windows": int(amount * window_us), "waits": wait_us + int(amount)}[unit])


def replay(limiter: Any, model: PureBucket | PureWindow, steps: list[Step]) -> None:
    wait_us = 0
    for operation, key, part, by in steps:
        move(model.clock, by, model.rate.window_ns, wait_us)
        n = cost(part, model.rate)
        expected, found = getattr(model, operation)(key, n), getattr(limiter, operation)(key, n)
        if expected is not None:
            assert found == true(expected, limiter.rate), (operation, key, n)
            wait_us = expected.retry_after_ns or 0


def cost(part: float, rate: Rate) -> int:
    return int(part * rate.burst) or int(part > 0)


def made(stores: Stores, kind: type, clock: ManualClock, *rate: Any, **options: Any) -> Any:
    try:
        return stores.limiter(kind, *rate, now=clock, **options)
    except ConfigError as error:
        assume("for a store" not in str(error))
        raise


@checked
@given(rate=RATES, steps=STEPS)
@pytest.mark.parametrize("kind", [redis.RedisTokenBucket, redis.AsyncRedisTokenBucket])
def test_token_bucket_over_a_store_decides_as_the_pure_one(
    stores: Stores, kind: type, rate: tuple[int, int, int], steps: list[Step]
) -> None:
    clock = ManualClock(monotonic_ns=START_US)
    limit, window_us, burst = rate
    limiter = made(stores, kind, clock, limit, Fraction(window_us, 10**6), burst=burst)
    replay(limiter, PureBucket(Rate(limit, Fraction(window_us, 10**9), burst), clock), steps)


@checked
@given(rate=RATES, steps=STEPS)
@pytest.mark.parametrize("kind", [redis.RedisFixedWindow, redis.AsyncRedisFixedWindow])
def test_fixed_window_over_a_store_decides_as_the_model(
    stores: Stores, kind: type, rate: tuple[int, int, int], steps: list[Step]
) -> None:
    clock = ManualClock(monotonic_ns=START_US)
    limit, window_us, _ = rate
    limiter = made(stores, kind, clock, limit, Fraction(window_us, 10**6))
    replay(limiter, PureWindow(Rate(limit, Fraction(window_us, 10**9)), clock), steps)


# Several limits in one step: which of three limiters, a key and a part of the burst for each; no limiter and key twice.
SPENDS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("aab"), st.sampled_from([0, 0.01, 0.2, 0.5, 1, 1.2])),
    min_size=1,
    max_size=4,
    unique_by=lambda spend: spend[:2],
)
MOVES = st.sampled_from([("us", 0), ("us", 1), ("us", -3), ("windows", 0.1), ("windows", -0.1), ("waits", 0), ("waits", -1)])


@checked
@given(rates=st.tuples(RATES, RATES, RATES), steps=st.lists(st.tuples(SPENDS, MOVES), min_size=1, max_size=15))
@pytest.mark.parametrize("kind", [redis.RedisTokenBucket, redis.AsyncRedisTokenBucket])
def test_acquire_all_over_a_store_decides_as_acquire_together(
    stores: Stores, kind: type, rates: tuple[tuple[int, int, int], ...], steps: list[tuple[list[tuple[int, str, float]], Any]]
) -> None:
    clock = ManualClock(monotonic_ns=START_US)
    limiters, models = [], []
    for index, (limit, window_us, burst) in enumerate(rates):
        limiters.append(made(stores, kind, clock, limit, Fraction(window_us, 10**6), burst=burst, name=f"{index}"))
        models.append(RateLimiter(limit, Fraction(window_us, 10**9), burst=burst, name=f"{index}", clock=clock))
    wait_us = 0
    for spends, by in steps:
        move(clock, by, rates[0][1], wait_us)
        asked = [limiters[index] for index, _, _ in spends]
        costs = [cost(part, limiter.rate) for limiter, (_, _, part) in zip(asked, spends, strict=True)]
        found = stores.acquire_all([(limiter, key, n) for limiter, (_, key, _), n in zip(asked, spends, costs, strict=True)])
        # What no waiting makes possible is refused without asking, and so without the parts that only a store knows.
        parts = [
            impossible(limiter.rate, limiter.name) for limiter, n in zip(asked, costs, strict=True) if n > limiter.rate.burst
        ]
        if not parts:
            expected = acquire_together([(models[index], key, n) for (index, key, _), n in zip(spends, costs, strict=True)])
            parts = [true(part, limiter.rate) for limiter, part in zip(asked, expected, strict=True)]
        assert found == combine(parts)
        wait_us = (found.retry_after_ns or 0) // 1000


@settings(checked, max_examples=20)
@given(rate=RATES, steps=STEPS)
@pytest.mark.parametrize(
    ("kind", "model", "burst"), [(redis.RedisTokenBucket, PureBucket, {"burst": 7}), (redis.RedisFixedWindow, PureWindow, {})]
)
def test_script_on_a_server_whose_long_has_32_bits_decides_the_same(
    stores: Stores, kind: type, model: Any, burst: dict[str, int], rate: tuple[int, int, int], steps: list[Step]
) -> None:
    clock = ManualClock(monotonic_ns=START_US)
    limit, window_us, _ = rate
    limiter = made(stores, kind, clock, limit, Fraction(window_us, 10**6), **burst)
    execute, script = limiter.limiter._store.execute, SCRIPT.replace(b"~= '4294967296'", b"~= '0'")
    assert script != SCRIPT
    limiter.limiter._store.execute = lambda name, sha, *parts: execute("EVAL", script, *parts)
    replay(limiter, model(Rate(limit, Fraction(window_us, 10**9), **burst), clock), steps)
