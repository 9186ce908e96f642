"""A request on its way to a view and back: the same in every framework whose middleware and decorators see a whole response."""

from collections.abc import Callable, MutableMapping
from typing import Any

from jwtlimit_core.decision import RateLimitExceeded
from jwtlimit_core.engine import Engine
from jwtlimit_core.errors import LimiterUnavailable
from jwtlimit_core.flow import Call, Flow
from jwtlimit_core.http import Refusal
from jwtlimit_core.request import Admission

__all__ = ["ViewPassage"]

_OPEN = "_jwtlimit"  # in the store of a request, while one of us is around it: its admission


class ViewPassage:
    """What middleware and decorators do around a view; a framework makes it a `RequestView`, and knows its own responses.

    Of several around one request, the outermost sees to the answer; all charge the one admission. It is new for each passage,
    since tests may send one request several times.

    Attributes:
        engine: Whose limits hold.
        store: What the request keeps by name; views find the admission there, as ``jwtlimit``.
        admission: What the request was charged.
        outermost: Whether no other passage is around this one.
    """

    __slots__ = ()

    engine: Engine
    store: MutableMapping[str, Any]
    admission: Admission
    outermost: bool

    def begin(self, engine: Engine, store: MutableMapping[str, Any]) -> None:
        """Find out whether others are around this one. Now the view has to be there."""
        view: Any = self  # which has slots for them: those of several bases would not go together
        known = store.get(_OPEN)
        view.engine = engine
        view.store = store
        view.outermost = known is None
        view.admission = engine.admission(view) if known is None else known

    def through(self, charge: Callable[[Any, Admission], Flow[None]] | None, call: Call) -> Flow[Any]:
        """Return the answer to the request: that of *call*, unless *charge* refuses it.

        Around all others, put back what the answer asks to put back, and tell in its headers how much is left.
        """
        view: Any = self
        engine, admission = self.engine, self.admission
        self.store["jwtlimit"] = self.store[_OPEN] = admission  # for the view, and for the passages inside of this one
        try:
            try:
                if charge is not None:
                    yield from charge(view, admission)
            except (RateLimitExceeded, LimiterUnavailable) as error:
                response = yield from self.refused(error)
            else:
                response = yield call
            if self.outermost:
                told = self.tell(response)
                if admission.refunds and told is not None:
                    yield from engine.settle(view, admission, *told)
            return response
        except Exception as error:
            if self.outermost and admission.refunds:  # nobody of us will see what the framework answers
                yield from engine.settle(view, admission, self.status_of(error), {})
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
