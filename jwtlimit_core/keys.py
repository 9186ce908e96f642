"""Whom a charge falls on: the key of a set of claims, and the form in which a key is kept."""

from collections.abc import Mapping
from hashlib import sha256

from jwtlimit_core.claims import Claims, RegisteredClaims
from jwtlimit_core.errors import InvalidClaims
from jwtlimit_core.provider import RateLimitKeyer

__all__ = ["LONGEST_KEY", "SERVICE_KEY", "StoredKey", "resolve_key", "stored_key"]

LONGEST_KEY = 256  # characters; a longer key is kept as its SHA-256, so that no caller chooses how much memory it takes


class _ServiceKey(str):
    """A text that equals no other, not even the same one."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __reduce__(self) -> str:
        return "SERVICE_KEY"  # by name: a copy is the same one


SERVICE_KEY: str = _ServiceKey("the whole service")  # the key of a bucket that all share; no user's key can equal it

StoredKey = str | bytes


def stored_key(key: str) -> StoredKey:
    """Return *key* itself, or its digest where it is longer than `LONGEST_KEY`.

    A digest is bytes, so it equals no key that anybody can write.
    """
    if len(key) <= LONGEST_KEY:
        return key
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def resolve_key(claims: RegisteredClaims | Mapping[str, object]) -> str:
    """Return the key that *claims* charge: the plain value, ``""`` for no limit.

    The first of these that is not empty: ``sub``; ``user_id``, of `Claims` and of mappings; what
    ``rate_limit_key()`` returns, where the claims have it (None counts as empty).

    Raises:
        InvalidClaims: The value is not a str.
        Exception: Whatever ``rate_limit_key()`` raises.
    """
    if isinstance(claims, Mapping):
        candidates = [("sub", claims.get("sub")), ("user_id", claims.get("user_id"))]
    else:
        candidates = [("sub", claims.sub)]
        if isinstance(claims, Claims):
            candidates.append(("user_id", claims.user_id))
    for name, value in candidates:
        if value is not None and value != "":
            return _text(name, value)
    if isinstance(claims, RateLimitKeyer):
        key: object = claims.rate_limit_key()
        return "" if key is None else _text("rate_limit_key()", key)
    return ""


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidClaims(f"{name} must be a str, not {type(value).__name__}: use str()")
    return value
