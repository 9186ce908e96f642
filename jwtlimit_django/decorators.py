"""`rate_limit`, for functions of both colours and, by `method_decorator`, for classes."""

from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.decorators import method_decorator

from jwtlimit_core import Rate
from jwtlimit_core.decoration import Decoration, Decorator, LimitOptions, Owner, layers
from jwtlimit_core.flow import Call, Flow, run, run_async
from jwtlimit_core.limit import Phase
from jwtlimit_django.passage import Passage

__all__ = ["rate_limit"]

_OWNER = Owner()  # it only names limits; all decorated views of a process are one application's


def rate_limit(rate: Rate | str | None = None, **options: Unpack[LimitOptions]) -> Decorator:
    """Limit a view; several on one view are charged together, or not at all.

    What is refused is answered here, so it works in views of every kind, with the middleware and without it. For classes use
    ``@method_decorator(rate_limit("5/m"), name="dispatch")``.

    Args:
        rate: How much, such as ``"5/m"``.
        options: ``key``, ``cost``, ``methods``, ``name`` and others; see `Limit`.

    Raises:
        ConfigError: A value cannot work.
    """
    decoration = Decoration(_OWNER, rate, options)

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        if getattr(view, "__module__", "") == method_decorator.__module__:
            return view  # the stand-in by which method_decorator finds out what attributes a view would get: none
        on_loop = iscoroutinefunction(view) or _dispatches_on_loop(view)
        return decoration.of(view, _wrap, on_loop=on_loop, for_class='put @method_decorator(…, name="dispatch") on')

    return decorate


def _wrap(function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
    def flow(args: tuple[Any, ...], kwargs: dict[str, Any], *, awaits: bool) -> Flow[Any]:
        passage = Passage(_request_in(args, kwargs), awaits=awaits)
        call = Call(partial(function, *args, **kwargs), (), awaits)
        return passage.through(partial(passage.engine.admit, phase=phase), call)

    async def limit_async(*args: Any, **kwargs: Any) -> Any:
        return await run_async(flow(args, kwargs, awaits=True))

    def limit(*args: Any, **kwargs: Any) -> Any:
        if _dispatches_on_loop(function, *args[:1]):
            return limit_async(*args, **kwargs)
        return run(flow(args, kwargs, awaits=False))

    return limit_async if iscoroutinefunction(function) else limit


def _dispatches_on_loop(function: Callable[..., Any], owner: object = None) -> bool:
    """Say whether *function* is `dispatch` of an async class view: a plain function that Django calls on the event loop."""
    if getattr(function, "__name__", "") != "dispatch":
        return False
    for layer in layers(function):
        if isinstance(layer, partial):  # of the bound method, as method_decorator makes it
            owner = getattr(layer.func, "__self__", owner)
    return bool(getattr(owner, "view_is_async", False))


def _request_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> HttpRequest:
    """Return the request among the arguments of a view: the first, or after ``self``; REST framework wraps it.

    Raises:
        TypeError: None of them is one.
    """
    for argument in (*args[:2], kwargs.get("request")):
        request = getattr(argument, "_request", argument)
        if isinstance(request, HttpRequest):
            return request
    raise TypeError("rate_limit is for views: their first argument is the request")
