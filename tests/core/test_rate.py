"""Rate: what is accepted, what it means to the nanosecond, and how it is written and read back."""

import copy
import pickle
from datetime import timedelta
from fractions import Fraction
from math import gcd, inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jwtlimit_core import ConfigError, JWTLimitError, Rate

SECOND_NS = 10**9
LARGEST_COUNT = 10**15 - 1
LARGEST_WINDOW_NS = timedelta.max // timedelta(microseconds=1) * 1000
# Python refuses to convert so many digits to text, and pytest would to make an id of it.
TOO_LONG_TO_PRINT = pytest.param(10**5000, id="too-long-to-print")

counts = st.integers(1, 1000) | st.integers(1, LARGEST_COUNT)
# Whole multiples of the units are rare among random nanoseconds, and take another path through str().
windows_ns = st.integers(1, LARGEST_WINDOW_NS) | st.builds(
    lambda count, unit_ns: count * unit_ns,
    st.integers(1, 400),
    st.sampled_from([1, 10**3, 10**6, SECOND_NS, 60 * SECOND_NS, 3600 * SECOND_NS, 86400 * SECOND_NS]),
)


@pytest.mark.parametrize(
    ("window", "nanoseconds"),
    [
        (timedelta(days=1), 86_400 * SECOND_NS),
        (timedelta(minutes=1), 60 * SECOND_NS),
        (timedelta(microseconds=1), 1000),
        (timedelta.max, LARGEST_WINDOW_NS),
        (60, 60 * SECOND_NS),
        (86_400, 86_400 * SECOND_NS),
        (0.1, 100_000_000),
        (0.6, 600_000_000),
        (1e-9, 1),
        (2.5, 2_500_000_000),
        (Fraction(1, SECOND_NS), 1),
        (Fraction(10_000_000_001, SECOND_NS), 10_000_000_001),
        (Fraction(LARGEST_WINDOW_NS, SECOND_NS), LARGEST_WINDOW_NS),
    ],
)
def test_rate_window_is_kept_in_exact_nanoseconds(window: timedelta | float | Fraction, nanoseconds: int) -> None:
    assert Rate(1, window).window_ns == nanoseconds


@pytest.mark.parametrize("count", [0, -1, LARGEST_COUNT + 1, TOO_LONG_TO_PRINT, True, False, 1.0, nan, inf, "5", None, b"5"])
def test_rate_with_a_limit_that_is_no_count_is_a_config_error(count: object) -> None:
    with pytest.raises(ConfigError, match="limit must be an int from 1") as caught:
        Rate(count, 60)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("count", [0, -1, LARGEST_COUNT + 1, TOO_LONG_TO_PRINT, True, False, 1.0, nan, inf, "5", b"5"])
def test_rate_with_a_burst_that_is_no_count_is_a_config_error(count: object) -> None:
    with pytest.raises(ConfigError, match="burst must be an int from 1") as caught:
        Rate(5, 60, count)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    "window",
    [
        *(0, 0.0, -1, -0.5, nan, inf, -inf, 1e-10, 1e300, TOO_LONG_TO_PRINT, True, False, "60", None, [60]),
        *(timedelta(0), timedelta(seconds=-1), timedelta.min, Fraction(1, 10**10), Fraction(-1)),
        Fraction(LARGEST_WINDOW_NS + 1, SECOND_NS),
    ],
)
def test_rate_with_a_window_that_is_no_length_of_time_is_a_config_error(window: object) -> None:
    with pytest.raises(ConfigError, match="window must be a timedelta or a number of seconds"):
        Rate(5, window)  # type: ignore[arg-type]


def test_rate_with_several_bad_values_names_them_all_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Rate(0, nan, -1)
    assert [problem.split()[0] for problem in caught.value.problems] == ["limit", "burst", "window"]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, JWTLimitError)


def test_rate_with_a_bad_value_of_any_length_gives_a_short_message() -> None:
    with pytest.raises(ConfigError) as caught:
        Rate("9" * 10_000, "9" * 10_000, "9" * 10_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 1000


def test_rate_without_a_burst_has_the_limit_as_its_burst() -> None:
    assert Rate(7, 60).burst == 7
    assert Rate(7, 60, 70).burst == 70


@given(counts, windows_ns, counts)
def test_rate_units_are_the_rate_in_lowest_terms(limit: int, window_ns: int, burst: int) -> None:
    rate = Rate(limit, Fraction(window_ns, SECOND_NS), burst)
    assert Fraction(rate.refill, rate.unit) == Fraction(limit, window_ns)
    assert gcd(rate.refill, rate.unit) == 1
    assert rate.capacity == burst * rate.unit


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/m", Rate(100, 60)),
        ("5/30s", Rate(5, 30)),
        ("1000/h", Rate(1000, 3600)),
        ("3/d", Rate(3, 86_400)),
        ("7/250ms", Rate(7, 0.25)),
        ("7/us", Rate(7, 1e-6)),
        ("7/3ns", Rate(7, Fraction(3, SECOND_NS))),
        ("10/s;burst=50", Rate(10, 1, 50)),
        ("10 / 2 s ; BURST = 50 ", Rate(10, 2, 50)),
        ("100 per minute", Rate(100, 60)),
        ("100 PER Minutes", Rate(100, 60)),
        ("100 per 5 minutes", Rate(100, 300)),
        ("2 per sec", Rate(2, 1)),
        ("2/10secs", Rate(2, 10)),
        ("2/second", Rate(2, 1)),
        ("2/seconds", Rate(2, 1)),
        ("2/min", Rate(2, 60)),
        ("2/15mins", Rate(2, 900)),
        ("2/hour", Rate(2, 3600)),
        ("2/2hours", Rate(2, 7200)),
        ("2/day", Rate(2, 86_400)),
        (" 2/7days\n", Rate(2, 604_800)),
    ],
)
def test_rate_parse_reads_every_documented_form(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "100",
            "/m",
            "100/",
            "100//m",
            "100/fortnight",
            "100/5",
            "-1/m",
            "1.5/m",
            "100/0.5s",
            "1e3/m",
            "100perminute",
        ),
        *("0/m", "100/0s", "100/m;burst=0", "100/m;burst=", "100/m;burst", "100/m;burst=5;burst=6", "100/m;b=5", "100/m extra"),
        *("9999999999999999/m", "1/999999999999999d", "\u0661/m", "1/\u017f"),
        pytest.param("1/" + " " * 50_000 + "5", id="many-spaces"),
        *(b"100/m", None, 100, ("100/m",)),
    ],
)
def test_rate_parse_of_anything_else_is_a_config_error(text: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Rate.parse(text)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


@given(counts, windows_ns, counts | st.none())
@example(1, LARGEST_WINDOW_NS, None)
@example(1, LARGEST_WINDOW_NS - 1, LARGEST_COUNT)
def test_rate_as_text_is_read_back_as_the_same_rate(limit: int, window_ns: int, burst: int | None) -> None:
    rate = Rate(limit, Fraction(window_ns, SECOND_NS), burst)
    assert Rate.parse(str(rate)) == rate


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(100, timedelta(minutes=1)), "100/m"),
        (Rate(5, 30), "5/30s"),
        (Rate(1, timedelta(days=7)), "1/7d"),
        (Rate(10, 1, 50), "10/s;burst=50"),
        (Rate(10, 1, 10), "10/s"),
        (Rate(3, 90), "3/90s"),
        (Rate(13, Fraction(10_000_000_001, SECOND_NS)), "13/10000000001ns"),
    ],
)
def test_rate_as_text_uses_the_largest_unit_that_divides_the_window(rate: Rate, text: str) -> None:
    assert str(rate) == text


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda rate: pickle.loads(pickle.dumps(rate))])
def test_rate_copied_or_pickled_is_equal_in_every_field(copied) -> None:  # type: ignore[no-untyped-def]
    rate = Rate(6, 60, 20)
    twin = copied(rate)
    assert twin == rate
    assert hash(twin) == hash(rate)
    assert (twin.refill, twin.unit, twin.capacity) == (rate.refill, rate.unit, rate.capacity)


@pytest.mark.parametrize("name", ["limit", "window_ns", "burst", "refill", "unit", "capacity", "other"])
def test_rate_cannot_be_changed(name: str) -> None:
    rate = Rate(6, 60)
    with pytest.raises((AttributeError, TypeError)):
        setattr(rate, name, 1)
    assert rate == Rate(6, 60)


def test_rate_equality_regards_limit_window_and_burst() -> None:
    assert len({Rate(6, 60), Rate(6, 60.0, 6), Rate(1, 10), Rate(6, 61), Rate(6, 60, 7)}) == 4
