"""Every Python example of the documentation runs, on a real server."""

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jwtlimit_core import Limit
from jwtlimit_core.settings import _NAMES, build_engine
from jwtlimit_core.testing import ManualClock
from servers import Server

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(example, id=f"{page.stem}-{index}")
    for page in sorted(DOCS.glob("*.md"))
    for index, example in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


def test_docs_have_examples() -> None:
    assert len(EXAMPLES) == 16


@pytest.mark.parametrize("example", EXAMPLES)
def test_docs_example_runs(example: str, server: Server) -> None:
    here = example.replace("redis://localhost:6379/0", server.url).replace(
        'host="localhost"', f'host="127.0.0.1", port={server.port}'
    )
    assert here != example or "localhost" not in example  # else it would talk to a server of the machine
    if "django" in example:
        import adapters.django_project  # noqa: F401  which sets Django up
    given = SimpleNamespace(config={})
    namespace: dict[str, Any] = {"__name__": "example", "app": given}
    exec(compile(here, "docs", "exec"), namespace)
    if "JWTLIMIT" in namespace:
        build_engine(namespace["JWTLIMIT"])
    if given.config:
        build_engine({name.removeprefix("JWTLIMIT_"): value for name, value in given.config.items()})
    if "processor" in namespace:
        assert namespace["processor"].validate(namespace["token"]).sub == "u1"
        namespace["processor"].close()
    elif "limiter" in namespace:
        assert namespace["limiter"].acquire("u1").allowed


def run(page: str, part: str) -> dict[str, Any]:
    """Run the one example of *page* that has *part* in it, and return its names."""
    examples = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    (example,) = [example for example in examples if part in example]
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs", "exec"), namespace)
    return namespace


def test_docs_django_rest_examples_charge_the_user_of_rest_framework() -> None:
    from django.test import Client, override_settings
    from django.urls import path
    from rest_framework.authentication import BaseAuthentication
    from rest_framework.response import Response

    import adapters.django_project  # noqa: F401  which sets Django up

    class ByHeader(BaseAuthentication):
        def authenticate(self, request: Any) -> Any:
            return SimpleNamespace(is_authenticated=True, pk=request.headers["X-User"]), None

    namespace = run("django.md", "RateLimitThrottle")
    reports = type("Reports", (namespace["Reports"],), {"get": lambda view, request: Response([])})
    urls = ModuleType("urls")
    urls.urlpatterns = []  # type: ignore[attr-defined]
    for name, view in (("profile", namespace["profile"]), ("reports", reports.as_view())):
        view.cls.authentication_classes, view.cls.permission_classes = [ByHeader], []
        urls.urlpatterns.append(path(name, view))  # type: ignore[attr-defined]
    with override_settings(ROOT_URLCONF=urls, JWTLIMIT={"CLOCK": ManualClock()}):
        for where, rate in (("/profile", 60), ("/reports", 10)):
            for user in ("ann", "bob"):
                statuses = [Client().get(where, headers={"X-User": user}).status_code for _ in range(rate + 1)]
                assert statuses == [200] * rate + [429]


def test_docs_django_views_are_limited_together() -> None:
    from django.test import Client, override_settings
    from django.urls import path

    import adapters.django_project  # noqa: F401  which sets Django up

    namespace = run("django.md", "class Report(View)")
    views = {"token": namespace["token"], "report": namespace["Report"].as_view(), "healthz": namespace["health"]}
    urls = ModuleType("urls")
    urls.urlpatterns = [path(name, view) for name, view in views.items()]  # type: ignore[attr-defined]
    jwtlimit = {"SECRET_KEY": "s" * 32, "LIMITS": [Limit("site", "600/m")], "USER_KEY": lambda request: "ann"}
    with override_settings(ROOT_URLCONF=urls, JWTLIMIT=jwtlimit):
        assert [Client().post("/token").status_code for _ in range(6)] == [200] * 5 + [429]
        assert Client().get("/report").json() == {"left": 59}
        assert "RateLimit" not in Client().get("/healthz").headers


def test_docs_log_in_stops_guessing_and_lets_the_owner_in() -> None:
    namespace = run("login.md", "login-account")
    client = namespace["app"].test_client()

    def statuses(count: int, password: str, peer: str) -> list[int]:
        credentials = {"username": "ann", "password": password}
        environ = {"REMOTE_ADDR": peer}
        return [client.post("/token", data=credentials, environ_base=environ).status_code for _ in range(count)]

    assert statuses(7, "wrong", "192.0.2.66") == [401] * 5 + [429] * 2
    assert statuses(9, "wonderland", "192.0.2.1") == [200] * 9  # who knows the password is not counted, nor locked out
    botnet = [status for number in range(100, 160) for status in statuses(2, "wrong", f"192.0.2.{number}")]
    assert botnet.count(401) == 95
    multipart = {"data": {"username": " Ann"}, "content_type": "multipart/form-data"}
    assert client.post("/token", **multipart, environ_base={"REMOTE_ADDR": "192.0.2.99"}).status_code == 429
    with namespace["app"].app_context():
        namespace["jwtlimit"].reset("login-account", "function=ann")
        namespace["jwtlimit"].reset("login-pair", "ip=192.0.2.66&function1=ann")
    assert statuses(6, "wrong", "192.0.2.66") == [401] * 5 + [429]


def test_docs_settings_are_all_there_are() -> None:
    page = (DOCS / "settings.md").read_text()
    rows = re.findall(r"^\| ((?:`[A-Z0-9_]+`(?:, )?)+) \|", page, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall("[A-Z0-9_]+", row)) == sorted(_NAMES)
