"""What a limit charges a request, and how it gets that back."""

import logging
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import cast

from jwtlimit_core.counters import Limiters
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import Flow
from jwtlimit_core.limit import Limit
from jwtlimit_core.rate import Rate, shown
from jwtlimit_core.request import Admission, Charge, RequestView
from jwtlimit_core.request_keys import RequestKeys, UserKey, ask, under_plan
from jwtlimit_core.spend import put_back

__all__ = ["Charger", "is_wanted_back"]

logger = logging.getLogger("jwtlimit")


class Charger:
    """Finds what limits charge requests; it is the engine that makes the charges.

    Args:
        keys: Whom a request is charged to.
        limiters: Where is counted.
    """

    def __init__(self, keys: RequestKeys, limiters: Limiters) -> None:
        self._keys = keys
        self._limiters = limiters

    def charge(self, limit: Limit, view: RequestView, admission: Admission) -> Flow[Charge | None]:
        """Return what *limit* is to charge, None where it does not apply; raises as `Engine.admit` does."""
        if limit.awaits and not view.awaits:
            raise ConfigError(f"limit {limit.name!r} has a coroutine function: it must be a plain one here")
        if limit.exempt_when is not None:
            verdict = yield ask(limit, limit.exempt_when, view)
            if isawaitable(verdict):
                kind = "a coroutine function" if view.awaits else "a plain function that awaits nothing"
                raise TypeError(f"exempt_when of limit {limit.name!r} returned what nobody awaits: make it {kind}")
            if verdict:
                return None
        plan, rate, cost = None, limit.rate, limit.cost
        if rate is None:
            plan, rate = yield from _planned(limit, view)
        if not isinstance(cost, int):
            cost = yield ask(limit, cost, view)
            if not isinstance(cost, int) or isinstance(cost, bool) or cost < 0:
                raise TypeError(f"the cost of limit {limit.name!r} must be an int of 0 or more, not {shown(cost)}")
            if cost == 0:
                return None
        key, by_address = yield from self._keys.find(limit, view, admission)
        if not key:
            return None
        if plan is not None:
            key = under_plan(plan, key)
        return Charge(limit, self._limiters.of(limit, rate, on_loop=view.awaits), key, cost, by_address)

    def put_back(self, view: RequestView, admission: Admission, charges: Sequence[Charge]) -> Flow[None]:
        """Put *charges* back, where the store answers."""
        for charge in charges:
            admission.charges.remove(charge)
        # By limiters of the colour of this call, which need not be that of the charge.
        yield from put_back(
            [
                (self._limiters.of(charge.limit, charge.limiter.rate, on_loop=view.awaits), charge.key, charge.n)
                for charge in charges
            ]
        )


def _planned(limit: Limit, view: RequestView) -> Flow[tuple[str, Rate]]:
    rates = cast("Mapping[str, Rate]", limit.rates)
    plan = yield ask(limit, cast("UserKey", limit.plan), view)
    if plan not in rates:
        raise ValueError(f"limit {limit.name!r} has no rate for the plan {shown(plan)}: it has {', '.join(map(repr, rates))}")
    return plan, rates[plan]


def is_wanted_back(limit: Limit, status: int, headers: object) -> bool:
    """Say whether `refund_when` of *limit* wants its charge put back, now that the answer is known."""
    if limit.refund_when is None:
        return False
    try:
        verdict = limit.refund_when(status, headers)
        if isawaitable(verdict):
            raise TypeError("it returned something to await, and nobody does")  # noqa: TRY301  told like what it raises
        return bool(verdict)
    except Exception:  # the function is the application's: the answer is made, and goes out
        logger.exception("refund_when of limit %r failed", limit.name)
        return False
