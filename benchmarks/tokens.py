"""Tokens: issued under a limit, and validated, beside what PyJWT alone takes for the same payload."""

from collections.abc import Callable
from functools import partial
from statistics import median

import jwt

from benchmarks.contenders import OURS, PLENTY
from benchmarks.measure import Call, interleaved, pace_ns, print_aim, print_table
from jwtlimit_core import Claims, Config, Processor, RateLimiter

ROUNDS = 51
CALLS = 250
ALGORITHM = "HS256"
SECRET = "thirty-two bytes or more, as RFC 7518 section 3.2 asks"
PAIRS = ((f"{OURS}: create, limited", "PyJWT: encode", "at most 0.7"), (f"{OURS}: validate", "PyJWT: decode", "at most 1.0"))


def report() -> None:
    config = Config(secret_key=SECRET, algorithm=ALGORITHM, rate_limiter=RateLimiter(*PLENTY))
    processor = Processor(config)
    claims = Claims(sub="user:1")
    token = processor.create(claims)
    payload = jwt.decode(token, SECRET, algorithms=[ALGORITHM])
    (create, encode, _), (validate, decode, _) = PAIRS
    calls: dict[str, tuple[Callable[[], Call], object]] = {
        create: (lambda: processor.create, claims),
        encode: (lambda: partial(jwt.encode, key=SECRET, algorithm=ALGORITHM), payload),
        validate: (lambda: processor.validate, token),
        decode: (lambda: partial(jwt.decode, key=SECRET, algorithms=[ALGORITHM], issuer=config.issuer), token),
    }
    samplers = {name: pace_ns(make, [argument] * CALLS, [argument] * 10) for name, (make, argument) in calls.items()}
    us = {name: median(samples) / 1000 for name, samples in interleaved(samplers, ROUNDS).items()}
    rows = {name: (us[name], us[name] / us[alone]) for ours, alone, _ in PAIRS for name in (ours, alone)}
    print_table(f"{ALGORITHM}, {len(payload)} claims", ("µs", "x PyJWT"), rows)
    for ours, alone, aim in PAIRS:
        print_aim(f"{ours} x {alone}", us[ours] / us[alone], aim)
