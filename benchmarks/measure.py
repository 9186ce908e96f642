"""Figures that mean something on a busy machine: contenders take turns, the garbage collector is off, medians count."""

import gc
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import shuffle
from time import process_time_ns
from timeit import Timer
from typing import Any, TypeVar

__all__ = ["Call", "interleaved", "pace_ns", "print_aim", "print_table"]

Call = Callable[[Any], object]
Name = TypeVar("Name", bound=Hashable)
Sample = TypeVar("Sample")


def interleaved(samplers: Mapping[Name, Callable[[], Sample]], rounds: int) -> dict[Name, list[Sample]]:
    """Return *rounds* samples from each sampler; in each round all are asked, in an order of its own."""
    samples: dict[Name, list[Sample]] = {name: [] for name in samplers}
    order = list(samplers)
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        shuffle(order)
        for name in order:
            samples[name].append(samplers[name]())
        gc.enable()
    return samples


def pace_ns(make: Callable[[], Call], arguments: Sequence[object], warm: Sequence[object]) -> Callable[[], float]:
    """Return a sampler of the nanoseconds per call: a new call from *make*, warmed up, then once with each argument.

    They are nanoseconds of the processor, which other processes on the machine disturb least.
    """
    timer = Timer(  # it compiles a loop for each sampler: no contender runs on what the interpreter learned of another
        "for argument in arguments: call(argument)",
        "call = make()\nfor argument in warm: call(argument)",
        timer=process_time_ns,
        globals={"make": make, "arguments": arguments, "warm": warm},
    )
    return lambda: timer.timeit(1) / len(arguments)


def print_table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[float]]) -> None:
    """Print a table in Markdown, with two decimals in figures below 100."""
    lines = [(title, *columns)]
    lines += [(name, *(f"{figure:.{0 if figure >= 100 else 2}f}" for figure in figures)) for name, figures in rows.items()]
    first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
    lines.insert(1, ("-" * first, *("-" * (width - 1) + ":" for width in others)))
    print()
    for name, *row in lines:
        print("|", " | ".join((name.ljust(first), *map(str.rjust, row, others))), "|")


def print_aim(what: str, figure: float, aim: str) -> None:
    """Print a figure beside what it should be."""
    print(f"{what}: {figure:.2f}; aim {aim}", flush=True)
