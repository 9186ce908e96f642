"""A flood of keys never seen before, at a limiter that is full: what a call costs on average, and the worst single one."""

from functools import partial
from statistics import median
from time import perf_counter_ns, process_time_ns, thread_time_ns

from benchmarks.contenders import CAPACITY, OURS, PEERS, PLENTY, Contender, ours
from benchmarks.measure import interleaved, print_aim, print_table

FLOOD = 200_000
LARGE = 1_000_000


def nothing(_limit: int, _window_s: int, _capacity: int) -> type[bool]:
    """Show what the machine alone does to a call."""
    return bool


def flood(contender: Contender, capacity: int) -> tuple[float, float, float]:
    """Fill a limiter and flood it twice: once for the average, once for the worst call.

    Returns:
        Nanoseconds per call, and milliseconds of the worst one: of the processor, and by the clock on the wall.
    """
    check = contender(*PLENTY, capacity)
    for number in range(capacity):
        check(f"old:{number}")
    keys = [f"new:{number}" for number in range(FLOOD)]
    begin_ns = process_time_ns()
    for key in keys:
        check(key)
    mean_ns = (process_time_ns() - begin_ns) / FLOOD
    worst_ns = worst_wall_ns = 0
    for key in [f"newer:{number}" for number in range(FLOOD)]:
        wall_ns, begin_ns = perf_counter_ns(), thread_time_ns()
        check(key)
        worst_ns = max(worst_ns, thread_time_ns() - begin_ns)
        worst_wall_ns = max(worst_wall_ns, perf_counter_ns() - wall_ns)
    return mean_ns, worst_ns / 1_000_000, worst_wall_ns / 1_000_000


def floods(contenders: dict[str, Contender], capacity: int, rounds: int) -> dict[str, list[tuple[float, float, float]]]:
    return interleaved({name: partial(flood, contender, capacity) for name, contender in contenders.items()}, rounds)


def report() -> None:
    usual = floods({"nothing": nothing, OURS: ours}, CAPACITY, 5)
    usual |= floods(PEERS, CAPACITY, 1)  # once will do: they are far off
    for capacity, samples in (CAPACITY, usual), (LARGE, floods({OURS: ours}, LARGE, 2)):
        rows = {}
        for name, figures in samples.items():
            means_ns, worsts_ms, walls_ms = zip(*figures, strict=True)
            rows[name] = (median(means_ns), median(worsts_ms), max(worsts_ms), median(walls_ms))
        columns = ("ns per call", "worst ms, median flood", "worst flood", "by the wall clock")
        print_table(f"{FLOOD:,} new keys, {capacity:,} kept", columns, rows)
    worst_ms = median(worst_ms for _, worst_ms, _ in usual[OURS])
    print_aim(f"{OURS}, worst call of a flood at {CAPACITY:,} in ms", worst_ms, "at most 1")
