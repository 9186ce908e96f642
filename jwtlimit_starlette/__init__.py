"""jwtlimit for Starlette and FastAPI: `RateLimitMiddleware`, and limits on single endpoints."""

from jwtlimit_core.decoration import exempt
from jwtlimit_starlette.decorators import RateLimit, rate_limit
from jwtlimit_starlette.middleware import RateLimitMiddleware, get_processor, get_sync_processor, reset, reset_all
from jwtlimit_starlette.passage import add_exception_handlers

__all__ = [
    "RateLimit",
    "RateLimitMiddleware",
    "add_exception_handlers",
    "exempt",
    "get_processor",
    "get_sync_processor",
    "rate_limit",
    "reset",
    "reset_all",
]
