"""What an application may plug in: its own limiter, its own choice of key."""

from inspect import getattr_static
from typing import Protocol, runtime_checkable

__all__ = ["AsyncRateLimitProvider", "RateLimitKeyer", "RateLimitProvider", "missing_methods"]


class RateLimitProvider(Protocol):
    """A limiter that a `Processor` can ask.

    One with ``acquire(key) -> Decision`` as well, as `RateLimiter` has, also tells how long to wait; for
    one without it the wait that callers are told is the whole window of the configuration.
    """

    def allow(self, key: str) -> bool:
        """Charge *key* once and return True, or return False and charge nothing."""

    def reset(self, key: str) -> None:
        """Give *key* its full quota back."""

    def close(self) -> None:
        """Let go of what the limiter holds."""


class AsyncRateLimitProvider(Protocol):
    """The same for an `AsyncProcessor`: three coroutine functions."""

    async def allow(self, key: str) -> bool:
        """Charge *key* once and return True, or return False and charge nothing."""

    async def reset(self, key: str) -> None:
        """Give *key* its full quota back."""

    async def close(self) -> None:
        """Let go of what the limiter holds."""


@runtime_checkable
class RateLimitKeyer(Protocol):
    """Claims that say themselves whom they charge."""

    def rate_limit_key(self) -> str:
        """Return the key to charge, or ``""`` for no limit."""


def missing_methods(value: object, *methods: str) -> list[str]:
    """Return which of *methods* cannot be called on what an application has plugged in; of a class, those of its objects."""
    return [method for method in methods if not callable(getattr(value, method, None)) or _is_of_objects(value, method)]


def _is_of_objects(value: object, method: str) -> bool:
    return isinstance(value, type) and not isinstance(getattr_static(value, method), staticmethod | classmethod)
