"""jwtlimit for Django: a middleware, decorators for views, and the way to the processor.

Add ``jwtlimit_django.middleware.RateLimitMiddleware`` to ``MIDDLEWARE``, and ``jwtlimit_django`` to ``INSTALLED_APPS`` for its
system checks; settings are in the dict ``JWTLIMIT``. What a request was charged is in ``request.jwtlimit``.
"""

from jwtlimit_core.decoration import exempt
from jwtlimit_django.decorators import rate_limit
from jwtlimit_django.engine import areset, get_async_processor, get_processor, reset, reset_all
from jwtlimit_django.passage import arender_refusal, render_refusal

__all__ = [
    "arender_refusal",
    "areset",
    "exempt",
    "get_async_processor",
    "get_processor",
    "rate_limit",
    "render_refusal",
    "reset",
    "reset_all",
]
