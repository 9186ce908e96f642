"""The story of `make demo`: a real server, a real client, every step checked."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

APP = Path(__file__).with_name("flask_app.py")
START_LIMIT_S = 15


@contextmanager
def server() -> Iterator[str]:
    """Run the application under gunicorn on a free port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "gunicorn", "--chdir", str(APP.parent), "--bind", f"fd://{listener.fileno()}"]
        command += ["--threads", "4", "--log-level", "warning", "flask_app:app"]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait(timeout=10)


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
    print(f"  ok  {sentence}")


def log_in(client: httpx.Client, username: str, password: str) -> httpx.Response:
    return client.post("/token", data={"username": username, "password": password})


def tell(client: httpx.Client) -> None:
    print("\n1. Tokens are issued and validated")
    tokens = log_in(client, "alice", "wonderland").json()
    me = client.get("/me", headers={"Authorization": f"Bearer {tokens['access_token']}"})
    check(me.json() == {"user": "alice"}, "alice logs in, and GET /me knows her by her access token")
    wrong = client.get("/me", headers={"Authorization": f"Bearer {tokens['refresh_token']}"})
    check(wrong.status_code == 401, "her refresh token opens nothing")
    refreshed = client.post("/refresh", data={"refresh_token": tokens["refresh_token"]})
    me = client.get("/me", headers={"Authorization": f"Bearer {refreshed.json()['access_token']}"})
    check(me.json() == {"user": "alice"}, "but brings a new access token")

    print("\n2. The limit is reached: 5 tokens in 30 seconds for each subject")
    answers = [client.post("/refresh", data={"refresh_token": tokens["refresh_token"]}) for _ in range(3)]
    check([answer.status_code for answer in answers] == [200, 200, 429], "two more are issued, the next is refused")
    refused = answers[-1]
    print(f"\n      HTTP {refused.status_code}")
    for name in ("Retry-After", "RateLimit-Policy", "RateLimit", "Cache-Control", "Content-Type"):
        print(f"      {name}: {refused.headers[name]}")
    print("      " + json.dumps(refused.json(), indent=2).replace("\n", "\n      ") + "\n")
    check(refused.json()["violated-policies"] == ["issue"], "the body says which limit refused")

    print("\n3. Nobody else notices")
    check(log_in(client, "bob", "builder").status_code == 200, "bob logs in meanwhile")
    me = client.get("/me", headers={"Authorization": f"Bearer {tokens['access_token']}"})
    check(me.status_code == 200, "and alice's token is validated as ever: validation is never limited")

    print("\n4. A client that waits exactly as told succeeds")
    wait_s = int(refused.headers["Retry-After"])
    print(f"      … waiting {wait_s} s …")
    time.sleep(wait_s)
    again = client.post("/refresh", data={"refresh_token": tokens["refresh_token"]})
    check(again.status_code == 200, f"after Retry-After, {wait_s} s, alice is served again")


def main() -> None:
    os.environ["JWT_RATE"] = "5/30s"
    with server() as url, httpx.Client(base_url=url, trust_env=False) as client:
        print(f"examples/flask_app.py is served by gunicorn at {url}")
        wait_until_up(client)
        tell(client)
    print(
        "\nAll of it is true. To try it by hand:\n"
        "  .venv/bin/flask --app examples/flask_app.py run\n"
        "  curl -i -d username=alice -d password=wonderland http://127.0.0.1:5000/token"
    )


if __name__ == "__main__":
    main()
