"""Limit how often JWTs are issued and token endpoints are asked.

A `RateLimiter` counts, a `Processor` issues and validates tokens under it. See the README for an example of each.
"""

from jwtlimit_core.claims import Claims, RegisteredClaims
from jwtlimit_core.clock import Clock
from jwtlimit_core.config import Config
from jwtlimit_core.decision import Decision, RateLimitExceeded
from jwtlimit_core.engine import Engine
from jwtlimit_core.errors import (
    ConfigError,
    InvalidAudience,
    InvalidClaims,
    InvalidIssuer,
    InvalidToken,
    JWTLimitError,
    LimiterUnavailable,
    ProcessorClosed,
    TokenError,
    TokenExpired,
    TokenNotYetValid,
    TokenRevoked,
    TokenTypeMismatch,
)
from jwtlimit_core.http import Response
from jwtlimit_core.keys import SERVICE_KEY, resolve_key
from jwtlimit_core.limit import Limit, Phase
from jwtlimit_core.limiter import RateLimiter
from jwtlimit_core.processor import AsyncProcessor, Processor
from jwtlimit_core.provider import AsyncRateLimitProvider, RateLimitKeyer, RateLimitProvider
from jwtlimit_core.rate import Rate
from jwtlimit_core.request import Admission, RequestView
from jwtlimit_core.spend import acquire_all, acquire_all_async

__all__ = [
    "SERVICE_KEY",
    "Admission",
    "AsyncProcessor",
    "AsyncRateLimitProvider",
    "Claims",
    "Clock",
    "Config",
    "ConfigError",
    "Decision",
    "Engine",
    "InvalidAudience",
    "InvalidClaims",
    "InvalidIssuer",
    "InvalidToken",
    "JWTLimitError",
    "Limit",
    "LimiterUnavailable",
    "Phase",
    "Processor",
    "ProcessorClosed",
    "Rate",
    "RateLimitExceeded",
    "RateLimitKeyer",
    "RateLimitProvider",
    "RateLimiter",
    "RegisteredClaims",
    "RequestView",
    "Response",
    "TokenError",
    "TokenExpired",
    "TokenNotYetValid",
    "TokenRevoked",
    "TokenTypeMismatch",
    "acquire_all",
    "acquire_all_async",
    "resolve_key",
]
