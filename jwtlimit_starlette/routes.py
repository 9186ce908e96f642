"""The routes of an application, as far as the middleware looks ahead: which are exempt, and which limits are in vain."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.routing import Match
from starlette.types import Scope

from jwtlimit_core.decoration import is_exempt

__all__ = ["LIMITED", "Routes", "layers"]

LIMITED = "_jwtlimit_limited"  # on an endpoint: itself, and what it became by `rate_limit`

logger = logging.getLogger("jwtlimit")


class Routes:
    """The routes below a middleware.

    Args:
        app: What the middleware calls.
    """

    def __init__(self, app: Any) -> None:
        self._router = next((layer for layer in layers(app) if hasattr(layer, "routes")), None)
        self._has_exempt: bool | None = None

    def exempt(self, scope: Scope) -> bool:
        """Say whether the endpoint for *scope* is exempt; routes that none is are not matched."""
        if self._router is None:
            return False
        if self._has_exempt is None:
            endpoints = list(_endpoints(self._router.routes))
            self._has_exempt = any(map(is_exempt, endpoints))
            _warn_of_limits_in_vain(endpoints)
        return self._has_exempt and _finds_exempt(self._router.routes, scope) is True


def layers(app: Any) -> Iterator[Any]:
    """Yield *app* and what it wraps, as far as that is kept where all middleware keeps it."""
    while app is not None:
        yield app
        app = getattr(app, "app", None)


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    """Yield *routes*, and in the place of a router that FastAPI included what it has."""
    for route in routes:
        if hasattr(route, "effective_route_contexts"):
            for each in route.effective_route_contexts():
                yield getattr(each, "starlette_route", None) or each
        else:
            yield route


def _endpoints(routes: Iterable[Any]) -> Iterator[Any]:
    for route in _flat(routes):
        yield getattr(route, "endpoint", None) or getattr(route, "app", None)
        yield from _endpoints(getattr(route, "routes", None) or ())


def _finds_exempt(routes: Iterable[Any], scope: Scope) -> bool | None:
    """Say whether the endpoint that *routes* have for *scope* is exempt; None where they have none."""
    for route in _flat(routes):
        match, child = route.matches(scope)
        if match is Match.FULL:
            below = getattr(route, "routes", None)
            if is_exempt(child["endpoint"]) or not below:
                return is_exempt(child["endpoint"])
            return _finds_exempt(below, {**scope, **child})
    return None


def _warn_of_limits_in_vain(endpoints: list[Any]) -> None:
    for endpoint in endpoints:
        view, wrapper = getattr(endpoint, "__dict__", {}).get(LIMITED, (None, None))
        if view is endpoint and wrapper not in endpoints:
            name = f"{endpoint.__module__}.{endpoint.__qualname__}"
            logger.warning("rate_limit of %s limits nothing: put it below the decorator of the route", name)
