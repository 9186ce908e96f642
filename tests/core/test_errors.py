"""The tree of exceptions: who descends from whom, what each carries, and that all of them travel between processes."""

import pickle

import pytest

import jwtlimit_core
from jwtlimit_core import errors
from jwtlimit_core.decision import Decision
from jwtlimit_core.errors import ConfigError, JWTLimitError, LimiterUnavailable, TokenError

PARENTS = {
    "JWTLimitError": Exception,
    "ConfigError": JWTLimitError,
    "LimiterUnavailable": JWTLimitError,
    "ProcessorClosed": JWTLimitError,
    "InvalidClaims": JWTLimitError,
    "RateLimitExceeded": JWTLimitError,
    "TokenError": JWTLimitError,
    "InvalidToken": TokenError,
    "TokenExpired": TokenError,
    "TokenNotYetValid": TokenError,
    "TokenRevoked": TokenError,
    "TokenTypeMismatch": TokenError,
    "InvalidIssuer": TokenError,
    "InvalidAudience": TokenError,
}


def made(name: str) -> Exception:
    """An instance of the public exception *name*, with the argument that it takes."""
    if name == "RateLimitExceeded":
        rate = jwtlimit_core.Rate(5, 30)
        return jwtlimit_core.RateLimitExceeded(Decision(False, rate, "login", 0, 1_500_000_000, 6_000_000_000))
    kind: type[Exception] = getattr(jwtlimit_core, name, None) or getattr(errors, name)
    return kind("why")


@pytest.mark.parametrize("name", PARENTS)
def test_error_descends_from_its_parent_in_the_tree(name: str) -> None:
    assert type(made(name)).__bases__[0] is PARENTS[name]


def test_errors_are_all_in_the_tree() -> None:
    public = {name for name in jwtlimit_core.__all__ if isinstance(kind := getattr(jwtlimit_core, name), type)
              and issubclass(kind, Exception)}  # fmt: skip
    assert public | set(errors.__all__) == set(PARENTS)


@pytest.mark.parametrize("name", PARENTS)
def test_error_in_the_printed_tree_stands_under_its_parent(name: str) -> None:
    path: list[str] = []  # the tree at the head of the module, as a reader follows it
    for line in (errors.__doc__ or "").splitlines():
        mark = line.replace("│", " ").replace("├── ", "").replace("└── ", "").split()
        if mark and mark[0] in PARENTS:
            depth = (line.index(mark[0]) - 4) // 4
            path[depth:] = [mark[0]]
            if mark[0] == name:
                break
    assert path[-1] == name
    assert name == "JWTLimitError" or path[-2] == PARENTS[name].__name__


@pytest.mark.parametrize("name", PARENTS)
def test_error_pickled_keeps_its_type_text_and_attributes(name: str) -> None:
    error = made(name)
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error) != ""
    assert vars(twin) == vars(error)


def test_config_error_lists_every_problem_and_is_a_value_error() -> None:
    error = ConfigError("limit is bad", "window is bad")
    assert error.problems == ("limit is bad", "window is bad")
    assert str(error) == "limit is bad; window is bad"
    assert isinstance(error, ValueError)
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


def test_limiter_unavailable_says_when_to_ask_again() -> None:
    assert LimiterUnavailable("closed").retry_after == 1.0
    error = pickle.loads(pickle.dumps(LimiterUnavailable("down", retry_after=2.5)))
    assert (str(error), error.retry_after) == ("down", 2.5)
