"""Limits as values: what they take, and that every bad value is named at once."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from jwtlimit_core import ConfigError, Limit, Rate


async def coroutine(_request: object) -> str:
    return "ann"


def test_limit_with_its_defaults_is_by_address_for_all_methods() -> None:
    limit = Limit("login", "5/m")
    assert (limit.name, limit.rate, limit.key, limit.cost, limit.methods) == ("login", Rate(5, 60), "ip", 1, None)
    assert limit == Limit("login", Rate(5, 60))


def test_limit_methods_are_folded_to_upper_case() -> None:
    assert Limit("login", "5/m", methods=["post", "Put"]).methods == {"POST", "PUT"}
    assert Limit("login", "5/m", methods=(method for method in ["patch"])).methods == {"PATCH"}


def test_limit_cost_may_be_the_whole_burst() -> None:
    assert Limit("login", "1/m;burst=3", cost=3).cost == 3


@pytest.mark.parametrize(
    ("options", "awaits"),
    [
        ({}, False),
        ({"key": len}, False),
        ({"key": coroutine}, True),
        ({"key": ("ip", coroutine)}, True),
        ({"cost": coroutine}, True),
        ({"exempt_when": coroutine}, True),
        ({"rate": None, "rates": {"free": "5/m"}, "plan": coroutine}, True),
    ],
)
def test_limit_awaits_where_a_function_does(options: dict[str, Any], awaits: bool) -> None:
    assert Limit(**{"name": "login", "rate": "5/m", **options}).awaits is awaits


@pytest.mark.parametrize(
    ("method", "path", "applies"),
    [
        ("POST", "/token", True),
        ("POST", "/token/", True),
        ("POST", "/token/refresh", True),
        ("POST", "/tokens", False),
        ("POST", "/Token", False),
        ("POST", "/api/token", False),
        ("POST", "/", False),
        ("POST", "/log/in", True),
        ("POST", "/log", False),
        ("GET", "/token", False),
    ],
)
def test_limit_applies_to_its_methods_and_to_what_lies_under_its_paths(method: str, path: str, applies: bool) -> None:
    assert Limit("login", "5/m", methods=["post"], paths=["/token", "/log/in/"]).applies(method, path) is applies


def test_limit_with_equal_values_is_equal_and_hashes_alike() -> None:
    rates = [Limit("api", rates={"free": "5/m"}, plan=len) for _ in range(2)]
    assert rates[0] == rates[1]
    assert len({*rates, Limit("api", "5/m"), Limit("api", Rate(5, 60)), Limit("api", "5/m", cost=2)}) == 3


@pytest.mark.parametrize("limit", [Limit("a", "5/m", methods=["GET"]), Limit("a", rates={"free": "5/m"}, plan=len)])
def test_limit_can_be_had_with_other_values(limit: Limit) -> None:
    assert replace(replace(limit, name="b"), name="a") == limit
    assert replace(limit, key="global").parts[0].source == "global"


def test_limit_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Limit("login", "5/m").cost = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": ""}, "name must be"),
        ({"name": 7}, "name must be"),
        ({"name": "issue"}, "name must not be 'issue'"),  # it would count with the tokens
        ({"rate": "often"}, "a rate must read like"),
        ({"rate": 5}, "a rate must read like"),
        ({"cost": 0}, "cost must be"),
        ({"cost": 6}, "cost must be"),  # it could never be paid
        ({"cost": True}, "cost must be"),
        ({"cost": 1.0}, "cost must be"),
        ({"key": "address"}, "key must be 'ip', 'subject', 'user', 'global', 'field:NAME'"),
        ({"key": "field:"}, "key must be"),
        ({"key": "cookie:session"}, "key must be"),
        ({"key": "header:"}, "key must be"),
        ({"key": "header: x-api-key"}, "key must be"),  # no header has such a name: all would be charged by address
        ({"key": "header:clé"}, "key must be"),
        ({"paths": ["/token?x=1"]}, "paths must have paths that begin with / and go on, such as '/healthz', without a query"),
        ({"key": ()}, "key must be"),
        ({"key": ("ip", 7)}, "key must be"),
        ({"key": ("ip", ("subject",))}, "key must be"),
        ({"key": ["ip"]}, "key must be"),
        ({"key": ("ip", "global")}, "key must not have 'global' in a tuple"),
        ({"paths": "/token"}, "paths must be"),
        ({"paths": []}, "paths must be"),
        ({"paths": ["token"]}, "paths must have paths that begin with /"),
        ({"paths": ["/token", "//"]}, "paths must have"),
        ({"exempt_when": True}, "exempt_when must be a function"),
        ({"refund_when": 200}, "refund_when must be a function"),
        ({"refund_when": coroutine}, "refund_when must be a plain function"),
        ({"on_failure": "hope"}, "on_failure must be 'deny', 'local' or 'allow'"),
        ({"rate": None}, "a rate must read like"),
        ({"rates": {"free": "5/m"}}, "rates and plan belong together"),
        ({"plan": len}, "rates and plan belong together"),
        ({"rates": {"free": "5/m"}, "plan": len}, "rates and plan belong together"),  # with a rate, too
        ({"rate": None, "rates": {}, "plan": len}, "rates must have a rate for each"),
        ({"rate": None, "rates": {1: "5/m"}, "plan": len}, "rates must have a rate for each"),
        ({"rate": None, "rates": ["5/m"], "plan": len}, "rates must have a rate for each"),
        ({"rate": None, "rates": {"free": "often"}, "plan": len}, "a rate must read like"),
        ({"rate": None, "rates": {"free": "5/m"}, "plan": "free"}, "plan must be a function"),
        ({"rate": None, "rates": {"free": "5/m", "pro": "50/m"}, "plan": len, "cost": 6}, "cost must be"),
        ({"key": None}, "key must be"),
        ({"methods": []}, "methods must be"),
        ({"methods": "POST"}, "methods must be"),  # four methods of one letter each
        ({"methods": ["POST", 1]}, "methods must be"),
        ({"methods": [""]}, "methods must be"),
        ({"methods": 5}, "methods must be a list of 1 or more methods such as 'POST', or None, not 5"),
        ({"methods": "GET"}, "methods must be a list of 1 or more methods such as 'POST', or None, not 'GET'"),
        ({"methods": ["get "]}, "methods must be"),
        ({"paths": 5}, "paths must be a list of paths"),
    ],
)
def test_limit_with_a_bad_value_is_a_config_error(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Limit(**{"name": "login", "rate": "5/m", **values})
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(problem)


def test_limit_with_several_bad_values_names_them_all() -> None:
    with pytest.raises(ConfigError) as caught:
        Limit("", "often", key="nobody", cost=-1, methods=[])
    assert [problem.split()[0] for problem in caught.value.problems] == ["name", "a", "key", "cost", "methods"]
