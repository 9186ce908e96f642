"""What limiters over a store take by name, and what they say of values that cannot work."""

from datetime import timedelta
from typing import Any

import pytest

from jwtlimit_core import ConfigError, Rate
from jwtlimit_core.redis import AsyncRedisFixedWindow, AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket

KINDS = [RedisTokenBucket, AsyncRedisTokenBucket, RedisFixedWindow, AsyncRedisFixedWindow]
URL = "redis://127.0.0.1:1/0"
ENORMOUS = 10**5000  # more digits than Python converts to text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": ""}, "name must be a str of 1 or more characters, not ''"),
        ({"name": b"login"}, "name must be a str"),
        ({"prefix": ""}, "prefix must be a str"),
        ({"prefix": ENORMOUS}, "prefix must be a str of 1 or more characters, not a int of too many digits"),
        ({"on_failure": "open"}, "on_failure must be 'deny', 'local' or 'allow', not 'open'"),
        ({"on_failure": None}, "on_failure must be"),
        ({"timeout": 0}, "timeout must be seconds, above 0, not 0"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": "1"}, "timeout must be"),
        ({"cooldown": -1}, "cooldown must be"),
        ({"cooldown": True}, "cooldown must be"),
        ({"clock": "now"}, "clock must have monotonic_ns()"),
        ({"key_secret": "text"}, "key_secret must be 1 to 64 bytes, or None"),
        ({"key_secret": b""}, "key_secret must be"),
        ({"key_secret": bytes(65)}, "key_secret must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
@pytest.mark.parametrize("kind", KINDS)
def test_limiter_with_a_bad_option_is_a_config_error_that_names_it(kind: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        kind.from_url(URL, **options)
    (problem,) = error.value.problems
    assert problem.startswith(says)


def test_limiter_with_several_bad_options_names_them_together_and_no_secret() -> None:
    with pytest.raises(ConfigError) as error:
        RedisTokenBucket.from_url(URL, name="", prefix=1, on_failure="x", timeout=0, cooldown=0, key_secret="pepper")
    assert len(error.value.problems) == 6
    assert "pepper" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_with_an_unknown_option_is_a_type_error_that_lists_the_known(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"takes no 'on_fail': it takes .*key_secret, local_refusal, name, on_failure, prefix"):
        kind.from_url(URL, on_fail="deny")


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_shows_its_name_rate_and_policy_and_nothing_secret(kind: Any) -> None:
    limiter = kind.from_url("redis://user:password@127.0.0.1:1/0", 5, 60, name="login", key_secret=b"pepper")
    assert repr(limiter) == f"<{kind.__name__} 'login' 5/m, deny on failure>"


@pytest.mark.parametrize("kind", KINDS)
def test_limiter_takes_durations_as_timedelta_too(kind: Any) -> None:
    limiter = kind.from_url(URL, 5, timedelta(minutes=1), timeout=timedelta(milliseconds=50), cooldown=timedelta(seconds=7))
    assert (limiter.rate, limiter._store._timeout, limiter._store.cooldown) == (Rate(5, 60), 0.05, 7)
