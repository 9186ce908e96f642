"""RateLimiter beside a model that was written from the design alone: same answers, same keys, same order, after every step."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jwtlimit_core import Decision, Rate, RateLimiter, acquire_all
from jwtlimit_core.testing import ManualClock

LONG = "long" * 100  # kept as a digest
KEYS = ["", LONG, *map(str, range(24))]

keys = st.sampled_from(KEYS[:4]) | st.sampled_from(KEYS)  # a few come again and again
costs = st.integers(-1, 6)


@dataclass
class Bucket:
    """Tokens, as an exact fraction, at the latest time seen for a key."""

    tokens: Fraction
    seen_ns: int


class Model:
    """A limiter in the words of the design, with lists and fractions: slow, and plain enough to check by eye."""

    def __init__(self, limit: int, window_ns: int, burst: int, max_buckets: int) -> None:
        self.per_ns, self.window_ns, self.burst, self.max_buckets = Fraction(limit, window_ns), window_ns, burst, max_buckets
        self.buckets: dict[str, Bucket] = {}
        self.order: list[str] = []  # the key used longest ago comes first

    def now(self, key: str, now_ns: int) -> Bucket:
        """The bucket of *key* at *now_ns*, or at the latest time seen for it where that is later."""
        bucket = self.buckets.get(key)
        if bucket is None:
            return Bucket(Fraction(self.burst), now_ns)
        later_ns = max(now_ns, bucket.seen_ns)
        return Bucket(min(Fraction(self.burst), bucket.tokens + self.per_ns * (later_ns - bucket.seen_ns)), later_ns)

    def possible(self, key: str, n: int) -> bool:
        return n == 0 or (0 < n <= self.burst and key != "")

    def use(self, key: str, n: int, now_ns: int) -> bool:
        """Take *n* possible tokens, or none; either way *key* has been used last."""
        bucket = self.now(key, now_ns)
        allowed = bucket.tokens >= n
        self.put(key, Bucket(bucket.tokens - n * allowed, bucket.seen_ns), now_ns)
        return allowed

    def put(self, key: str, bucket: Bucket, now_ns: int) -> None:
        if key in self.buckets:
            self.order.remove(key)
        else:
            self.make_room(now_ns)
        self.order.append(key)
        self.buckets[key] = bucket

    def make_room(self, now_ns: int) -> None:
        if len(self.order) < self.max_buckets:
            return
        idle_ns = max(Fraction(2 * self.window_ns), ceil(self.burst / self.per_ns))
        idle = 0
        while idle < len(self.order) and now_ns - self.buckets[self.order[idle]].seen_ns > idle_ns:
            idle += 1
        for _ in range(idle or max(1, self.max_buckets // 10)):
            del self.buckets[self.order.pop(0)]

    def check(self, decision: Decision, allowed: bool, key: str, n: int, now_ns: int, bucket: Bucket | None = None) -> None:
        """Compare *decision* with how things stand after the step."""
        bucket = bucket or self.now(key, now_ns)
        behind_ns = bucket.seen_ns - now_ns
        lacking, missing = n - bucket.tokens, self.burst - bucket.tokens
        said = (decision.allowed, decision.remaining, decision.retry_after_ns, decision.reset_after_ns)
        if not self.possible(key, n):  # nobody looks at the bucket
            assert said == (False, 0, None, 0)
            return
        wait_ns = 0 if allowed else behind_ns + ceil(lacking / self.per_ns)
        full_in_ns = behind_ns + ceil(missing / self.per_ns) if missing else 0
        assert said == (allowed, bucket.tokens // 1, wait_ns, full_in_ns)


class LimiterBesideModel(RuleBasedStateMachine):
    """Any mix of calls, over a clock that steps both ways."""

    @initialize(
        limit=st.integers(1, 5), window_ns=st.integers(1, 40), burst=st.integers(1, 5), room=st.sampled_from([1, 2, 5, 20])
    )
    def start(self, limit: int, window_ns: int, burst: int, room: int) -> None:
        self.clock = ManualClock()
        rate = Rate(limit, Fraction(window_ns, 10**9), burst)
        self.limiter = RateLimiter.from_rate(rate, max_buckets=room, clock=self.clock)
        self.model = Model(limit, window_ns, burst, room)

    @property
    def now_ns(self) -> int:
        return self.clock.monotonic_ns()

    @rule(ns=st.integers(-30, 60) | st.integers(-3, 3) | st.just(500))
    def clock_steps(self, ns: int) -> None:
        self.clock.advance_ns(ns)

    @rule(key=keys)
    def allow(self, key: str) -> None:
        assert self.limiter.allow(key) == (self.model.possible(key, 1) and self.model.use(key, 1, self.now_ns))

    @rule(first=st.integers(0, 12))
    def allow_many(self, first: int) -> None:
        for key in range(first, first + 12):
            self.allow(str(key))

    @rule(steps=st.lists(st.tuples(st.integers(-2, 6), costs, st.booleans()), min_size=3, max_size=12))
    def spend_before_it_is_full(self, steps: list[tuple[int, int, bool]]) -> None:
        """Ask for tokens of one bucket again and again, in the middle of its refill."""
        for ns, n, asks_how_things_stand in steps:
            self.clock_steps(ns)
            self.acquire("0", n) if asks_how_things_stand else self.allow("0")

    @rule(key=keys, n=costs)
    def allow_n(self, key: str, n: int) -> None:
        expected = n == 0 or (self.model.possible(key, n) and self.model.use(key, n, self.now_ns))
        assert self.limiter.allow_n(key, n) == expected

    @rule(key=keys, n=costs)
    def acquire(self, key: str, n: int) -> None:
        decision = self.limiter.acquire(key, n)
        allowed = n == 0 or (self.model.possible(key, n) and self.model.use(key, n, self.now_ns))
        self.model.check(decision, allowed, key, n, self.now_ns)

    @rule(key=keys, n=costs)
    def peek(self, key: str, n: int) -> None:
        allowed = self.model.possible(key, n) and self.model.now(key, self.now_ns).tokens >= n
        self.model.check(self.limiter.peek(key, n), allowed, key, n, self.now_ns)

    @rule(key=keys, n=costs)
    def refund(self, key: str, n: int) -> None:
        self.limiter.refund(key, n)
        bucket = self.model.buckets.get(key)
        if bucket is not None and n > 0:
            refilled = self.model.now(key, self.now_ns).tokens
            bucket.tokens = min(Fraction(self.model.burst), bucket.tokens + n)
            # What was earned before the refund and what is given back fit into the burst together.
            assert self.model.now(key, self.now_ns).tokens == min(Fraction(self.model.burst), refilled + n)

    @rule(key=keys)
    def reset(self, key: str) -> None:
        self.limiter.reset(key)
        if self.model.buckets.pop(key, None):
            self.model.order.remove(key)

    @rule(spends=st.lists(st.tuples(keys, costs), min_size=1, max_size=4, unique_by=lambda spend: spend[0]))
    def acquire_all(self, spends: list[tuple[str, int]]) -> None:
        decision = acquire_all((self.limiter, key, n) for key, n in spends)
        before = [self.model.now(key, self.now_ns) for key, _ in spends]
        single = [self.model.possible(key, n) and bucket.tokens >= n for (key, n), bucket in zip(spends, before, strict=True)]
        assert decision.allowed == all(single)
        for part, allowed, (key, n), bucket in zip(decision.parts, single, spends, before, strict=True):
            # Each is judged by what was there when all were asked, even if a spend before it evicted its bucket.
            bucket.tokens -= n if all(single) else 0
            self.model.check(part, allowed, key, n, self.now_ns, bucket)
            if n > 0 and self.model.possible(key, n) and (all(single) or key in self.model.buckets):
                self.model.put(key, bucket, self.now_ns)

    @invariant()
    def holds_the_same_keys_in_the_same_order(self) -> None:
        stored = [key if isinstance(key, str) else LONG for key in self.limiter._buckets]
        assert stored == self.model.order
        assert len(self.limiter) <= self.model.max_buckets
        assert [key for key in KEYS if key in self.limiter] == [key for key in KEYS if key in self.model.buckets]

    @invariant()
    def holds_the_same_tokens(self) -> None:
        for key in KEYS:
            self.model.check(self.limiter.peek(key, 0), True, key, 0, self.now_ns)


LimiterBesideModel.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_limiter_beside_a_model_gives_the_same_answers_and_keeps_the_same_keys = LimiterBesideModel.TestCase
