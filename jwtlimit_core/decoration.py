"""What the decorators of all adapters have in common: `rate_limit` and `exempt`, as far as no framework is involved."""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from typing import Any, NamedTuple, ParamSpec, Protocol, TypedDict, TypeVar, cast

from jwtlimit_core.errors import ConfigError
from jwtlimit_core.limit import Key, Limit, OnFailure, Phase, RefundWhen, phase_of
from jwtlimit_core.rate import Rate, shown

__all__ = [
    "Decoration",
    "Decorator",
    "LimitOptions",
    "Owner",
    "exempt",
    "is_exempt",
    "layers",
    "name_of",
    "warn_of_limits_in_vain",
]

_LIMITED = "_jwtlimit"
_EXEMPT = "_jwtlimit_exempt"
_DECORATED = "_jwtlimit_decorated"  # on a view: itself, since attributes get copied, and what it became by `rate_limit`
_DEFAULT_NAME = "limit"

logger = logging.getLogger("jwtlimit")

Function = Callable[..., Any]
View = TypeVar("View")
P = ParamSpec("P")
R = TypeVar("R")


class LimitOptions(TypedDict, total=False):
    """What `rate_limit` takes by name; see `Limit`.

    Attributes:
        name: What to call the limit; by default after the view. Limits of one name and rate share their counts.
    """

    name: str | None
    key: Key
    cost: int | Callable[[Any], Any]
    methods: Any
    exempt_when: Callable[[Any], Any] | None
    refund_when: RefundWhen | None
    on_failure: OnFailure | None
    rates: Any
    plan: Callable[[Any], Any] | None


class Decorator(Protocol):
    """What `rate_limit` returns."""

    def __call__(self, view: Callable[P, R], /) -> Callable[P, R]:
        """Return *view*, limited, and to be called as before."""


class _Limited(NamedTuple):
    """What a `rate_limit` made; the wrapper itself is in it, since `functools.wraps` of others copies attributes."""

    owner: "Owner"
    wrapper: Function
    function: Function
    phase: Phase


class Owner:
    """Whose limits they are: those of one owner on one view are charged together, and none is called like another by chance."""

    def __init__(self) -> None:
        self._decorations: dict[str, dict[object, int]] = {}

    def name(self, view: Function, decoration: object) -> str:
        """Return a name for the limit of *decoration* on *view*: the same each time."""
        name = name_of(view)
        numbers = self._decorations.setdefault(name, {})
        number = numbers.setdefault(decoration, len(numbers) + 1)
        return name if number == 1 else f"{name}#{number}"


class Decoration:
    """One use of `rate_limit`: what it asks for, before it is known of which view.

    Args:
        owner: Whose limit it is.
        rate: As `Limit` has it.
        options: The same.

    Raises:
        ConfigError: A value cannot work; told here, at the decorator, parentheses left out too.
    """

    def __init__(self, owner: Owner, rate: Rate | str | None, options: LimitOptions) -> None:
        self._owner = owner
        self._rate = rate
        self._options: Any = dict(options)
        self._name = self._options.pop("name", None)
        self._limits: dict[str, Limit] = {}  # by view, since some frameworks decorate anew for each request
        self._limit = Limit(_DEFAULT_NAME if self._name is None else self._name, rate, **self._options)

    def of(
        self, view: Callable[P, R], wrap: Callable[[Function, Phase], Function], *, on_loop: bool, for_class: str
    ) -> Callable[P, R]:
        """Return *view* as *wrap* makes it, with the limits that it has directly below.

        Args:
            view: A function.
            wrap: Makes the wrapper of a function and its limits.
            on_loop: Whether it is called on an event loop.
            for_class: What to do with a class, such as ``"put it on the methods of"``.

        Raises:
            ConfigError: *view* is a class or no function; or it is called without an event loop, and the limit has a coroutine
                function.
        """
        if inspect.isclass(view):
            raise ConfigError(f"rate_limit takes functions: {for_class} {view.__name__}")
        if not callable(view):
            raise ConfigError(f"rate_limit takes functions, not {shown(view)}")
        own = getattr(view, _LIMITED, None)
        function, limits = view, Phase()
        if isinstance(own, _Limited) and own.wrapper is view and own.owner is self._owner:
            function, limits = own.function, own.phase
        limit = self.limit_of(function)
        if limit.awaits and not on_loop:
            raise ConfigError(f"limit {limit.name!r} has a coroutine function, but its view has no event loop: use plain ones")
        phase = phase_of(*limits, limit)
        wrapper = wraps(view)(wrap(function, phase))
        setattr(wrapper, _LIMITED, _Limited(self._owner, wrapper, function, phase))
        getattr(view, "__dict__", {})[_DECORATED] = (view, wrapper)
        return cast("Callable[P, R]", wrapper)

    def limit_of(self, view: Function) -> Limit:
        """Return the limit for *view*, which is called after it unless it was given a name."""
        if self._name is not None:
            return self._limit
        name = name_of(view)
        known = self._limits.get(name)
        return known or self._limits.setdefault(name, Limit(self._owner.name(view, self), self._rate, **self._options))

    def phase_at(self, view: Function, place: str, met: dict[str, list["Decoration"]]) -> Phase:
        """Return the limit for *view* at *place*, such as a path, where that is known only when it is asked for.

        It is called after view, place and rate, so that all workers call it so, whichever of its limits they meet first.

        Args:
            view: A function.
            place: Where it is reached.
            met: Those that were asked in this request before, by name: of several alike, each has a number.
        """
        limit = self._limit
        if self._name is None:
            name = " ".join(filter(None, (name_of(view), place, str(limit.rate or ""))))
            alike = met.setdefault(name, [])
            if self not in alike:
                alike.append(self)
            number = alike.index(self) + 1
            name = name if number == 1 else f"{name}#{number}"
            limit = self._limits.get(name) or self._limits.setdefault(name, Limit(name, self._rate, **self._options))
        return phase_of(limit)


def exempt(view: View) -> View:
    """Let the limits of the settings pass *view* by: a function or a class. Limits that decorators put on it hold."""
    try:
        setattr(view, _EXEMPT, True)
    except AttributeError as error:
        raise ConfigError(f"exempt takes functions and classes, not {shown(view)}") from error
    return view


def is_exempt(view: object) -> bool:
    """Say whether *view*, or the class that it was made from, was given to `exempt`."""
    return any(_EXEMPT in getattr(each, "__dict__", ()) for each in (view, getattr(view, "view_class", None)))


def warn_of_limits_in_vain(views: Iterable[object], remedy: str) -> None:
    """Warn of those of *views* that were given to `rate_limit` only after the framework had got them.

    Args:
        views: All views of an application.
        remedy: What to do about it.
    """
    views = list(views)
    called = {id(layer) for view in views for layer in layers(view)}
    for view in views:
        decorated, wrapper = getattr(view, "__dict__", {}).get(_DECORATED, (None, None))
        if wrapper is not None and decorated == view and id(wrapper) not in called:
            logger.warning("rate_limit of %s.%s limits nothing: %s", wrapper.__module__, wrapper.__name__, remedy)


def layers(outermost: object, by: str = "__wrapped__") -> Iterator[Any]:
    """Yield *outermost* and all that it wraps, by the attribute in which that is kept: by default that of `functools.wraps`."""
    layer: Any = outermost
    while layer is not None:
        yield layer
        layer = getattr(layer, by, None)


def name_of(view: Function) -> str:
    """Return what limits on *view* are called after: its module and its qualified name."""
    bound = next((layer.func for layer in layers(view) if isinstance(layer, partial)), view)
    owner = getattr(bound, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        # A method: called after the class of its object, not after the one that has the code.
        kind = owner if inspect.isclass(owner) else type(owner)
        return f"{kind.__module__}.{kind.__qualname__}.{bound.__name__}"
    name = getattr(bound, "__name__", type(bound).__name__)
    # Flask renames the functions that `View.as_view` makes, but leaves their qualified names; Django leaves both.
    qualified = getattr(bound, "__qualname__", name)
    made_from = getattr(bound, "view_class", None)
    if inspect.isclass(made_from) and qualified.endswith(name):
        return f"{made_from.__module__}.{made_from.__qualname__}"
    return f"{bound.__module__}.{qualified if qualified.endswith(name) else name}"
