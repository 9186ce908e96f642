"""The Flask extension: it registers, and translates between Flask and the engine of the core."""

import inspect
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from flask import Flask, Request, Response, current_app, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException, ServiceUnavailable, TooManyRequests

from jwtlimit_core import Clock, ConfigError, LimiterUnavailable, Processor, Rate, RateLimitExceeded
from jwtlimit_core.config import BeforeIssue
from jwtlimit_core.engine import Engine, OnRefused
from jwtlimit_core.flow import run
from jwtlimit_core.limit import Key, Limit
from jwtlimit_core.settings import build_engine

__all__ = ["JWTLimit"]

P = ParamSpec("P")
R = TypeVar("R")

_PREFIX = "JWTLIMIT_"
_HEADERS = "jwtlimit.headers"  # in the environ of a request: the headers that its answer shall have

logger = logging.getLogger("jwtlimit")


class _View:
    """The current request, as the engine looks at it."""

    __slots__ = ("method", "peer", "raw")

    def __init__(self) -> None:
        self.raw: Request = request._get_current_object()  # type: ignore[attr-defined]
        self.method = self.raw.method
        self.peer = self.raw.remote_addr

    def header(self, name: str) -> str | None:
        return self.raw.headers.get(name)


class _Decorated(NamedTuple):
    """What `JWTLimit.rate_limit` made; the wrapper itself is in it, since `functools.wraps` of others copies attributes."""

    extension: "JWTLimit"
    wrapper: Callable[..., Any]
    function: Callable[..., Any]
    limits: tuple[Limit, ...]


class JWTLimit:
    """Limits on tokens and views, for any number of applications.

    Settings are read from ``app.config`` when an application is initialised, each with ``JWTLIMIT_`` before its name;
    ``JWTLIMIT_ENABLED`` is read again for each request.

    Args:
        app: An application to initialise now; or call `init_app` later.
        before_issue: A hook that sees the claims before a token is issued, and refuses by raising; see `Config`.
        on_refused: Called with the decision and the request for each 429.
        clock: Where the time comes from.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        before_issue: BeforeIssue | None = None,
        on_refused: OnRefused | None = None,
        clock: Clock = time,
    ) -> None:
        self._before_issue = before_issue
        self._on_refused = on_refused
        self._clock = clock
        self._decorated: list[tuple[Callable[..., Any], Callable[..., Any]]] = []  # what was decorated, and by what
        self._names: Counter[str] = Counter()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limit *app*, by its settings as they are now. A second call for the same application changes nothing.

        Raises:
            ConfigError: Settings are unknown or cannot work; all of them are named.
        """
        engines = app.extensions.setdefault("jwtlimit", {})
        if self in engines:
            return
        engine = build_engine(
            {name.removeprefix(_PREFIX): value for name, value in app.config.items() if name.startswith(_PREFIX)},
            prefix=_PREFIX,
            before_issue=self._before_issue,
            on_refused=self._on_refused,
            clock=self._clock,
        )
        app.before_request(self._warner())
        if not engines:
            app.after_request(_add_headers)
            _answer_refusals(app)
        engines[self] = engine

    @property
    def processor(self) -> Processor:
        """The processor of the current application; it does not limit while ``JWTLIMIT_ENABLED`` is False.

        Raises:
            ConfigError: The application has no key in its settings, or was not initialised.
        """
        return self._engine.processor(enabled=self._enabled)

    def rate_limit(
        self,
        rate: Rate | str,
        *,
        key: Key = "ip",
        cost: int = 1,
        methods: Collection[str] | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Limit a view; put it below ``@app.route``. Several on one view are charged together, or not at all.

        Args:
            rate: How much, such as ``"5/m"``.
            key: Whom a request is charged to; see `Limit`.
            cost: Tokens that one request takes.
            methods: The methods that are limited; None limits all.
            name: What to call the limit; by default after the view. Limits of one name and rate share their counts.

        Raises:
            ConfigError: A value cannot work.
        """
        Limit(
            name or "limit", rate, key=key, cost=cost, methods=methods
        )  # what cannot work is told here, parentheses left out too

        def decorate(view: Callable[P, R]) -> Callable[P, R]:
            if inspect.isclass(view):
                raise ConfigError(f"rate_limit takes functions: put it into the `decorators` of {view.__name__}")
            own = getattr(view, "_jwtlimit", None)
            function: Callable[..., Any] = view
            limits: tuple[Limit, ...] = (Limit(name or self._name(view), rate, key=key, cost=cost, methods=methods),)
            if isinstance(own, _Decorated) and own.wrapper is view and own.extension is self:
                function = own.function
                limits = own.limits + limits
            if inspect.iscoroutinefunction(function):

                @wraps(view)
                async def wrapper(*args: Any, **kwargs: Any) -> Any:
                    self._admit(limits)
                    return await function(*args, **kwargs)

            else:

                @wraps(view)
                def wrapper(*args: Any, **kwargs: Any) -> Any:
                    self._admit(limits)
                    return function(*args, **kwargs)

            wrapper._jwtlimit = _Decorated(self, wrapper, function, limits)  # type: ignore[attr-defined]
            self._decorated.append((view, wrapper))
            return cast("Callable[P, R]", wrapper)

        return decorate

    def reset_all(self) -> None:
        """Give everybody the full quota back in the current application; meant for tests."""
        self._engine.reset_all()

    @property
    def _engine(self) -> Engine:
        engine: Engine | None = current_app.extensions.get("jwtlimit", {}).get(self)
        if engine is None:
            raise ConfigError(f"this JWTLimit knows nothing of the application {current_app.name!r}: call init_app(app)")
        return engine

    @property
    def _enabled(self) -> bool:
        return current_app.config.get(f"{_PREFIX}ENABLED") is not False

    def _admit(self, limits: tuple[Limit, ...]) -> None:
        engine = self._engine
        if self._enabled and (headers := run(engine.admit(_View(), limits))):
            request.environ[_HEADERS] = headers

    def _name(self, view: Callable[..., Any]) -> str:
        # Flask renames the function that `View.as_view` makes, but leaves its qualified name.
        own = view.__qualname__ if view.__qualname__.endswith(view.__name__) else view.__name__
        name = f"{view.__module__}.{own}"
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}#{self._names[name]}"

    def _warner(self) -> Callable[[], None]:
        """Return a hook that warns once, at the first request, of limits above ``@app.route``, which limit nothing."""
        done = False

        def warn() -> None:
            nonlocal done
            if done:
                return
            done = True
            views = set(current_app.view_functions.values())
            called = {inner for view in views for inner in _layers(view)}
            for view, wrapper in self._decorated:
                if view in views and wrapper not in called:
                    logger.warning(
                        "rate_limit of %s.%s limits nothing: put it below @app.route", view.__module__, view.__name__
                    )

        return warn


def _layers(view: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield *view* and all that it wraps."""
    layer: Callable[..., Any] | None = view
    while layer is not None:
        yield layer
        layer = getattr(layer, "__wrapped__", None)


def _answer_refusals(app: Flask) -> None:
    """Answer refusals where every exception passes by, so that whichever handler takes one, its answer gets our headers."""
    inner = app.handle_user_exception

    def handle_user_exception(*arguments: Any) -> HTTPException | ResponseReturnValue:
        error = arguments[-1]  # later versions of Flask put their context before it
        return _answer(error) if isinstance(error, RateLimitExceeded | LimiterUnavailable) else inner(*arguments)

    app.handle_user_exception = handle_user_exception  # type: ignore[assignment, method-assign]


def _answer(error: RateLimitExceeded | LimiterUnavailable) -> HTTPException | ResponseReturnValue:
    """Answer as the application's handler for *error* does, or its one for 429 or 503, or else with problem details."""
    answers = [engine.refuse(error, _View()) for engine in current_app.extensions["jwtlimit"].values()]
    answer = answers[0]  # they are alike; each engine told its own hook
    request.environ[_HEADERS] = answer.headers
    kinds = type(error).__mro__
    for scope in (*request.blueprints, None):
        handlers = current_app.error_handler_spec[scope][None]
        for kind in kinds[: kinds.index(Exception)]:  # a handler for Exception gets what it gets from abort(429)
            if kind in handlers:
                return cast("ResponseReturnValue", current_app.ensure_sync(handlers[kind])(error))
    wait = dict(answer.headers).get("Retry-After")
    kind = TooManyRequests if answer.status == 429 else ServiceUnavailable
    plain = kind(retry_after=None if wait is None else int(wait))
    plain.__cause__ = error
    handled = current_app.handle_http_exception(plain)
    if handled is not plain:
        return handled
    return Response(answer.body, answer.status, content_type=answer.content_type)


def _add_headers(response: Response) -> Response:
    for name, value in request.environ.get(_HEADERS, ()):
        response.headers[name] = value
    return response
