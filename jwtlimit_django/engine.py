"""The engine that ``settings.JWTLIMIT`` describes, and what is done with it by hand."""

from collections.abc import Mapping

from django.conf import settings
from django.core.signals import setting_changed

from jwtlimit_core import AsyncProcessor, ConfigError, Engine, Processor
from jwtlimit_core.flow import run, run_async
from jwtlimit_core.settings import build_engine

__all__ = ["areset", "get_async_processor", "get_engine", "get_processor", "reset", "reset_all"]

_NAME = "JWTLIMIT"
_engines: dict[str, Engine] = {}  # one at most: Django's settings are those of the process, and so is what they describe


def get_engine() -> Engine:
    """Return the engine of the settings as they are; it is made at its first use, and anew after they were overridden.

    Raises:
        ConfigError: Settings are unknown or cannot work; all of them are named.
    """
    engine = _engines.get(_NAME)
    return _engines.setdefault(_NAME, _build()) if engine is None else engine  # of first requests at once, all get one


def get_processor() -> Processor:
    """Return the processor for sync code; it does not limit while ``JWTLIMIT["ENABLED"]`` is False.

    Raises:
        ConfigError: No key is in the settings, or they cannot work.
    """
    return get_engine().processor()


def get_async_processor() -> AsyncProcessor:
    """Return the same for code on an event loop.

    Raises:
        ConfigError: As above; or the store is a limiter of your own that would stall the event loop.
    """
    return get_engine().async_processor()


def reset(name: str, key: str) -> None:
    """Give *key* its full quota of the limits called *name* back, such as ``reset("login", "ip=192.0.2.1")``.

    Raises:
        ValueError: *key* is not as it is counted.
        LimiterUnavailable: The store gave no answer.
    """
    run(get_engine().reset(name, key, on_loop=False))


async def areset(name: str, key: str) -> None:
    """Do as `reset` does, in code on an event loop."""
    await run_async(get_engine().reset(name, key, on_loop=True))


def reset_all() -> None:
    """Give everybody the full quota back; meant for tests."""
    get_engine().reset_all()


def _build() -> Engine:
    values = getattr(settings, _NAME, {})
    if not isinstance(values, Mapping):
        raise ConfigError(f"{_NAME} must be a dict of settings, not {type(values).__name__}")
    return build_engine(
        {str(name): value for name, value in values.items()},
        named='JWTLIMIT["{}"]'.format,
        enabled=lambda: getattr(settings, _NAME, {}).get("ENABLED"),  # which may have been changed in place
    )


def _forget(*, setting: str, **_: object) -> None:
    if setting == _NAME:
        _engines.clear()


setting_changed.connect(_forget)
