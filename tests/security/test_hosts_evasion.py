"""Ways around a limit that were found, in every framework: each is closed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from hosts import HOSTS, Client, Reply, Request, Route
from jwtlimit_core import Limit
from jwtlimit_core.testing import ManualClock

Serve = Callable[..., Client]
PREFLIGHT = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}


@pytest.fixture(params=HOSTS, ids=lambda host: host.name)
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    with ExitStack() as stack:

        def serve_routes(*routes: Route, **settings: Any) -> Client:
            client = request.param().serve(routes, {"CLOCK": ManualClock(), **settings}, None)
            stack.callback(client.close)
            return client

        yield serve_routes


async def guess(request: Request) -> Reply:
    return Reply("right" if request.body == b"password=wonderland" else "wrong")


@pytest.mark.parametrize(
    "options",
    [
        {"headers": PREFLIGHT, "content": "password=guess"},
        {"headers": {**PREFLIGHT, "Authorization": "Basic YTpi"}},
        {"headers": {**PREFLIGHT, "Cookie": "session=guess"}},
        {"headers": {"Access-Control-Request-Method": "POST"}},
    ],
)
@pytest.mark.parametrize("settings", [{}, {"LIMITS": [Limit("site", "2/m")]}])
def test_request_that_only_looks_like_a_preflight_is_charged(
    serve: Serve, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    client = serve(Route(handler=guess, limits=() if settings else [{"rate": "2/m"}]), **settings)
    assert client.statuses(4, "OPTIONS", **options) == [200, 200, 429, 429]
