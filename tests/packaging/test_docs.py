"""Every Python example of the documentation runs, on a real server."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jwtlimit_core.settings import build_engine
from servers import Server

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(example, id=f"{page.stem}-{index}")
    for page in sorted(DOCS.glob("*.md"))
    for index, example in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


def test_docs_have_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_docs_example_runs(example: str, server: Server) -> None:
    here = example.replace("redis://localhost:6379/0", server.url).replace(
        'host="localhost"', f'host="127.0.0.1", port={server.port}'
    )
    assert here != example  # else it would talk to a server of the machine
    app = SimpleNamespace(config={})
    namespace: dict[str, Any] = {"__name__": "example", "app": app}
    exec(compile(here, "docs", "exec"), namespace)
    if app.config:
        build_engine({name.removeprefix("JWTLIMIT_"): value for name, value in app.config.items()})
    if "processor" in namespace:
        assert namespace["processor"].validate(namespace["token"]).sub == "u1"
        namespace["processor"].close()
    elif "limiter" in namespace:
        assert namespace["limiter"].acquire("u1").allowed
