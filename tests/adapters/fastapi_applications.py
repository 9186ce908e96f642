"""FastAPI applications with and without the middleware."""

from typing import Any

from fastapi import FastAPI

from jwtlimit_core.testing import ManualClock
from jwtlimit_starlette import RateLimitMiddleware


def make_app(*, middleware: bool = True, app: Any = None, **settings: Any) -> FastAPI:
    """Make an application, on a clock that stands still; options of `FastAPI` in *app*."""
    made = FastAPI(**(app or {}))
    if middleware:
        made.add_middleware(RateLimitMiddleware, clock=ManualClock(), **settings)
    return made
