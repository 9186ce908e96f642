"""A throttle for Django REST framework, whose users are known only inside its views."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, ClassVar

from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from jwtlimit_core import ConfigError, Limit, LimiterUnavailable, Rate, RateLimitExceeded
from jwtlimit_core.flow import run
from jwtlimit_core.limit import Key, Phase, phase_of
from jwtlimit_django.passage import Passage

__all__ = ["RateLimitThrottle"]

_REFUSED = "_jwtlimit_refused"  # in a view: one of its throttles refused


class RateLimitThrottle(BaseThrottle):
    """Charges one limit when REST framework asks its throttles: after it has authenticated the user.

    Make one class for each limit. With the middleware, RateLimit headers are on the answers and ``refund_when`` is honoured.

    Attributes:
        rate: How much, such as ``"5/m"``; or None, and then it is found by *scope*.
        scope: Where in ``DEFAULT_THROTTLE_RATES`` the rate stands, and what the limit is called; a rate of None limits nothing.
        key: Whom a request is charged to, as `Limit` has it; a function is called with the request alone.
        options: What else `Limit` takes by name.
    """

    rate: ClassVar[Rate | str | None] = None
    scope: ClassVar[str | None] = None
    key: ClassVar[Key] = "ip"
    options: ClassVar[Mapping[str, Any]] = {}
    _wait: float | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Charge *request*, and say whether it may pass; once a throttle has refused, those after it charge nothing.

        Raises:
            APIException: The store gave no answer: 503.
            ConfigError: The class has no rate, or one that cannot work.
        """
        with closing(Passage(request._request, awaits=False)) as passage:
            passage.store["jwtlimit"] = passage.admission
            phase = self._phase()
            if phase is None or _REFUSED in vars(view):
                return True
            try:
                run(passage.engine.admit(passage, passage.admission, phase))
            except (RateLimitExceeded, LimiterUnavailable) as error:
                answer = passage.engine.refuse(error, passage)
                view.headers.update(answer.headers)  # REST framework sets them on its answer, in whatever form that is
                if isinstance(error, LimiterUnavailable):
                    unavailable = APIException(answer.detail, "unavailable")
                    unavailable.status_code = answer.status
                    raise unavailable from error
                self._wait = error.retry_after
                vars(view)[_REFUSED] = True
                return False
            return True

    def wait(self) -> float | None:
        """Return the seconds until the request would have passed, None if waiting never helps."""
        return self._wait

    def _phase(self) -> Phase | None:
        kind = type(self)
        rate: Any = self.rate
        if rate is None:
            rates = api_settings.DEFAULT_THROTTLE_RATES
            if self.scope not in rates:
                raise ConfigError(f"{kind.__qualname__} needs a rate, or a scope that DEFAULT_THROTTLE_RATES has a rate for")
            rate = rates[self.scope]
        if rate is None:
            return None
        name = self.scope or f"{kind.__module__}.{kind.__qualname__}"
        return phase_of(Limit(name, rate, key=kind.key, **self.options))  # of the class: a function is not to be bound
