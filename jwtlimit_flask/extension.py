"""The Flask extension: it registers, and translates between Flask and the engine of the core."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from io import BufferedReader
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from urllib.parse import urlencode

from flask import Flask, Request, Response, current_app, g, request
from flask.typing import ResponseReturnValue
from werkzeug.datastructures import Headers as WSGIHeaders
from werkzeug.exceptions import HTTPException, ServiceUnavailable, TooManyRequests
from werkzeug.wsgi import LimitedStream, get_input_stream

from jwtlimit_core import Clock, ConfigError, Processor, Rate
from jwtlimit_core.config import BeforeIssue
from jwtlimit_core.decoration import Decoration, Decorator, LimitOptions, Owner, exempt, is_exempt, warn_of_limits_in_vain
from jwtlimit_core.engine import Engine, OnRefused
from jwtlimit_core.flow import Call, run
from jwtlimit_core.http import Refusal, kinds_of, overlaid
from jwtlimit_core.http import Response as Answer
from jwtlimit_core.limit import Phase
from jwtlimit_core.settings import build_engine
from jwtlimit_core.wsgi import EnvironView, Rewound, code_of

__all__ = ["JWTLimit"]

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

View = TypeVar("View")

_PREFIX = "JWTLIMIT_"


class _Passage(EnvironView):
    """A request on its way through one extension, as the engine looks at it; kept in the environ, since `g` may outlive it."""

    __slots__ = ("admission", "engine", "environ", "is_answering", "method", "path", "peer", "raw")

    awaits = False

    def __init__(self, request: Request, engine: Engine) -> None:
        self.raw = request
        self.environ = request.environ
        self.method = request.method
        self.path = request.path
        self.peer = request.remote_addr
        self.engine = engine
        self.admission = engine.admission(self)
        self.is_answering = False  # a refusal, by a handler of the application

    def body(self, most_bytes: int) -> Call:
        return Call(_body, (self.raw, most_bytes))

    def user(self) -> Call:
        raise ConfigError("a limit is by user: set JWTLIMIT_USER_KEY to a function of the request that returns its user")


class JWTLimit:
    """Limits on tokens and views, for any number of applications.

    Settings are read from ``app.config`` when an application is initialised, each with ``JWTLIMIT_`` before its name;
    ``JWTLIMIT_ENABLED`` is read again for each request. What a request was charged is in ``g.jwtlimit``.

    Args:
        app: An application to initialise now; or call `init_app` later.
        before_issue: A hook that sees the claims before a token is issued, and refuses by raising; see `Config`.
        on_refused: Called with the decision and the view of the request, whose ``raw`` is Flask's, for each 429.
        clock: Where the time comes from.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        before_issue: BeforeIssue | None = None,
        on_refused: OnRefused | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._given = {"BEFORE_ISSUE": before_issue, "ON_REFUSED": on_refused, "CLOCK": clock}
        self._key = f"jwtlimit.{id(self)}"
        self._owner = Owner()
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
        values = {name.removeprefix(_PREFIX): value for name, value in app.config.items() if name.startswith(_PREFIX)}
        values |= {name: value for name, value in self._given.items() if value is not None}
        engine = build_engine(
            values,
            named=f"{_PREFIX}{{}}".format,
            host="sync",
            knows_users=False,
            enabled=partial(app.config.get, f"{_PREFIX}ENABLED"),
        )
        app.before_request(self._entrance(app, engine))
        _answer_refusals(app)
        app.wsgi_app = self._exit(app, app.wsgi_app)  # type: ignore[assignment, method-assign]
        engines[self] = engine

    @property
    def processor(self) -> Processor:
        """The processor of the current application; it does not limit while ``JWTLIMIT_ENABLED`` is False.

        Raises:
            ConfigError: The application has no key in its settings, or was not initialised.
        """
        return self._engine.processor()

    def rate_limit(self, rate: Rate | str | None = None, **options: Unpack[LimitOptions]) -> Decorator:
        """Limit a view; put it below ``@app.route``. Several on one view are charged together, or not at all.

        Args:
            rate: How much, such as ``"5/m"``.
            options: ``key``, ``cost``, ``methods``, ``name`` and others; see `Limit`.

        Raises:
            ConfigError: A value cannot work.
        """
        decoration = Decoration(self._owner, rate, options)
        return lambda view: decoration.of(view, self._wrap, on_loop=False, for_class="put it into the `decorators` of")

    def exempt(self, view: View) -> View:
        """Let the limits of ``JWTLIMIT_LIMITS`` pass by a view, a class of views or a blueprint with all that is in it."""
        return exempt(view)

    def reset(self, name: str, key: str) -> None:
        """Give *key* its full quota of the limits called *name* back, such as ``reset("login", "ip=192.0.2.1")``."""
        run(self._engine.reset(name, key, on_loop=False))

    def reset_all(self) -> None:
        """Give everybody the full quota back in the current application; meant for tests."""
        self._engine.reset_all()

    @property
    def _engine(self) -> Engine:
        engine: Engine | None = current_app.extensions.get("jwtlimit", {}).get(self)
        if engine is None:
            raise ConfigError(f"this JWTLimit knows nothing of the application {current_app.name!r}: call init_app(app)")
        return engine

    def _entrance(self, app: Flask, engine: Engine) -> Callable[[], None]:
        """Return the hook that charges a request to the limits of the settings."""
        passes_by: dict[str | None, bool] = {}  # by endpoint
        views_are_checked = False

        def enter() -> None:
            nonlocal views_are_checked
            if not views_are_checked:
                views_are_checked = True
                warn_of_limits_in_vain(app.view_functions.values(), "put it below @app.route")
            current = _request()
            passage = self._passage(current, engine)
            if not engine.limits:
                return
            endpoint = current.endpoint
            if endpoint not in passes_by:
                passes_by[endpoint] = _is_exempt(app, current)
            if not passes_by[endpoint]:
                run(engine.enter(passage, passage.admission))

        return enter

    def _admit(self, phase: Phase) -> None:
        passage = self._passage(_request(), None)
        run(passage.engine.admit(passage, passage.admission, phase))

    def _passage(self, current: Request, engine: Engine | None) -> _Passage:
        """Return the passage of a request; it begins where nobody has asked for it before."""
        found: list[_Passage] = current.environ.setdefault(self._key, [])
        if not found:
            found.append(_Passage(current, engine or self._engine))
            g._get_current_object().jwtlimit = found[0].admission
        return found[0]

    def _exit(self, app: Flask, wsgi_app: "WSGIApplication") -> "WSGIApplication":
        """Return *wsgi_app* with our headers on its answers, after all that the application does to them."""

        def limited(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
            _answer_refusals(app)
            outer = environ.get(self._key)
            found: list[_Passage] = []
            environ[self._key] = found  # copies of the environ share it

            def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
                if found:
                    engine, admission, code = found[0].engine, found[0].admission, code_of(status)
                    ours = engine.headers(admission, code)
                    headers = overlaid(headers, ours) if ours else headers
                    if admission.refunds:
                        _settle(found[0], code, WSGIHeaders(headers))
                return start_response(status, headers, *exc_info)

            try:
                return wsgi_app(environ, start)
            except Exception:  # outside of here it becomes a 500
                if found and found[0].admission.refunds:
                    _settle(found[0], 500, WSGIHeaders())
                raise
            finally:
                environ[self._key] = outer or []  # of the request that this one was forwarded from
                for passage in found:
                    passage.admission.release()

        return limited

    def _wrap(self, function: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
        async def limit_async(*args: Any, **kwargs: Any) -> Any:
            self._admit(phase)
            return await function(*args, **kwargs)

        def limit(*args: Any, **kwargs: Any) -> Any:
            self._admit(phase)
            return function(*args, **kwargs)

        return limit_async if inspect.iscoroutinefunction(function) else limit


def _settle(passage: _Passage, status: int, headers: WSGIHeaders) -> None:
    passage.admission.refunds = False
    run(passage.engine.settle(passage, passage.admission, status, headers))


def _request() -> Request:
    """Return the current request itself, whose attributes cost less than those of its proxy."""
    return request._get_current_object()  # type: ignore[attr-defined, no-any-return]


def _is_exempt(app: Flask, request: Request) -> bool:
    """Say whether the view of *request* is exempt, or a blueprint that it is in."""
    if request.endpoint is None:
        return False
    return any(map(is_exempt, (app.view_functions.get(request.endpoint), *map(app.blueprints.get, request.blueprints))))


def _body(request: Request, most_bytes: int) -> bytes | None:
    """Return the body of *request*, None where it is longer; whoever reads it later gets it from the start."""
    if (request.content_length or 0) > most_bytes:
        return None
    if request.mimetype == "application/x-www-form-urlencoded" and "form" in vars(request):  # it was read as a form before
        form = urlencode(list(request.form.items(multi=True))).encode()  # a chunked one has said no length
        return form if len(form) <= most_bytes else None
    if hasattr(request, "_cached_data"):  # it was read before
        return request.get_data() if len(request.get_data()) <= most_bytes else None
    begun = vars(request).get("stream")
    if isinstance(begun, LimitedStream) and begun.tell():  # something has read of it, and kept that for itself
        return None
    stream, start = get_input_stream(request.environ), b""
    while len(start) <= most_bytes and (more := stream.read(most_bytes + 1 - len(start))):
        start += more  # a stream may give less than there is
    if start:
        # In the environ, so that nothing which the application says of its streams later is decided now.
        vars(request).pop("stream", None)
        request.environ["wsgi.input"] = BufferedReader(Rewound(start, request.environ["wsgi.input"]))
    return start if len(start) <= most_bytes else None


def _answer_refusals(app: Flask) -> None:
    """Answer refusals where every exception passes by, so that whichever handler takes one, its answer gets our headers.

    It is done anew where another extension has put itself there since.
    """
    if not isinstance(app.handle_user_exception, _Handler):
        app.handle_user_exception = _Handler(app.handle_user_exception, lambda answer: answer)  # type: ignore[assignment, method-assign]
    if not isinstance(app.handle_exception, _Handler):
        app.handle_exception = _Handler(app.handle_exception, app.make_response)  # type: ignore[assignment, method-assign]


class _Handler:
    """Handles exceptions of an application: of views, of hooks before them, and of those after them.

    Args:
        inner: What handles all others.
        finish: Makes of an answer what *inner* would return.
    """

    def __init__(self, inner: Callable[..., Any], finish: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._finish = finish

    def __call__(self, *arguments: Any) -> Any:
        error = arguments[-1]  # later versions of Flask put their context before it
        answer = _refuse(error) if isinstance(error, Refusal) else None
        return self._inner(*arguments) if answer is None else self._finish(answer)


def _refuse(error: Refusal) -> HTTPException | ResponseReturnValue | None:
    """Answer as the application's handler for *error* does, or its one for 429 or 503, or else with problem details.

    None where it comes out of such a handler: that has failed, as one of any exception may.
    """
    engines, current = current_app.extensions["jwtlimit"].items(), _request()
    passages = [extension._passage(current, engine) for extension, engine in engines]
    if passages[0].is_answering:
        return None
    answer, *_ = [passage.engine.refuse(error, passage) for passage in passages]  # they are alike; each engine tells its hook
    passages[0].is_answering = True
    handled = _handled(error, answer) if current_app.error_handler_spec else None
    passages[0].is_answering = False
    for passage in passages:
        passage.admission.refused = answer.headers  # not before: a handler that fails is another matter
    return Response(answer.body, answer.status, content_type=answer.content_type) if handled is None else handled


def _handled(error: Refusal, answer: Answer) -> HTTPException | ResponseReturnValue | None:
    """Return what a handler of the application answers, None where it has none."""
    for scope in (*request.blueprints, None):
        handlers = current_app.error_handler_spec[scope][None]
        for kind in kinds_of(error):  # a handler for Exception gets what it gets from abort(429)
            if kind in handlers:
                return cast("ResponseReturnValue", current_app.ensure_sync(handlers[kind])(error))
    wait = dict(answer.headers).get("Retry-After")
    kind = TooManyRequests if answer.status == 429 else ServiceUnavailable
    plain = kind(retry_after=None if wait is None else int(wait))
    plain.__cause__ = error
    handled = current_app.handle_http_exception(plain)
    return None if handled is plain else handled
