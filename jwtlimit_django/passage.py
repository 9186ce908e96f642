"""The way of a request through our middleware and decorators, written once for both colours."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase

from jwtlimit_core import Admission, Limit, LimiterUnavailable, RateLimitExceeded
from jwtlimit_core.flow import Flow
from jwtlimit_django.engine import get_engine
from jwtlimit_django.refusals import is_refusal, refuse
from jwtlimit_django.requests import View

__all__ = ["Passage"]

_STATUSES = {Http404: 404, PermissionDenied: 403, SuspiciousOperation: 400}
_OPEN = "_jwtlimit"  # in a request, while one of us is around it: its admission


class Passage:
    """What one of us does with a request that passes it: the middleware, or a decorator.

    Of several around one request, the outermost sees to the answer; all charge the one admission in ``request.jwtlimit``. It is
    new for each passage, since tests may send one request several times.

    Args:
        request: The request.
        awaits: Whether this is on an event loop.

    Raises:
        ConfigError: The settings cannot work.
    """

    __slots__ = ("admission", "engine", "outermost", "request", "view")

    def __init__(self, request: HttpRequest, *, awaits: bool) -> None:
        self.request = request
        self.engine = get_engine()
        self.view = View(request, awaits=awaits)
        known: Admission | None = vars(request).get(_OPEN)
        self.outermost = known is None
        self.admission = self.engine.admission(self.view) if known is None else known
        vars(request)["jwtlimit"] = self.admission

    def __enter__(self) -> Self:
        vars(self.request)[_OPEN] = self.admission
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self.outermost:
            del vars(self.request)[_OPEN]

    def enter(self) -> Flow[HttpResponseBase | None]:
        """Charge the limits of the settings; return the answer if one of them refuses."""
        return self._answered(self.engine.enter)

    def admit(self, limits: tuple[Limit, ...]) -> Flow[HttpResponseBase | None]:
        """Charge *limits*, unless nothing is limited now; return the answer if one of them refuses."""
        return self._answered(self.engine.admit, limits if self.engine.enabled else ())

    def leave(self, response: object) -> Flow[None]:
        """Put back what is wanted back, and tell in the headers of *response* how much is left."""
        if self.outermost and isinstance(response, HttpResponseBase):  # Django complains of what else a view returns
            if self.admission.refunds:
                yield from self.engine.settle(self.view, self.admission, response.status_code, response.headers)
            if not is_refusal(response):
                for name, value in self.engine.headers(self.admission, response.status_code):
                    response.headers[name] = value

    def fail(self, error: Exception) -> Flow[None]:
        """Put back what is wanted back where nobody of us is around who would see what Django answers to *error*."""
        if self.outermost and self.admission.refunds:
            status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
            yield from self.engine.settle(self.view, self.admission, status, {})

    def _answered(self, charge: Callable[..., Flow[None]], *limits: tuple[Limit, ...]) -> Flow[HttpResponseBase | None]:
        try:
            yield from charge(self.view, self.admission, *limits)
        except (RateLimitExceeded, LimiterUnavailable) as error:
            return (yield from refuse(error, self.view))
        return None
