"""What the decorators of all adapters share: names, stacks, and what is told at decoration."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from jwtlimit_core import ConfigError, Limit
from jwtlimit_core.decoration import Decoration, Owner, exempt, is_exempt

Function = Callable[..., Any]


def wrap(function: Function, limits: tuple[Limit, ...]) -> Function:
    """Make a wrapper that returns the limits that it would charge, and what the function returns."""

    def wrapper(*arguments: Any) -> Any:
        return [limit.name for limit in limits], function(*arguments)

    return wrapper


def decorated(owner: Owner, view: Function, rate: str = "5/m", **options: Any) -> Function:
    return Decoration(owner, rate, options).of(view, wrap, on_loop=False, for_class="split")  # type: ignore[arg-type]


def view() -> str:
    return "hello"


def test_stacked_limits_of_one_owner_are_charged_together_from_the_inside() -> None:
    owner = Owner()
    outer = decorated(owner, decorated(owner, decorated(owner, view, name="a"), name="b"))
    assert outer() == (["a", "b", f"{__name__}.view"], "hello")


def test_stacked_limits_of_two_owners_stay_apart() -> None:
    assert decorated(Owner(), decorated(Owner(), view, name="a"), name="b")() == (["b"], (["a"], "hello"))


def test_stack_over_a_foreign_wrapper_is_two_admissions() -> None:
    owner = Owner()
    foreign = functools.wraps(inner := decorated(owner, view, name="a"))(lambda: inner())
    assert decorated(owner, foreign, name="b")() == (["b"], (["a"], "hello"))


class Pages:
    def get(self) -> str:
        return "get"

    @classmethod
    def made(cls) -> str:
        return "made"


class Shop(Pages):
    def __call__(self) -> str:
        return "called"


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (view, f"{__name__}.view"),
        (Pages().get, f"{__name__}.Pages.get"),
        (Shop().get, f"{__name__}.Shop.get"),
        (Shop.made, f"{__name__}.Shop.made"),
        (functools.partial(Shop().get), f"{__name__}.Shop.get"),
        (functools.partial(view), f"{__name__}.view"),
        (Shop(), f"{__name__}.Shop"),
    ],
)
def test_limit_is_called_after_its_view(function: Function, name: str) -> None:
    names, _ = decorated(Owner(), function)()
    assert names == [name]


def test_limits_of_one_owner_have_names_of_their_own() -> None:
    owner = Owner()
    name = f"{__name__}.view"
    assert [decorated(owner, view)()[0][0] for _ in range(3)] == [name, f"{name}#2", f"{name}#3"]
    assert decorated(Owner(), view)()[0] == [name]


def test_decoration_that_is_applied_for_each_request_makes_one_limit() -> None:
    decoration = Decoration(Owner(), "5/m", {})
    limits = {id(decoration.limit_of(functools.partial(Shop().get))) for _ in range(9)}
    assert len(limits) == 1
    assert decoration.limit_of(Pages().get).name == f"{__name__}.Pages.get"


def test_decoration_with_bad_values_is_a_config_error_before_there_is_a_view() -> None:
    with pytest.raises(ConfigError) as caught:
        Decoration(Owner(), "often", {"cost": 0})
    assert len(caught.value.problems) == 2


async def later(_request: object) -> str:
    return "ann"


def test_coroutine_function_of_a_view_without_an_event_loop_is_a_config_error_at_decoration() -> None:
    decoration = Decoration(Owner(), "5/m", {"key": later})
    with pytest.raises(ConfigError, match="has a coroutine function, but its view has no event loop"):
        decoration.of(view, wrap, on_loop=False, for_class="split")
    assert decoration.of(view, wrap, on_loop=True, for_class="split")()[1] == "hello"


def test_exempt_marks_functions_and_classes_and_what_wraps_them() -> None:
    def free() -> None: ...

    class Free: ...

    class Below(Free): ...

    assert exempt(free) is free
    assert exempt(Free) is Free
    wrapped = functools.wraps(free)(lambda: free())
    made = functools.partial(view)
    made.view_class = Free  # type: ignore[attr-defined]
    assert [is_exempt(each) for each in (free, Free, wrapped, made)] == [True] * 4
    assert [is_exempt(each) for each in (view, Below, None, 7)] == [False] * 4


def test_class_is_a_config_error_that_says_what_to_do_with_it() -> None:
    with pytest.raises(ConfigError, match="takes functions: split Shop"):
        decorated(Owner(), Shop)
    with pytest.raises(ConfigError, match="takes functions, not 7"):
        decorated(Owner(), 7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ({"rate": "5/m"}, {"rate": "9/m"}),
        ({"on_failure": "allow"}, {}),
        ({}, {"refund_when": lambda status, headers: True}),
        ({"rate": None, "rates": {"free": "5/m"}, "plan": len}, {}),
    ],
)
def test_stacked_limits_of_one_name_that_would_not_count_together_are_a_config_error(inner: Any, outer: Any) -> None:
    owner = Owner()
    below = decorated(owner, view, name="a", **inner)
    with pytest.raises(
        ConfigError,
        match=r"two limits together are called 'a': .* the same rate, the same on_failure, and both a refund_when or none",
    ):
        decorated(owner, below, name="a", **outer)


def test_stacked_limits_of_one_name_and_rate_may_have_keys_of_their_own() -> None:
    owner = Owner()
    assert decorated(owner, decorated(owner, view, name="a"), name="a", key="global")()[0] == ["a", "a"]


def test_stacked_limits_of_one_name_and_rate_may_be_refunded_by_functions_of_their_own() -> None:
    owner = Owner()
    inner = decorated(owner, view, name="a", refund_when=lambda status, headers: status == 401)
    assert decorated(owner, inner, name="a", refund_when=lambda status, headers: status == 403)()[0] == ["a", "a"]


def test_limits_that_are_asked_for_at_a_place_have_numbers_within_a_request() -> None:
    first, second, other = (Decoration(Owner(), rate, {}) for rate in ("5/m", "5/m", "6/m"))
    for _ in range(2):
        met: dict[str, list[Decoration]] = {}
        names = [each.phase_at(view, "/a", met)[0].name for each in (first, second, other, first)]
        assert names == [f"{__name__}.view /a {end}" for end in ("5/m", "5/m#2", "6/m", "5/m")]
    assert second.phase_at(view, "/a", {})[0].name == f"{__name__}.view /a 5/m"
    assert Decoration(Owner(), "5/m", {"name": "a"}).phase_at(view, "/a", {})[0].name == "a"
