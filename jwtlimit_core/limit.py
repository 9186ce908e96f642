"""One limit on requests, as a value."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import awaits
from jwtlimit_core.rate import Rate, shown

__all__ = ["Key", "KeyPart", "Limit", "OnFailure", "Paths", "Phase", "path_problems", "phase_of"]

KeySource = str | Callable[[Any], Any]
Key = KeySource | tuple[KeySource, ...]
OnFailure = Literal["deny", "local", "allow"]  # the strictest first
RefundWhen = Callable[[int, Any], object]

_METHOD = re.compile(r"[A-Za-z-]+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.1
_SOURCES = ("ip", "subject", "user", "global")
_KEYS = "'ip', 'subject', 'user', 'global', 'field:NAME', 'header:NAME', a function of the request, or a tuple of these"


class KeyPart(NamedTuple):
    """One source of a key.

    Attributes:
        source: ``ip``, ``subject``, ``user``, ``global``, ``field``, ``header`` or ``function``.
        name: The name of the field or header.
        label: What stands before the value in the key, so that no two sources meet.
        function: The function.
    """

    source: str
    name: str
    label: str
    function: Callable[[Any], Any] | None = None


class Paths:
    """Paths of requests, each with all that lies under it."""

    def __init__(self, paths: Iterable[str]) -> None:
        stems = [path.rstrip("/") for path in paths]
        self._exact = frozenset(stems)
        self._under = tuple(f"{stem}/" for stem in stems)

    def __contains__(self, path: str) -> bool:
        return path in self._exact or path.startswith(self._under)


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """At most *rate* for each *key*.

    Functions that take a request get the framework's own. On hosts with an event loop they may be coroutine functions. What
    they raise reaches the application; no limit that is charged together with this one has been charged then.

    Args:
        name: What the limit is called in headers and errors; limits of one name and rate share their counts.
        rate: A `Rate`, or a text that `Rate.parse` reads; left out where there are *rates*.
        key: Whom a request is charged to:

            * ``"ip"``: the address of the client (IPv6 by its network);
            * ``"subject"``: the subject of a verified bearer token; skips the limit where there is none;
            * ``"user"``: the framework's authenticated user; skips the limit where there is none;
            * ``"global"``: one bucket for everybody;
            * ``"field:username"``: a field of an urlencoded or JSON body; the address where it is missing;
            * ``"header:x-api-key"``: a header; the address where it is missing;
            * a function of the request; the limit is skipped where it returns None or ``""``;
            * a tuple of these: one bucket for each combination.

            Only verified identity should choose a key alone: with one that the client writes, everybody has a quota for each
            spelling, and can use up that of others.
        cost: Tokens that one request takes, 1 or more; or a function of the request that returns them, 0 for none.
        methods: The HTTP methods that are limited, in any case, GET with HEAD; None limits all.
        paths: The paths that are limited, each with all below it; None limits all.
        exempt_when: A function of the request; the limit is skipped where it returns something true.
        refund_when: A function of the status and the headers of the answer; where it returns something true, the tokens are put
            back before the answer is sent. They were charged before the view ran, so requests at once cannot slip through.
        on_failure: What to do while the store does not answer, where it is not what the settings say.
        rates: A rate for each plan, instead of *rate*.
        plan: A function of the request that returns the name of its plan.

    Raises:
        ConfigError: A value cannot work; all of them are named.
    """

    name: str
    rate: Rate | None
    key: Key
    cost: int | Callable[[Any], Any]
    methods: frozenset[str] | None
    paths: tuple[str, ...] | None
    exempt_when: Callable[[Any], Any] | None
    refund_when: RefundWhen | None
    on_failure: OnFailure | None
    rates: Mapping[str, Rate] | None
    plan: Callable[[Any], Any] | None

    # What the values above amount to.
    parts: tuple[KeyPart, ...] = field(init=False, repr=False, compare=False)
    under: Paths | None = field(init=False, repr=False, compare=False)
    awaited: tuple[Any, ...] = field(init=False, repr=False, compare=False)  # those of its functions that are
    is_everywhere: bool = field(init=False, repr=False, compare=False)
    is_plain: bool = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        name: str,
        rate: Rate | str | None = None,
        *,
        key: Key = "ip",
        cost: int | Callable[[Any], Any] = 1,
        methods: Iterable[str] | None = None,
        paths: Iterable[str] | None = None,
        exempt_when: Callable[[Any], Any] | None = None,
        refund_when: RefundWhen | None = None,
        on_failure: OnFailure | None = None,
        rates: Mapping[str, Rate | str] | None = None,
        plan: Callable[[Any], Any] | None = None,
    ) -> None:
        read, rate_problems = _read_rates(rate, rates, plan)
        parts, key_problems = _read_key(key)
        methods, method_problems = _read_methods(methods)
        paths, paths_problems = _read_paths(paths)
        problems = [
            *_name_problems(name),
            *rate_problems,
            *key_problems,
            *_cost_problems(cost, min((each.burst for each in read.values()), default=1)),
            *method_problems,
            *paths_problems,
            *_function_problems(exempt_when, refund_when),
        ]
        if on_failure not in (None, "deny", "local", "allow"):
            problems.append(f"on_failure must be 'deny', 'local' or 'allow', or None, not {shown(on_failure)}")
        if problems:
            raise ConfigError(*problems)
        values = {
            "name": name,
            "rate": read[""] if rates is None else None,
            "key": key,
            "cost": cost,
            "methods": methods,
            "paths": paths,
            "exempt_when": exempt_when,
            "refund_when": refund_when,
            "on_failure": on_failure,
            "rates": None if rates is None else read,
            "plan": plan,
            "parts": parts,
            "under": None if paths is None else Paths(paths),
            "awaited": tuple(filter(awaits, (cost, exempt_when, plan, *(part.function for part in parts)))),
            "is_everywhere": methods is None and paths is None,
            # By address, and nothing else to ask: the usual limit, which is worth a way of its own.
            "is_plain": key == "ip" and not callable(cost) and (rates, exempt_when, refund_when) == (None, None, None),
            "_hash": hash((name, *read.values())),
        }
        for label, value in values.items():
            object.__setattr__(self, label, value)

    def __hash__(self) -> int:
        return self._hash

    @property
    def awaits(self) -> bool:
        """Whether a function of the limit is a coroutine function."""
        return bool(self.awaited)

    @property
    def counted(self) -> tuple[object, ...]:
        """What limits of one name must have in common to share their counts."""
        return self.rate, self.rates, self.on_failure, self.refund_when is None

    def applies(self, method: str, path: str) -> bool:
        """Say whether requests with *method* for *path* are limited."""
        return (self.methods is None or method in self.methods) and (self.under is None or path in self.under)


class Phase(tuple[Limit, ...]):
    """Limits that a request meets together: it is charged to all of them, or to none.

    One is like no other, whatever limits they have: it is looked up for each request, and to compare limits costs too much.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@lru_cache(1_000)
def phase_of(*limits: Limit) -> Phase:
    """Return the phase of *limits*, the same for the same: who makes limits for each request makes no phases for each.

    Raises:
        ConfigError: Two of one name would count together in a store, and apart in memory.
    """
    counted = {limit.name: limit for limit in limits}
    for limit in limits:
        if limit.counted != counted[limit.name].counted:
            raise ConfigError(
                f"two limits together are called {limit.name!r}: give each a name of its own, or the same rate, the same "
                "on_failure, and both a refund_when or none"
            )
    return Phase(limits)


def path_problems(name: str, paths: Any) -> list[str]:
    """Say what of *paths*, the value of *name*, is no list of paths."""
    if isinstance(paths, str) or not isinstance(paths, Sequence):
        return [f"{name} must be a list of paths such as ['/healthz'], not {shown(paths)}"]
    wrong = [
        path for path in paths if not isinstance(path, str) or not path.startswith("/") or not path.strip("/") or "?" in path
    ]
    return [
        f"{name} must have paths that begin with / and go on, such as '/healthz', without a query, not {shown(path)}"
        for path in wrong
    ]


def _name_problems(name: Any) -> list[str]:
    if not isinstance(name, str) or not name:
        return [f"name must be a str of 1 or more characters, not {shown(name)}"]
    return ["name must not be 'issue', which is the limit on tokens: choose another"] if name == "issue" else []


def _cost_problems(cost: Any, most: int) -> list[str]:
    if callable(cost) or (isinstance(cost, int) and not isinstance(cost, bool) and 1 <= cost <= most):
        return []
    return [f"cost must be an int from 1 to the burst of the rate, or a function, not {shown(cost)}"]


def _function_problems(exempt_when: Any, refund_when: Any) -> list[str]:
    problems = [
        f"{label} must be a function or None, not {shown(function)}"
        for label, function in (("exempt_when", exempt_when), ("refund_when", refund_when))
        if function is not None and not callable(function)
    ]
    if awaits(refund_when):
        problems.append("refund_when must be a plain function: it sees only the status and the headers")
    return problems


def _read_paths(paths: Any) -> tuple[tuple[str, ...] | None, list[str]]:
    if paths is None:
        return None, []
    read = tuple(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else paths
    return read, path_problems("paths", read) or ([] if read else ["paths must be a list of 1 or more paths, or None"])


def _read_rates(rate: Any, rates: Any, plan: Any) -> tuple[dict[str, Rate], list[str]]:
    """Return the rate of each plan, of ``""`` where there are no plans, and what is wrong."""
    problems: list[str] = []
    if (rates is None) is not (plan is None) or (rates is not None and rate is not None):
        problems.append("rates and plan belong together, and take the place of rate")
    if plan is not None and not callable(plan):
        problems.append(f"plan must be a function or None, not {shown(plan)}")
    if rates is not None and not (isinstance(rates, Mapping) and rates and all(isinstance(name, str) for name in rates)):
        problems.append(f"rates must have a rate for each of 1 or more plans, not {shown(rates)}")
        rates = {}
    read = {}
    for name, each in ({"": rate} if rates is None else rates).items():
        try:
            read[name] = each if isinstance(each, Rate) else Rate.parse(each)
        except ConfigError as error:
            problems += error.problems
    return read, problems


def _read_methods(methods: Any) -> tuple[frozenset[str] | None, list[str]]:
    if methods is None:
        return None, []
    read = () if isinstance(methods, str) or not isinstance(methods, Iterable) else tuple(methods)
    if not read or not all(isinstance(method, str) and _METHOD.fullmatch(method) for method in read):
        return None, [f"methods must be a list of 1 or more methods such as 'POST', or None, not {shown(methods)}"]
    folded = frozenset(method.upper() for method in read)
    return folded | {"HEAD"} if "GET" in folded else folded, []  # frameworks answer HEAD by the view for GET


def _read_key(key: Any) -> tuple[tuple[KeyPart, ...], list[str]]:
    sources = key if isinstance(key, tuple) else (key,)
    parts = [_part(source, index) for index, source in enumerate(sources)]
    if not parts or None in parts:
        return (), [f"key must be {_KEYS}, not {shown(key)}"]
    read = tuple(part for part in parts if part is not None)
    if len(read) > 1 and any(part.source == "global" for part in read):
        return (), ["key must not have 'global' in a tuple: it would change nothing"]
    return read, []


def _part(source: Any, index: int) -> KeyPart | None:
    if callable(source):
        return KeyPart("function", "", f"function{index or ''}", source)
    if not isinstance(source, str):
        return None
    kind, colon, name = source.partition(":")
    if colon:
        if kind == "header" and _HEADER.fullmatch(name):
            return KeyPart(kind, name, source.lower())
        return KeyPart(kind, name, source) if kind == "field" and name else None
    return KeyPart(kind, "", kind) if kind in _SOURCES else None
