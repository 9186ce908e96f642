"""The token endpoint in Django, in one file. Run it with ``python examples/django_app.py runserver``."""

import os
import secrets
import sys

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from jwtlimit_core import Claims, Limit, TokenError
from jwtlimit_django import get_processor, rate_limit

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        INSTALLED_APPS=["jwtlimit_django"],
        JWTLIMIT={
            "SECRET_KEY": os.environ.get("JWT_SECRET") or secrets.token_bytes(32),
            "ISSUE_RATE": os.environ.get("JWT_RATE", "5/30s"),  # tokens for each subject
            "STORE": os.environ.get("JWT_STORE") or "memory",  # redis://… for one limit over all workers
            "LIMITS": [Limit("site", "600/m", key="ip")],
            "EXEMPT_PATHS": ["/healthz"],
        },
        MIDDLEWARE=["jwtlimit_django.middleware.RateLimitMiddleware"],
        ROOT_URLCONF=__name__,
        SECRET_KEY=secrets.token_hex(),
        USE_TZ=True,
    )
    django.setup()

# A real application keeps password hashes, and compares them in constant time.
USERS = {"alice": "wonderland", "bob": "builder"}


@csrf_exempt
@require_POST
@rate_limit("60/m", key="ip")  # attempts from one address, right or wrong
def token(request: HttpRequest) -> HttpResponse:
    username = request.POST.get("username", "")
    if USERS.get(username) != request.POST.get("password"):
        return JsonResponse({"error": "wrong user name or password"}, status=401)
    claims = Claims(sub=username)
    processor = get_processor()
    return JsonResponse({"access_token": processor.create(claims), "refresh_token": processor.create_refresh(claims)})


@csrf_exempt
@require_POST
def refresh(request: HttpRequest) -> HttpResponse:
    try:
        return JsonResponse({"access_token": get_processor().refresh(request.POST.get("refresh_token", ""))})
    except TokenError:
        return not_authorized()


def me(request: HttpRequest) -> HttpResponse:
    claims = request.jwtlimit.claims  # type: ignore[attr-defined]  # verified by the middleware's processor
    return JsonResponse({"user": claims.sub}) if claims else not_authorized()


def healthz(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


def not_authorized() -> HttpResponse:
    headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return HttpResponse("the token was not accepted\n", status=401, headers=headers)


urlpatterns = [path("token", token), path("refresh", refresh), path("me", me), path("healthz", healthz)]
application = get_wsgi_application()
asgi = get_asgi_application()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
