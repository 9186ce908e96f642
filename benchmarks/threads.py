"""Many threads on one key: how much they get done together, and how long the slow calls take."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from threading import Barrier, Event
from time import perf_counter_ns, sleep

from benchmarks.contenders import CAPACITY, OURS, PEERS, PLENTY, Contender, ours, ours_blocking
from benchmarks.measure import Call, interleaved, print_aim, print_table

ROUNDS = 3
COUNTS = (1, 8, 32)
SECONDS = 0.2
CHUNK = 50  # calls between two looks at whether it is time to stop
KEY = "user:1"
CONTENDERS: dict[str, Contender] = {OURS: ours, f"{OURS} within a threading.Lock": ours_blocking, **PEERS}


def crowd(count: int, chunk: Callable[[], None]) -> float:
    """Let *count* threads call *chunk* again and again for `SECONDS`; return the million calls a second of all together."""
    start, stop = Barrier(count + 1), Event()

    def work() -> tuple[int, int, int]:
        start.wait()
        begin_ns, chunks = perf_counter_ns(), 0
        while not stop.is_set():
            chunk()
            chunks += 1
        return chunks, begin_ns, perf_counter_ns()

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work) for _ in range(count)]
        start.wait()
        sleep(SECONDS)
        stop.set()
    results = [future.result() for future in futures]
    elapsed_ns = max(end_ns for _, _, end_ns in results) - min(begin_ns for _, begin_ns, _ in results)
    return sum(chunks for chunks, _, _ in results) * CHUNK * 1000 / elapsed_ns


def throughput(make: Callable[[], Call], count: int) -> float:
    check = make()

    def chunk() -> None:
        for _ in range(CHUNK):
            check(KEY)

    return crowd(count, chunk)


def slow_call_us(make: Callable[[], Call], count: int) -> float:
    """Return the time that one call in a thousand exceeds, in microseconds."""
    check = make()
    latencies_ns: list[int] = []

    def chunk() -> None:
        for _ in range(CHUNK):
            begin_ns = perf_counter_ns()
            check(KEY)
            latencies_ns.append(perf_counter_ns() - begin_ns)

    crowd(count, chunk)
    return sorted(latencies_ns)[len(latencies_ns) * 999 // 1000] / 1000


def report() -> None:
    samplers = {
        (title, count, name): partial(sampler, partial(contender, *PLENTY, CAPACITY), count)
        for title, sampler, counts in (("M/s", throughput, COUNTS), ("p99.9 µs", slow_call_us, COUNTS[1:]))
        for count in counts
        for name, contender in CONTENDERS.items()
    }
    figures = {which: median(samples) for which, samples in interleaved(samplers, ROUNDS).items()}
    columns = {f"{title}, {count}": (title, count) for title, count, _ in figures}
    rows = {name: [figures[*column, name] for column in columns.values()] for name in CONTENDERS}
    print_table("checks of one key, by threads", list(columns), rows)
    eight_times = figures["M/s", 8, OURS] / figures["M/s", 1, OURS]
    print_aim(f"{OURS}, throughput of 8 threads x that of one", eight_times, "at least 0.8")
