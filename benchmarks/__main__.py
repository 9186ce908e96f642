"""``python -m benchmarks [section …]``: measure and print the tables; nothing fails for being slow."""

import argparse
import platform
import time

from benchmarks import flood, frameworks, limiter, store, threads, tokens

SECTIONS = {
    "limiter": limiter.report,
    "threads": threads.report,
    "flood": flood.report,
    "tokens": tokens.report,
    "store": store.report,
    "frameworks": frameworks.report,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; all where none is named")
    sections = parser.parse_args().sections or SECTIONS
    if unknown := set(sections).difference(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    print(f"Python {platform.python_version()}, {platform.machine()}; medians of rounds in turn, garbage collector off")
    started_s = time.monotonic()
    for name in sections:
        SECTIONS[name]()
    print(f"\n{time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    main()
