"""What happens to a request: which limits it meets, whom it is charged to, and what is answered.

An adapter shows the request as a `RequestView`, runs the flows, and turns a `Response` into its framework's; nothing more.
A request passes up to three phases, each of which charges all of its limits or none:

1. the limits of the settings that look at the address, a header or a field alone;
2. those that ask who it is, and the global ones, which nobody shall use up without having passed the first;
3. the limits that decorators put on the view.

What a phase does not let pass gets back what it was charged in those before, except by address: who goes on asking for what is
refused, spends.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from jwtlimit_core.charger import Charger, is_wanted_back
from jwtlimit_core.client_address import ClientAddresses
from jwtlimit_core.config import Config
from jwtlimit_core.counters import Counters, Limiters
from jwtlimit_core.decision import Decision, RateLimitExceeded, combine
from jwtlimit_core.errors import ConfigError
from jwtlimit_core.flow import DONE, Call, Flow, awaits
from jwtlimit_core.http import STATUSES, Headers, Refusal, Response, rate_limit_headers, refusal
from jwtlimit_core.limit import Limit, Paths, Phase
from jwtlimit_core.limiter import RateLimiter, acquire_together
from jwtlimit_core.processor import AsyncProcessor, Processor
from jwtlimit_core.rate import Rate
from jwtlimit_core.request import Admission, Charge, RequestView
from jwtlimit_core.request_keys import UNVERIFIED, RequestKeys, UserKey
from jwtlimit_core.spend import spend_all

__all__ = ["Engine", "OnRefused", "is_enabled"]

logger = logging.getLogger("jwtlimit")

OnRefused = Callable[[Decision, RequestView], object]


class Engine:
    """The limits of one application.

    Args:
        config: How tokens are made; None for an application that makes none. Its limiter is used for issuance, or else one that
            is made for *issue_rate*.
        issue_rate: How many are issued to one subject.
        counters: Where is counted.
        addresses: How the address of a client is found.
        limits: The limits that every request meets, as far as it has their methods and paths.
        exempt_paths: Paths that these limits pass by, each with all below it.
        user_key: What a limit by user is charged to: a function of the request; by default the framework's user.
        headers: Whether answers within the limits tell how much is left.
        enabled: Whether anything is limited; or a function that says so, asked for each request.
        on_refused: Called with the decision and the `RequestView` for each 429, for logs and metrics; what it raises is logged.
        say: Puts the framework's names of settings into a message.
    """

    def __init__(
        self,
        *,
        config: Config | None,
        issue_rate: Rate,
        counters: Counters,
        addresses: ClientAddresses,
        limits: Sequence[Limit] = (),
        exempt_paths: Sequence[str] = (),
        user_key: UserKey | None = None,
        headers: bool = True,
        enabled: bool | Callable[[], object] = True,
        on_refused: OnRefused | None = None,
        say: Callable[[str], str] = str,
    ) -> None:
        self.config = config
        self._enabled = enabled
        self.limits = tuple(limits)
        self.user_key = user_key
        self._issue_rate = issue_rate
        self._counts_together = counters.shared
        self._limiters = Limiters(counters)
        self._keys = RequestKeys(addresses, user_key, verifies=config is not None, say=say)
        self._charger = Charger(self._keys, self._limiters)
        self._exempt_paths = Paths(exempt_paths) if exempt_paths else None
        self._headers = headers
        self._on_refused = on_refused
        self._say = say
        self._processors: dict[tuple[bool, bool], Any] = {}
        self._reader = None if config is None else Processor(replace(config, rate_limiter=None, before_issue=None))
        before = [limit for limit in limits if all(part.source in UNVERIFIED for part in limit.parts)]
        self._phases = [Phase(each) for each in (before, [limit for limit in limits if limit not in before]) if each]
        logger.info(
            "%s; counted %s",
            f"tokens are issued at {issue_rate} for each subject" if config else "no key is set: no tokens are issued",
            counters.place,
        )

    @property
    def enabled(self) -> bool:
        """Whether anything is limited now."""
        return self._enabled if isinstance(self._enabled, bool) else bool(self._enabled())

    @property
    def counts_alone(self) -> bool:
        """Whether something is counted in this process alone, so that n workers let n times as much pass."""
        is_issuance_elsewhere = self.config is not None and self.config.rate_limiter is not None
        return not self._counts_together and (bool(self.limits) or not is_issuance_elsewhere)

    # Tokens ---------------------------------------------------------------------------------------------------

    def processor(self, *, enabled: bool | None = None) -> Processor:
        """Return the processor that limits, or with *enabled* False the one that does not; by default, as it is set now.

        Raises:
            ConfigError: No key was configured, or what was configured needs an event loop.
        """
        return cast("Processor", self._processor(Processor, enabled))

    def async_processor(self, *, enabled: bool | None = None) -> AsyncProcessor:
        """Return the same for code on an event loop.

        Raises:
            ConfigError: No key was configured, or the limiter that was configured would stall the event loop.
        """
        return cast("AsyncProcessor", self._processor(AsyncProcessor, enabled))

    def _processor(self, kind: type[Processor] | type[AsyncProcessor], enabled: bool | None) -> Processor | AsyncProcessor:
        on_loop = kind is AsyncProcessor
        if enabled is None:
            enabled = self.enabled
        known = self._processors.get((on_loop, enabled))
        if known is not None:
            return cast("Processor | AsyncProcessor", known)
        if self.config is None:
            problem = "no key is set: set SECRET_KEY, SIGNING_KEY or VERIFICATION_KEY to issue or validate tokens"
            raise ConfigError(self._say(problem))
        limiter = self.config.rate_limiter or self._limiters.named("issue", self._issue_rate, on_loop=on_loop)
        made = kind(replace(self.config, rate_limiter=limiter if enabled else None))
        return cast("Processor | AsyncProcessor", self._processors.setdefault((on_loop, enabled), made))

    # Requests -------------------------------------------------------------------------------------------------

    def admission(self, view: RequestView) -> Admission:
        """Return the record of a request that has not been charged yet; `enabled` is asked now, and holds for all of it."""
        return Admission(view, self._reader, self._enabled is True or self.enabled)

    def enter(self, view: RequestView, admission: Admission) -> Flow[None]:
        """Charge a request to the limits of the settings: the first two phases; raises as `admit` does."""
        phases = () if self._exempt_paths is not None and view.path in self._exempt_paths else self._phases
        if len(phases) == 1:
            return self.admit(view, admission, phases[0])
        return self._enter(view, admission, phases)

    def _enter(self, view: RequestView, admission: Admission, phases: Sequence[Phase]) -> Flow[None]:
        for phase in phases:
            yield from self.admit(view, admission, phase)

    def admit(self, view: RequestView, admission: Admission, phase: Phase) -> Flow[None]:
        """Charge a request to all limits of *phase* that it meets, or to none.

        It may do so before the flow is run, and raise at once. A CORS preflight is not charged: it comes from the browser, not
        from its user.

        Raises:
            RateLimitExceeded: One of them refuses.
            LimiterUnavailable: The store gave no answer.
            ConfigError: A limit needs an event loop, or a user that the framework does not know.
            TypeError: A function of a limit returns something of another type.
            Exception: What a function of a limit raises.
        """
        if not admission.enabled or (view.method == "OPTIONS" and _is_preflight(view)):
            return DONE
        known = self._limiters.plain[view.awaits].get(phase)
        everywhere, met = self._limiters.plain_in(phase, on_loop=view.awaits) if known is None else known
        if not everywhere:
            met = [each for each in met if each[0].is_everywhere or each[0].applies(view.method, view.path)]
            if not met:
                return DONE
        _, limiter, cost = met[0]
        if limiter is not None and not admission.charges:
            # Nearly every request: nobody is asked whom to charge, or how much, and nothing may have to be put back.
            if len(met) == 1:
                decision = limiter.acquire(self._keys.address(view), cost)
                if not decision.allowed:
                    raise RateLimitExceeded(decision)
                admission.decisions.append(decision)
                return DONE
            plain = [(limiter, cost) for _, limiter, cost in met if limiter is not None]
            if len(plain) == len(met):
                key = self._keys.address(view)
                decision = combine(acquire_together([(limiter, key, cost) for limiter, cost in plain]))
                admission.decisions += _allowed(decision)
                return DONE
        return self._admit(view, admission, [limit for limit, *_ in met])

    def _admit(self, view: RequestView, admission: Admission, limits: Sequence[Limit]) -> Flow[None]:
        try:
            charges = []
            for limit in limits:
                charge = yield from self._charger.charge(limit, view, admission)
                if charge is not None:
                    charges.append(charge)
            if len(charges) == 1 and isinstance(charges[0].limiter, RateLimiter):
                decisions = _allowed(charges[0].limiter.acquire(charges[0].key, charges[0].n))
            else:
                decisions = yield from _spend(charges, on_loop=view.awaits)
        except Exception:  # whatever keeps a request out; a cancelled one stays charged
            yield from self._charger.put_back(
                view, admission, [charge for charge in admission.charges if not charge.by_address]
            )
            raise
        admission.charges += charges
        admission.decisions += decisions
        admission.refunds = admission.refunds or any(charge.limit.refund_when for charge in charges)

    def settle(self, view: RequestView, admission: Admission, status: int, headers: object) -> Flow[None]:
        """Put back what the limits with `refund_when` want put back; never raises. To be run before the answer is sent."""
        wanted = [charge for charge in admission.charges if is_wanted_back(charge.limit, status, headers)]
        return self._charger.put_back(view, admission, wanted)

    def headers(self, admission: Admission, status: int) -> Headers:
        """Return the headers for an answer with *status*: of what was refused, or else of the limits that let it pass."""
        if admission.refused is not None:
            return admission.refused
        if status in STATUSES or not self._headers or not admission.decisions:
            return ()
        return rate_limit_headers(admission.decisions)

    def refuse(self, error: Refusal, view: RequestView | None) -> Response:
        """Return the answer to *error*, and tell `on_refused` of it, where there is a request."""
        if self._on_refused is not None and view is not None and isinstance(error, RateLimitExceeded):
            try:
                self._on_refused(error.decision, view)
            except Exception:  # the hook is the application's: a broken metric must not break the answer
                logger.exception("on_refused failed")
        return refusal(error)

    # By hand --------------------------------------------------------------------------------------------------

    def reset(self, name: str, key: str, *, on_loop: bool) -> Flow[None]:
        """Give *key* its full quota of the limits called *name* back.

        Args:
            name: The name of a limit, or ``issue`` for the issuance of tokens.
            key: For ``issue`` the subject; else the key as it is counted: ``ip=192.0.2.1``, ``subject=u1``, ``field:user=ann``.
            on_loop: Whether the flow runs on an event loop.

        Raises:
            ValueError: *key* is not of that form.
            LimiterUnavailable: The store gave no answer.
        """
        if not isinstance(name, str) or not isinstance(key, str):
            raise TypeError(f"name and key must be str, not {type(name).__name__} and {type(key).__name__}")
        key = key if name == "issue" else self._keys.counted(key)
        own = None if self.config is None else self.config.rate_limiter
        if name != "issue" or own is None:
            yield from self._limiters.reset(name, key, self._issue_rate, on_loop=on_loop)
            return
        if awaits(own.reset) and not on_loop:
            raise ConfigError("the limiter of issuance has coroutines: reset it on an event loop")
        yield Call(own.reset, (key,), awaits(own.reset))

    def reset_all(self) -> None:
        """Give everybody the full quota back; meant for tests."""
        self._limiters.reset_all()
        own = None if self.config is None else self.config.rate_limiter
        reset_all = getattr(own, "reset_all", None)  # a provider of the application need not have it
        if awaits(reset_all):
            raise ConfigError("the limiter of issuance has coroutines: reset it on an event loop")
        if reset_all is not None:
            reset_all()

    def close(self, *, on_loop: bool) -> Flow[None]:
        """Let go of what was opened for limits."""
        yield from self._limiters.close(on_loop=on_loop)

    # ----------------------------------------------------------------------------------------------------------

    def prepare(self, limit: Limit, *, on_loop: bool) -> None:
        """Make the limiters of *limit*, so that what cannot work is known before the first request.

        Raises:
            ConfigError: The store cannot keep such a limit.
        """
        for rate in limit.rates.values() if limit.rate is None and limit.rates else [limit.rate]:
            self._limiters.of(limit, cast("Rate", rate), on_loop=on_loop)


def is_enabled(value: Any) -> bool:
    """Return what *value* of the setting ENABLED means now: only False, or a function that returns nothing true, is off."""
    return bool(value()) if callable(value) else value is not False


def _is_preflight(view: RequestView) -> bool:
    """Say whether an OPTIONS request is one of a browser (Fetch section 4.8): it has an origin, no body, and no credentials.

    A view that looks at neither its method nor these headers would run, unlimited, for whoever sends more.
    """
    if not (view.header("Access-Control-Request-Method") and view.header("Origin")):
        return False
    if (view.header("Content-Length") or "0") != "0":
        return False
    return not any(map(view.header, ("Transfer-Encoding", "Authorization", "Cookie")))


def _spend(charges: Sequence[Charge], *, on_loop: bool) -> Flow[Sequence[Decision]]:
    """Make all of *charges*, or none."""
    if not charges:
        return ()
    return _allowed((yield from spend_all([(charge.limiter, charge.key, charge.n) for charge in charges], on_loop=on_loop)))


def _allowed(decision: Decision) -> Sequence[Decision]:
    """Return the single decisions of one that allows.

    Raises:
        RateLimitExceeded: It refuses.
    """
    if not decision.allowed:
        raise RateLimitExceeded(decision.parts[0] if len(decision.parts) == 1 else decision)
    return decision.parts or (decision,)
