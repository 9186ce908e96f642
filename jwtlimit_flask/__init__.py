"""jwtlimit for Flask: one extension, `JWTLimit`."""

from jwtlimit_flask.extension import JWTLimit

__all__ = ["JWTLimit"]
