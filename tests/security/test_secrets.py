"""No key, secret or token stands in a message, a representation, a log record or a printed chain of causes."""

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from jwtlimit_core import Claims, Config, ConfigError, InvalidClaims, JWTLimitError, Processor, RegisteredClaims
from jwtlimit_core.tokens import CompactJWS

MARK = "do-not-show-me"
SECRET = f"{MARK}-{MARK}-{MARK}-"


def pem(key: Any, password: bytes | None = None) -> str:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return str(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how).decode())


EC_KEY = ec.generate_private_key(ec.SECP256R1())
EC_PEM = pem(EC_KEY)
EC_TEXT = EC_PEM.splitlines()[1]


def printed(error: BaseException) -> str:
    """Return all that is shown of *error*: its text, its representation, and those of everything it is chained to."""
    lines = traceback.format_exception(error)
    chain: BaseException | None = error
    while chain is not None:
        lines += [repr(chain), str(chain), repr(chain.args)]
        chain = chain.__cause__
    return "\n".join(lines)


@pytest.mark.parametrize(
    "keys",
    [
        {"secret_key": MARK},
        {"secret_key": MARK.encode()},
        {"secret_key": "\ud800" + SECRET},
        {"secret_key": [SECRET]},
        {"secret_key": EC_PEM},
        {"secret_key": SECRET, "signing_key": SECRET},
        {"secret_key": SECRET, "issuer": "", "leeway": -1},
        {"secret_key": SECRET, "algorithm": "ES256"},
        {"signing_key": SECRET, "algorithm": "ES256"},
        {"signing_key": SECRET.encode(), "algorithm": "EdDSA"},
        {"verification_key": SECRET, "algorithm": "RS256"},
        {"signing_key": EC_PEM, "algorithm": "RS256"},
        {"signing_key": EC_PEM, "algorithm": "ES384"},
        {"signing_key": EC_PEM.replace("A", "B"), "algorithm": "ES256"},
        {"signing_key": EC_PEM[:-60], "algorithm": "ES256"},
        {"verification_key": EC_PEM, "algorithm": "ES256"},
        {"signing_key": pem(EC_KEY, MARK.encode()), "algorithm": "ES256"},
        {"signing_key": [EC_PEM], "algorithm": "ES256"},
    ],
    ids=lambda keys: "-".join(keys),
)
def test_a_bad_key_is_never_part_of_what_is_printed(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**keys)
    text = printed(caught.value)
    assert "_key" in text
    assert MARK not in text
    assert EC_TEXT[:24] not in text


def test_a_mismatched_or_short_pair_is_not_printed() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for arguments in (
        {"algorithm": "RS256", "signing_key": pem(short)},
        {"algorithm": "ES256", "signing_key": EC_PEM, "verification_key": ec.generate_private_key(ec.SECP256R1()).public_key()},
    ):
        with pytest.raises(ConfigError) as caught:
            CompactJWS(**arguments)
        assert "MII" not in printed(caught.value)
        assert "MIG" not in printed(caught.value)


@pytest.fixture
def processor() -> Processor:
    return Processor(Config(secret_key=SECRET, enable_rate_limit=True, rate_limit_rate=1, max_token_bytes=2000))


@pytest.mark.parametrize("show", [repr, str, lambda processor: repr(processor.config), lambda processor: f"{processor._jws}"])
def test_objects_that_hold_the_secret_do_not_show_it(show: Callable[[Processor], str], processor: Processor) -> None:
    assert MARK not in show(processor)
    key_pair = Processor(Config(signing_key=EC_PEM, algorithm="ES256"))
    assert EC_TEXT[:24] not in show(key_pair)


def changed(token: str, part: int, text: str) -> str:
    parts = token.split(".")
    parts[part] = text
    return ".".join(parts)


def test_a_refused_token_is_never_part_of_what_is_printed(
    processor: Processor, forge: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    other = Processor(Config(secret_key=bytes(range(64)), issuer="other"))
    mine = CompactJWS("HS256", secret_key=SECRET)
    good = processor.create_refresh(Claims(sub=MARK, extra={"note": MARK}))
    header = good.split(".")[0]

    def signed(payload: bytes) -> str:
        text = forge(payload).split(".")[1]
        return mine.sign(f"{header}.{text}".encode())

    tokens = [
        good,  # a refresh token, to validate; and one too many, to refresh
        good + "A",
        good + "é",
        good + "x" * 2000,
        good.replace(".", "!", 1),
        changed(good, 0, forge(b'{"alg":"none"}').split(".")[1]),
        changed(good, 0, forge(b"\xff" + MARK.encode()).split(".")[1]),
        changed(good, 0, forge(b'{"alg":"' + MARK.encode() + b'\\ud800"}').split(".")[1]),
        other.create({"sub": MARK}),
        signed(b'{"sub":"' + MARK.encode() + b'","exp":[]}'),
        signed(b'{"sub":"' + MARK.encode()),
        signed(b'{"sub":"' + MARK.encode() + b'\xff"}'),
        signed(b'{"sub":"' + MARK.encode() + b'\\ud800"}'),
        signed(b'{"sub":"' + MARK.encode() + b'","exp":' + b"9" * 4500 + b"}"),
    ]
    refused = 0
    for token in tokens:
        for call in (processor.validate, processor.refresh):
            with pytest.raises(JWTLimitError) as caught:
                call(token)
            refused += 1
            text = printed(caught.value)
            assert MARK not in text
            assert not any(part and len(part) > 20 and part in text for part in token.split("."))
    assert refused == 2 * len(tokens)
    assert caplog.records == []


def test_claims_that_make_no_token_are_not_printed(processor: Processor) -> None:
    for claims in ({"sub": MARK, "a": "\ud800"}, {"sub": MARK, "a": 10**5000}, {"sub": MARK, "a": "x" * 3000}):
        with pytest.raises(InvalidClaims) as caught:
            processor.create(claims)
        assert MARK not in printed(caught.value)


def test_a_claims_type_that_refuses_shows_only_its_own_words(processor: Processor) -> None:
    class Refusing(RegisteredClaims):
        def validate(self) -> None:
            raise LookupError("no such tenant")

    with pytest.raises(InvalidClaims) as caught:
        processor.create(Refusing(sub=MARK))
    assert "no such tenant" in printed(caught.value)
    assert MARK not in printed(caught.value)
