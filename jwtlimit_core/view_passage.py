"""A request on its way to a view and back: the same in every framework whose middleware and decorators see a whole response."""

from collections.abc import Callable, MutableMapping
from typing import Any

from jwtlimit_core.decision import RateLimitExceeded
from jwtlimit_core.engine import Engine
from jwtlimit_core.errors import LimiterUnavailable
from jwtlimit_core.flow import Call, Flow
from jwtlimit_core.http import Refusal
from jwtlimit_core.request import Admission, RequestView

__all__ = ["ViewPassage"]

_OPEN = "_jwtlimit"  # in the store of a request, while one of us is around it: its admission


class ViewPassage(RequestView):
    """What middleware and decorators do around a view; a framework knows its own requests and responses.

    Of several around one request, the outermost sees to the answer; all charge the one admission. It is new for each passage,
    since tests may send one request several times.

    Attributes:
        engine: Whose limits hold.
        store: What the request keeps by name; views find the admission there, as ``jwtlimit``.
        admission: What the request was charged.
        outermost: Whether no other passage is around this one.
    """

    __slots__ = ("admission", "engine", "outermost", "store")

    def begin(self, engine: Engine, store: MutableMapping[str, Any]) -> None:
        """Join the admission of the passage around this one, if there is one, or else make one; the request is known by now."""
        known: Admission | None = store.get(_OPEN)
        self.engine = engine
        self.store = store
        self.outermost = known is None
        self.admission = engine.admission(self) if known is None else known

    def through(self, charge: Callable[[RequestView, Admission], Flow[None]] | None, call: Call) -> Flow[Any]:
        """Return the answer to the request: that of *call*, unless *charge* refuses it.

        Around all others, put back what the answer asks to put back, and tell in its headers how much is left.
        """
        engine, admission = self.engine, self.admission
        self.store["jwtlimit"] = self.store[_OPEN] = admission  # for the view, and for the passages inside of this one
        try:
            try:
                if charge is not None:
                    yield from charge(self, admission)
            except (RateLimitExceeded, LimiterUnavailable) as error:
                response = yield from self.refused(error.with_traceback(None))
            else:
                response = yield call
            if self.outermost:
                told = self.tell(response)
                if admission.refunds and told is not None:
                    yield from engine.settle(self, admission, *told)
            return response
        except Exception as error:
            if self.outermost and admission.refunds:  # nobody of us will see what the framework answers
                yield from engine.settle(self, admission, self.status_of(error), {})
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Let the next passage of this request, if there is one, begin anew."""
        if self.outermost:
            self.store.pop(_OPEN, None)
            self.admission.release()

    def refused(self, error: Refusal) -> Flow[Any]:
        """Return the response to *error*, with the headers of the engine's answer."""
        raise NotImplementedError

    def tell(self, response: Any) -> tuple[int, object] | None:
        """Set our headers on *response*, and return its status and headers; None where it is no response."""
        raise NotImplementedError

    def status_of(self, error: Exception) -> int:  # noqa: ARG002
        """Return the status that the framework answers *error* with."""
        return 500
