"""The language of the script: which rates fit into its numbers, and under which keys a server keeps whose state."""

from datetime import timedelta
from fractions import Fraction
from hashlib import blake2b, sha256
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Connection
from redis.crc import key_slot

from jwtlimit_core import ConfigError, Rate
from jwtlimit_core.keys import LONGEST_KEY, SERVICE_KEY
from jwtlimit_core.redis import RedisFixedWindow, RedisTokenBucket
from jwtlimit_core.redis.wire import FixedWindow, KeyForm, TokenBucket, packed
from stores import Stores

# The numbers ---------------------------------------------------------------------------------------------------


def test_token_bucket_reaches_to_the_last_whole_number_of_doubles() -> None:
    most = 2**53 - 1 - 1  # capacity and refill together; a microsecond is a unit here
    assert TokenBucket(Rate(1, Fraction(most, 10**6))).argument(b"take", 3) == b"take 3 b1 %d %d" % (most, most)
    for limit, window_us in ((1, most + 1), (7, 2**53), (most, most + 1)):
        with pytest.raises(ConfigError, match="too fine for a store: lower the burst, or take a rounder window"):
            TokenBucket(Rate(min(limit, 10**15 - 1), Fraction(window_us, 10**6)))


def test_token_bucket_of_a_large_burst_is_bounded_by_its_capacity() -> None:
    assert TokenBucket(Rate(1, 9, burst=10**9)).argument(b"take", 3) == b"take 3 b1 9000000 9000000000000000"
    with pytest.raises(ConfigError, match="too fine"):
        TokenBucket(Rate(1, 10, burst=10**9))


def test_fixed_window_reaches_as_far_as_its_end_is_exact() -> None:
    assert FixedWindow(Rate(5, Fraction(2**52 - 1, 10**6))).argument(b"peek", 0) == b"peek 0 w%d 5 0" % (2**52 - 1)
    for window in (Fraction(2**52, 10**6), timedelta.max):
        with pytest.raises(ConfigError, match="too long for a store"):
            FixedWindow(Rate(5, window))


@pytest.mark.parametrize("rule", [TokenBucket, FixedWindow])
@pytest.mark.parametrize("window_ns", [1, 999, 1_001, 10**9 + 1])
def test_rule_of_a_window_in_nanoseconds_is_a_config_error(rule: type, window_ns: int) -> None:
    with pytest.raises(ConfigError, match="must be a whole number of them"):
        rule(Rate(5, Fraction(window_ns, 10**9)))


@pytest.mark.parametrize("kind", [RedisTokenBucket, RedisFixedWindow])
@pytest.mark.parametrize("window_s", [10**12, 0.0001234567, timedelta.max, 0, -1, float("nan"), True, "60"])
def test_limiter_of_an_impossible_window_is_a_config_error_before_any_key_exists(stores: Stores, kind: type, window_s) -> None:
    with pytest.raises(ConfigError):
        stores.limiter(kind, 7, window_s, prefix="impossible window")
    assert not list(stores.client.scan_iter(match="impossible window*", count=1000))


# The keys ------------------------------------------------------------------------------------------------------

odd = st.text(st.sampled_from(":*#%{}\\?[]@ aé€😀\x00\ud800\udfff"), max_size=6)
names = st.one_of(odd, st.text(st.characters(), max_size=20))
keys = st.one_of(
    names,
    st.just(SERVICE_KEY),
    names.map(lambda text: (text or "x") * LONGEST_KEY),
    st.sampled_from(["*", "#", "%2A", "the whole service", "", "a" * LONGEST_KEY, "a" * (LONGEST_KEY + 1)]),
)


def test_key_form_stores_no_two_pairs_of_odd_texts_alike() -> None:
    alphabet = ":%253A*#? a\ud800\udfff"
    texts = ["".join(letters) for size in range(3) for letters in product(alphabet, repeat=size)]
    long = [text * LONGEST_KEY for text in texts if text]
    for secret in (None, b"pepper"):
        forms = [KeyForm("p", name, secret) for name in texts[:80]]
        stored = [form.stored(key) for form in forms for key in (SERVICE_KEY, *texts, *long[: len(alphabet)])]
        assert len(set(stored)) == len(stored)


@given(name=names, key=keys, secret=st.none() | st.binary(min_size=1, max_size=64))
def test_key_form_stores_a_key_that_reads_like_a_stored_one_elsewhere(name: str, key: str, secret: bytes | None) -> None:
    form = KeyForm("p", name, secret)
    end = form.stored(key).decode().split(":", 2)[2]
    assert form.stored(end) != form.stored(key) or end == key


@given(name=names, left=names, right=names)
def test_key_form_stores_a_text_that_is_cut_elsewhere_elsewhere(name: str, left: str, right: str) -> None:
    assert KeyForm("p", name).stored(f"{left}:{right}") != KeyForm("p", f"{name}:{left}").stored(right)


@given(name=names, key=keys)
def test_key_form_stores_short_printable_text_without_a_hash_tag(name: str, key: str) -> None:
    stored = KeyForm("p", name).stored(key).decode()
    start, middle, end = stored.split(":", 2)
    assert start == "p"
    assert stored.isascii()
    assert stored.isprintable()
    assert not set(stored) & set("{} \\")
    assert len(end) <= 12 * LONGEST_KEY
    assert ("*" in end) == (key is SERVICE_KEY)
    assert "*" not in middle


def test_key_form_of_a_megabyte_is_a_digest_of_all_of_it() -> None:
    form = KeyForm("p", "n")
    stored = {form.stored("x" * 2**20 + end) for end in ("", "y", "z", "\ud800", "\udfff", "?")}
    assert len(stored) == 6
    assert all(len(text) < 80 for text in stored)


def test_key_form_lets_no_key_choose_its_slot() -> None:
    stored = [KeyForm("p", "{n}").stored(f"{{victim}}{index}") for index in range(50)]
    assert len({key_slot(key) for key in stored}) > 40


def test_key_form_stores_bytes_that_no_encoding_of_a_client_changes(stores: Stores) -> None:
    limiter = stores.limiter(RedisTokenBucket, 2, 86_400, prefix="pr\u00e9fixe \ud800", name="n\u00f4m")
    assert limiter.limiter._form.stored("cl\u00e9:1") == b"pr\xc3\xa9fixe \xed\xa0\x80:n%C3%B4m:cl%C3%A9%3A1"
    assert limiter.allow_n("cl\u00e9:1", 2)
    limiter.reset_all()
    assert limiter.peek("cl\u00e9:1").remaining == 2


@pytest.mark.parametrize("key", ["alice@example.org", "alice@example.org" * 20, "al\ud800ice"])
def test_key_secret_hides_who_it_is_from_the_server(stores: Stores, key: str) -> None:
    limiter = stores.limiter(RedisTokenBucket, 2, 86_400, prefix=f"secret of {len(key)}", key_secret=b"pepper")
    assert [limiter.allow(key) for _ in range(3)] == [True, True, False]
    assert limiter.allow("bob")
    found = list(stores.client.scan_iter(match=f"secret of {len(key)}:*", count=1000))
    assert len(found) == 2
    shown = b" ".join(found + stores.client.mget(found)).lower()
    data = key.encode("utf-8", "surrogatepass")
    guesses = [sha256(data).hexdigest().encode(), blake2b(data, digest_size=32).hexdigest().encode()]
    assert not [word for word in (b"alice", b"al%ed", b"example", b"bob", *guesses) if word in shown]
    limiter.reset(key)
    assert limiter.allow(key)


@given(key=st.text(max_size=300))
def test_key_secret_gives_every_secret_and_key_a_digest_of_its_own(key: str) -> None:
    forms = [KeyForm("p", "n", secret) for secret in (b"a", b"b", None)]
    assert len({form.stored(text) for form in forms for text in (key, key + "x")}) == 6


@given(st.sampled_from(["EVALSHA", "EVAL", "DEL"]), st.lists(st.binary(max_size=400), min_size=1, max_size=9))
def test_command_is_packed_as_redis_py_packs_it(name: str, parts: list[bytes]) -> None:
    assert packed(name, *parts) == b"".join(Connection().pack_command(name, *parts))
