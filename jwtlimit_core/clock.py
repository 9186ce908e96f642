"""The two clocks that everything here reads: wall time for tokens, monotonic time for limits."""

from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Anything with the two readings below; the :mod:`time` module is one.

    `jwtlimit_core.testing.ManualClock` is another, for tests.
    """

    def time_ns(self) -> int:
        """Return nanoseconds since the epoch; it dates tokens and decides nothing else."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds on a clock of any origin; it drives every in-process limit."""
