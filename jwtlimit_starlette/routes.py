"""The routes of an application, as far as the middleware looks ahead: which are exempt, and which limits are in vain."""

from collections.abc import Iterable, Iterator
from typing import Any

from starlette.routing import Match
from starlette.types import Scope

from jwtlimit_core.decoration import is_exempt, layers, warn_of_limits_in_vain
from jwtlimit_starlette.passage import adopt

__all__ = ["Routes", "routes_of"]


class Routes:
    """The routes below a middleware.

    Args:
        app: What the middleware calls.
    """

    def __init__(self, app: Any) -> None:
        self._router = next((layer for layer in layers(app, "app") if routes_of(layer) is not None), None)
        self._has_exempt: bool | None = None

    def look_through(self) -> None:
        """Look what endpoints there are, once: which are exempt, or limited in vain, and which have to answer our refusals."""
        if self._has_exempt is None:
            endpoints = [] if self._router is None else list(_endpoints(self._router.routes))
            self._has_exempt = any(map(is_exempt, endpoints))
            warn_of_limits_in_vain(endpoints, "put it below the decorator of the route")
            for endpoint in endpoints:
                for app in layers(endpoint, "app"):
                    adopt(app)

    def exempt(self, scope: Scope) -> bool:
        """Say whether the endpoint for *scope* is exempt; routes that none is are not matched."""
        return bool(self._has_exempt) and self._router is not None and _finds_exempt(self._router.routes, scope)


def routes_of(app: Any) -> list[Any] | None:
    """Return the routes of *app*, None where it has none of the kind that Starlette knows."""
    routes = getattr(app, "routes", None)
    return routes if isinstance(routes, list) else None


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    """Yield *routes*, and in the place of a router that FastAPI included what it has."""
    for route in routes:
        if hasattr(route, "effective_route_contexts"):
            for each in route.effective_route_contexts():
                yield getattr(each, "starlette_route", None) or each
        elif hasattr(route, "matches"):  # of another framework, if not
            yield route


def _endpoints(routes: Iterable[Any]) -> Iterator[Any]:
    for route in _flat(routes):
        yield getattr(route, "endpoint", None) or getattr(route, "app", None)
        yield from _endpoints(routes_of(route) or ())


def _finds_exempt(routes: Iterable[Any], scope: Scope) -> bool:
    """Say whether *routes* have an endpoint for *scope*, and it is exempt."""
    for route in _flat(routes):
        match, child = route.matches(scope)
        if match is Match.FULL:
            return is_exempt(child.get("endpoint")) or _finds_exempt(routes_of(route) or (), {**scope, **child})
    return False
