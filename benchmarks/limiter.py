"""One check in one thread: allowed, with one key and with a thousand, and refused."""

from functools import partial
from statistics import median

from benchmarks.contenders import CAPACITY, OURS, PEERS, PLENTY, SCARCE, Contender, floor, limits_moving, ours
from benchmarks.measure import interleaved, pace_ns, print_aim, print_table

ROUNDS = 51
CALLS = 2000  # more would make the moving window slow, which keeps each of them
ONE_KEY = ["user:1"]
KEYS = [f"user:{number}" for number in range(1000)]
CASES = {
    "one key, allowed": (ONE_KEY, PLENTY, 1.0),
    "1,000 keys, allowed": (KEYS, PLENTY, 1.2),
    "one key, refused": (ONE_KEY, SCARCE, 1.0),
}
FLOOR = "floor: dict, lock, clock"
CONTENDERS: dict[str, Contender] = {FLOOR: floor, OURS: ours, **PEERS, "limits, moving window": limits_moving}


def report() -> None:
    for title, (keys, rate, aim) in CASES.items():
        samplers = {
            name: pace_ns(partial(contender, *rate, CAPACITY), keys * (CALLS // len(keys)), warm=keys)
            for name, contender in CONTENDERS.items()
        }
        ns = {name: median(samples) for name, samples in interleaved(samplers, ROUNDS).items()}
        fastest_ns = min(ns[name] for name in PEERS)
        rows = {name: (own_ns, own_ns / ns[FLOOR], own_ns / fastest_ns) for name, own_ns in ns.items()}
        print_table(title, ("ns", "x floor", "x fastest peer"), rows)
        print_aim(f"{OURS} x fastest peer", ns[OURS] / fastest_ns, f"at most {aim}")
