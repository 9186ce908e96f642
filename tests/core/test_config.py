"""Config: what is accepted, and that all problems are told at once."""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest

from jwtlimit_core import Config, ConfigError, Processor, RateLimiter
from jwtlimit_core.config import duration_s

SECRET = "s" * 32
TOO_LONG_TO_PRINT = 10**5000


def test_config_of_a_secret_alone_has_the_documented_defaults() -> None:
    config = Config(secret_key=SECRET)
    values = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    assert {name: values[name] for name in values.keys() - {"secret_key", "clock", "jws", "rate"}} == {
        "signing_key": None,
        "verification_key": None,
        "algorithm": "HS256",
        "access_token_ttl": timedelta(minutes=15),
        "refresh_token_ttl": timedelta(days=7),
        "issuer": "jwt-service",
        "audience": None,
        "leeway": timedelta(seconds=5),
        "enable_rate_limit": False,
        "rate_limit_rate": 100,
        "rate_limit_window": timedelta(minutes=1),
        "rate_limiter": None,
        "owns_limiter": False,
        "before_issue": None,
        "normalize_key": None,
        "max_token_bytes": 8192,
    }
    assert str(config.rate) == "100/m"


BAD_VALUES: dict[str, list[Any]] = {
    "access_token_ttl": [0, -1, timedelta(0), nan, inf, True, "900", None, timedelta.max, TOO_LONG_TO_PRINT],
    "refresh_token_ttl": [0, timedelta(seconds=-1)],
    "leeway": [-1, -0.001, nan, None, timedelta(microseconds=-1), False],
    "issuer": ["", None, 7, TOO_LONG_TO_PRINT],
    "audience": ["", [], (), [""], ["a", 7], 7, {"a": 1}, TOO_LONG_TO_PRINT],
    "enable_rate_limit": [1, None, "yes", TOO_LONG_TO_PRINT],
    "owns_limiter": [0, None],
    "max_token_bytes": [0, -1, True, 8192.0, "8192", None],
    "before_issue": [7, "hook", TOO_LONG_TO_PRINT],
    "normalize_key": ["casefold"],
    "rate_limiter": [7, object(), "memory"],
    "clock": [None, 7, object()],
    "rate_limit_rate": [0, -1, True, 1.5, "100", nan, None],
    "rate_limit_window": [0, -1, True, "60", nan, inf, None],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}-{number}")
        for name, values in BAD_VALUES.items()
        for number, value in enumerate(values)
    ],
)
def test_config_of_a_bad_value_raises_config_error_that_names_it(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(secret_key=SECRET, **{name: value})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{name} must ")


def test_config_of_many_bad_values_names_every_one_of_them() -> None:
    with pytest.raises(ConfigError) as caught:
        Config(secret_key=b"short", issuer="", access_token_ttl=0, rate_limit_rate=0, rate_limit_window=-1, leeway=-1)
    named = {problem.split()[0] for problem in caught.value.problems}
    assert named == {"secret_key", "issuer", "access_token_ttl", "rate_limit_rate", "rate_limit_window", "leeway"}
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    assert isinstance(caught.value, ValueError)


def test_config_is_frozen_and_replaceable() -> None:
    config = Config(secret_key=SECRET)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.issuer = "other"  # type: ignore[misc]
    longer = dataclasses.replace(config, rate_limit_rate=5)
    assert (longer.rate.limit, longer.issuer, longer.secret_key) == (5, "jwt-service", SECRET)
    with pytest.raises(ConfigError):
        dataclasses.replace(config, rate_limit_rate=0)


def test_config_takes_keyword_arguments_only() -> None:
    with pytest.raises(TypeError):
        Config(SECRET)  # type: ignore[misc]


@pytest.mark.parametrize("audience", [None, "api", ["api", "web"], ("api",)])
def test_config_takes_every_form_of_audience(audience: Any) -> None:
    assert Config(secret_key=SECRET, audience=audience).audience == audience


def test_config_takes_any_object_with_the_three_methods_as_a_limiter() -> None:
    limiter = RateLimiter()
    assert Config(secret_key=SECRET, rate_limiter=limiter).rate_limiter is limiter
    with pytest.raises(ConfigError, match=r"^rate_limiter must have reset\(\), close\(\): "):
        Config(secret_key=SECRET, rate_limiter=type("Half", (), {"allow": print})())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (timedelta(minutes=15), 900),
        (timedelta(microseconds=1), Fraction(1, 10**6)),
        (Fraction(1, 3), Fraction(1, 3)),
        (900, 900),
        (0.5, Fraction(1, 2)),
        (0, 0),
        (3_162_240_000, 3_162_240_000),
        (3_162_240_001, -1),
        ("900", -1),
        (True, -1),
        (nan, -1),
    ],
)
def test_duration_s_reads_timedeltas_and_seconds_and_nothing_else(value: object, seconds: Fraction) -> None:
    assert duration_s(value) == seconds


@pytest.mark.parametrize("show", [repr, str, "{}".format, lambda config: repr(Processor(config))])
def test_config_shows_no_key(show: Callable[[Config], str]) -> None:
    secret = "never-to-be-shown-" + SECRET
    shown = show(Config(secret_key=secret))
    assert "jwt-service" in shown
    assert "never-to-be-shown" not in shown
    assert "signing_key" not in shown


@pytest.mark.parametrize("config", [None, {"secret_key": SECRET}, SECRET], ids=["None", "dict", "str"])
def test_processor_of_no_config_raises_type_error_that_does_not_show_it(config: Any) -> None:
    with pytest.raises(TypeError, match="config must be a Config") as caught:
        Processor(config)
    assert SECRET not in str(caught.value)
