"""Limits as values: what they take, and that every bad value is named at once."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from jwtlimit_core import ConfigError, Limit, Rate


def test_limit_with_its_defaults_is_by_address_for_all_methods() -> None:
    limit = Limit("login", "5/m")
    assert (limit.name, limit.rate, limit.key, limit.cost, limit.methods) == ("login", Rate(5, 60), "ip", 1, None)
    assert limit == Limit("login", Rate(5, 60))


def test_limit_methods_are_folded_to_upper_case() -> None:
    assert Limit("login", "5/m", methods=["post", "Put"]).methods == {"POST", "PUT"}
    assert Limit("login", "5/m", methods=(method for method in ["patch"])).methods == {"PATCH"}


def test_limit_cost_may_be_the_whole_burst() -> None:
    assert Limit("login", "1/m;burst=3", cost=3).cost == 3


def test_limit_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Limit("login", "5/m").cost = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": ""}, "name must be"),
        ({"name": 7}, "name must be"),
        ({"rate": "often"}, "a rate must read like"),
        ({"rate": 5}, "a rate must read like"),
        ({"cost": 0}, "cost must be"),
        ({"cost": 6}, "cost must be"),  # it could never be paid
        ({"cost": True}, "cost must be"),
        ({"cost": 1.0}, "cost must be"),
        ({"key": "subject"}, "key must be 'ip' or a function"),
        ({"key": None}, "key must be"),
        ({"methods": []}, "methods must be"),
        ({"methods": "POST"}, "methods must be"),  # four methods of one letter each
        ({"methods": ["POST", 1]}, "methods must be"),
        ({"methods": [""]}, "methods must be"),
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
    assert [problem.split()[0] for problem in caught.value.problems] == ["name", "a", "cost", "key", "methods"]
