"""What the tests of tokens share: keys, made once, and the way to a token that no processor would issue."""

import base64
import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from jwtlimit_core.tokens import ALGORITHMS, CompactJWS

SECRET = bytes(range(64))

Forge = Callable[..., str]


def _segment(part: object) -> bytes:
    """Encode *part*, which is JSON as bytes or something to be written as JSON."""
    text = part if isinstance(part, bytes) else json.dumps(part, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


@pytest.fixture(scope="session")
def forge() -> Forge:
    """Return the maker of tokens whose signature by `SECRET` is good, whatever header and payload say."""
    signer = CompactJWS("HS256", secret_key=SECRET)

    def make(payload: object, header: object = b'{"alg":"HS256","typ":"JWT"}') -> str:
        return signer.sign(_segment(header) + b"." + _segment(payload))

    return make


@pytest.fixture(scope="session")
def keys() -> dict[str, dict[str, object]]:
    """Return the key arguments of a configuration that can sign, by algorithm."""
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}

    def key_for(algorithm: str) -> dict[str, object]:
        if algorithm.startswith("HS"):
            return {"secret_key": SECRET}
        if algorithm in curves:
            return {"signing_key": ec.generate_private_key(curves[algorithm])}
        return {"signing_key": ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa_key}

    return {algorithm: key_for(algorithm) for algorithm in ALGORITHMS}
