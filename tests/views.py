"""Requests as plain data, as the engine looks at them, and the ways of one through it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jwtlimit_core import Admission, Engine, Limit, RateLimitExceeded, RequestView
from jwtlimit_core.flow import Call, run
from jwtlimit_core.http import Headers
from jwtlimit_core.limit import Phase


@dataclass
class View:
    """A request; *raw*, what functions of the application get, is the view itself."""

    method: str = "POST"
    path: str = "/"
    peer: str | None = "192.0.2.1"
    headers: dict[str, str | list[str]] = field(default_factory=dict)
    content: bytes | None = b""
    name: str | None = None
    awaits: bool = False

    @property
    def is_forwarded(self) -> bool:
        return any(self.header_lines(name) for name in ("X-Forwarded-For", "Forwarded"))

    @property
    def raw(self) -> Any:
        return self

    def call(self, function: Callable[[Any], Any], *, awaits: bool) -> Call:
        return Call(function, (self.raw,), awaits)

    def header(self, name: str) -> str | None:
        return next(iter(self.header_lines(name)), None)

    def header_lines(self, name: str) -> list[str]:
        value = {key.lower(): value for key, value in self.headers.items()}.get(name.lower(), [])
        return [value] if isinstance(value, str) else value

    def body(self, most_bytes: int) -> Call:
        content = self.content
        return Call(lambda: content if content is not None and len(content) <= most_bytes else None)

    def user(self) -> Call:
        return Call(lambda: self.name)


def form(text: str, **options: Any) -> View:
    return View(headers={"Content-Type": "application/x-www-form-urlencoded"}, content=text.encode(), **options)


def admit(engine: Engine, view: RequestView, *limits: Limit) -> Admission:
    """Charge a request of its own to *limits*, as decorators do."""
    admission = engine.admission(view)
    run(engine.admit(view, admission, Phase(limits)))
    return admission


def headers(engine: Engine, view: RequestView, *limits: Limit) -> Headers:
    return engine.headers(admit(engine, view, *limits), 200)


def passes(engine: Engine, view: RequestView, *limits: Limit) -> bool:
    try:
        admit(engine, view, *limits)
    except RateLimitExceeded:
        return False
    return True


def passed(engine: Engine, view: RequestView, *limits: Limit, of: int = 10) -> int:
    return sum(passes(engine, view, *limits) for _ in range(of))


def enters(engine: Engine, view: RequestView) -> bool:
    """Say whether a request of its own passes the limits of the settings."""
    try:
        run(engine.enter(view, engine.admission(view)))
    except RateLimitExceeded:
        return False
    return True
