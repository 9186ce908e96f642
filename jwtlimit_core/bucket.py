"""The token bucket, as functions of (state, rate, now): no clock, no lock, no rounding.

A state is ``[level, seen_ns]``: the units in the bucket (see `Rate.unit`) at the latest time seen for it. No state, None,
is a full bucket. These rules hold at every rate, for ever:

* Each nanosecond adds ``rate.refill`` units, a whole number: nothing is divided, so nothing drifts.
* A full bucket accrues nothing: what passes in any interval of length L is at most ``burst + limit * L // window``.
* A clock that runs back neither adds nor removes: an older now counts as the latest one seen.
* A refusal takes nothing and delays nothing.
"""

from jwtlimit_core.decision import Decision
from jwtlimit_core.rate import Rate

__all__ = ["State", "decide", "level_at", "outlook", "refunded", "take"]

State = list[int]


def level_at(state: State | None, rate: Rate, now_ns: int) -> int:
    """Return the units in the bucket at *now_ns*."""
    if state is None:
        return rate.capacity
    level, seen_ns = state
    if now_ns > seen_ns:
        level += rate.refill * (now_ns - seen_ns)
        if level > rate.capacity:
            return rate.capacity
    return level


def take(state: State | None, rate: Rate, now_ns: int, n: int) -> tuple[bool, State]:
    """Take *n* tokens if they are there; return whether they were, and the state that follows."""
    level = level_at(state, rate, now_ns)
    seen_ns = now_ns if state is None or now_ns > state[1] else state[1]
    cost = n * rate.unit
    if level < cost:
        return False, [level, seen_ns]
    return True, [level - cost, seen_ns]


def refunded(state: State, rate: Rate, n: int) -> State:
    """Return *state* with *n* tokens put back, never more than fit."""
    return [min(rate.capacity, state[0] + n * rate.unit), state[1]]


def decide(state: State | None, rate: Rate, now_ns: int, n: int, *, name: str, allowed: bool | None = None) -> Decision:
    """Describe a bucket at *now_ns* to somebody who asks for *n* tokens.

    Args:
        state: The bucket after the step, or untouched where there was none.
        rate: Its rate.
        now_ns: The caller's now, from which waits are counted; it may be older than the state.
        n: The tokens that were asked for, 0 to the burst.
        name: The name of the limiter.
        allowed: What the step answered; None asks whether *n* tokens could be taken now.
    """
    level = level_at(state, rate, now_ns)
    if allowed is None:
        allowed = level >= n * rate.unit
    remaining, retry_after_ns, reset_after_ns = outlook(level, state[1] if state else now_ns, rate, now_ns, n, allowed)
    return Decision(allowed, rate, name, remaining, retry_after_ns, reset_after_ns)


def outlook(level: int, seen_ns: int, rate: Rate, now_ns: int, n: int, allowed: bool) -> tuple[int, int, int]:
    """Return whole tokens, the wait for *n* of them, and the time until full, of a bucket with *level* units at *seen_ns*."""
    behind_ns = seen_ns - now_ns if seen_ns > now_ns else 0
    retry_after_ns = 0 if allowed else behind_ns + -(-(n * rate.unit - level) // rate.refill)
    missing = rate.capacity - level
    reset_after_ns = behind_ns + -(-missing // rate.refill) if missing else 0
    return level // rate.unit, retry_after_ns, reset_after_ns
