"""One application on a clock that stands still, with one extension."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from adapters.django_project import Site
from jwtlimit_core.testing import ManualClock
from jwtlimit_flask import JWTLimit

SECRET = "s" * 32


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def jwtlimit(clock: ManualClock) -> JWTLimit:
    return JWTLimit(clock=clock)


@pytest.fixture
def make_app(jwtlimit: JWTLimit) -> Callable[..., Flask]:
    """An application factory; *extensions* are initialised in turn, by default `jwtlimit` alone."""

    def make(*extensions: JWTLimit, **settings: Any) -> Flask:
        app = Flask("app")
        app.testing = True
        app.config.update({"JWTLIMIT_SECRET_KEY": SECRET, "JWTLIMIT_ISSUE_RATE": "2/m"})
        app.config.update({f"JWTLIMIT_{name}": value for name, value in settings.items()})
        for extension in extensions or (jwtlimit,):
            extension.init_app(app)
        return app

    return make


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


# Django ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["wsgi", "asgi"])
def site(request: pytest.FixtureRequest, settings: Any, clock: ManualClock) -> Site:
    """The Django project, under each of the two interfaces in turn."""
    return Site(settings, clock, request.param)
