"""A request on its way through ASGI middleware and to an endpoint, and what is answered: the same in every such framework."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

from jwtlimit_core.asgi import App, Message, Receive, Scope, ScopeView, Send, as_raw, with_headers
from jwtlimit_core.decision import RateLimitExceeded
from jwtlimit_core.engine import Engine
from jwtlimit_core.errors import ConfigError, LimiterUnavailable
from jwtlimit_core.flow import DONE, Call, is_on_loop, run, run_async
from jwtlimit_core.http import STATUSES, Refusal, Response, status_of
from jwtlimit_core.limit import Phase
from jwtlimit_core.processor import AsyncProcessor, Processor
from jwtlimit_core.request import RequestView
from jwtlimit_core.settings import build_engine

__all__ = ["MISSING", "Gate", "Passage", "closing", "fail"]

MISSING = "there is no RateLimitMiddleware: add it to the application"

_PASSAGE = "jwtlimit"  # in the scope of a request: its passage through the middleware

logger = logging.getLogger("jwtlimit")


class Passage(ScopeView):
    """A request as it came, and what is kept of it for all limits below: its way in, its charges, and its way out.

    A framework says what its requests and headers are, who its users are, and how its applications answer.

    Args:
        engine: Whose limits hold.
        scope: What the server says of it; in its ``state`` the application finds the admission.
        receive: Where its messages come from; None where no middleware has them.

    Attributes:
        engine: The same.
        admission: What it was charged.
        is_answered: Whether the answer has begun.
    """

    __slots__ = ("_noted", "admission", "engine", "is_answered")

    request_class: ClassVar[type[Any] | None] = None

    def __init__(self, engine: Engine, scope: Scope, receive: Receive | None) -> None:
        ScopeView.__init__(self, scope, receive)
        self.engine = engine
        self.admission = engine.admission(self)
        self.is_answered = False
        self._noted: Refusal | None = None
        scope.setdefault("state", {})["jwtlimit"] = self.admission

    @classmethod
    def of(cls, scope: Scope) -> Self | None:
        """Return the passage of the request that *scope* is of, None where there is no middleware."""
        return scope.get(_PASSAGE)

    @classmethod
    def around(cls, scope: Scope) -> Self:
        """Return the same.

        Raises:
            ConfigError: There is no middleware.
        """
        passage = cls.of(scope)
        if passage is None:
            raise ConfigError(MISSING)
        return passage

    def async_processor(self) -> AsyncProcessor:
        """Return the processor for this request: it limits only while the middleware did when that came.

        Raises:
            ConfigError: No key was configured.
        """
        return self.engine.async_processor(enabled=self.admission.enabled).reporting(self.note)

    def processor(self) -> Processor:
        """Return the same for code in threads.

        Raises:
            ConfigError: No key was configured; or this is called on an event loop, which would wait for the store.
        """
        if is_on_loop():
            raise ConfigError("the processor for threads was asked for on an event loop: use get_processor there")
        return self.engine.processor(enabled=self.admission.enabled).reporting(self.note)

    @property
    def raw(self) -> Any:
        """The framework's request, made when somebody asks for it; None when it is over."""
        kind = type(self).request_class
        if self._raw is None and kind is not None and self.scope is not None and self._receive is not None:
            self._raw = kind(self.scope, self.messages.reader())
        return self._raw

    def mapping(self, headers: Iterable[tuple[bytes, bytes]]) -> object:
        """Return *headers* of an answer as the framework has them, for functions of the application."""
        return dict(headers)

    def handling(self, error: Refusal, answer: Response, app: Any) -> Awaitable[App] | None:  # noqa: ARG002
        """Return what *app* does to answer *error* itself, with the headers of *answer*; None where it leaves that to us."""
        return None

    async def through(self, app: App, send: Send, passes: Callable[[Scope], bool], handler: Any) -> None:
        """Pass the request on to *app*, once, and see to what is answered.

        Args:
            app: What the middleware is around.
            send: That of the server.
            passes: Says whether the limits of the settings pass a request by.
            handler: The application that is to answer refusals, see `handling`.
        """
        scope: Any = self.scope  # only `release` makes it None
        scope[_PASSAGE] = self
        if scope["type"] != "http" or not self.admission.enabled:
            try:
                await app(scope, self._receive, send)
            finally:
                self.release()
            return
        send_with_headers = partial(self.send, send)
        try:
            if self.engine.limits and not passes(scope):
                flow = self.engine.enter(self, self.admission)
                if flow is not DONE:
                    await run_async(flow)
            await app(scope, self.messages.receive, send_with_headers)
        except (RateLimitExceeded, LimiterUnavailable) as error:
            if self.is_answered:
                raise
            answer = self.refuse(error, self)
            handling = self.handling(error, answer, handler)
            if handling is None:
                await self.answer(answer, send)
            else:
                await (await handling)(scope, self.messages.receive, send_with_headers)
        except Exception:  # outside of here it becomes a 500, which is not sent through us
            if not self.is_answered:
                await self.settle(500, ())
            raise
        finally:
            self.release()

    def refuse(self, error: Refusal, view: RequestView) -> Response:
        """Return the answer to *error*; whoever gives it, it gets our headers.

        An error that brings its ``answer`` was told of when that was found.
        """
        found = getattr(error, "answer", None)
        answer = found if isinstance(found, Response) else self.engine.refuse(error, view)
        self.admission.refused = answer.headers
        return answer

    async def answer(self, response: Response, send: Send) -> None:
        """Send a whole *response*, the answer to a refusal, by the *send* of the server."""
        headers = [
            (b"content-length", b"%d" % len(response.body)),
            (b"content-type", response.content_type.encode()),
            *as_raw(response.headers),
        ]
        if self.admission.refunds:
            await self.settle(response.status, headers)
        self.is_answered = True
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    def send(self, send: Send, message: Message) -> Awaitable[None]:
        """Return how to send a *message* of the answer, the first with our headers, by the *send* of the server.

        That is not kept here: the server has the scope, and the scope may have this.
        """
        if message["type"] != "http.response.start":
            return send(message)
        admission, status = self.admission, message["status"]
        if admission.refused is None and (status in STATUSES or self._noted is not None):
            error = self._refusal_behind(message)
            if error is not None:
                self.refuse(error, self)
        message = with_headers(message, self.engine.headers(admission, status))
        if admission.refunds:
            return self._settle_and_send(send, message)
        self.is_answered = True
        return send(message)

    async def _settle_and_send(self, send: Send, message: Message) -> None:
        await self.settle(message["status"], message.get("headers", ()))
        self.is_answered = True
        await send(message)

    async def settle(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Put back what limits want put back, now that the answer is known."""
        await run_async(self.engine.settle(self, self.admission, status, self.mapping(headers)))

    def release(self) -> None:
        """Let go of what holds this, too, now that the request is over."""
        ScopeView.release(self)
        self.admission.release()

    def note(self, error: Refusal) -> None:
        """Remember what a processor refused; whether that becomes the answer, the application decides."""
        # Not the error itself: the frames that it was raised in hold this.
        if isinstance(error, RateLimitExceeded):
            self._noted = RateLimitExceeded(error.decision)
        else:
            self._noted = LimiterUnavailable("the limiter gave no answer", retry_after=error.retry_after)

    def _refusal_behind(self, message: Message) -> Refusal | None:
        """Return the refusal of a processor that the application answers with *message*, by a handler of its own."""
        handled, status = sys.exception(), message["status"]
        if self._noted is None:  # of a processor that we do not know of, or of something else that is none of ours
            return handled if isinstance(handled, Refusal) and status == status_of(handled) else None
        if isinstance(handled, Refusal):
            return self._noted
        # Nothing is handled where other middleware sends answers from a task of its own; one with a wait says something else.
        is_own = any(name.lower() == b"retry-after" for name, _ in message.get("headers", ()))
        return self._noted if status == status_of(self._noted) and not is_own else None


class _EndpointView(ScopeView):
    """A request as an endpoint gets it, which may be mounted in another application than the middleware is around."""

    __slots__ = ("_passage",)

    def __init__(self, scope: Scope, raw: Any, passage: Passage) -> None:
        ScopeView.__init__(self, scope, None, raw)
        self._passage = passage

    def user_in(self, scope: Scope) -> Any:
        """Return the key of its user, as the framework knows that."""
        return self._passage.user_in(scope)

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body, of which something else may have read some."""
        return self._passage.body(most_bytes)


class Gate:
    """Where requests meet the limits of an endpoint; without middleware around it, with the default settings.

    Args:
        kind: The passages of the framework.
    """

    def __init__(self, kind: type[Passage]) -> None:
        self._kind = kind
        self._engine: Engine | None = None

    async def refusal(self, scope: Scope, raw: Any, phase: Phase) -> tuple[Refusal, Response] | None:
        """Charge a request to *phase*, and return why that refuses it, if it does, and the answer to that.

        Args:
            scope: The one that the endpoint got.
            raw: The framework's own object, as functions of the application get it.
            phase: The limits.

        Raises:
            ConfigError: They need the middleware, and there is none.
        """
        of_middleware = self._kind.of(scope)
        passage = of_middleware or self._kind(self._without_middleware(phase), scope, None)
        view = _EndpointView(scope, raw, passage)
        try:
            await run_async(passage.engine.admit(view, passage.admission, phase))
        except (RateLimitExceeded, LimiterUnavailable) as error:
            # Without the frames that it was raised in, all of them ours: one of them would hold what it is returned in.
            return error.with_traceback(None), passage.refuse(error, view)
        finally:
            view.release()
            if of_middleware is None:
                passage.release()
        return None

    def _without_middleware(self, limits: Phase) -> Engine:
        if self._engine is None:
            for limit in limits:
                if limit.refund_when is not None:
                    raise ConfigError(
                        f"refund_when of limit {limit.name!r} sees nothing: add RateLimitMiddleware to the application"
                    )
            logger.warning("limit %r has the default settings: there is no RateLimitMiddleware", limits[0].name)
            self._engine = build_engine({}, host="async")
        return self._engine


def closing(engine: Engine, send: Send, in_thread: Callable[..., Awaitable[object]] = asyncio.to_thread) -> Send:
    """Return the *send* of a lifespan, which closes *engine* before the server hears that the application is down.

    After that, the server stops to run us. What would stall the event loop is called by *in_thread*.
    """

    async def send_closed(message: Message) -> None:
        try:
            if message["type"] != "lifespan.startup.complete":
                await run_async(engine.close(on_loop=True))
                await in_thread(run, engine.close(on_loop=False))
        finally:
            await send(message)

    return send_closed


async def fail(problem: Exception, scope: Scope, receive: Receive, send: Send) -> NoReturn:
    """Raise *problem*, which kept middleware from being made; tell a lifespan of it in the way that servers understand."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": str(problem)})
    raise problem
