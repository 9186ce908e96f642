"""Claims as dataclasses: what they may hold, and the way into a payload and back."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from jwtlimit_core.errors import InvalidClaims, InvalidToken
from jwtlimit_core.strict_json import fault

__all__ = [
    "Claims",
    "ClaimsType",
    "NumericDate",
    "RegisteredClaims",
    "check",
    "claims_from",
    "payload_of",
    "registered_fault",
]

NumericDate = int | float
_LATEST_DATE = 253_402_300_799  # the last second of the year 9999


@dataclass(kw_only=True)
class RegisteredClaims:
    """The claims of RFC 7519 section 4.1, and ``token_type``; derive your own claims from it, as dataclasses.

    A derived class may have two methods: ``validate()``, which raises when the claims do not make sense together, and
    ``rate_limit_key() -> str``, which says whom to charge where ``sub`` is empty.

    Attributes:
        sub: The subject, a str; turn numbers into text with ``str()``.
        iss: The issuer; filled from the configuration.
        aud: The audience or audiences; filled from the configuration where it is missing.
        exp: When the token expires, in seconds since the epoch; always set by the processor.
        nbf: When the token starts to be valid: seconds since the epoch, or an aware datetime.
        iat: When the token was issued, in seconds since the epoch; always set by the processor.
        jti: The token's own identifier; always set by the processor.
        token_type: ``"access"`` or ``"refresh"``; always set by the processor.
    """

    sub: str | None = None
    iss: str | None = None
    aud: str | list[str] | None = None
    exp: NumericDate | datetime | None = None
    nbf: NumericDate | datetime | None = None
    iat: NumericDate | datetime | None = None
    jti: str | None = None
    token_type: str | None = None


@dataclass(kw_only=True)
class Claims(RegisteredClaims):
    """The claims that most applications need; ``Claims(sub="u1")`` alone will do.

    Attributes:
        extra: Any other claims by name. They stand in the token beside the named ones, and `Processor.validate` collects
            here what has no field of its own.
    """

    user_id: str | None = None
    username: str | None = None
    role: str | None = None
    permissions: list[str] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    session_id: str | None = None
    client_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


ClaimsType = TypeVar("ClaimsType", bound=RegisteredClaims)


def payload_of(claims: RegisteredClaims | Mapping[str, object]) -> dict[str, Any]:
    """Return the payload that *claims* stand for, checked; the caller's object is left as it is.

    A mapping is checked as `Claims` would be. Registered claims that are None, and fields with the None or the empty
    container of their default, are left out: a reader assumes the same.

    Raises:
        TypeError: *claims* is neither a mapping nor an instance of a dataclass that derives from `RegisteredClaims`.
        InvalidClaims: A claim is of another type than its field says, a date has no time zone, a value cannot be carried by
            JSON, or ``validate()`` of the claims refuses.
    """
    if isinstance(claims, RegisteredClaims):
        payload = _fields_of(claims)
        schema = _schema(type(claims))
    elif isinstance(claims, Mapping):
        payload = {name: value for name, value in claims.items() if value is not None or name not in _REGISTERED}
        schema = _schema(Claims)
    else:
        raise TypeError(f"claims must be a mapping or derive from RegisteredClaims, not {type(claims).__name__}")
    for name in _DATES:
        if isinstance(payload.get(name), datetime):
            payload[name] = _timestamp(name, payload[name])
    if problem := registered_fault(payload):
        raise InvalidClaims(problem)
    for name, value in payload.items():
        if not isinstance(name, str):
            raise InvalidClaims(f"the name of a claim must be a str, not {type(name).__name__}")
        if name in _REGISTERED:
            continue
        if value.__class__ is not str and (problem := fault(value, f"claim {name!r:.40}")):
            raise InvalidClaims(problem)
        if name in schema and not schema[name].fits(value):
            raise InvalidClaims(_misfit(name, value, schema[name].type))
    check(claims)
    return payload


def claims_from(payload: Mapping[str, Any], claims_type: type[ClaimsType]) -> ClaimsType:
    """Return an instance of *claims_type* with the claims of *payload*; what has no field is passed over.

    Raises:
        TypeError: *claims_type* is no dataclass that derives from `RegisteredClaims`.
        InvalidToken: A claim is of another type than its field, one without a default is missing, or the dataclass cannot be
            made of them.
        InvalidClaims: ``validate()`` of the instance refuses.
    """
    if not isinstance(claims_type, type) or not issubclass(claims_type, RegisteredClaims):
        raise TypeError(f"claims_type must be a dataclass that derives from RegisteredClaims, not {claims_type!r:.80}")
    schema = _schema(claims_type)
    fields = {}
    extra = {}
    for name, value in payload.items():
        if name not in schema:
            extra[name] = value
        elif schema[name].fits(value):
            fields[name] = _as(value, schema[name].type)
        else:
            raise InvalidToken(_misfit(name, value, schema[name].type))
    if issubclass(claims_type, Claims):
        fields["extra"] = extra
    try:
        claims = claims_type(**fields)
    except Exception as error:  # a claim is missing, or the application's __post_init__ refuses, with any exception
        raise InvalidToken(f"the claims do not make a {claims_type.__name__}: {error}") from error
    check(claims)
    return claims


def registered_fault(payload: Mapping[str, Any]) -> str:
    """Say which registered claim of *payload* is null, of the wrong type or out of its range; ``""`` for none."""
    for name in _TEXTS:
        if name in payload and not isinstance(payload[name], str):
            return f"claim {name!r} must be a str, not {type(payload[name]).__name__}: use str()"
    if "aud" in payload and not _is_audience(payload["aud"]):
        return f"claim 'aud' must be a str or a list of str, not {_kind(payload['aud'])}"
    for name in _DATES:
        if name not in payload:
            continue
        date = payload[name]
        if isinstance(date, bool) or not isinstance(date, int | float):
            return f"claim {name!r} must be a number of seconds since the epoch, not {type(date).__name__}"
        if not 0 <= date <= _LATEST_DATE:
            return f"claim {name!r} must be seconds since the epoch, from 0 to the year 9999"
    return ""


def check(claims: object) -> None:
    """Call ``validate()`` of *claims* where they have it.

    Raises:
        InvalidClaims: It raised, or returned False.
    """
    validate = getattr(claims, "validate", None)
    if not isinstance(claims, RegisteredClaims) or validate is None:
        return
    try:
        verdict = validate()
    except InvalidClaims:
        raise
    except Exception as error:  # the claims type is the application's: it may refuse with any exception
        raise InvalidClaims(f"{type(claims).__name__}.validate() refused the claims") from error
    if verdict is False:
        raise InvalidClaims(f"{type(claims).__name__}.validate() returned False")


_TEXTS = ("sub", "iss", "jti", "token_type")
_DATES = ("exp", "nbf", "iat")
_REGISTERED = frozenset((*_TEXTS, "aud", *_DATES))


class _Field(NamedTuple):
    """How one field is written and read: its resolved type, and the empty value that need not be written."""

    type: Any
    fits: Callable[[object], bool]
    empty: object


def _read_schema(claims_type: type[RegisteredClaims]) -> dict[str, _Field]:
    """Return the fields of *claims_type* that stand for one claim each."""
    if "__dataclass_fields__" not in vars(claims_type) and inspect.get_annotations(claims_type):
        raise TypeError(f"{claims_type.__name__} adds fields but is no dataclass: decorate it with @dataclass")
    try:
        hints = typing.get_type_hints(claims_type)
    except Exception:  # noqa: BLE001  the annotations are the application's: what cannot be resolved lets everything pass
        hints = {}
    schema = {}
    for item in dataclasses.fields(claims_type):
        if item.init and not (item.name == "extra" and issubclass(claims_type, Claims)):
            empty = item.default_factory() if callable(item.default_factory) else item.default
            hint = hints.get(item.name, Any)
            schema[item.name] = _Field(hint, _checker(hint), empty if empty in (None, [], {}, ()) else _UNWRITTEN)
    return schema


# Kept by class. The cast says to mypy that classes can be hashed, whatever their instances do.
_schema = cast("Callable[[type[RegisteredClaims]], dict[str, _Field]]", lru_cache(maxsize=256)(_read_schema))

_UNWRITTEN = object()  # equals no value: the field is always written


def _fields_of(claims: RegisteredClaims) -> dict[str, Any]:
    payload = {}
    for name, (_, _, empty) in _schema(type(claims)).items():
        value = getattr(claims, name)
        if value is not empty and (value.__class__ is not empty.__class__ or value):
            payload[name] = value
    if isinstance(claims, Claims) and claims.extra:
        if not isinstance(claims.extra, Mapping):
            raise InvalidClaims(f"extra must be a mapping of claims by name, not {type(claims.extra).__name__}")
        taken = [name for name in claims.extra if name in _schema(type(claims))]
        if taken:
            raise InvalidClaims(f"extra may not hold {taken[0]!r}: set the field of that name")
        payload |= claims.extra
    return payload


def _timestamp(name: str, date: datetime) -> NumericDate:
    if date.utcoffset() is None:
        raise InvalidClaims(f"claim {name!r} is a datetime without a time zone: give it one, such as timezone.utc")
    seconds = date.timestamp()
    return int(seconds) if seconds.is_integer() else seconds


def _checker(wanted: Any) -> Callable[[object], bool]:
    """Return the test for what the annotation *wanted* says; one that says nothing about JSON lets everything pass."""
    origin, arguments = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        options = [_checker(argument) for argument in arguments]
        return lambda value: any(option(value) for option in options)
    if origin is typing.Literal:
        return lambda value: value in arguments
    if origin is types.NoneType:
        return lambda value: value is None
    if origin in (str, bool):
        return lambda value: isinstance(value, origin)
    if origin in (int, float):
        return lambda value: isinstance(value, int | origin) and not isinstance(value, bool)
    if origin is dict:
        inside = _checker(arguments[1]) if arguments else _anything
        return lambda value: isinstance(value, dict) and all(map(inside, value.values()))
    if origin in (list, tuple):
        items = {argument for argument in arguments if argument is not Ellipsis}
        inside = _checker(items.pop()) if len(items) == 1 else _anything
        return lambda value: isinstance(value, list | tuple) and all(map(inside, value))
    return _anything


def _anything(_value: object) -> bool:
    return True


def _as(value: Any, wanted: Any) -> Any:
    """Return *value*, a list as a tuple where the annotation *wanted* takes no list."""
    if isinstance(value, list):
        options = [typing.get_origin(option) or option for option in (wanted, *typing.get_args(wanted))]
        if tuple in options and list not in options:
            return tuple(value)
    return value


_is_audience = _checker(str | list[str])


def _misfit(name: str, value: object, wanted: Any) -> str:
    expected = getattr(wanted, "__name__", str(wanted)) if not typing.get_args(wanted) else str(wanted)
    return f"claim {name!r} must be {expected}, not {_kind(value)}"


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
