"""What every limiter over a store decides, as flows: the one call, local refusal, and what an outage means."""

import time
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypedDict, get_args

from redis.crc import key_slot

from jwtlimit_core.clock import Clock
from jwtlimit_core.config import duration_s
from jwtlimit_core.decision import Decision, impossible
from jwtlimit_core.errors import ConfigError, LimiterUnavailable
from jwtlimit_core.flow import Flow
from jwtlimit_core.limit import OnFailure
from jwtlimit_core.limiter import RateLimiter, acquire_together, check_question
from jwtlimit_core.rate import Rate, shown
from jwtlimit_core.redis.refusals import MOST_REFUSALS, Refusals
from jwtlimit_core.redis.store import Store, StoreDown, spend_of_one
from jwtlimit_core.redis.wire import FixedWindow, KeyForm, TokenBucket

__all__ = ["Options", "StoreLimiter", "without_store"]

_STRICTEST_FIRST = get_args(OnFailure)


class Options(TypedDict, total=False):
    """What all limiters over a store take by name.

    Attributes:
        name: What the limit is called in headers, errors, logs and the keys of the store ("default").
        prefix: What stands before every key in the store ("jwtlimit").
        on_failure: What to answer while the store does not: ``"deny"`` (the default) raises LimiterUnavailable from acquire and
            makes allow False; ``"allow"`` lets everything pass; ``"local"`` counts in this process, by a token bucket.
        timeout: Seconds that one call may take, or a timedelta (0.25).
        cooldown: Seconds between two attempts to reach a store that is down, or a timedelta (1.0).
        local_refusal: Whether a key that is known to have nothing is refused without asking the store again (True).
        key_secret: Where it is given, 1 to 64 bytes, keys are stored as their keyed hash, so that the store shows no identity.
        clock: Times outages and local refusals; limits run on the clock of the server.
    """

    name: str
    prefix: str
    on_failure: OnFailure
    timeout: float | timedelta
    cooldown: float | timedelta
    local_refusal: bool
    key_secret: bytes | None
    clock: Clock


class StoreLimiter:
    """What all four share: every decision, as flows."""

    _rule_type: ClassVar[type[TokenBucket] | type[FixedWindow]]
    _make_store: ClassVar[Callable[..., Store]]

    def __init__(self, client: object, rate: Rate, options: Options) -> None:
        known = Options.__annotations__
        if unknown := sorted(set(options) - set(known)):
            raise TypeError(f"{type(self).__name__} takes no {unknown[0]!r}: it takes {', '.join(sorted(known))}")
        self.rate = rate
        self.name = options.get("name", "default")
        prefix = options.get("prefix", "jwtlimit")
        self.on_failure = options.get("on_failure", "deny")
        durations = {"timeout": options.get("timeout", 0.25), "cooldown": options.get("cooldown", 1.0)}
        seconds = {name: float(duration_s(value)) for name, value in durations.items()}
        secret = options.get("key_secret")
        problems = [
            f"{name} must be a str of 1 or more characters, not {shown(value)}"
            for name, value in (("name", self.name), ("prefix", prefix))
            if not isinstance(value, str) or not value
        ]
        if self.on_failure not in _STRICTEST_FIRST:
            problems.append(f"on_failure must be 'deny', 'local' or 'allow', not {shown(self.on_failure)}")
        problems += [
            f"{name} must be seconds, above 0, not {shown(value)}" for name, value in durations.items() if seconds[name] <= 0
        ]
        if secret is not None and not (isinstance(secret, bytes) and 1 <= len(secret) <= 64):
            problems.append("key_secret must be 1 to 64 bytes, or None")
        if problems:
            raise ConfigError(*problems)
        clock = options.get("clock", time)
        self._local = RateLimiter.from_rate(rate, name=self.name, clock=clock)
        self._rule = type(self)._rule_type(rate)
        self._form = KeyForm(prefix, self.name, secret)
        self._store = type(self)._make_store(client, **seconds, clock=clock)
        self._closes_store = isinstance(client, str)
        self._refusals = Refusals(MOST_REFUSALS if options.get("local_refusal", True) else 0, clock)
        self._closed = False

    @property
    def awaits(self) -> bool:
        """Whether the methods are coroutines."""
        return self._store.awaits

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.rate}, {self.on_failure} on failure>"

    # For acquire_all ------------------------------------------------------------------------------------------

    def group(self, key: str) -> Hashable:
        """Return what tells which keys of which limiters can be spent in one step."""
        slot = key_slot(self._form.stored(key)) if self._store.cluster else None
        return self._store.identity, slot

    @staticmethod
    def spend_all(
        spends: Sequence[tuple["StoreLimiter", str, int]], *, operation: bytes = b"take", alone: bool = True
    ) -> Flow[list[Decision]]:
        """Spend from limits of one `group` in one step: all, or none.

        Args:
            spends: Limiter, key and tokens; no pair of limiter and key twice.
            operation: ``take``, or ``peek`` to change nothing.
            alone: Whether nothing else is spent with these; only then a refusal may be known without asking.

        Returns:
            The single decisions; of a refusal that is known without asking the store, only the refusing ones.

        Raises:
            ConfigError: Two of the limiters have one name, and would count as one.
            LimiterUnavailable: There was no answer, and the strictest policy of these limits is to deny.
        """
        arguments: list[bytes] = []
        keys: list[bytes] = []
        sure: list[Decision] = []
        forgotten: list[int] = []
        store, remembers = spends[0][0]._store, alone and operation == b"take"
        sent_ns = store.now_ns()
        for limiter, key, n in spends:
            limiter._check_open()
            if refusal := limiter._refusal(key, n, remembers=remembers):
                sure.append(refusal)
            keys.append(limiter._form.stored(key))
            arguments.append(limiter._rule.argument(operation, n))
            forgotten.append(limiter._refusals.forgotten)
        if sure:
            return sure
        if len(set(keys)) < len(keys):
            raise ConfigError(f"limits that are spent together need a name each: two are called {spends[0][0].name!r}")
        try:
            numbers = yield store.script(keys, arguments)
        except StoreDown as error:
            return without_store(spends, operation, error)
        found = []
        for index, (limiter, key, n) in enumerate(spends):
            allowed, state, since_us = numbers[index * 3 : index * 3 + 3]
            decision = limiter._rule.decision(allowed == 1, state, since_us, n, limiter.name)
            found.append(decision)
            if remembers and decision.retry_after_ns:
                limiter._refusals.note(key, n, sent_ns, decision.retry_after_ns, forgotten[index])
        if operation == b"take" and all(decision.allowed for decision in found):
            for limiter, key, _ in spends:
                limiter._refusals.drop(key)
        return found

    def refund_flow(self, key: str, n: int) -> Flow[None]:
        """Do what ``refund`` does."""
        check_question(key, n)
        self._check_open()
        if n < 1 or not key:
            return
        argument = self._rule.argument(b"refund", min(n, self.rate.burst))
        try:
            yield self._store.script((self._form.stored(key),), (argument,))
        except StoreDown as error:
            self._refuse_to_fail(error)
            self._local.refund(key, n)
        finally:
            self._refusals.forget(key)

    def forget(self, key: str | None = None) -> None:
        """Forget what this process knows of *key*, or of all keys, since another limiter of the same counts gave them back."""
        if key is None:
            self._local.reset_all()
        else:
            self._local.reset(key)
        self._refusals.forget(key)

    # The other flows ------------------------------------------------------------------------------------------

    def _question(self, key: str, n: int) -> tuple[Any, ...]:
        """Return what to ask the store, for one key that `_refusal` knows nothing of; nearly every check comes this way.

        Raises:
            LimiterUnavailable: The limiter is closed.
        """
        self._check_open()
        store, refusals = self._store, self._refusals
        read = partial(self._answer, key, n, store.now_ns(), refusals.forgotten)
        return read, store.execute, *spend_of_one(self._form.stored(key), self._rule.argument(b"take", n))

    def _answer(self, key: str, n: int, sent_ns: int, forgotten: int, reply: str | bytes) -> Decision:
        allowed, state, since_us = map(int, reply.split())
        decision = self._rule.decision(allowed == 1, state, since_us, n, self.name)
        if decision.retry_after_ns:
            self._refusals.note(key, n, sent_ns, decision.retry_after_ns, forgotten)
        else:
            self._refusals.drop(key)
        return decision

    def _peek(self, key: str, n: int) -> Flow[Decision]:
        return (yield from self.spend_all(((self, key, n),), operation=b"peek"))[0]

    def _reset(self, key: str) -> Flow[None]:
        check_question(key, 1)
        self._check_open()
        self._local.reset(key)
        try:
            yield self._store.delete(self._form.stored(key))
        except StoreDown as error:
            self._refuse_to_fail(error)
        finally:
            self._refusals.forget(key)

    def _reset_all(self) -> Flow[None]:
        self._check_open()
        self._local.reset_all()
        try:
            yield self._store.delete_all(self._form.pattern())
        except StoreDown as error:
            self._refuse_to_fail(error)
        finally:
            self._refusals.forget()

    def _close(self) -> Flow[None]:
        if self._closed:
            return
        self._closed = True
        self._refusals.forget()
        self._local.close()
        if self._closes_store:
            yield from self._store.close()

    # Without the store ----------------------------------------------------------------------------------------

    def _refusal(self, key: str, n: int, *, remembers: bool = True) -> Decision | None:
        """Return the refusal that is sure without asking, if it is: what is impossible, or, if *remembers*, known to last."""
        if key.__class__ is not str or n.__class__ is not int:
            check_question(key, n)
        if remembers and n <= self.rate.burst and (wait_ns := self._refusals.wait_ns(key, n)):
            return Decision(False, self.rate, self.name, 0, wait_ns, wait_ns, (), wait_ns)
        return None if self._possible(key, n) else impossible(self.rate, self.name)

    def _verdict(self, key: str, n: int) -> bool | None:
        """Return the answer of ``allow_n`` that is sure without asking; None if it is not."""
        check_question(key, n)
        if n == 0:
            return True
        return None if self._possible(key, n) and not self._refusals.wait_ns(key, n) else False

    def _possible(self, key: str, n: int) -> bool:
        return n == 0 or (0 < n <= self.rate.burst and key != "")

    def _check_open(self) -> None:
        if self._closed:
            raise LimiterUnavailable(f"limiter {self.name!r} is closed")

    def _refuse_to_fail(self, error: StoreDown) -> None:
        if self.on_failure == "deny":
            raise LimiterUnavailable(
                f"the store of limiter {self.name!r} does not answer", retry_after=self._store.cooldown
            ) from error


def without_store(spends: Sequence[tuple[StoreLimiter, str, int]], operation: bytes, error: StoreDown) -> list[Decision]:
    """Answer for a store that does not, by the strictest policy of the limits."""
    strictest = min((limiter for limiter, _, _ in spends), key=lambda limiter: _STRICTEST_FIRST.index(limiter.on_failure))
    strictest._refuse_to_fail(error)
    if strictest.on_failure == "allow":
        return [Decision(True, limiter.rate, limiter.name, limiter.rate.burst, 0, 0) for limiter, _, _ in spends]
    if operation == b"peek":
        return [limiter._local.peek(key, n) for limiter, key, n in spends]
    return acquire_together([(limiter._local, key, n) for limiter, key, n in spends])
