"""Compact JWS (RFC 7515), strictly: one algorithm, one key, one way to write each token.

The signatures are PyJWT's algorithms, with the key prepared once. What stands around them is read here, since a token comes
from anybody: no white space or padding, no second encoding of the same bytes, no name twice, no header that asks for something
we do not do, bounded in size and depth, and nothing of the payload believed before the signature is.
"""

import base64
import binascii
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey, Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm
from jwt.exceptions import InvalidKeyError

from jwtlimit_core.errors import ConfigError, InvalidToken
from jwtlimit_core.rate import shown
from jwtlimit_core.strict_json import dumps, loads_object

__all__ = ["ALGORITHMS", "CompactJWS"]

_HMAC_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}  # RFC 7518 section 3.2
_RSA = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}  # RFC 7518 section 3.4
_RSA_BITS = 2048  # RFC 7518 section 3.3
_KINDS = {
    "RS": RSAPrivateKey | RSAPublicKey,
    "PS": RSAPrivateKey | RSAPublicKey,
    "ES": EllipticCurvePrivateKey | EllipticCurvePublicKey,
    "Ed": Ed25519PrivateKey | Ed25519PublicKey | Ed448PrivateKey | Ed448PublicKey,  # RFC 8037 section 3.1
}
ALGORITHMS = (*_HMAC_BYTES, *sorted(_RSA), *_CURVES, "EdDSA")


class CompactJWS:
    """Signs and verifies with one algorithm and one key, or only verifies.

    Args:
        algorithm: One of `ALGORITHMS`.
        secret_key: For HMAC: text (taken as UTF-8) or bytes, as long as the hash.
        signing_key: For the others: a private key, as an object of `cryptography` or as PEM.
        verification_key: Likewise the public key; taken from *signing_key* where it is left out.
        max_token_bytes: The longest token to read.

    Raises:
        ConfigError: The algorithm is not offered, or the keys are not for it, too short, or do not belong together.
    """

    def __init__(
        self,
        algorithm: str,
        *,
        secret_key: str | bytes | None = None,
        signing_key: object = None,
        verification_key: object = None,
        max_token_bytes: int = 8192,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise ConfigError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {shown(algorithm)}")
        # A registry of our own: the global one of PyJWT can be changed by anybody in the process.
        self._algorithm: Any = PyJWS().get_algorithm_by_name(algorithm)
        self._max_token_bytes = max_token_bytes
        self._alg = algorithm
        self._header = _encode(dumps({"alg": algorithm, "typ": "JWT"}))
        if algorithm in _HMAC_BYTES:
            if signing_key is not None or verification_key is not None:
                raise ConfigError(f"{algorithm} takes secret_key: signing_key and verification_key are for key pairs")
            self._signing_key = self._verification_key = self._secret(secret_key)
        else:
            if secret_key is not None:
                raise ConfigError(f"{algorithm} takes signing_key or verification_key: secret_key is for HS256 and its like")
            self._signing_key, self._verification_key = self._pair(signing_key, verification_key)
        self._signature_chars = 0
        if self._signing_key is not None:
            probe = self._algorithm.sign(b"probe", self._signing_key)
            if not self._algorithm.verify(b"probe", self._verification_key, probe):
                raise ConfigError("signing_key and verification_key do not belong together")
            self._signature_chars = len(_encode(probe))

    @property
    def can_sign(self) -> bool:
        """Whether there is a key to sign with."""
        return self._signing_key is not None

    def signing_input(self, payload: dict[str, Any]) -> bytes:
        """Return header and payload as they will be signed.

        Raises:
            ValueError: JSON cannot carry the payload, or the token would be too long to be read back.
        """
        signing_input = self._header + b"." + _encode(dumps(payload))
        if (length := len(signing_input) + 1 + self._signature_chars) > self._max_token_bytes:
            raise ValueError(f"the token would have {length} bytes, more than the {self._max_token_bytes} that are read")
        return signing_input

    def sign(self, signing_input: bytes) -> str:
        """Return the token for what `signing_input` gave."""
        signature: bytes = self._algorithm.sign(signing_input, self._signing_key)
        return (signing_input + b"." + _encode(signature)).decode("ascii")

    def verify(self, token: str) -> bytes:
        """Return the payload of *token*, whose signature is good.

        Raises:
            InvalidToken: It is not, or the token is not written as RFC 7515 says, or asks for what we do not do.
        """
        if len(token) > self._max_token_bytes:
            raise InvalidToken(f"the token is longer than {self._max_token_bytes} bytes")
        if not token.isascii():
            raise InvalidToken("the token has characters that no token has")
        signing_input, _, signature = token.encode("ascii").rpartition(b".")
        header, dot, payload = signing_input.partition(b".")
        if not dot or b"." in payload:
            raise InvalidToken("a token has three parts")
        if header != self._header:  # our own header needs no reading
            self._check_header(_decode(header))
        if not self._algorithm.verify(signing_input, self._verification_key, _decode(signature)):
            raise InvalidToken("the signature is wrong")
        return _decode(payload)

    def _check_header(self, text: bytes) -> None:
        try:
            header = loads_object(text)
        except (ValueError, RecursionError) as error:
            raise InvalidToken("the header of the token cannot be read") from error
        if header.get("alg") != self._alg:
            raise InvalidToken(f"the token is not signed with {self._alg}")
        if "crit" in header:  # RFC 7515 section 4.1.11: we understand no extension
            raise InvalidToken("the token has a critical header")
        kind = header.get("typ", "JWT")
        if not isinstance(kind, str) or kind.lower().removeprefix("application/") != "jwt":
            raise InvalidToken("the token is not of the type JWT")

    def _secret(self, secret: object) -> bytes:
        least = _HMAC_BYTES[self._alg]
        if not isinstance(secret, str | bytes) or not secret:
            raise ConfigError(f"secret_key must be text or bytes for {self._alg}: take secrets.token_bytes({least})")
        try:
            prepared: bytes = self._algorithm.prepare_key(secret)
        except (InvalidKeyError, ValueError):
            raise ConfigError("secret_key is a public key, a certificate or no text: give random bytes") from None
        if len(prepared) < least:
            raise ConfigError(
                f"secret_key has {len(prepared)} bytes, {self._alg} needs {least}: take secrets.token_bytes({least})"
            )
        return prepared

    def _pair(self, signing: object, verification: object) -> tuple[Any, Any]:
        if signing is None and verification is None:
            raise ConfigError(f"{self._alg} needs signing_key, or verification_key to validate only")
        if signing is not None:
            signing = self._asymmetric("signing_key", signing)
            if not hasattr(signing, "public_key"):
                raise ConfigError("signing_key must be a private key: a public one goes into verification_key")
        if verification is not None:
            verification = self._asymmetric("verification_key", verification)
            if hasattr(verification, "public_key"):
                raise ConfigError("verification_key must be a public key: a private one goes into signing_key")
        else:
            verification = signing.public_key()
        return signing, verification

    def _asymmetric(self, name: str, key: object) -> object:
        # What PyJWT checks differs from version to version: it reads, and what it read is checked below.
        reader: Any = ECAlgorithm(ECAlgorithm.SHA256) if self._alg in _CURVES else self._algorithm
        try:
            prepared: object = reader.prepare_key(key)
        except (InvalidKeyError, ValueError, TypeError, UnsupportedAlgorithm):
            prepared = None  # the error itself may quote what was given
        if not isinstance(prepared, _KINDS[self._alg[:2]]):
            raise ConfigError(f"{name} must be a key object or unencrypted PEM for {self._alg}")
        if isinstance(prepared, RSAPrivateKey | RSAPublicKey) and prepared.key_size < _RSA_BITS:
            raise ConfigError(f"{name} has {prepared.key_size} bits: {self._alg} needs {_RSA_BITS} or more")
        curve = _CURVES.get(self._alg)
        if isinstance(prepared, EllipticCurvePrivateKey | EllipticCurvePublicKey) and prepared.curve.name != curve:
            raise ConfigError(f"{name} is on the curve {prepared.curve.name}: {self._alg} needs {curve}")
        return prepared


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decode(segment: bytes) -> bytes:
    """Decode base64url without padding (RFC 7515 section 2), in the one form that encoding gives."""
    try:
        data = base64.urlsafe_b64decode(segment + b"=" * (-len(segment) % 4))
    except binascii.Error as error:
        raise InvalidToken("a part of the token is no base64url") from error
    if _encode(data) != segment:
        raise InvalidToken("a part of the token is no base64url in its one form")
    return data
