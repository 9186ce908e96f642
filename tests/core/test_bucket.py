"""The token bucket against exact fractions: its promises at any rate, for any cost, under a clock that may run back."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jwtlimit_core import Rate
from jwtlimit_core.bucket import State, decide, level_at, refunded, take

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
NOW_NS = 10**15


def rate_of(limit: int, window_ns: int, burst: int) -> Rate:
    return Rate(limit, Fraction(window_ns, SECOND_NS), burst)


# Small numbers make every edge likely; large ones show that nothing is rounded or overflows.
rates = st.builds(rate_of, st.integers(1, 9), st.integers(1, 60), st.integers(1, 6)) | st.builds(
    rate_of, st.integers(1, 10**12), st.integers(1, 10**18), st.integers(1, 10**12)
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Rate, State, int, int]:
    """A rate, a state that it can be in, a now on either side of that state, and a possible cost."""
    rate = draw(rates)
    to_fill_ns = rate.capacity // rate.refill + 1
    state = (draw(st.integers(0, rate.capacity)), NOW_NS)
    now_ns = NOW_NS + draw(st.integers(-2 * to_fill_ns, 2 * to_fill_ns) | st.integers(-2, 2))
    return rate, state, now_ns, draw(st.integers(1, rate.burst))


def tokens(rate: Rate, state: State, now_ns: int) -> Fraction:
    """The tokens in the bucket by definition: in proportion to the time, up to the burst, and never backwards."""
    gained = Fraction(rate.limit * max(0, now_ns - state[1]), rate.window_ns)
    return min(Fraction(rate.burst), Fraction(state[0], rate.unit) + gained)


@given(questions())
def test_take_answers_and_counts_as_the_exact_fraction_does(question: tuple[Rate, State, int, int]) -> None:
    rate, state, now_ns, n = question
    there = tokens(rate, state, now_ns)
    allowed, (level, seen_ns) = take(state, rate, now_ns, n)
    assert allowed == (there >= n)
    assert Fraction(level, rate.unit) == (there - n if allowed else there)
    assert seen_ns == max(now_ns, state[1])


@given(questions())
def test_decide_after_a_take_reports_what_the_exact_fraction_says(question: tuple[Rate, State, int, int]) -> None:
    rate, state, now_ns, n = question
    allowed, after = take(state, rate, now_ns, n)
    decision = decide(after, rate, now_ns, n, name="a", allowed=allowed)
    left = tokens(rate, after, now_ns)
    assert decision.allowed == allowed
    assert decision.remaining == left // 1
    # The bucket is full at the reset and, unless it is full already, not full a nanosecond before.
    assert tokens(rate, after, now_ns + decision.reset_after_ns) == rate.burst
    assert decision.reset_after_ns == 0 or tokens(rate, after, now_ns + decision.reset_after_ns - 1) < rate.burst


@given(questions())
@example((rate_of(1, 3, 1), (0, NOW_NS), NOW_NS, 1))
@example((rate_of(7, 3, 5), (0, NOW_NS), NOW_NS - 10, 5))
def test_retry_after_of_a_refusal_is_exact_to_the_nanosecond(question: tuple[Rate, State, int, int]) -> None:
    rate, state, now_ns, n = question
    allowed, after = take(state, rate, now_ns, n)
    wait_ns = decide(after, rate, now_ns, n, name="a", allowed=allowed).retry_after_ns
    assert wait_ns is not None
    assert (wait_ns == 0) == allowed
    if not allowed:
        assert not take(after, rate, now_ns + wait_ns - 1, n)[0]
        assert take(after, rate, now_ns + wait_ns, n)[0]


@given(questions(), st.data())
def test_take_refused_changes_no_later_answer(question: tuple[Rate, State, int, int], data: st.DataObject) -> None:
    rate, state, now_ns, n = question
    allowed, after = take(state, rate, now_ns, n)
    if not allowed:
        later_ns = data.draw(st.integers(now_ns, now_ns + 2 * rate.capacity // rate.refill))
        assert level_at(after, rate, later_ns) == level_at(state, rate, later_ns)


@given(questions(), st.integers(1, 10**13))
def test_refunded_puts_tokens_back_up_to_the_burst(question: tuple[Rate, State, int, int], n: int) -> None:
    rate, state, _, _ = question
    level, seen_ns = refunded(state, rate, n)
    assert Fraction(level, rate.unit) == min(Fraction(rate.burst), Fraction(state[0], rate.unit) + n)
    assert seen_ns == state[1]


@st.composite
def journeys(draw: st.DrawFn) -> tuple[Rate, list[tuple[int, int]]]:
    """A rate and steps of (clock change, tokens): tokens below 0 are refunds."""
    rate = draw(rates)
    token_ns = rate.window_ns // rate.limit + 1
    change_ns = st.sampled_from([0, 1, token_ns - 1, token_ns, -token_ns]) | st.integers(
        -2 * rate.window_ns, 2 * rate.window_ns
    )
    return rate, draw(st.lists(st.tuples(change_ns, st.integers(-2, rate.burst)), min_size=2, max_size=25))


@given(journeys())
def test_take_in_every_interval_allows_at_most_the_burst_and_what_came_back(
    journey: tuple[Rate, list[tuple[int, int]]],
) -> None:
    rate, steps = journey
    now_ns, state = NOW_NS, None
    spent: list[tuple[int, int]] = []
    for change_ns, n in steps:
        now_ns += change_ns
        if n >= 0:
            allowed, state = take(state, rate, now_ns, n)
            spent.append((state[1], n * allowed))
        elif state is not None:
            state = refunded(state, rate, -n)
            spent.append((state[1], n))
    for start in range(len(spent)):
        for end in range(start, len(spent)):
            length_ns = spent[end][0] - spent[start][0]
            assert sum(n for _, n in spent[start : end + 1]) <= rate.burst + rate.limit * length_ns // rate.window_ns


@given(rates, st.data())
def test_decide_without_a_state_describes_a_full_bucket(rate: Rate, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, rate.burst))
    decision = decide(None, rate, NOW_NS, n, name="a")
    assert (decision.allowed, decision.remaining, decision.retry_after_ns, decision.reset_after_ns) == (True, rate.burst, 0, 0)


def polled(rate: Rate, step_ns: int, length_ns: int) -> list[int]:
    """The times, from 0, at which one token was had by asking in every *step_ns*."""
    state, passed = None, []
    for now_ns in range(0, length_ns + 1, step_ns):
        allowed, state = take(state, rate, now_ns, 1)
        if allowed:
            passed.append(now_ns)
    return passed


def test_take_once_an_hour_polled_every_7_s_gives_exactly_the_tokens_due() -> None:
    # With a burst of 1 the bucket is full from second 3600 to the poll at 3605, and a full bucket accrues nothing:
    # one passes at 0 and one at each multiple of 3605 s, of which 10 h have nine. With a burst of 2 no second is lost:
    # two at first, and one for each of the nine whole hours before the last poll at 35,994 s.
    passed = polled(rate_of(1, HOUR_NS, 1), 7 * SECOND_NS, 10 * HOUR_NS)
    assert passed == [3605 * SECOND_NS * hour for hour in range(10)]
    assert len(polled(rate_of(1, HOUR_NS, 2), 7 * SECOND_NS, 10 * HOUR_NS)) == 2 + 9


def test_take_59_a_minute_earns_the_full_entitlement() -> None:
    passed = polled(rate_of(59, 60 * SECOND_NS, 59), SECOND_NS // 50, 600 * SECOND_NS)
    assert len(passed) == 59 + 590


@pytest.mark.parametrize("rate", [rate_of(10, SECOND_NS, 10), rate_of(1, HOUR_NS, 5), rate_of(10**14, 1, 10**14)])
def test_take_after_ten_idle_years_finds_the_bucket_full_and_no_fuller(rate: Rate) -> None:
    now_ns = NOW_NS + 10 * 366 * 24 * HOUR_NS
    assert level_at((0, NOW_NS), rate, now_ns) == rate.capacity
    allowed, state = take((0, NOW_NS), rate, now_ns, rate.burst)
    assert (allowed, state) == (True, [0, now_ns])


def test_take_150_ms_after_the_last_of_ten_a_second_finds_one() -> None:
    rate = rate_of(10, SECOND_NS, 10)
    answers, state = [], (0, NOW_NS)
    for _ in range(2):
        allowed, state = take(state, rate, NOW_NS + 150_000_000, 1)
        answers.append(allowed)
    assert answers == [True, False]


def test_take_under_a_clock_set_back_an_hour_drains_nothing_and_waits_only_for_the_clock() -> None:
    rate, before_ns = rate_of(6, 60 * SECOND_NS, 6), NOW_NS - HOUR_NS
    state: State = (2 * rate.unit, NOW_NS)
    answers = []
    for _ in range(3):
        allowed, state = take(state, rate, before_ns, 1)
        answers.append(allowed)
    assert answers == [True, True, False]
    assert decide(state, rate, before_ns, 1, name="a", allowed=False).retry_after_ns == HOUR_NS + 10 * SECOND_NS


def test_decide_in_two_states_tells_two_waits() -> None:
    rate = rate_of(6, 60 * SECOND_NS, 6)
    waits = [decide((0, NOW_NS), rate, NOW_NS + s * SECOND_NS, 1, name="a").retry_after_ns for s in range(11)]
    assert waits == [s * SECOND_NS for s in range(10, -1, -1)]
