"""Claims types that applications write: postponed annotations, missing decorators, and their own validate()."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from jwtlimit_core import Claims, InvalidClaims, InvalidToken, RegisteredClaims
from jwtlimit_core.claims import claims_from, payload_of


@dataclass(kw_only=True)
class Checked(RegisteredClaims):
    role: str = "reader"

    def validate(self) -> object:
        if self.role == "raises":
            raise LookupError("no such role")
        if self.role == "refuses":
            raise InvalidClaims("ask an administrator")
        return {"returns False": False, "returns 0": 0, "returns True": True}.get(self.role)


Way = Callable[[str], object]


@pytest.fixture(
    params=[lambda role: payload_of(Checked(role=role)), lambda role: claims_from({"role": role}, Checked)],
    ids=["payload_of", "claims_from"],
)
def check(request: pytest.FixtureRequest) -> Way:
    """Bring `Checked` claims of a role through one of the two ways."""
    way: Way = request.param
    return way


@pytest.mark.parametrize("role", ["reader", "returns True", "returns 0"])
def test_validate_that_does_not_object_lets_pass(check: Way, role: str) -> None:
    assert check(role)


def test_validate_that_raises_gives_invalid_claims_with_its_cause(check: Way) -> None:
    with pytest.raises(InvalidClaims, match=r"Checked\.validate\(\) refused") as caught:
        check("raises")
    assert isinstance(caught.value.__cause__, LookupError)


def test_validate_that_raises_invalid_claims_passes_it_unchanged(check: Way) -> None:
    with pytest.raises(InvalidClaims, match=r"^ask an administrator$"):
        check("refuses")


def test_validate_that_returns_false_gives_invalid_claims(check: Way) -> None:
    with pytest.raises(InvalidClaims, match=r"Checked\.validate\(\) returned False"):
        check("returns False")


def test_postponed_annotations_of_a_class_in_a_function_are_resolved() -> None:
    @dataclass(kw_only=True)
    class Local(RegisteredClaims):
        groups: tuple[str, ...] = ()
        number: int | None = None

    assert claims_from({"groups": ["a"], "number": 1}, Local) == Local(groups=("a",), number=1)
    with pytest.raises(InvalidToken, match=r"claim 'number' must be int \| None, not str"):
        claims_from({"number": "1"}, Local)


def test_annotations_that_cannot_be_resolved_let_every_json_value_pass() -> None:
    class Level:
        """Known in this function only, so that no annotation of the class below is resolved."""

    @dataclass(kw_only=True)
    class Local(RegisteredClaims):
        level: Level | None = None
        number: int = 0

    assert claims_from({"level": 3, "number": "x"}, Local) == Local(level=3, number="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidClaims, match="claim 'level' is a Level, which JSON cannot carry"):
        payload_of(Local(level=Level()))


def test_a_class_that_only_adds_methods_needs_no_decorator() -> None:
    class Keyed(Claims):
        def rate_limit_key(self) -> str:
            return "k"

    assert claims_from({"sub": "u1", "plan": 1}, Keyed) == Keyed(sub="u1", extra={"plan": 1})


def test_a_class_that_adds_fields_without_the_decorator_raises_type_error() -> None:
    class Forgotten(RegisteredClaims):
        tenant: str = "acme"

    for way in (lambda: payload_of(Forgotten()), lambda: claims_from({}, Forgotten)):
        with pytest.raises(TypeError, match="decorate it with @dataclass"):
            way()


def test_a_class_with_slots_goes_both_ways() -> None:
    @dataclass(kw_only=True, slots=True)
    class Slotted(RegisteredClaims):
        tenant: str = "acme"

    assert claims_from(payload_of(Slotted(sub="u1", tenant="b")), Slotted) == Slotted(sub="u1", tenant="b")


def test_a_value_with_comparisons_of_its_own_is_refused_like_any() -> None:
    class Array:
        def __eq__(self, other: object) -> Any:
            raise ValueError("ambiguous")

        __bool__ = __hash__ = __eq__  # type: ignore[assignment]

    with pytest.raises(InvalidClaims, match="claim 'permissions' is a Array"):
        payload_of(Claims(permissions=Array()))  # type: ignore[arg-type]
