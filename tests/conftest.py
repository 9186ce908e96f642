"""What more than one folder needs: servers, started once; keys, made once; tokens that no processor would issue."""

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from jwtlimit_core.tokens import ALGORITHMS, CompactJWS

if TYPE_CHECKING:
    from servers import Server
    from stores import Stores

BINARIES: dict[str, str] = {}
if find_spec("redis"):
    from servers import binaries, served
    from stores import Stores

    BINARIES = binaries()
else:
    # The extra "redis" is not installed, as in the tox environment "core": files that import it are none of its tests.
    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        asks = r"^(import|from) (redis|servers|stores|hosts|django|flask|starlette|jwtlimit_core\.redis)\b"
        return True if collection_path.suffix == ".py" and re.search(asks, collection_path.read_text(), re.MULTILINE) else None


SECRET = bytes(range(64))

Forge = Callable[..., str]


def _segment(part: object) -> bytes:
    """Encode *part*, which is JSON as bytes or something to be written as JSON."""
    text = part if isinstance(part, bytes) else json.dumps(part, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


@pytest.fixture(scope="session")
def running() -> Iterator[Callable[[str], "Stores"]]:
    """Return the way to the server of a name in `BINARIES`, which runs from its first use to the end of the session."""
    with ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(Stores(stack.enter_context(served(BINARIES[name])))))


@pytest.fixture(scope="session", params=BINARIES)
def stores(request: pytest.FixtureRequest, running: Callable[[str], "Stores"]) -> "Stores":
    """Return the maker of limiters over each server of this machine in turn."""
    return running(request.param)


@pytest.fixture(scope="session")
def server(stores: "Stores") -> "Server":
    """Return that server. All tests share it: each uses names of its own, and flushes nothing."""
    return stores.server


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
