"""One limit on requests, as a value."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jwtlimit_core.errors import ConfigError
from jwtlimit_core.rate import Rate

__all__ = ["Key", "Limit"]

Key = str | Callable[[Any], str | None]
_SOURCES = ("ip",)


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """At most *rate* for each *key*.

    Args:
        name: What the limit is called in headers and errors; limits of one name and rate share their counts.
        rate: A `Rate`, or a text that `Rate.parse` reads.
        key: Whom a request is charged to: ``"ip"``, the address of the peer (IPv6 by its network); or a function that takes the
            framework's request and returns the key. Nothing, None or ``""``, skips the limit. Only verified identity should
            choose a key: with one that the client writes, everybody has a quota for each spelling.
        cost: Tokens that one request takes, 1 or more.
        methods: The HTTP methods that are limited, in any case, GET with HEAD; None limits all.

    Raises:
        ConfigError: A value cannot work; all of them are named.
    """

    name: str
    rate: Rate
    key: Key
    cost: int
    methods: frozenset[str] | None

    def __init__(
        self, name: str, rate: Rate | str, *, key: Key = "ip", cost: int = 1, methods: Iterable[str] | None = None
    ) -> None:
        problems = []
        if not isinstance(name, str) or not name:
            problems.append(f"name must be a str of 1 or more characters, not {name!r:.80}")
        try:
            rate = rate if isinstance(rate, Rate) else Rate.parse(rate)
        except ConfigError as error:
            problems += error.problems
        most = rate.burst if isinstance(rate, Rate) else 1
        if not isinstance(cost, int) or isinstance(cost, bool) or not 1 <= cost <= most:
            problems.append(f"cost must be an int from 1 to the burst of the rate, not {cost!r:.80}")
        if not callable(key) and key not in _SOURCES:
            problems.append(f"key must be {' or '.join(map(repr, _SOURCES))} or a function, not {key!r:.80}")
        if methods is not None:
            methods = () if isinstance(methods, str) else tuple(methods)
            if not methods or not all(isinstance(method, str) and method for method in methods):
                problems.append(f"methods must be a list of 1 or more methods, or None, not {methods!r:.80}")
            else:
                methods = frozenset(method.upper() for method in methods)
                if "GET" in methods:
                    methods |= {"HEAD"}  # frameworks answer it by the same view
        if problems:
            raise ConfigError(*problems)
        for field, value in zip(self.__slots__, (name, rate, key, cost, methods), strict=True):
            object.__setattr__(self, field, value)
