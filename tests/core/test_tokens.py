"""Compact tokens: which keys are taken, what is signed, and that every token has one way to be written."""

import base64

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519

from jwtlimit_core import ConfigError, InvalidToken
from jwtlimit_core.tokens import ALGORITHMS, CompactJWS

SECRET = bytes(range(64))
PAYLOAD = b'{"sub":"u1"}'


def pem(key: object, password: bytes | None = None) -> bytes:
    """Return *key*, private or public, as PEM."""
    if hasattr(key, "public_key"):
        how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def short_rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=1024)


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_sign_gives_a_token_that_verify_and_pyjwt_accept(algorithm: str, keys: dict[str, dict[str, object]]) -> None:
    jws = CompactJWS(algorithm, **keys[algorithm])
    token = jws.sign(jws.signing_input({"sub": "u1"}))
    assert jws.verify(token) == PAYLOAD
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "JWT"}
    key = keys[algorithm].get("secret_key") or keys[algorithm]["signing_key"].public_key()
    assert jwt.decode(token, key, algorithms=[algorithm]) == {"sub": "u1"}


def test_keys_as_pem_in_bytes_or_text_are_the_same_keys(algorithm: str, keys: dict[str, dict[str, object]]) -> None:
    if algorithm.startswith("HS"):
        secret = "s" * 64
        signer, reader = CompactJWS(algorithm, secret_key=secret), CompactJWS(algorithm, secret_key=secret.encode())
    else:
        key = keys[algorithm]["signing_key"]
        signer = CompactJWS(algorithm, signing_key=pem(key), verification_key=key.public_key())
        reader = CompactJWS(algorithm, verification_key=pem(key.public_key()).decode())
        assert not reader.can_sign
    assert signer.can_sign
    assert reader.verify(signer.sign(signer.signing_input({"sub": "u1"}))) == PAYLOAD


def test_every_algorithm_refuses_a_token_of_every_other(algorithm: str, keys: dict[str, dict[str, object]]) -> None:
    signer = CompactJWS(algorithm, **keys[algorithm])
    token = signer.sign(signer.signing_input({"sub": "u1"}))
    for other in set(ALGORITHMS) - {algorithm}:
        with pytest.raises(InvalidToken, match=f"is not signed with {other}"):
            CompactJWS(other, **keys[other]).verify(token)


@pytest.mark.parametrize(
    ("algorithm", "arguments", "says"),
    [
        ("none", {}, "algorithm must be one of HS256, "),
        ("hs256", {"secret_key": SECRET}, "algorithm must be one of"),
        ("ES256K", {}, "algorithm must be one of"),
        (None, {}, "not None"),
        pytest.param(10**5000, {}, "not a int of too many digits", id="too-long-to-print"),
        ("HS256", {}, "secret_key must be text or bytes for HS256: take secrets.token_bytes(32)"),
        ("HS256", {"secret_key": 7}, "secret_key must be text or bytes"),
        ("HS256", {"secret_key": bytearray(SECRET)}, "secret_key must be text or bytes"),
        ("HS256", {"secret_key": ""}, "secret_key must be text or bytes"),
        ("HS256", {"secret_key": b"k" * 31}, "has 31 bytes, HS256 needs 32"),
        ("HS384", {"secret_key": b"k" * 47}, "has 47 bytes, HS384 needs 48"),
        ("HS512", {"secret_key": b"k" * 63}, "has 63 bytes, HS512 needs 64"),
        ("HS256", {"secret_key": "\ud800" * 32}, "or no text"),
        ("HS256", {"secret_key": SECRET, "signing_key": SECRET}, "HS256 takes secret_key"),
        ("HS256", {"secret_key": SECRET, "verification_key": SECRET}, "HS256 takes secret_key"),
        ("RS256", {}, "RS256 needs signing_key, or verification_key"),
        ("RS256", {"secret_key": SECRET}, "RS256 takes signing_key or verification_key"),
        ("RS256", {"signing_key": SECRET}, "signing_key must be a key object or unencrypted PEM for RS256"),
        ("RS256", {"signing_key": "no PEM"}, "signing_key must be a key object or unencrypted PEM"),
        ("RS256", {"verification_key": object()}, "verification_key must be a key object or unencrypted PEM"),
        ("EdDSA", {"signing_key": x25519.X25519PrivateKey.generate()}, "signing_key must be a key object or unencrypted PEM"),
    ],
    ids=lambda part: "" if isinstance(part, dict) else str(part),
)
def test_keys_that_are_missing_or_none_raise_config_error(algorithm: str, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CompactJWS(algorithm, **arguments)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "of", "says"),
    [
        ("RS256", "ES256", "for RS256"),
        ("PS256", "EdDSA", "for PS256"),
        ("ES256", "RS256", "for ES256"),
        ("EdDSA", "ES256", "for EdDSA"),
        ("ES256", "ES384", "is on the curve secp384r1: ES256 needs secp256r1"),
        ("ES512", "ES256", "is on the curve secp256r1: ES512 needs secp521r1"),
    ],
)
@pytest.mark.parametrize("form", [lambda key: key, pem], ids=["object", "pem"])
def test_a_key_of_another_kind_or_curve_raises_config_error(
    algorithm: str, of: str, says: str, form: object, keys: dict[str, dict[str, object]]
) -> None:
    private = keys[of]["signing_key"]
    for name, key in (("signing_key", private), ("verification_key", private.public_key())):
        with pytest.raises(ConfigError, match=f"{name} .*{says}"):
            CompactJWS(algorithm, **{name: form(key)})


@pytest.mark.parametrize("algorithm", ["RS256", "PS512"])
def test_an_rsa_key_below_2048_bits_raises_config_error(algorithm: str, short_rsa: rsa.RSAPrivateKey) -> None:
    for name, key in (("signing_key", short_rsa), ("verification_key", short_rsa.public_key())):
        with pytest.raises(ConfigError, match=f"{name} has 1024 bits: {algorithm} needs 2048"):
            CompactJWS(algorithm, **{name: pem(key)})


def test_the_halves_of_a_key_pair_in_each_others_place_raise_config_error(keys: dict[str, dict[str, object]]) -> None:
    key = keys["ES256"]["signing_key"]
    with pytest.raises(ConfigError, match="signing_key must be a private key"):
        CompactJWS("ES256", signing_key=key.public_key())
    with pytest.raises(ConfigError, match="verification_key must be a public key"):
        CompactJWS("ES256", verification_key=key)
    with pytest.raises(ConfigError, match="do not belong together"):
        CompactJWS("ES256", signing_key=key, verification_key=ec.generate_private_key(ec.SECP256R1()).public_key())


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256", "EdDSA"])
def test_pem_as_a_secret_or_encrypted_raises_config_error(algorithm: str, keys: dict[str, dict[str, object]]) -> None:
    key = keys[algorithm]["signing_key"]
    for text in (pem(key), pem(key).decode(), pem(key.public_key()), pem(key.public_key()).decode()):
        with pytest.raises(ConfigError, match="secret_key is a public key"):
            CompactJWS("HS256", secret_key=text)
    with pytest.raises(ConfigError, match="signing_key must be a key object or unencrypted PEM"):
        CompactJWS(algorithm, signing_key=pem(key, b"password"))


def test_eddsa_takes_ed448_too() -> None:
    jws = CompactJWS("EdDSA", signing_key=ed448.Ed448PrivateKey.generate())
    assert jws.verify(jws.sign(jws.signing_input({"sub": "u1"}))) == PAYLOAD


def test_signing_input_up_to_the_bound_is_read_back_and_above_it_raises_value_error() -> None:
    signer = CompactJWS("HS512", secret_key=SECRET)
    payload = {"sub": "u" * 500}
    length = len(signer.sign(signer.signing_input(payload)))
    exact = CompactJWS("HS512", secret_key=SECRET, max_token_bytes=length)
    assert exact.verify(exact.sign(exact.signing_input(payload)))
    short = CompactJWS("HS512", secret_key=SECRET, max_token_bytes=length - 1)
    with pytest.raises(ValueError, match=f"would have {length} bytes, more than the {length - 1}"):
        short.signing_input(payload)
    with pytest.raises(InvalidToken, match=f"longer than {length - 1} bytes"):
        short.verify(signer.sign(signer.signing_input(payload)))


def signed(header: bytes, payload: bytes = PAYLOAD, *, encode: object = base64.urlsafe_b64encode) -> str:
    """Return the token of *header* and *payload*, whose signature is good as PyJWT makes it."""
    signing_input = b".".join(encode(part).rstrip(b"=") for part in (header, payload))
    mac = jwt.PyJWS().get_algorithm_by_name("HS256").sign(signing_input, SECRET)
    return (signing_input + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


@pytest.fixture(scope="module")
def jws() -> CompactJWS:
    return CompactJWS("HS256", secret_key=SECRET)


@pytest.mark.parametrize(
    "header",
    [
        b'{"alg":"HS256"}',
        b' { "alg" : "HS256" } ',
        b'{"alg":"HS256","typ":"jwt"}',
        b'{"typ":"application/JWT","alg":"HS256"}',
        b'{"alg":"HS256","kid":"a","x":[1]}',
    ],
)
def test_verify_takes_every_header_that_asks_for_what_we_do(header: bytes, jws: CompactJWS) -> None:
    assert jws.verify(signed(header)) == PAYLOAD


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b'{"alg":"none"}', "not signed with HS256"),
        (b'{"alg":"None","typ":"JWT"}', "not signed with HS256"),
        (b'{"alg":"hs256"}', "not signed with HS256"),
        (b'{"alg":"HS384"}', "not signed with HS256"),
        (b'{"alg":"RS256"}', "not signed with HS256"),
        (b'{"alg":["HS256"]}', "not signed with HS256"),
        (b'{"alg":null}', "not signed with HS256"),
        (b"{}", "not signed with HS256"),
        (b'{"alg":"HS256","crit":["exp"],"exp":1}', "critical"),
        (b'{"alg":"HS256","crit":[]}', "critical"),
        (b'{"alg":"HS256","crit":null}', "critical"),
        (b'{"alg":"HS256","crit":["b64"],"b64":false}', "critical"),
        (b'{"alg":"HS256","typ":"JWE"}', "type JWT"),
        (b'{"alg":"HS256","typ":"at+jwt"}', "type JWT"),
        (b'{"alg":"HS256","typ":null}', "type JWT"),
        (b'{"alg":"HS256","typ":["JWT"]}', "type JWT"),
        (b'{"alg":"HS256","typ":"application/application/jwt"}', "type JWT"),
        (b'{"alg":"none","alg":"HS256"}', "header of the token cannot be read"),
        (b'{"alg":"HS256","typ":"JWT","typ":"JWT"}', "header of the token cannot be read"),
        (b'["HS256"]', "header of the token cannot be read"),
        (b"", "header of the token cannot be read"),
        (b"\xff", "header of the token cannot be read"),
        (b'{"alg":"HS256","a":' + b"[" * 1000 + b"]" * 1000 + b"}", "header of the token cannot be read"),
    ],
    ids=lambda part: None if isinstance(part, str) else part[:40],
)
def test_verify_of_a_header_that_asks_for_more_raises_invalid_token(header: bytes, says: str, jws: CompactJWS) -> None:
    with pytest.raises(InvalidToken, match=says):
        jws.verify(signed(header))


# Each of these changes what is written, and none what a lenient reader makes of it.
OTHER_WAYS = {
    "padding": lambda h, p, s: f"{h}.{p}.{s}=",
    "padding of the header": lambda h, p, s: f"{h}=.{p}.{s}",
    "line feed": lambda h, p, s: f"{h}.{p}.{s}\n",
    "space": lambda h, p, s: f" {h}.{p}.{s}",
    "space inside": lambda h, p, s: f"{h}.{p}.{s[:5]} {s[5:]}",
    "stray character": lambda h, p, s: f"{h}.{p}.{s[:5]}!{s[5:]}",
    "NUL": lambda h, p, s: f"{h}.{p}.{s}\0",
    "two parts": lambda h, p, s: f"{h}.{p}",
    "no signature": lambda h, p, s: f"{h}.{p}.",
    "four parts": lambda h, p, s: f"{h}.{p}.{s}.",
    "five parts": lambda h, p, s: f"{h}..{p}.{s}.",
    "no header": lambda h, p, s: f".{p}.{s}",
    "no payload": lambda h, p, s: f"{h}..{s}",
    "not ASCII": lambda h, p, s: f"{h}.{p}.{s}\u200b",
    "full-width": lambda h, p, s: f"{h}.{p}.{s[:-1]}\uff21",
    "bearer": lambda h, p, s: f"Bearer {h}.{p}.{s}",
    "last bits": lambda h, p, s: f"{h}.{p}.{s[:-1]}{chr(ord(s[-1]) + 1)}",
    "one character": lambda h, p, s: f"{h}.{p}.{s}A",
}


@pytest.mark.parametrize("way", OTHER_WAYS.values(), ids=OTHER_WAYS.keys())
def test_verify_of_a_token_written_in_another_way_raises_invalid_token(way: object, jws: CompactJWS) -> None:
    token = signed(b'{"alg":"HS256"}')
    assert jws.verify(token) == PAYLOAD
    assert token[-1] in "AEIMQUYcgkosw048"  # two unused bits, both zero
    with pytest.raises(InvalidToken):
        jws.verify(way(*token.split(".")))


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c.d", "a..b.c", "...."])
def test_verify_of_any_other_number_of_parts_says_so(token: str, jws: CompactJWS) -> None:
    with pytest.raises(InvalidToken, match="a token has three parts"):
        jws.verify(token)


@pytest.mark.parametrize("payload", [b'{"sub":"?>~"}', b'{"sub":"\xc3\xbf\xc3\xbe~~~"}'])
def test_verify_of_the_other_base64_alphabet_raises_invalid_token(payload: bytes, jws: CompactJWS) -> None:
    token = signed(b'{"alg":"HS256"}', payload, encode=base64.b64encode)
    assert "+" in token or "/" in token
    with pytest.raises(InvalidToken, match="base64url"):
        jws.verify(token)
    assert jws.verify(signed(b'{"alg":"HS256"}', payload)) == payload


def test_verify_judges_the_signature_before_it_reads_the_payload(jws: CompactJWS) -> None:
    header, _, signature = signed(b'{"alg":"HS256"}').split(".")
    for payload in ("!", "AB", "A", ""):
        with pytest.raises(InvalidToken, match="the signature is wrong"):
            jws.verify(f"{header}.{payload}.{signature}")


def test_verify_of_a_payload_with_unused_bits_raises_invalid_token_though_the_signature_is_good(jws: CompactJWS) -> None:
    signing_input = jws.signing_input({}).partition(b".")[0] + b".AB"
    with pytest.raises(InvalidToken, match="one form"):
        jws.verify(jws.sign(signing_input))


def test_the_public_key_as_a_secret_signs_nothing_that_is_accepted(keys: dict[str, dict[str, object]]) -> None:
    reader = CompactJWS("RS256", verification_key=keys["RS256"]["signing_key"].public_key())
    public = pem(keys["RS256"]["signing_key"].public_key())
    for header in (b'{"alg":"RS256","typ":"JWT"}', b'{"alg":"HS256","typ":"JWT"}'):
        signing_input = signed(header).rpartition(".")[0].encode()
        mac = jwt.PyJWS().get_algorithm_by_name("HS256").sign(signing_input, public)
        with pytest.raises(InvalidToken):
            reader.verify(f"{signing_input.decode()}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}")
