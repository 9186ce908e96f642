"""Every exception of jwtlimit, except the one that carries a decision.

::

    JWTLimitError
    ├── ConfigError               also a ValueError; lists every problem at once
    ├── RateLimitExceeded         the answer is 429; stands beside Decision in `decision`
    ├── LimiterUnavailable        the store gave no answer: 503, never 429
    ├── ProcessorClosed           a processor was used after close()
    ├── InvalidClaims             what was to be signed is not a set of claims
    └── TokenError                a token was not accepted: usually 401
        ├── InvalidToken          malformed, wrongly signed, or with impossible claims
        ├── TokenExpired
        ├── TokenNotYetValid
        ├── TokenRevoked
        ├── TokenTypeMismatch     an access token where a refresh token belongs, or the reverse
        ├── InvalidIssuer
        └── InvalidAudience

No message contains a token, a key or a secret.
"""

__all__ = [
    "ConfigError",
    "InvalidAudience",
    "InvalidClaims",
    "InvalidIssuer",
    "InvalidToken",
    "JWTLimitError",
    "LimiterUnavailable",
    "ProcessorClosed",
    "TokenError",
    "TokenExpired",
    "TokenNotYetValid",
    "TokenRevoked",
    "TokenTypeMismatch",
]


class JWTLimitError(Exception):
    """The root: ``except JWTLimitError`` catches all that jwtlimit raises on purpose."""


class ConfigError(JWTLimitError, ValueError):
    """A value that was given at start-up cannot work.

    Attributes:
        problems: One sentence for each bad value, each with the way to mend it.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class LimiterUnavailable(JWTLimitError):
    """The limiter gave no answer, so the question stays open: 503, never 429.

    Attributes:
        retry_after: Seconds after which asking again makes sense.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ProcessorClosed(JWTLimitError):
    """The processor was closed before or during the call; nothing was issued."""


class InvalidClaims(JWTLimitError):
    """The claims cannot be signed, or a claims type refused them; nothing was charged."""


class TokenError(JWTLimitError):
    """A token was not accepted; nothing was charged."""


class InvalidToken(TokenError):
    """The token is malformed, wrongly signed, or carries impossible claims."""


class TokenExpired(TokenError):
    """The time is at or after ``exp`` plus the leeway (RFC 7519 section 4.1.4)."""


class TokenNotYetValid(TokenError):
    """The time is before ``nbf`` less the leeway (RFC 7519 section 4.1.5)."""


class TokenRevoked(TokenError):
    """The token was withdrawn before it expired."""


class TokenTypeMismatch(TokenError):
    """An access token was used as a refresh token, or the reverse (RFC 8725 section 3.12)."""


class InvalidIssuer(TokenError):
    """``iss`` is not the configured issuer (RFC 8725 section 3.8)."""


class InvalidAudience(TokenError):
    """``aud`` does not name a configured audience (RFC 7519 section 4.1.3)."""
