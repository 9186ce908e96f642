"""What every framework answers while the store does not."""

from collections.abc import Callable
from typing import Any

import pytest

from hosts import Client, Reply, Route
from jwtlimit_core import Limit
from outages import closed_url

Serve = Callable[..., Client]
LIMITED = Route(limits=[{"rate": "2/h", "name": "view"}])


@pytest.fixture
def serve(serve_anywhere: Serve) -> Serve:
    """Return the maker of applications whose store is away."""
    return lambda *routes, **settings: serve_anywhere(*routes, STORE=closed_url(), **settings)


def test_outage_is_503_with_retry_after_and_not_429(serve: Serve) -> None:
    answer = serve(LIMITED).ask()
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert (answer.headers["retry-after"], answer.headers["cache-control"]) == ("1", "no-store")
    assert "ratelimit" not in answer.headers
    assert answer.json()["status"] == 503


def test_outage_keeps_requests_from_the_view(serve: Serve) -> None:
    async def never(_request: object) -> Reply:
        raise AssertionError("called")

    client = serve(Route("/a", never), Route("/b", never, [{"rate": "2/h"}]), LIMITS=[Limit("site", "9/h", paths=["/a"])])
    assert client.statuses(3, path="/a") == client.statuses(3, path="/b") == [503] * 3


def test_outage_under_local_counts_in_the_process(serve: Serve) -> None:
    client = serve(LIMITED, ON_FAILURE="local", LIMITS=[Limit("site", "9/h")])
    assert client.statuses(4) == [200, 200, 429, 429]


def test_outage_under_allow_lets_everybody_pass(serve: Serve) -> None:
    assert serve(LIMITED, ON_FAILURE="allow").statuses(4) == [200] * 4


@pytest.mark.parametrize(("on_failure", "statuses"), [("allow", [200] * 3), ("local", [200, 200, 429]), ("deny", [503] * 3)])
def test_limit_may_have_its_own_way_in_an_outage(serve: Serve, on_failure: str, statuses: list[int]) -> None:
    route = Route(limits=[{"rate": "2/h", "on_failure": on_failure}])
    assert serve(route, ON_FAILURE="local" if on_failure == "deny" else "deny").statuses(3) == statuses


def test_outage_has_the_custom_answer(serve: Serve) -> None:
    answer = serve(LIMITED, custom=lambda error: Reply("later", 503)).ask()
    assert (answer.status_code, answer.text, answer.headers["retry-after"]) == (503, "later", "1")


def test_outage_while_tokens_are_put_back_does_not_spoil_the_answer(serve: Serve) -> None:
    refunded: dict[str, Any] = {"rate": "2/h", "refund_when": lambda status, headers: True}
    client = serve(Route(limits=[refunded]), ON_FAILURE="allow")
    assert client.statuses(4) == [200] * 4


def test_outage_of_issuance_is_503(serve: Serve) -> None:
    async def issue(request: Any) -> Reply:
        return Reply(await request.create("ann"))

    client = serve(Route(handler=issue), SECRET_KEY="s" * 32)
    assert client.ask().status_code == 503
