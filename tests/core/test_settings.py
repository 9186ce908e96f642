"""The reading of settings: every name, every problem, all at once."""

from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jwtlimit_core import Claims, ConfigError, Limit, Processor, Rate, RateLimitExceeded, RegisteredClaims
from jwtlimit_core.settings import _NAMES, Settings, build_engine
from jwtlimit_core.testing import ManualClock
from views import View, enters, headers, passed

SECRET = "a-secret-that-nobody-must-ever-see"


async def later(view: object) -> str:
    return "ann"


def test_setting_user_key_may_be_a_dotted_name() -> None:
    engine = build_engine({"USER_KEY": f"{__name__}.user_of", "CLOCK": ManualClock()}, knows_users=False)
    limit = Limit("user", "2/m", key="user")
    assert [passed(engine, View(name=name), limit, of=3) for name in ("ann", "bob", None)] == [2, 2, 3]


def test_settings_as_keywords_are_all_settings() -> None:
    assert sorted(Settings.__annotations__) == sorted(name.lower() for name in _NAMES)


def processor(**values: Any) -> Processor:
    return build_engine({"SECRET_KEY": SECRET, **values}).processor(enabled=True)


def problems(prefix: str = "", **values: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        build_engine(values, named=f"{prefix}{{}}".format)
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
    engine = build_engine({"SECRET_KEY": SECRET, "ISSUE_RATE": rate, "CLOCK": ManualClock()})
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
    (problem,) = problems("JWTLIMIT_", STORE=Provider())
    assert problem.startswith("JWTLIMIT_STORE is a limiter of your own, which limits issuance: set JWTLIMIT_SECRET_KEY, ")


def test_processor_without_a_key_names_the_settings_as_the_framework_does() -> None:
    with pytest.raises(ConfigError, match="set secret_key, signing_key or verification_key to issue"):
        build_engine({}, named=str.lower).processor()


def test_setting_headers_switches_the_headers_of_good_answers() -> None:
    limit = Limit("login", "5/m")
    assert headers(build_engine({}), View(), limit) != ()
    assert headers(build_engine({"HEADERS": False}), View(), limit) == ()


@pytest.mark.parametrize(("bits", "neighbour"), [(None, "r=3"), (128, "r=4"), (1, "r=3")])
def test_setting_ipv6_prefix_groups_addresses(bits: int | None, neighbour: str) -> None:
    engine = build_engine({"IPV6_PREFIX": bits})
    limit = Limit("login", "5/m")
    headers(engine, View(peer="2001:db8::1"), limit)
    assert neighbour in dict(headers(engine, View(peer="2001:db8::2"), limit))["RateLimit"]


def test_settings_that_are_none_count_as_not_set() -> None:
    names = ["ALGORITHM", "ISSUER", "AUDIENCE", "LEEWAY", "ACCESS_TOKEN_TTL", "ENABLED", "HEADERS", "IPV6_PREFIX", "ISSUE_RATE"]
    config = processor(**dict.fromkeys([*names, "SIGNING_KEY", "VERIFICATION_KEY"])).config
    assert (config.algorithm, config.issuer, config.leeway) == ("HS256", "jwt-service", timedelta(seconds=5))
    with pytest.raises(ConfigError, match="no key is set"):
        build_engine({"SECRET_KEY": None}).processor(enabled=True)


def test_settings_take_hooks_and_a_clock() -> None:
    seen: list[RegisteredClaims] = []
    clock = ManualClock(time_ns=0)
    engine = build_engine({"SECRET_KEY": SECRET, "BEFORE_ISSUE": seen.append, "CLOCK": clock})
    token = engine.processor(enabled=True).create(Claims(sub="ann"))
    assert [claims.sub for claims in seen] == ["ann"]
    assert engine.processor(enabled=True).validate(token).iat == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ISUE_RATE", "JWTLIMIT_ISUE_RATE is no setting: did you mean JWTLIMIT_ISSUE_RATE?"),
        ("SECRET", "JWTLIMIT_SECRET is no setting: did you mean JWTLIMIT_SECRET_KEY?"),
        ("issue_rate", "JWTLIMIT_issue_rate is no setting: did you mean JWTLIMIT_ISSUE_RATE?"),
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
        ("STORE_TIMEOUT", 0),
        ("STORE_TIMEOUT", "soon"),
        ("KEY_SECRET", b""),
        ("KEY_SECRET", b"x" * 65),
        ("KEY_SECRET", "a text"),
        ("USER_KEY", 7),
        ("ON_REFUSED", 7),
        ("ON_REFUSED", later),
        ("ENABLED", later),
        ("BEFORE_ISSUE", 7),
        ("USER_KEY", "no.such.module.name"),
        ("ON_REFUSED", "os.path.no_such_name"),
        ("BEFORE_ISSUE", "undotted"),
        ("CLOCK", "math.pi"),
        ("CLOCK", object()),
        ("EXEMPT_PATHS", "/healthz"),
        ("EXEMPT_PATHS", ["healthz"]),
        ("EXEMPT_PATHS", ["/"]),  # everything
        ("EXEMPT_PATHS", [7]),
        ("EXEMPT_PATHS", 7),
        ("EXEMPT_PATHS", ["/healthz?x=1"]),
        ("CLOCK", ManualClock),  # the class, whose functions are of its objects
        ("CLOCK", "time"),
        ("STORE", "redis://localhost:99999/0"),
        ("TRUSTED_PROXIES", "10.0.0.0/8"),
        ("TRUSTED_PROXIES", ["0.0.0.0/0"]),
        ("FORWARDED_HEADER", "X-Real-IP"),
        ("LIMITS", "5/m"),
        ("LIMITS", {"name": "login", "rate": "5/m"}),
        ("LIMITS", ["5/m"]),
        ("LIMITS", [{"name": "login", "rate": "often"}]),
        ("LIMITS", [{"name": "login", "rat": "5/m"}]),
        ("LIMITS", [Limit("login", "5/m"), Limit("login", "9/m")]),
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


def test_settings_with_problems_of_every_kind_name_them_all() -> None:
    with pytest.raises(ConfigError) as caught:
        build_engine(
            {
                "ISSUE_RATE": "often",
                "LIMITS": [Limit("me", "1/m", key="user"), Limit("api", "1/m", key="subject"), Limit("slow", "1/m", key=later)],
                "STORE": "redis://localhost:99999/0",
                "USER_KEY": None,
                "X": 1,
            },
            host="sync",
            knows_users=False,
        )
    words = ["X is no setting", "ISSUE_RATE", "STORE", "'me' is by user", "'api' is by subject", "'slow' has a coroutine"]
    assert [word in problem for word, problem in zip(words, caught.value.problems, strict=True)] == [True] * len(words)


class Standing:
    """A clock that nobody has to make."""

    @staticmethod
    def time_ns() -> int:
        return 1_900_000_000_000_000_000

    @classmethod
    def monotonic_ns(cls) -> int:
        return 7


def test_clock_may_be_a_class_that_can_be_asked() -> None:
    assert enters(build_engine({"LIMITS": [Limit("site", "1/m")], "CLOCK": Standing}), View())


def test_user_key_that_cannot_be_imported_is_the_only_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        build_engine({"USER_KEY": "no.such", "LIMITS": [Limit("me", "1/m", key="user")]}, knows_users=False)
    assert len(caught.value.problems) == 1


def test_settings_of_keys_that_exclude_each_other_are_named_as_settings() -> None:
    (problem,) = problems("JWTLIMIT_", SECRET_KEY=SECRET, SIGNING_KEY="pem")
    assert "HS256 takes JWTLIMIT_SECRET_KEY: JWTLIMIT_SIGNING_KEY and JWTLIMIT_VERIFICATION_KEY are for" in problem


@pytest.mark.parametrize(
    "values",
    [
        {"SECRET_KEY": "Tr0ub4dor"},
        {"SIGNING_KEY": "Tr0ub4dor", "ALGORITHM": "RS256"},
        {"VERIFICATION_KEY": "-----BEGIN PUBLIC KEY-----\nTr0ub4dor\n-----END PUBLIC KEY-----", "ALGORITHM": "ES256"},
        {"SIGNING_KEY": "Tr0ub4dor", "SECRET_KEY": "Tr0ub4dor"},
        {"SECRET_KEY": ["Tr0ub4dor"]},
        {"STORE": "http://:Tr0ub4dor@localhost"},
        {"STORE": b"redis://:Tr0ub4dor@localhost"},
        {"KEY_SECRET": "Tr0ub4dor"},
        {"STORE": ["redis://:Tr0ub4dor@localhost"]},
        {"STORE": {"url": "redis://:Tr0ub4dor@localhost"}},
    ],
)
def test_settings_with_a_bad_key_keep_it_out_of_the_message(values: dict[str, object]) -> None:
    assert "Tr0ub4dor" not in " ".join(problems("JWTLIMIT_", **values))


# Limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [Limit("site", "3/m"), {"name": "site", "rate": "3/m"}])
def test_setting_limits_reaches_every_request(limit: object) -> None:
    engine = build_engine({"LIMITS": [limit], "EXEMPT_PATHS": ["/healthz"], "CLOCK": ManualClock()})
    assert [enters(engine, View()) for _ in range(4)] == [True, True, True, False]
    assert enters(engine, View(path="/healthz"))


def user_of(view: View) -> str | None:
    return view.name


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"LIMITS": [Limit("user", "2/m", key="user")]}, "limit 'user' is by user: set JWTLIMIT_USER_KEY"),
        ({"LIMITS": [Limit("subject", "2/m", key="subject")]}, "limit 'subject' is by subject: set JWTLIMIT_SECRET_KEY"),
        ({"LIMITS": [Limit("slow", "2/m", key=later)]}, "limit 'slow' has a coroutine function"),
        ({"LIMITS": [Limit("slow", "2/m", key=("ip", later))]}, "limit 'slow' has a coroutine function"),
        ({"LIMITS": [Limit("slow", "2/m", exempt_when=later)]}, "limit 'slow' has a coroutine function"),
        ({"USER_KEY": later}, "JWTLIMIT_USER_KEY is a coroutine function"),
        ({"SECRET_KEY": SECRET, "BEFORE_ISSUE": later}, "JWTLIMIT_BEFORE_ISSUE is a coroutine function"),
    ],
)
def test_settings_that_no_request_could_meet_are_refused_at_the_start(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_engine(values, named="JWTLIMIT_{}".format, host="sync", knows_users=False)
    assert caught.value.problems[0].startswith(problem)


def test_settings_with_coroutine_functions_are_good_on_an_event_loop() -> None:
    limits = [Limit("user", "2/m", key="user"), Limit("slow", "2/m", key=later)]
    build_engine({"LIMITS": limits, "USER_KEY": later, "SECRET_KEY": SECRET, "BEFORE_ISSUE": later}, host="async")


def test_setting_store_that_would_stall_the_event_loop_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^store must be a RateLimiter or have coroutine functions"):
        build_engine({"SECRET_KEY": SECRET, "STORE": Provider()}, named=str.lower, host="async")


@pytest.mark.parametrize("enabled", [True, lambda: 1])
def test_setting_enabled_may_be_a_function(enabled: object) -> None:
    assert build_engine({"ENABLED": enabled}).enabled is True
    assert build_engine({"ENABLED": lambda: None}).enabled is False
