"""What happens to one request: which limits it meets, whom it is charged to, and what is answered.

An adapter shows the request as a `RequestView`, runs the flows, and turns a `Response` into its framework's; nothing more.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

from jwtlimit_core.client_address import NO_ADDRESS, address_key
from jwtlimit_core.clock import Clock
from jwtlimit_core.config import Config
from jwtlimit_core.decision import Decision, RateLimitExceeded
from jwtlimit_core.errors import ConfigError, LimiterUnavailable
from jwtlimit_core.flow import Call, Flow
from jwtlimit_core.http import Headers, Response, rate_limit_headers, refusal
from jwtlimit_core.limit import Limit
from jwtlimit_core.limiter import RateLimiter
from jwtlimit_core.processor import Processor
from jwtlimit_core.rate import Rate, shown
from jwtlimit_core.spend import acquire_all

__all__ = ["Engine", "LimiterFactory", "OnRefused", "RequestView"]

logger = logging.getLogger("jwtlimit")


class RequestView(Protocol):
    """A request, as far as limits look at it."""

    @property
    def method(self) -> str:
        """The method, in upper case."""

    @property
    def peer(self) -> str | None:
        """The address at the other end of the socket; None or empty where there is none."""

    @property
    def raw(self) -> Any:
        """The framework's own request."""

    def header(self, name: str) -> str | None:
        """Return the value of a header, None where the request has none."""


LimiterFactory = Callable[[str, Rate], Any]
OnRefused = Callable[[Decision, RequestView], object]


@dataclass(frozen=True, slots=True)
class Issuance:
    """The two processors of an application, alike but for the limit, and the limiter of the first."""

    limiter: Any
    limited: Processor
    unlimited: Processor


class Engine:
    """The limits of one application.

    Args:
        config: How tokens are made; None for an application that makes none. Its limiter is used for issuance, or else one that
            is made for *issue_rate*.
        issue_rate: How many are issued to one subject.
        make_limiter: Makes the limiter for a name and a rate; by default one in this process.
        shared: Where counts are kept, if not in this process, for the log.
        headers: Whether answers within the limits tell how much is left.
        ipv6_prefix: The bits by which IPv6 addresses are grouped.
        clock: Where the time comes from.
        on_refused: Called with the decision and the request for each 429, for logs and metrics; what it raises is logged.
    """

    def __init__(
        self,
        *,
        config: Config | None,
        issue_rate: Rate,
        make_limiter: LimiterFactory | None = None,
        shared: str = "",
        headers: bool = True,
        ipv6_prefix: int = 64,
        clock: Clock = time,
        on_refused: OnRefused | None = None,
    ) -> None:
        if on_refused is not None and not callable(on_refused):
            raise ConfigError(f"on_refused must be callable or None, not {shown(on_refused)}")
        self._headers = headers
        self._ipv6_prefix = ipv6_prefix
        self._make_limiter = make_limiter or partial(_in_process, clock)
        self._on_refused = on_refused
        self._limiters: dict[tuple[str, Rate], Any] = {}
        self._warned_of_no_address = False
        self._issuance = None
        if config is not None:
            limiter = config.rate_limiter or self._make_limiter("issue", issue_rate)
            limited = Processor(replace(config, rate_limiter=limiter))
            self._issuance = Issuance(limiter, limited, Processor(replace(config, rate_limiter=None)))
        logger.info(
            "%s; counted %s",
            f"tokens are issued at {issue_rate} for each subject" if config else "no key is set: no tokens are issued",
            shared or f"in this process alone (pid {os.getpid()}): each worker has the whole limit for itself",
        )

    def processor(self, *, enabled: bool) -> Processor:
        """Return the processor that limits, or with *enabled* False the one that does not.

        Raises:
            ConfigError: No key was configured.
        """
        if self._issuance is None:
            raise ConfigError("no key is set: set SECRET_KEY, SIGNING_KEY or VERIFICATION_KEY to issue or validate tokens")
        return self._issuance.limited if enabled else self._issuance.unlimited

    def admit(self, view: RequestView, limits: Sequence[Limit]) -> Flow[Headers]:
        """Charge a request to all of *limits* that it meets, or to none.

        A CORS preflight is not charged: it comes from the browser, not from its user.

        Returns:
            The headers that its answer should have.

        Raises:
            RateLimitExceeded: One of them refuses.
            TypeError: A key function returns something else than a str or None; nothing has been charged.
            Exception: What a key function raises; nothing has been charged.
        """
        if view.method == "OPTIONS" and view.header("Access-Control-Request-Method"):
            return ()
        spends = []
        for limit in limits:
            if limit.methods is None or view.method in limit.methods:
                key = yield from self._key(limit, view)
                if key is not None and key != "":
                    spends.append((self._limiter(limit), key, limit.cost))
        if not spends:
            return ()
        decision = yield Call(acquire_all, (spends,))
        if not decision.allowed:
            raise RateLimitExceeded(decision)
        return rate_limit_headers(decision.parts) if self._headers else ()

    def refuse(self, error: RateLimitExceeded | LimiterUnavailable, view: RequestView) -> Response:
        """Return the answer to *error*, and tell `on_refused` of it."""
        if self._on_refused is not None and isinstance(error, RateLimitExceeded):
            try:
                self._on_refused(error.decision, view)
            except Exception:  # the hook is the application's: a broken metric must not break the answer
                logger.exception("on_refused failed")
        return refusal(error)

    def reset_all(self) -> None:
        """Give everybody the full quota back; meant for tests."""
        limiters = [*self._limiters.values(), *([self._issuance.limiter] if self._issuance else [])]
        for limiter in limiters:
            if hasattr(limiter, "reset_all"):  # a provider of the application need not have it
                limiter.reset_all()

    def _key(self, limit: Limit, view: RequestView) -> Flow[str | None]:
        if callable(limit.key):
            return cast("str | None", (yield Call(limit.key, (view.raw,))))
        key = address_key(view.peer, ipv6_prefix=self._ipv6_prefix)
        if key == NO_ADDRESS and not self._warned_of_no_address:
            self._warned_of_no_address = True
            logger.warning("a request came without an address, from a unix socket: all such requests share one bucket")
        return key

    def _limiter(self, limit: Limit) -> Any:
        known = self._limiters.get((limit.name, limit.rate))
        if known is not None:
            return known
        made = self._make_limiter(limit.name, limit.rate)
        return self._limiters.setdefault((limit.name, limit.rate), made)  # of first requests at once, one makes it


def _in_process(clock: Clock, name: str, rate: Rate) -> RateLimiter:
    return RateLimiter.from_rate(rate, name=name, clock=clock)
