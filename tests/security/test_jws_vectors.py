"""The public JWS vectors of C2SP Wycheproof, for every algorithm that we offer."""

import json
from collections import Counter
from pathlib import Path

import pytest
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, RSAAlgorithm

from jwtlimit_core import ConfigError, InvalidToken
from jwtlimit_core.tokens import ALGORITHMS, CompactJWS

VECTORS = Path(__file__).parents[2].parent / "shared/golden/json_web_signature_test.json"
pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason="the public vectors are not beside the repository")

READERS = {"oct": HMACAlgorithm.from_jwk, "EC": ECAlgorithm.from_jwk, "RSA": RSAAlgorithm.from_jwk}

# Groups whose key names another algorithm than their vector is signed with (RFC 7520 sections 4.2 and 4.3).
MISNAMED = {
    ("rfc7520", "PS256"): "PS384",
    ("rfc7520WithKeyOps", "PS256"): "PS384",
    ("rfc7520", "ES521"): "ES512",
    ("rfc7520WithKeyOps", "ES521"): "ES512",
}
# Groups whose key is for encryption and names no algorithm: there is nothing to verify with.
NO_SIGNATURES = {("rsa_encryption", None), ("ec_key_for_encryption", None)}
# Marked valid and refused: a character that is not base64url, in the header or the payload (RFC 7515 section 2).
NOT_BASE64URL = {372, 373}
# Marked invalid for their padding, which the file has lost: they are the valid vector 357 to the last character.
SAME_AS_A_VALID_ONE = {367, 370}


def accepts(jws: CompactJWS, token: str) -> bool:
    try:
        jws.verify(token)
    except InvalidToken:
        return False
    return True


def test_every_public_vector_is_judged_as_it_is_marked_or_is_named_here() -> None:
    ran: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    accepted_by: dict[str, str] = {}
    without_verifier = set()
    for group in json.loads(VECTORS.read_text())["testGroups"]:
        jwk = group.get("public") or group["private"]
        kind = group["comment"], jwk.get("alg")
        algorithm = MISNAMED.get(kind, jwk.get("alg"))
        name = "secret_key" if jwk["kty"] == "oct" else "verification_key"
        try:
            jws = CompactJWS(algorithm, **{name: READERS[jwk["kty"]](jwk)})
        except ConfigError:
            without_verifier.add(kind)
            continue
        for vector in group["tests"]:
            ran[vector["result"]] += 1
            accepted = accepts(jws, vector["jws"])
            if accepted is not (vector["result"] == "valid"):
                wrong[vector["tcId"]] = vector["jws"]
            elif accepted:
                accepted_by[vector["jws"]] = algorithm
    assert without_verifier == NO_SIGNATURES
    assert wrong.keys() == NOT_BASE64URL | SAME_AS_A_VALID_ONE
    assert all(wrong[number] in accepted_by for number in SAME_AS_A_VALID_ONE)
    # So that none of this is said about nothing.
    assert ran == {"valid": 46, "invalid": 351}
    assert set(accepted_by.values()) == set(ALGORITHMS) - {"HS384", "HS512", "ES384", "EdDSA"}
