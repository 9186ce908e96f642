"""A store over TLS: a password is told to the server that the URL names, and to no other."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jwtlimit_core.redis import AsyncRedisTokenBucket, RedisTokenBucket
from stores import Plain


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a key and its certificate, which is trusted, but for another host."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elsewhere.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("elsewhere.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = tmp_path / "certificate.pem"
    path.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()) + made.public_bytes(pem))
    return path


@pytest.fixture
def impostor(certificate: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The port of a server that has the certificate, and what it is told."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    told: list[bytes] = []
    with closing(create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.settimeout(20)
            try:
                with context.wrap_socket(connection, server_side=True) as secure:
                    told.append(secure.recv(99))
            except OSError:  # the client has gone
                connection.close()

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], told
        thread.join(20)


@pytest.mark.parametrize("kind", [RedisTokenBucket, AsyncRedisTokenBucket])
@pytest.mark.parametrize(
    ("options", "is_told"),
    [("", False), ("&ssl_cert_reqs=required", False), ("&ssl_check_hostname=false", True), ("&ssl_cert_reqs=none", True)],
)
def test_password_is_told_to_another_host_only_where_the_url_allows_it(
    certificate: Path, impostor: tuple[int, list[bytes]], kind: Any, options: str, is_told: bool
) -> None:
    port, told = impostor
    url = f"rediss://:hunter2@127.0.0.1:{port}/0?ssl_ca_certs={certificate}{options}"
    with asyncio.Runner() as runner:
        limiter: Any = Plain(kind.from_url(url, 5, 60, timeout=5), runner.run)
        assert not limiter.allow("a")  # it is no store
        limiter.close()
    assert any(b"hunter2" in each for each in told) is is_told
