"""A request on its way, as limits look at it: what is Starlette's in it."""

from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request

from jwtlimit_core import ConfigError, asgi
from jwtlimit_core.flow import Call

__all__ = ["PASSAGE", "EndpointView", "Passage"]

PASSAGE = "jwtlimit"  # in the scope of a request: its passage through the middleware


def _user(scope: asgi.Scope) -> Any:
    user = scope.get("user")
    if user is None:
        raise ConfigError(
            "a limit is by user, but nobody says who that is: put AuthenticationMiddleware outside of RateLimitMiddleware, "
            "or set user_key to a function of the request"
        )
    if not user.is_authenticated:
        return None
    try:
        return user.identity
    except NotImplementedError as error:
        raise ConfigError(f"{type(user).__name__} has no identity: set user_key to a function of the request") from error


class Passage(asgi.Passage):
    """The passage of a request through the middleware."""

    __slots__ = ()

    @staticmethod
    def of(connection: HTTPConnection) -> "Passage | None":
        """Return the passage that *connection* is on, None where there is no middleware."""
        return connection.scope.get(PASSAGE)

    @property
    def raw(self) -> Any:
        """The request, made when somebody asks for it; None when it is over."""
        if self._raw is None and self.scope is not None and self._receive is not None:
            self._raw = Request(self.scope, self.messages.reader())
        return self._raw

    def user(self) -> Call:
        """Return how to get the identity of the user that AuthenticationMiddleware found."""
        return Call(_user, (self.scope,))

    def mapping(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Return *headers* as Starlette has them."""
        return Headers(raw=list(headers))


class EndpointView(asgi.ScopeView):
    """A request as an endpoint gets it, which may be mounted in another application than the middleware is around.

    Args:
        connection: What the endpoint gets.
        passage: What the middleware keeps of it.
    """

    __slots__ = ("_passage",)

    def __init__(self, connection: HTTPConnection, passage: Passage) -> None:
        asgi.ScopeView.__init__(self, connection.scope, None, connection)
        self._passage = passage

    def user(self) -> Call:
        """Return how to get the identity of its user."""
        return Call(_user, (self.scope,))

    def body(self, most_bytes: int) -> Call:
        """Return how to get the body, of which something else may have read some."""
        return self._passage.body(most_bytes)
