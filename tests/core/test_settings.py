"""The reading of settings: every name, every problem, all at once."""

from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jwtlimit_core import Claims, ConfigError, Limit, Processor, Rate, RateLimitExceeded, RegisteredClaims
from jwtlimit_core.flow import run
from jwtlimit_core.settings import build_engine
from jwtlimit_core.testing import ManualClock

SECRET = "a-secret-that-nobody-must-ever-see"


class Peer:
    """A request of nothing but an address."""

    method = "POST"
    raw = None

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def header(self, name: str) -> str | None:
        return None


def processor(**values: Any) -> Processor:
    return build_engine({"SECRET_KEY": SECRET, **values}).processor(enabled=True)


def problems(prefix: str = "", **values: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        build_engine(values, prefix=prefix)
    return caught.value.problems


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRET_KEY", SECRET.encode()),
        ("ALGORITHM", "HS256"),
        ("ISSUER", "auth.example"),
        ("AUDIENCE", ["api", "web"]),
        ("ACCESS_TOKEN_TTL", timedelta(minutes=1)),
        ("REFRESH_TOKEN_TTL", 3600),
        ("LEEWAY", 0),
    ],
)
def test_setting_of_tokens_reaches_the_configuration(name: str, value: object) -> None:
    assert getattr(processor(**{name: value}).config, name.lower()) == value


def test_settings_of_key_pairs_reach_the_configuration() -> None:
    private = Ed25519PrivateKey.generate()
    issuer = build_engine({"SIGNING_KEY": private, "ALGORITHM": "EdDSA"}).processor(enabled=True)
    reader = build_engine({"VERIFICATION_KEY": private.public_key(), "ALGORITHM": "EdDSA"}).processor(enabled=True)
    assert reader.validate(issuer.create(Claims(sub="ann"))).sub == "ann"


@pytest.mark.parametrize(("rate", "burst"), [("2/m", 2), (Rate(1, 60, 3), 3), (None, 100)])
def test_setting_issue_rate_limits_issuance(rate: str | Rate | None, burst: int) -> None:
    engine = build_engine({"SECRET_KEY": SECRET, "ISSUE_RATE": rate}, clock=ManualClock())
    for _ in range(burst):
        engine.processor(enabled=True).create(Claims(sub="ann"))
    with pytest.raises(RateLimitExceeded) as caught:
        engine.processor(enabled=True).create(Claims(sub="ann"))
    assert caught.value.decision.name == "issue"


class Provider:
    """A limiter of the application's own, which has used up everything."""

    def allow(self, key: str) -> bool:
        return False

    def reset(self, key: str) -> None: ...

    def close(self) -> None: ...


def test_setting_store_may_be_a_limiter_of_the_application() -> None:
    engine = build_engine({"SECRET_KEY": SECRET, "STORE": Provider(), "ISSUE_RATE": "5/30s"})
    engine.reset_all()  # which it need not have
    with pytest.raises(RateLimitExceeded) as caught:
        engine.processor(enabled=True).create(Claims(sub="ann"))
    assert caught.value.retry_after == 30
    with pytest.raises(ConfigError, match="no key is set"):
        build_engine({"STORE": Provider()}).processor(enabled=True)


def test_setting_headers_switches_the_headers_of_good_answers() -> None:
    limits = [Limit("login", "5/m")]
    assert run(build_engine({}).admit(Peer("::1"), limits)) != ()
    assert run(build_engine({"HEADERS": False}).admit(Peer("::1"), limits)) == ()


@pytest.mark.parametrize(("bits", "neighbour"), [(None, "r=3"), (128, "r=4"), (1, "r=3")])
def test_setting_ipv6_prefix_groups_addresses(bits: int | None, neighbour: str) -> None:
    engine = build_engine({"IPV6_PREFIX": bits})
    limits = [Limit("login", "5/m")]
    run(engine.admit(Peer("2001:db8::1"), limits))
    assert neighbour in dict(run(engine.admit(Peer("2001:db8::2"), limits)))["RateLimit"]


def test_settings_that_are_none_count_as_not_set() -> None:
    names = ["ALGORITHM", "ISSUER", "AUDIENCE", "LEEWAY", "ACCESS_TOKEN_TTL", "ENABLED", "HEADERS", "IPV6_PREFIX", "ISSUE_RATE"]
    config = processor(**dict.fromkeys([*names, "SIGNING_KEY", "VERIFICATION_KEY"])).config
    assert (config.algorithm, config.issuer, config.leeway) == ("HS256", "jwt-service", timedelta(seconds=5))
    with pytest.raises(ConfigError, match="no key is set"):
        build_engine({"SECRET_KEY": None}).processor(enabled=True)


def test_settings_take_hooks_and_a_clock_beside_them() -> None:
    seen: list[RegisteredClaims] = []
    clock = ManualClock(time_ns=0)
    engine = build_engine({"SECRET_KEY": SECRET}, before_issue=seen.append, clock=clock)
    token = engine.processor(enabled=True).create(Claims(sub="ann"))
    assert [claims.sub for claims in seen] == ["ann"]
    assert engine.processor(enabled=True).validate(token).iat == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ISUE_RATE", "JWTLIMIT_ISUE_RATE is no setting: did you mean JWTLIMIT_ISSUE_RATE?"),
        ("SECRET", "JWTLIMIT_SECRET is no setting: did you mean JWTLIMIT_SECRET_KEY?"),
        ("ZZZ", "JWTLIMIT_ZZZ is no setting"),
    ],
)
def test_setting_of_an_unknown_name_is_refused_with_the_nearest(name: str, message: str) -> None:
    assert problems("JWTLIMIT_", **{name: 1}) == (message,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENABLED", "yes"),
        ("ENABLED", 1),
        ("HEADERS", "no"),
        ("IPV6_PREFIX", 0),
        ("IPV6_PREFIX", 129),
        ("IPV6_PREFIX", True),
        ("IPV6_PREFIX", "64"),
        ("ISSUE_RATE", "often"),
        ("ISSUE_RATE", 5),
        ("SECRET_KEY", "short"),
        ("ALGORITHM", "none"),
        ("ISSUER", ""),
        ("AUDIENCE", []),
        ("ACCESS_TOKEN_TTL", 0),
        ("REFRESH_TOKEN_TTL", "a day"),
        ("LEEWAY", -1),
        ("STORE", "http://localhost"),
        ("STORE", 7),
        ("STRATEGY", "leaky_bucket"),
        ("STRATEGY", "fixed_window"),  # in memory there is the bucket alone
        ("ON_FAILURE", "hope"),
        ("KEY_PREFIX", ""),
    ],
)
def test_setting_with_a_bad_value_is_named_with_its_prefix(name: str, value: object) -> None:
    (problem,) = problems("JWTLIMIT_", **{"SECRET_KEY": SECRET, name: value})
    assert problem.startswith(f"JWTLIMIT_{name}")
    assert SECRET not in problem


def test_settings_with_several_problems_name_them_all() -> None:
    values = {
        "ENABLED": "yes",
        "HEADERS": 0,
        "IPV6_PREFIX": 0,
        "ISSUE_RATE": "often",
        "LEEWAY": -1,
        "SECRET_KEY": "short",
        "X": 1,
    }
    named = [problem.split()[0].rstrip(":") for problem in problems("JWTLIMIT_", **values)]
    assert sorted(named) == sorted(f"JWTLIMIT_{name}" for name in values)


def test_settings_of_keys_that_exclude_each_other_are_named_as_settings() -> None:
    (problem,) = problems("JWTLIMIT_", SECRET_KEY=SECRET, SIGNING_KEY="pem")
    assert "HS256 takes JWTLIMIT_SECRET_KEY: JWTLIMIT_SIGNING_KEY and JWTLIMIT_VERIFICATION_KEY are for" in problem


def test_settings_with_a_bad_hook_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^before_issue must be callable"):
        build_engine({"SECRET_KEY": SECRET}, before_issue=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values",
    [
        {"SECRET_KEY": "Tr0ub4dor"},
        {"SIGNING_KEY": "Tr0ub4dor", "ALGORITHM": "RS256"},
        {"VERIFICATION_KEY": "-----BEGIN PUBLIC KEY-----\nTr0ub4dor\n-----END PUBLIC KEY-----", "ALGORITHM": "ES256"},
        {"SIGNING_KEY": "Tr0ub4dor", "SECRET_KEY": "Tr0ub4dor"},
        {"SECRET_KEY": ["Tr0ub4dor"]},
        {"STORE": "http://:Tr0ub4dor@localhost"},
    ],
)
def test_settings_with_a_bad_key_keep_it_out_of_the_message(values: dict[str, object]) -> None:
    assert "Tr0ub4dor" not in " ".join(problems("JWTLIMIT_", **values))
