"""Every Python example of the documentation runs, on a real server."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jwtlimit_core.settings import _NAMES, build_engine
from servers import Server

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(example, id=f"{page.stem}-{index}")
    for page in sorted(DOCS.glob("*.md"))
    for index, example in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


def test_docs_have_examples() -> None:
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("example", EXAMPLES)
def test_docs_example_runs(example: str, server: Server) -> None:
    here = example.replace("redis://localhost:6379/0", server.url).replace(
        'host="localhost"', f'host="127.0.0.1", port={server.port}'
    )
    assert here != example or "localhost" not in example  # else it would talk to a server of the machine
    given = SimpleNamespace(config={})
    namespace: dict[str, Any] = {"__name__": "example", "app": given}
    exec(compile(here, "docs", "exec"), namespace)
    if given.config:
        build_engine({name.removeprefix("JWTLIMIT_"): value for name, value in given.config.items()})
    if "processor" in namespace:
        assert namespace["processor"].validate(namespace["token"]).sub == "u1"
        namespace["processor"].close()
    elif "limiter" in namespace:
        assert namespace["limiter"].acquire("u1").allowed


def test_docs_log_in_stops_guessing_and_lets_the_owner_in() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "login.md").read_text(), re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs", "exec"), namespace)
    client = namespace["app"].test_client()

    def statuses(count: int, password: str, peer: str) -> list[int]:
        credentials = {"username": "ann", "password": password}
        environ = {"REMOTE_ADDR": peer}
        return [client.post("/token", data=credentials, environ_base=environ).status_code for _ in range(count)]

    assert statuses(7, "wrong", "192.0.2.66") == [401] * 5 + [429] * 2
    assert statuses(9, "wonderland", "192.0.2.1") == [200] * 9  # who knows the password is not counted, nor locked out
    botnet = [status for number in range(100, 160) for status in statuses(2, "wrong", f"192.0.2.{number}")]
    assert botnet.count(401) == 95


def test_docs_settings_are_all_there_are() -> None:
    page = (DOCS / "settings.md").read_text()
    rows = re.findall(r"^\| ((?:`[A-Z0-9_]+`(?:, )?)+) \|", page, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall("[A-Z0-9_]+", row)) == sorted(_NAMES)
