"""Hosts: every framework, over every place where can be counted."""

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from jwtlimit_core.testing import ManualClock

if TYPE_CHECKING:
    from hosts import Client, Custom, Host, Route
    from stores import Stores

FRAMEWORKS = all(map(importlib.util.find_spec, ("django", "flask", "starlette", "redis")))
HOSTS: list[type["Host"]] = []
PLACES: list[str] = []
if FRAMEWORKS:
    from conftest import BINARIES
    from hosts import HOSTS as ALL_HOSTS

    HOSTS, PLACES = list(ALL_HOSTS), ["memory", *BINARIES]

_numbers = itertools.count()


@pytest.fixture(params=HOSTS, ids=lambda host: host.name)
def host(request: pytest.FixtureRequest) -> "Host":
    """Return each host in turn."""
    made: Host = request.param()
    return made


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of each place where can be counted: in memory on a clock that stands still, or in a real server."""
    if request.param == "memory":
        return {"CLOCK": ManualClock()}
    running: Callable[[str], Stores] = request.getfixturevalue("running")
    stores = running(request.param)
    return {"STORE": f"redis://127.0.0.1:{stores.server.port}/0", "STORE_TIMEOUT": 20, "KEY_PREFIX": f"host-{next(_numbers)}"}


Serve = Callable[..., "Client"]


@pytest.fixture
def serve_anywhere(host: "Host") -> Iterator[Serve]:
    """Return the maker of applications on one host."""
    with ExitStack() as stack:

        def serve(*routes: "Route", custom: "Custom | None" = None, **settings: Any) -> "Client":
            client = host.serve(routes, settings, custom)
            stack.callback(client.close)
            return client

        yield serve


@pytest.fixture
def serve(serve_anywhere: Serve, place: Mapping[str, Any]) -> Serve:
    """Return the maker of applications on one host that count in one place."""
    return lambda *routes, **settings: serve_anywhere(*routes, **{**place, **settings})
