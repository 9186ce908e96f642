"""Requests on their way through ASGI: what a framework that is none gets from the core alone."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from jwtlimit_core import ConfigError, Engine, Limit, LimiterUnavailable, Rate, RateLimiter, RateLimitExceeded, Response
from jwtlimit_core.asgi import App, Message, Receive, Scope, Send
from jwtlimit_core.asgi_passage import Gate, Passage, closing, fail
from jwtlimit_core.http import Refusal, refusal
from jwtlimit_core.limit import Phase, phase_of
from jwtlimit_core.settings import build_engine
from jwtlimit_core.testing import ManualClock

SCOPE = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.1", 7)}
OURS = {b"ratelimit-policy": b'"site";q=1;w=60', b"ratelimit": b'"site";r=0;t=60'}


def engine_of(*limits: Limit, **settings: Any) -> Engine:
    return build_engine({"LIMITS": limits, "CLOCK": ManualClock(), **settings}, host="async")


class Limited:
    """Middleware of a framework that is none."""

    kind = Passage

    def __init__(self, engine: Engine, app: App, exempt: str = "", handler: Any = None) -> None:
        self.engine = engine
        self.app = app
        self.exempt = exempt
        self.handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        passage = self.kind(self.engine, scope, receive)
        await passage.through(self.app, send, lambda scope: scope["path"] == self.exempt, self.handler)
        assert passage.scope is None


class Hello:
    """An application that answers, or raises."""

    def __init__(self, status: int = 200, error: Exception | None = None) -> None:
        self.status = status
        self.error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": self.status, "headers": [(b"RateLimit", b"theirs")]})
        await send({"type": "http.response.body", "body": b"hello"})


async def receive() -> Message:
    return {"type": "http.request"}


def sent_by(app: App, **scope: Any) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app({**SCOPE, **scope}, receive, send))  # type: ignore[arg-type]
    return sent


def answer_of(app: App, **scope: Any) -> tuple[int, dict[bytes, bytes], bytes]:
    start, body = sent_by(app, **scope)
    assert len(start["headers"]) == len(dict(start["headers"]))
    return start["status"], dict(start["headers"]), body["body"]


def exceeded() -> RateLimitExceeded:
    limiter = RateLimiter.from_rate(Rate(1, 60), name="mine", clock=ManualClock())
    limiter.allow("k")
    return RateLimitExceeded(limiter.acquire("k"))


def test_passage_is_all_that_middleware_needs() -> None:
    app = Limited(engine_of(Limit("site", "1/m")), Hello())
    assert answer_of(app) == (200, OURS, b"hello")
    status, headers, body = answer_of(app)
    assert (status, headers[b"retry-after"], headers[b"content-type"]) == (429, b"60", b"application/problem+json")
    assert int(headers[b"content-length"]) == len(body) > 0
    assert OURS.items() <= headers.items()


def test_passage_shows_an_answer_to_functions_of_limits() -> None:
    seen: list[Any] = []
    limit = Limit("site", "1/m", refund_when=lambda status, headers: bool(seen.append((status, headers))) or status == 401)
    app = Limited(engine_of(limit), Hello(401))
    assert [answer_of(app)[0] for _ in range(3)] == [401] * 3
    assert seen == [(401, OURS)] * 3


def test_passage_tells_how_long_to_wait_for_a_store_where_the_application_answers_what_a_processor_refused() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        Passage.around(scope).note(LimiterUnavailable("down", retry_after=7))
        await Hello(503)(scope, receive, send)

    status, headers, body = answer_of(Limited(engine_of(), app))
    assert (status, headers[b"retry-after"], body) == (503, b"7", b"hello")


@pytest.mark.parametrize("scope", [{"type": "websocket"}, {"path": "/free"}])
def test_passage_charges_neither_websockets_nor_what_is_passed_by(scope: dict[str, Any]) -> None:
    app = Limited(engine_of(Limit("site", "1/m")), Hello(), exempt="/free")
    assert [answer_of(app, **scope)[1] for _ in range(3)] == [{b"RateLimit": b"theirs"}] * 3


def test_passage_through_what_is_disabled_changes_nothing() -> None:
    app = Limited(engine_of(Limit("site", "1/m"), ENABLED=False), Hello())
    assert [answer_of(app)[1] for _ in range(3)] == [{b"RateLimit": b"theirs"}] * 3


def test_passage_answers_what_the_application_refuses_and_settles_what_it_raises() -> None:
    settled: list[int] = []
    limit = Limit("site", "9/m", refund_when=lambda status, headers: bool(settled.append(status)))
    engine = engine_of(limit)
    assert answer_of(Limited(engine, Hello(error=LimiterUnavailable("down", retry_after=3))))[0] == 503
    with pytest.raises(LookupError, match="mine"):
        answer_of(Limited(engine, Hello(error=LookupError("mine"))))
    assert settled == [503, 500]


def test_passage_knows_that_it_has_answered() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        assert passage.is_answered
        sent.append(message)

    passage = Passage(engine_of(), {**SCOPE}, receive)
    assert not passage.is_answered
    asyncio.run(passage.answer(refusal(exceeded()), send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


def test_passage_raises_what_comes_after_the_start_of_the_answer() -> None:
    async def fails_late(scope: Scope, receive: Receive, send: Send) -> None:
        await Hello()(scope, receive, send)
        raise error

    for error in (exceeded(), LookupError("mine")):
        with pytest.raises(type(error)) as caught:
            answer_of(Limited(engine_of(), fails_late))
        assert caught.value is error


class Handling(Passage):
    def handling(self, error: Refusal, answer: Response, app: Any) -> Awaitable[App] | None:
        async def handled() -> App:
            return Hello(418)

        return None if app is None else handled()


def test_passage_leaves_the_answer_to_the_application_that_handles_refusals() -> None:
    app = Limited(engine_of(Limit("site", "1/m")), Hello(), handler="an application")
    app.kind = Handling
    assert answer_of(app)[0] == 200
    status, headers, body = answer_of(app)
    assert (status, headers[b"retry-after"], body) == (418, b"60", b"hello")
    assert OURS.items() <= headers.items()
    app.handler = None
    assert answer_of(app)[0] == 429


def test_refusal_that_brings_its_answer_is_told_once() -> None:
    told: list[Any] = []
    engine = engine_of(ON_REFUSED=lambda decision, view: told.append(decision))
    error = exceeded()
    error.answer = refusal(error)._replace(body=b"found before")  # type: ignore[attr-defined]
    assert answer_of(Limited(engine, Hello(error=error)))[2] == b"found before"
    assert answer_of(Limited(engine, Hello(error=exceeded())))[0] == 429
    assert len(told) == 1


def test_refusal_may_have_an_answer_of_another_kind() -> None:
    class Mine(LimiterUnavailable):
        answer = "mine"

    assert answer_of(Limited(engine_of(), Hello(error=Mine("down"))))[0] == 503


def test_passage_has_the_request_of_the_framework_while_there_is_one() -> None:
    class Framed(Passage):
        request_class = list  # of whatever is called with scope and receive

    made: list[Any] = []
    Framed.request_class = lambda *given: made.append(given) or "request"  # type: ignore[assignment, return-value, func-returns-value]
    passage = Framed(engine_of(), dict(SCOPE), receive)
    assert [passage.raw, passage.raw, len(made)] == ["request", "request", 1]
    passage.release()
    assert passage.raw is None
    assert Passage(engine_of(), dict(SCOPE), receive).raw is None


PHASE = phase_of(Limit("page", "1/m"))


class Knowing(Passage):
    def user_in(self, scope: Scope) -> Any:
        return scope["user"]


def asked(phase: Phase, engine: Engine | None, kind: type[Passage] = Passage, times: int = 2, **scope: Any) -> list[Any]:
    """Return what a gate refuses of requests, in which an application is mounted below."""
    found, gate = [], Gate(kind)

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(await gate.refusal({**scope, "root_path": "/mount"}, "request", phase))

    app: Any = endpoint
    if engine is not None:
        app = Limited(engine, endpoint)
        app.kind = kind
    for _ in range(times):
        sent_by(app, **scope)
    return found


@pytest.mark.parametrize("engine", [None, engine_of()])
def test_gate_refuses_with_error_and_answer(engine: Engine | None) -> None:
    passed, (error, answer) = asked(PHASE, engine)
    assert passed is None
    assert isinstance(error, RateLimitExceeded)
    assert error.__traceback__ is None
    assert (error.decision.name, answer.status) == ("page", 429)


def test_gate_shows_the_request_as_the_endpoint_has_it() -> None:
    seen: list[Any] = []
    engine = engine_of(ON_REFUSED=lambda decision, view: seen.append((view.path, view.raw)))
    by_user = phase_of(Limit("page", "1/m", key="user"))
    assert len(list(filter(None, asked(by_user, engine, Knowing, path="/mount/a", user="ann")))) == 1
    with pytest.raises(ConfigError, match="set user_key"):
        asked(by_user, engine_of(), user="ann")
    assert seen == [("/a", "request")]


def test_gate_reads_the_body_through_the_passage() -> None:
    by_field = phase_of(Limit("page", "1/m", key="field:name"))
    headers = [(b"content-type", b"application/json")]
    assert len(list(filter(None, asked(by_field, engine_of(), headers=headers)))) == 1
    with pytest.raises(ConfigError, match="RateLimitMiddleware"):
        asked(by_field, None, headers=headers)


def test_gate_without_middleware_says_so_once_and_asks_for_it_where_nobody_would_refund(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked(PHASE, None, times=3)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "limit 'page' has the default settings: there is no RateLimitMiddleware"
    ]
    with pytest.raises(ConfigError, match="refund_when of limit 'page' sees nothing"):
        asked(phase_of(Limit("page", "1/m", refund_when=lambda status, headers: True)), None)


def test_closing_lets_go_before_the_server_hears_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    engine = engine_of()

    def close(*, on_loop: bool) -> Any:
        seen.append(on_loop)
        yield from ()

    async def send(message: Message) -> None:
        seen.append(message["type"])

    async def live() -> None:
        for kind in ("lifespan.startup.complete", "lifespan.shutdown.complete"):
            await closing(engine, send)({"type": kind})

    monkeypatch.setattr(engine, "close", close)
    asyncio.run(live())
    assert seen == ["lifespan.startup.complete", True, False, "lifespan.shutdown.complete"]


@pytest.mark.parametrize(("kind", "count"), [("lifespan", 1), ("http", 0)])
def test_fail_tells_a_lifespan_and_raises(kind: str, count: int) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(ConfigError, match="wrong"):
        asyncio.run(fail(ConfigError("wrong"), {"type": kind}, receive, send))
    assert sent == [{"type": "lifespan.startup.failed", "message": "wrong"}] * count


def test_passage_has_the_processors_of_its_engine_where_there_is_one() -> None:
    seen: list[Any] = []

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        passage = Passage.around(scope)
        with pytest.raises(ConfigError, match="on an event loop"):
            passage.processor()
        seen.append(await passage.async_processor().create({"sub": "ann"}))
        seen.append(await asyncio.to_thread(lambda: passage.processor().create({"sub": "bob"})))
        with pytest.raises(RateLimitExceeded):
            await passage.async_processor().create({"sub": "ann"})
        await Hello(429)(scope, receive, send)

    settings = {"SECRET_KEY": "s" * 32, "ISSUE_RATE": "1/m"}
    status, headers, _ = answer_of(Limited(engine_of(**settings), endpoint))
    assert (status, headers[b"retry-after"], len(set(seen))) == (429, b"60", 2)
    with pytest.raises(ConfigError, match="there is no RateLimitMiddleware"):
        Passage.around(dict(SCOPE))
