"""Limits on single endpoints: a decorator, and a dependency for FastAPI."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Unpack, cast, get_origin

import anyio.from_thread
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket

from jwtlimit_core import ConfigError, Rate
from jwtlimit_core.asgi_passage import Gate
from jwtlimit_core.decoration import Decoration, Decorator, LimitOptions, Owner, name_of
from jwtlimit_core.flow import awaits
from jwtlimit_core.limit import Phase
from jwtlimit_starlette.passage import Passage, as_http, refuse

__all__ = ["RateLimit", "rate_limit"]

_DEPENDENCY = "use dependencies=[Depends(RateLimit(...))]"
_NO_WEBSOCKETS = f"rate_limit takes no WebSocket endpoints: for {{}} {_DEPENDENCY}"
_ADD_REQUEST = f"add a parameter request: Request, or {_DEPENDENCY}"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_MET = "jwtlimit.dependencies"  # in the scope of a request
_OWNER = Owner()  # it only names limits; there is no object of the application at a decorator


class RateLimit:
    """A limit as a dependency of FastAPI: ``Depends(RateLimit("5/m"))``, on an endpoint, a router or the application.

    Each endpoint has a limit of its own, called after it, its path and the rate; with a ``name``, all have one together.
    Several are charged one after the other; where one refuses, those before it give back what they charged, but by address.

    The handshake of a WebSocket is limited, too. A refusal is an `HTTPException` and a `RateLimitExceeded` or
    `LimiterUnavailable` at once.

    Args:
        rate: How much, such as ``"5/m"``.
        options: ``key``, ``cost``, ``methods``, ``name`` and others; see `Limit`.

    Raises:
        ConfigError: A value cannot work.
    """

    def __init__(self, rate: Rate | str | None = None, **options: Unpack[LimitOptions]) -> None:
        self._decoration = Decoration(_OWNER, rate, options)
        self._gate = Gate(Passage)

    async def __call__(self, request: HTTPConnection) -> None:
        """Charge *request*.

        Raises:
            RateLimitExceeded: The limit refuses.
            LimiterUnavailable: The store gave no answer.
        """
        scope = request.scope
        route, context = scope.get("route"), scope.get("fastapi", {}).get("effective_route_context")
        if getattr(context, "original_route", None) is route:
            route = context  # where newer versions of FastAPI have what stands before the path, for a router was included
        met = scope.setdefault(_MET, {})
        phase = self._decoration.phase_at(scope.get("endpoint", self), getattr(route, "path", ""), met)
        found = await self._gate.refusal(scope, request, phase)
        if found is not None:
            raise as_http(*found) from found[0]


def rate_limit(rate: Rate | str | None = None, **options: Unpack[LimitOptions]) -> Decorator:
    """Limit an endpoint; put it below the decorator of the route. Several on one are charged together, or not at all.

    A refused request is answered with a response; the endpoint does not run. The endpoint may be ``def`` or ``async def``, a
    function or a method, and takes its request under any name.

    Args:
        rate: How much, such as ``"5/m"``.
        options: ``key``, ``cost``, ``methods``, ``name`` and others; see `Limit`.

    Raises:
        ConfigError: A value cannot work; or, at the endpoint, it is none of a request.
    """
    decoration = Decoration(_OWNER, rate, options)
    return lambda endpoint: decoration.of(endpoint, _wrap, on_loop=True, for_class="put it on the methods of")


def _wrap(function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
    signature, gate = _signature(function), Gate(Passage)
    position, name = _request_parameter(function, signature)

    async def charge(args: tuple[Any, ...], kwargs: dict[str, Any], *, from_pool: bool = False) -> Response | None:
        request = kwargs[name] if name in kwargs else args[position]
        if not isinstance(request, HTTPConnection):
            raise ConfigError(f"{name} of {name_of(function)} is no request: {_ADD_REQUEST}")
        if isinstance(request, WebSocket):
            raise ConfigError(_NO_WEBSOCKETS.format(name_of(function)))
        found = await gate.refusal(request.scope, request, phase)
        return None if found is None else await refuse(*found, request, from_pool=from_pool)

    async def limit_async(*args: Any, **kwargs: Any) -> Any:
        refused = await charge(args, kwargs)
        return await function(*args, **kwargs) if refused is None else refused

    def limit(*args: Any, **kwargs: Any) -> Any:
        # In a thread of the pool, but the one colour of limiters here is that of the loop.
        refused = anyio.from_thread.run(partial(charge, from_pool=True), args, kwargs)
        return function(*args, **kwargs) if refused is None else refused

    wrapper: Any = limit_async if awaits(function) else limit
    # Older versions of FastAPI look for what strings among annotations name in the module of the wrapper.
    wrapper.__signature__ = signature
    return cast("Callable[..., Any]", wrapper)


def _signature(endpoint: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of *endpoint*, with values for strings among its annotations where they can be found now."""
    if inspect.isgeneratorfunction(endpoint) or inspect.isasyncgenfunction(endpoint):
        raise ConfigError(f"rate_limit cannot refuse what {name_of(endpoint)} yields: {_DEPENDENCY}")
    try:
        return inspect.signature(endpoint, eval_str=True)
    except Exception:  # noqa: BLE001  of the application's annotations, such as a name imported for type checkers only
        return inspect.signature(endpoint)


def _request_parameter(endpoint: Callable[..., Any], signature: inspect.Signature) -> tuple[int, str]:
    """Return position and name of the parameter that gets the request.

    Raises:
        ConfigError: There is none.
    """
    parameters = [each for each in enumerate(signature.parameters.values()) if each[1].name not in ("self", "cls")]
    for position, parameter in parameters:
        if _names(parameter.annotation, WebSocket):
            raise ConfigError(_NO_WEBSOCKETS.format(name_of(endpoint)))
        if _names(parameter.annotation, HTTPConnection):
            return position, parameter.name
    for position, parameter in parameters[:1]:
        if parameter.annotation in (parameter.empty, Any) and parameter.kind in _POSITIONAL:
            return position, parameter.name
    raise ConfigError(f"{name_of(endpoint)} has no parameter for its request: {_ADD_REQUEST}")


def _names(annotation: Any, kind: type) -> bool:
    """Say whether *annotation* is *kind* or a subclass; of a string that nobody could evaluate, whether it looks so."""
    if isinstance(annotation, str):
        name = annotation.partition("[")[0].rpartition(".")[2]
        return name == kind.__name__ or (kind is HTTPConnection and name == "Request")
    if get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    annotation = get_origin(annotation) or annotation
    return inspect.isclass(annotation) and issubclass(annotation, kind)
