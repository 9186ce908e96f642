"""Every Python example of the README runs, and the wheel holds what it should."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def run(part: str, **given: Any) -> dict[str, Any]:
    (example,) = [example for example in EXAMPLES if part in example]
    namespace: dict[str, Any] = {"__name__": "app", **given}
    # Dataclasses look their module up by name.
    exec(compile(example, "README.md", "exec"), namespace)
    return namespace


def test_readme_has_no_example_without_a_test() -> None:
    assert len(EXAMPLES) == 6


def test_readme_django_example_limits_attempts_from_one_address() -> None:
    pytest.importorskip("django")
    from django.test import Client, override_settings
    from django.urls import path

    import adapters.django_project  # noqa: F401  which sets Django up

    namespace = run("MIDDLEWARE = ", check_password=lambda form: form["username"])
    settings = {name: value for name, value in namespace.items() if name.isupper()}
    urls = ModuleType("urls")
    urls.urlpatterns = [path("token", namespace["token"])]  # type: ignore[attr-defined]
    del settings["INSTALLED_APPS"]  # it is, already
    with override_settings(**settings, ROOT_URLCONF=urls):
        answers = [Client().post("/token", {"username": "alice"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert set(answers[0].json()) == {"access_token"}


def test_readme_starlette_example_limits_attempts_from_one_address() -> None:
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    client = TestClient(run("from starlette", check_password=lambda credentials: credentials["username"])["app"])
    answers = [client.post("/token", json={"username": "alice"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert set(answers[0].json()) == {"access_token"}


def test_readme_fastapi_example_limits_attempts_from_one_address() -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    client = TestClient(run("from fastapi", check_password=lambda credentials: credentials["username"])["app"])
    answers = [client.post("/token", json={"username": "alice"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert set(answers[0].json()) == {"access_token"}
    assert answers[-1].headers["Content-Type"] == "application/problem+json"


def test_readme_flask_example_limits_attempts_from_one_address() -> None:
    pytest.importorskip("flask")
    app = run("from flask import", check_password=lambda form: form["username"])["app"]
    client = app.test_client()
    answers = [client.post("/token", data={"username": "alice"}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    shown = re.search(r"^HTTP/1.1 429.*?^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert shown is not None
    for name in ("RateLimit-Policy", "RateLimit", "Cache-Control", "Content-Type"):
        value = re.sub("t=1[12]", "t=12", answers[-1].headers[name])
        assert f"{name}: {value}" in shown[0]


def test_readme_limiter_example_answers_as_its_comments_say() -> None:
    namespace = run("RateLimiter(100")
    limiter = namespace["limiter"]
    decision = namespace["decision"]
    assert (decision.allowed, decision.remaining, decision.retry_after) == (True, 94, 0.0)
    assert [limiter.allow("user:123") for _ in range(101)] == [True] * 100 + [False]


def test_readme_processor_example_waits_as_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    run("Processor(config)")
    assert capsys.readouterr().out == "wait 20 seconds\n"


def test_wheel_holds_four_typed_packages_and_no_tests(tmp_path: Path, built_wheel: Callable[[Path], Path]) -> None:
    names = zipfile.ZipFile(built_wheel(tmp_path)).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"jwtlimit_core", "jwtlimit_django", "jwtlimit_flask", "jwtlimit_starlette"}
    assert {f"{top}/py.typed" for top in tops} <= set(names)


@pytest.fixture
def built_wheel() -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = folder.glob("*.whl")
        return wheel

    return build
