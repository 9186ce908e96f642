"""Issue tokens under a limit, and validate them without one.

The order of every issuing call: closed, the claims or the token are good, the application's hook, the limit, the signature. So
nothing is charged for a call that was going to fail anyway.
"""

import os
from collections.abc import Callable, Mapping
from copy import copy
from math import ceil
from types import TracebackType
from typing import Any, Literal, Self

from jwtlimit_core.claims import Claims, ClaimsType, RegisteredClaims, claims_from, payload_of, registered_fault
from jwtlimit_core.config import Config, duration_s
from jwtlimit_core.decision import Decision, RateLimitExceeded
from jwtlimit_core.errors import (
    ConfigError,
    InvalidAudience,
    InvalidClaims,
    InvalidIssuer,
    InvalidToken,
    LimiterUnavailable,
    ProcessorClosed,
    TokenExpired,
    TokenNotYetValid,
    TokenTypeMismatch,
)
from jwtlimit_core.flow import Call, Flow, awaits, run, run_async
from jwtlimit_core.keys import resolve_key
from jwtlimit_core.limiter import RateLimiter
from jwtlimit_core.strict_json import loads_object

__all__ = ["AsyncProcessor", "Processor"]

TokenType = Literal["access", "refresh"]
_NS_PER_SECOND = 1_000_000_000
_JTI_BYTES = 16  # 128 bits of the operating system's randomness


class _Issuer:
    """What the two processors share: every decision, the issuing ones as flows."""

    def __init__(self, config: Config) -> None:
        if not isinstance(config, Config):
            raise TypeError(f"config must be a Config, not {type(config).__name__}")
        self.config = config
        self._jws = config.jws
        self._closed = False
        self._report: Callable[[RateLimitExceeded | LimiterUnavailable], object] | None = None
        self._leeway_ns = round(duration_s(config.leeway) * _NS_PER_SECOND)
        self._ttl_s = {
            "access": ceil(duration_s(config.access_token_ttl)),
            "refresh": ceil(duration_s(config.refresh_token_ttl)),
        }
        audience = config.audience
        self._audiences = frozenset((audience,) if isinstance(audience, str) else audience or ())
        self._default_audience = audience if audience is None or isinstance(audience, str) else list(audience)
        self._limiter: Any = config.rate_limiter
        self._closes_limiter = config.owns_limiter and self._limiter is not None
        if self._limiter is None and config.enable_rate_limit:
            self._limiter = RateLimiter.from_rate(config.rate, name="issue", clock=config.clock)
            self._closes_limiter = True
        allow, acquire = (getattr(self._limiter, name, None) for name in ("allow", "acquire"))
        # In process a yes is asked for first, being cheaper than a whole decision; elsewhere each question is a round trip.
        self._ask: Any = allow if isinstance(self._limiter, RateLimiter) else acquire or allow
        self._ask_again = acquire if isinstance(self._limiter, RateLimiter) else None
        self._limiter_awaits = awaits(self._ask)
        self._close_awaits = self._closes_limiter and awaits(self._limiter.close)
        self._hook_awaits = awaits(config.before_issue)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config!r}>"

    def reporting(self, report: Callable[[RateLimitExceeded | LimiterUnavailable], object]) -> Self:
        """Return a processor like this one that tells *report* of each refusal, before it raises it."""
        made = copy(self)
        made._report = report
        return made

    # Issuing ----------------------------------------------------------------------------------------------------

    def _issue(self, claims: RegisteredClaims | Mapping[str, object], token_type: TokenType) -> Flow[str]:
        self._check_open(signs=True)
        payload = payload_of(claims)
        if payload.get("iss", self.config.issuer) != self.config.issuer:
            raise InvalidClaims(f"claim 'iss' must be the issuer of the configuration, {self.config.issuer!r}, or left out")
        signing_input = self._signing_input(payload, token_type, InvalidClaims)
        return (yield from self._charge_and_sign(signing_input, claims))

    def _reissue(self, token: str, claims_type: type[ClaimsType]) -> Flow[str]:
        self._check_open(signs=True)
        payload = self._verified(token, "refresh")
        claims = claims_from(payload, claims_type)
        signing_input = self._signing_input(payload, "access", InvalidToken)
        return (yield from self._charge_and_sign(signing_input, claims))

    def _charge_and_sign(self, signing_input: bytes, claims: RegisteredClaims | Mapping[str, object]) -> Flow[str]:
        key = resolve_key(claims)
        if self.config.before_issue is not None:
            shown = claims_from(payload_of(claims), Claims) if isinstance(claims, Mapping) else copy(claims)
            verdict = yield Call(self.config.before_issue, (shown,), self._hook_awaits)
            if verdict is False:
                raise InvalidClaims("before_issue refused the claims")
            if verdict is not None and verdict is not True:  # such as a coroutine that nobody awaits
                raise TypeError(f"before_issue must return None, True or False, not {type(verdict).__name__}")
            self._check_open()  # the hook may have taken its time
        if key and self._ask is not None:
            try:
                yield from self._charge(key)
            except (RateLimitExceeded, LimiterUnavailable) as error:
                if self._report is not None:
                    self._report(error)
                raise
        return self._jws.sign(signing_input)

    def _charge(self, key: str) -> Flow[None]:
        if self.config.normalize_key is not None:
            key = self.config.normalize_key(key)
            if not isinstance(key, str):
                raise TypeError(f"normalize_key must return a str, not {type(key).__name__}")
            if not key:
                raise InvalidClaims("normalize_key left nothing of the key")
        try:
            answer = yield Call(self._ask, (key,), self._limiter_awaits)
            if answer is False and self._ask_again is not None:
                answer = yield Call(self._ask_again, (key,))
        except Exception as error:  # the limiter may be the application's: whatever it raises, it gave no answer
            self._check_open()
            if isinstance(error, LimiterUnavailable):
                raise
            raise LimiterUnavailable(f"the rate limiter failed with {type(error).__name__}") from error
        if isinstance(answer, bool):
            window_ns = self.config.rate.window_ns
            wait_ns = 0 if answer else window_ns
            answer = Decision(answer, self.config.rate, "issue", 0, wait_ns, window_ns, more_after_ns=window_ns)
        elif not isinstance(answer, Decision):
            raise LimiterUnavailable(f"the rate limiter answered with {type(answer).__name__}, neither a bool nor a Decision")
        if not answer.allowed:
            self._check_open()  # a limiter that is being closed refuses, too
            raise RateLimitExceeded(answer)

    def _signing_input(
        self, payload: dict[str, Any], token_type: TokenType, refusal: type[InvalidClaims] | type[InvalidToken]
    ) -> bytes:
        issued_at = self.config.clock.time_ns() // _NS_PER_SECOND
        if self._default_audience is not None:
            payload.setdefault("aud", self._default_audience)
        payload["iss"] = self.config.issuer
        payload["iat"] = issued_at
        payload["exp"] = issued_at + self._ttl_s[token_type]
        payload["jti"] = os.urandom(_JTI_BYTES).hex()
        payload["token_type"] = token_type
        try:
            return self._jws.signing_input(payload)
        except ValueError as error:
            raise refusal(f"the claims make no token: {error}") from error

    # Validating -------------------------------------------------------------------------------------------------

    def _read(self, token: str, claims_type: type[ClaimsType]) -> ClaimsType:
        self._check_open()
        return claims_from(self._verified(token, "access"), claims_type)

    def _verified(self, token: str, token_type: TokenType) -> dict[str, Any]:
        """Return the payload of *token* after every check that RFC 7519 and RFC 8725 ask for."""
        if not isinstance(token, str):
            raise TypeError(f"token must be a str, not {type(token).__name__}")
        text = self._jws.verify(token)
        try:
            payload = loads_object(text)
        except (ValueError, RecursionError) as error:
            raise InvalidToken("the payload of the token cannot be read") from error
        if problem := registered_fault(payload):
            raise InvalidToken(problem)
        if "exp" not in payload:
            raise InvalidToken("the token has no 'exp'")
        now_ns = self.config.clock.time_ns()
        if now_ns >= int(payload["exp"] * _NS_PER_SECOND) + self._leeway_ns:
            raise TokenExpired("the token has expired")
        if now_ns < int(payload.get("nbf", 0) * _NS_PER_SECOND) - self._leeway_ns:
            raise TokenNotYetValid("the token is not valid yet")
        if payload.get("iss") != self.config.issuer:
            raise InvalidIssuer("the token is from another issuer")
        audience = payload.get("aud", ())
        if self._audiences and self._audiences.isdisjoint((audience,) if isinstance(audience, str) else audience):
            raise InvalidAudience("the token is for another audience")
        if payload.get("token_type") != token_type:
            raise TokenTypeMismatch(f"the token is no {token_type} token")
        return payload

    def _close(self) -> Flow[None]:
        if self._closed:
            return
        self._closed = True
        if self._closes_limiter:
            try:
                yield Call(self._limiter.close, (), self._close_awaits)
            except Exception as error:  # the limiter may be the application's
                raise LimiterUnavailable(f"the rate limiter failed to close with {type(error).__name__}") from error

    def _check_open(self, *, signs: bool = False) -> None:
        if self._closed:
            raise ProcessorClosed("the processor is closed")
        if signs and not self._jws.can_sign:
            raise ConfigError("this processor only validates: give it a signing_key to issue tokens")


class Processor(_Issuer):
    """Issues and validates tokens, for code without an event loop. Safe to share between threads.

    The four issuing calls charge one bucket for each key (see `resolve_key`); a call that fails for another reason than
    the limit charges nothing. `validate` and `validate_into` never touch the limiter.

    Raises:
        ConfigError: The limiter or the hook of *config* is a coroutine: those belong into an `AsyncProcessor`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if self._limiter_awaits or self._close_awaits:
            raise ConfigError("rate_limiter is asynchronous: use AsyncProcessor, or a limiter with plain functions")
        if self._hook_awaits:
            raise ConfigError("before_issue is a coroutine function: use AsyncProcessor, or a plain function")

    def create(self, claims: RegisteredClaims | Mapping[str, object]) -> str:
        """Issue an access token for *claims*.

        ``iat``, ``exp``, ``jti`` and ``token_type`` are always set; ``iss`` and a missing ``aud`` come from the
        configuration. The caller's object is not changed.

        Raises:
            TypeError: *claims* is neither a mapping nor a dataclass that derives from `RegisteredClaims`.
            InvalidClaims: A claim cannot be signed, ``validate()`` of the claims or ``before_issue`` refuses.
            RateLimitExceeded: The key of the claims has been issued too many tokens.
            LimiterUnavailable: The limiter gave no answer.
            ProcessorClosed: The processor is closed, or was closed during the call.
            ConfigError: The processor has no key to sign with.
        """
        return run(self._issue(claims, "access"))

    def create_refresh(self, claims: RegisteredClaims | Mapping[str, object]) -> str:
        """Issue a refresh token for *claims*; else as `create`."""
        return run(self._issue(claims, "refresh"))

    def refresh(self, token: str) -> str:
        """Issue a new access token for the refresh token *token*, whose claims are those of `Claims`; all of them are kept.

        After RateLimitExceeded the refresh token is as good as before.

        Raises:
            TypeError: *token* is not a str.
            TokenError: *token* is not a good refresh token; the subclass says why.
            InvalidClaims: ``before_issue`` refuses.
            RateLimitExceeded: The key of the claims has been issued too many tokens.
            LimiterUnavailable: The limiter gave no answer.
            ProcessorClosed: The processor is closed, or was closed during the call.
            ConfigError: The processor has no key to sign with.
        """
        return run(self._reissue(token, Claims))

    def refresh_into(self, token: str, claims_type: type[ClaimsType]) -> str:
        """Do what `refresh` does, with the fields, ``validate()`` and ``rate_limit_key()`` of *claims_type*.

        Claims that charge a key of their own must be refreshed by this call, since only *claims_type* knows the key.

        Raises:
            TypeError: *claims_type* is no dataclass that derives from `RegisteredClaims`.
            InvalidClaims: ``validate()`` of *claims_type* refuses.
            JWTLimitError: As `refresh`.
        """
        return run(self._reissue(token, claims_type))

    def validate(self, token: str) -> Claims:
        """Return the claims of the access token *token*; never limited.

        Raises:
            TypeError: *token* is not a str.
            TokenError: *token* is not a good access token; the subclass says why.
            ProcessorClosed: The processor is closed.
        """
        return self._read(token, Claims)

    def validate_into(self, token: str, claims_type: type[ClaimsType]) -> ClaimsType:
        """Return the claims of the access token *token* as a *claims_type*; never limited.

        Raises:
            TypeError: *token* is not a str, or *claims_type* no dataclass that derives from `RegisteredClaims`.
            TokenError: *token* is not a good access token for that type; the subclass says why.
            InvalidClaims: ``validate()`` of *claims_type* refuses.
            ProcessorClosed: The processor is closed.
        """
        return self._read(token, claims_type)

    def close(self) -> None:
        """Stop issuing and validating; close the limiter that the processor made, or owns. Closing twice is closing once.

        Raises:
            LimiterUnavailable: An owned limiter of the application failed to close.
        """
        run(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class AsyncProcessor(_Issuer):
    """The same for code on an event loop: the methods of `Processor` as coroutines.

    It takes an `AsyncRateLimitProvider`, or a `RateLimiter`, which never waits for anything.

    Raises:
        ConfigError: The limiter of *config* is another one with plain functions: it might stall the event loop.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if self._limiter is not None and not self._limiter_awaits and not isinstance(self._limiter, RateLimiter):
            raise ConfigError("rate_limiter must be a RateLimiter or have coroutine functions: a plain one may stall the loop")

    async def create(self, claims: RegisteredClaims | Mapping[str, object]) -> str:
        """Issue an access token; see `Processor.create`."""
        return await run_async(self._issue(claims, "access"))

    async def create_refresh(self, claims: RegisteredClaims | Mapping[str, object]) -> str:
        """Issue a refresh token; see `Processor.create_refresh`."""
        return await run_async(self._issue(claims, "refresh"))

    async def refresh(self, token: str) -> str:
        """Issue a new access token for a refresh token; see `Processor.refresh`."""
        return await run_async(self._reissue(token, Claims))

    async def refresh_into(self, token: str, claims_type: type[ClaimsType]) -> str:
        """Issue a new access token for a refresh token of *claims_type*; see `Processor.refresh_into`."""
        return await run_async(self._reissue(token, claims_type))

    async def validate(self, token: str) -> Claims:
        """Return the claims of an access token; see `Processor.validate`."""
        return self._read(token, Claims)

    async def validate_into(self, token: str, claims_type: type[ClaimsType]) -> ClaimsType:
        """Return the claims of an access token as a *claims_type*; see `Processor.validate_into`."""
        return self._read(token, claims_type)

    async def close(self) -> None:
        """Stop issuing and validating; see `Processor.close`."""
        await run_async(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
