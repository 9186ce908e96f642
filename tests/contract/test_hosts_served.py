"""The examples of every framework, served for real by two workers over one store, and asked by real clients."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from servers import Server, free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKERS = 2
START_S = 30
GUNICORN = ("gunicorn", "--chdir", str(EXAMPLES), "--workers", str(WORKERS), "--threads", "4", "--log-level", "error")
UVICORN = ("uvicorn", "--app-dir", str(EXAMPLES), "--workers", str(WORKERS), "--log-level", "error", "--no-proxy-headers")
SERVED = {
    "django-gunicorn": (*GUNICORN, "django_app:application"),
    "flask-gunicorn": (*GUNICORN, "flask_app:app"),
    "django-uvicorn": (*UVICORN, "django_app:asgi"),
    "starlette-uvicorn": (*UVICORN, "starlette_app:app"),
    "fastapi-uvicorn": (*UVICORN, "fastapi_app:app"),
}
ALICE = {"username": "alice", "password": "wonderland"}


@contextmanager
def serving(module: str, *arguments: str, **settings: str) -> Iterator[str]:
    """Serve an example on a port of its own, and return its URL."""
    port = free_port()
    place = ("--bind", f"127.0.0.1:{port}") if module == "gunicorn" else ("--port", str(port))
    environment = {**os.environ, "JWT_SECRET": "a secret of the tests, long enough", **settings}
    process = subprocess.Popen([sys.executable, "-m", module, *arguments, *place], env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            try:
                if httpx.get(f"{url}/healthz", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(params=SERVED)
def serve(request: pytest.FixtureRequest, server: Server) -> Callable[..., object]:
    """Return what serves each example in turn; a test has subjects and rates of its own."""
    module, *arguments = SERVED[request.param]
    with server.client() as client:
        for key in client.scan_iter("jwtlimit:*"):  # of the server before
            client.delete(key)
    return lambda rate: serving(module, *arguments, JWT_RATE=rate, JWT_STORE=server.url)


def test_two_workers_hold_one_limit_and_a_client_gets_through_by_waiting_as_told(serve: Callable[..., object]) -> None:
    with serve("6/18s") as url:  # type: ignore[attr-defined]
        limits = httpx.Limits(max_keepalive_connections=0)  # each request to any worker
        with httpx.Client(base_url=url, trust_env=False, limits=limits) as client:
            tokens = client.post("/token", data=ALICE).json()
            me = client.get("/me", headers={"Authorization": f"Bearer {tokens['access_token']}"})
            assert me.json() == {"user": "alice"}
            refresh = {"refresh_token": tokens["refresh_token"]}
            answers = [client.post("/refresh", data=refresh) for _ in range(16)]
            statuses = Counter(answer.status_code for answer in answers)
            # Two were issued at the log-in; one may have come back since.
            assert statuses in (Counter({200: 4, 429: 12}), Counter({200: 5, 429: 11}))
            assert client.get("/healthz").status_code == 200
            assert client.get("/me", headers={"Authorization": "Bearer nonsense"}).status_code == 401
        with requests.Session() as session:
            session.trust_env = False
            retry = Retry(
                total=1, status_forcelist=[429], respect_retry_after_header=True, allowed_methods=None, raise_on_status=False
            )
            session.mount("http://", HTTPAdapter(max_retries=retry))
            started = time.monotonic()
            answer = session.post(f"{url}/refresh", data=refresh)
            waited = time.monotonic() - started
            assert answer.status_code == 200
            history = answer.raw.retries.history
            assert [entry.status for entry in history] in ([429], [])  # at once, if one had just come back
            assert waited >= len(history)
            assert waited < 3 + 2  # one token comes back in 3 s


@pytest.mark.parametrize(
    ("options", "proxies", "statuses"),
    [
        ((), "", [200, 200, 200]),  # uvicorn believes whoever connects from this machine
        (("--no-proxy-headers",), "", [200, 429, 429]),
        (("--no-proxy-headers",), "127.0.0.1", [200, 200, 200]),  # the documented way, behind a proxy on this machine
    ],
)
def test_address_behind_uvicorn_is_what_the_documentation_says(
    options: tuple[str, ...], proxies: str, statuses: list[int]
) -> None:
    arguments = ("--app-dir", str(Path(__file__).parents[1]), "--log-level", "error", *options, "served_by_address:app")
    with serving("uvicorn", *arguments, PROXIES=proxies) as url:
        forwarded = [{"X-Forwarded-For": f"198.51.100.{number}"} for number in range(3)]
        assert [httpx.get(url, headers=each, trust_env=False).status_code for each in forwarded] == statuses
