"""One limit across processes and machines, on Redis or Valkey; needs the extra ``jwtlimit[redis]``."""

try:
    import redis as _redis  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("jwtlimit_core.redis needs redis-py: pip install 'jwtlimit[redis]'", name="redis") from error

from jwtlimit_core.redis.limiters import (
    AsyncRedisFixedWindow,
    AsyncRedisTokenBucket,
    RedisFixedWindow,
    RedisTokenBucket,
)
from jwtlimit_core.redis.store import open_async_store, open_store

__all__ = [
    "AsyncRedisFixedWindow",
    "AsyncRedisTokenBucket",
    "RedisFixedWindow",
    "RedisTokenBucket",
    "open_async_store",
    "open_store",
]
