"""For the tests of applications that use jwtlimit, and for our own."""

import time
from fractions import Fraction

__all__ = ["ManualClock"]


class ManualClock:
    """A clock that moves only when it is told to; one drives limiters, tokens and everything else alike.

    Args:
        time_ns: What `time_ns` starts with; the real time where it is left out.
        monotonic_ns: What `monotonic_ns` starts with.
    """

    def __init__(self, *, time_ns: int | None = None, monotonic_ns: int = 10**15) -> None:
        self._time_ns = time.time_ns() if time_ns is None else time_ns
        self._monotonic_ns = monotonic_ns

    def time_ns(self) -> int:
        """Return nanoseconds since the epoch."""
        return self._time_ns

    def monotonic_ns(self) -> int:
        """Return nanoseconds on a clock of its own origin."""
        return self._monotonic_ns

    def advance(self, seconds: float) -> None:
        """Move both clocks by *seconds*; a negative number steps back."""
        self.advance_ns(round(Fraction(seconds) * 1_000_000_000))

    def advance_ns(self, ns: int) -> None:
        """Move both clocks by *ns* nanoseconds; a negative number steps back."""
        self._time_ns += ns
        self._monotonic_ns += ns
