"""Limits by a field: the body is read up to a bound, and the view reads it again as if nobody had."""

import asyncio
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.test import RequestFactory
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.response import Response

from adapters.django_project import OURS, Site
from jwtlimit_core import Limit
from jwtlimit_django import rate_limit
from jwtlimit_django.middleware import RateLimitMiddleware

LIMITS = [Limit("login", "1/m", key="field:user")]
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def form(user: str, **more: str) -> dict[str, Any]:
    return {"data": urlencode({"user": user, **more}), "content_type": FORM}


def read_post(request: HttpRequest) -> bytes:
    return request.POST["user"].encode()


def read_body(request: HttpRequest) -> bytes:
    return request.body


def read_stream(request: HttpRequest) -> bytes:
    return request.read(3) + b"".join(request)


@pytest.mark.parametrize("read", [read_post, read_body, read_stream])
def test_django_form_is_charged_by_field_and_read_again(site: Site, read: Any) -> None:
    site.serve(lambda request: HttpResponse(read(request)), LIMITS=LIMITS)
    answer = site.post(**form("ann"))
    assert answer.content == (b"ann" if read is read_post else b"user=ann")
    assert site.post(**form("ann")).status_code == 429
    assert site.post(**form("bob")).status_code == 200


def test_django_json_is_charged_by_field_and_read_again(site: Site) -> None:
    site.serve(lambda request: HttpResponse(request.body), LIMITS=LIMITS)
    body = {"data": b'{"user": "ann"}', "content_type": JSON}
    assert site.post(**body).content == b'{"user": "ann"}'
    assert site.post(**body).status_code == 429
    assert site.post(data=b'{"user": "bob"}', content_type=JSON).status_code == 200


def test_django_missing_field_is_charged_to_the_address(site: Site) -> None:
    site.serve(lambda request: HttpResponse(), LIMITS=LIMITS)
    assert [site.post(data=f"other={n}", content_type=FORM).status_code for n in range(2)] == [200, 429]


def test_django_long_body_is_charged_to_the_address_and_reaches_the_view(site: Site) -> None:
    site.serve(lambda request: HttpResponse(str(len(request.body))), LIMITS=LIMITS)
    answers = [site.post(**form(user, more="x" * 70_000)) for user in ("ann", "bob")]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert int(answers[0].content) == 70_000 + len("user=ann&more=")


def test_django_uploads_are_not_touched(site: Site) -> None:
    def view(request: HttpRequest) -> JsonResponse:
        assert not request._read_started
        return JsonResponse({"user": request.POST["user"], "size": request.FILES["file"].size})

    site.serve(view, LIMITS=LIMITS)
    answer = site.post(data={"user": "ann", "file": SimpleUploadedFile("a.txt", b"x" * 100_000)})
    assert answer.json() == {"user": "ann", "size": 100_000}


def test_django_body_above_the_bound_of_django_raises_in_the_view_alone(site: Site) -> None:
    site.settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 5

    def view(request: HttpRequest) -> HttpResponse:
        with pytest.raises(RequestDataTooBig):
            _ = request.body
        return HttpResponse()

    site.serve(view, LIMITS=LIMITS)
    assert [site.post(**form(user)).status_code for user in ("ann", "bob")] == [200, 429]
    site.settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    site.serve(lambda request: HttpResponse(request.body), LIMITS=LIMITS)
    assert [site.post(**form(user)).content for user in ("ann", "bob")] == [b"user=ann", b"user=bob"]


def test_django_stream_that_was_read_before_is_charged_to_the_address(site: Site) -> None:
    site.serve(
        lambda request: HttpResponse(request.read()),
        middleware=["adapters.django_project.middleware.reads_stream", OURS],
        LIMITS=LIMITS,
    )
    first, second = site.post(**form("ann")), site.post(**form("bob"))
    assert (first.content, second.status_code) == (b"ser=ann", 429)


def test_django_body_that_was_read_before_is_charged_by_field(site: Site) -> None:
    site.serve(rate_limit("1/m", key="field:user")(lambda request: HttpResponse(request.POST["user"])), LIMITS=LIMITS)
    assert site.post(**form("ann")).content == b"ann"


class Broken(BytesIO):
    def read(self, *_: Any) -> bytes:
        raise OSError("the client went away")


def environ(length: str, stream: BytesIO) -> dict[str, Any]:
    made: dict[str, Any] = RequestFactory().post("/", **form("ann")).environ
    return made | {"CONTENT_LENGTH": length, "wsgi.input": stream}


def test_django_client_that_goes_away_is_charged_to_its_address_and_the_view_is_told(settings: Any) -> None:
    settings.JWTLIMIT = {"LIMITS": LIMITS}
    told: list[type] = []

    def view(request: HttpRequest) -> HttpResponse:
        try:
            request.read()
        except (UnreadablePostError, ValueError) as error:
            told.append(type(error))
        return HttpResponse()

    middleware: Any = RateLimitMiddleware(view)
    answers = [middleware(WSGIRequest(environ("8", Broken()))) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert told == [UnreadablePostError]


def test_django_length_that_is_no_number_is_charged_to_the_address(settings: Any) -> None:
    settings.JWTLIMIT = {"LIMITS": LIMITS}
    middleware: Any = RateLimitMiddleware(lambda request: HttpResponse())
    answers = [middleware(WSGIRequest(environ("8, 8", BytesIO(b"user=ann")))) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


# Without a length, under ASGI ------------------------------------------------------------------------------------


def chunked(*bodies: bytes, content_type: str = FORM) -> list[httpx.Response]:
    handler = ASGIHandler()

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    async def send() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(handler), base_url="http://test") as client:
            return [await client.post("/", content=pieces(body), headers={"Content-Type": content_type}) for body in bodies]

    return asyncio.run(send())


@pytest.mark.django_db  # the handler itself looks after connections, where there are some
@pytest.mark.parametrize("site", ["asgi"], indirect=True)
@pytest.mark.parametrize("read", [read_body, read_stream])
@pytest.mark.parametrize("memory_bytes", [2_621_440, 100])
def test_django_chunked_body_is_charged_by_field_and_read_again(site: Site, read: Any, memory_bytes: int) -> None:
    site.settings.FILE_UPLOAD_MAX_MEMORY_SIZE = memory_bytes  # above it, the body is in a file
    site.serve(lambda request: HttpResponse(read(request)), LIMITS=LIMITS)
    bodies = [urlencode({"user": user, "more": "x" * 200}).encode() for user in ("ann", "ann", "bob")]
    answers = chunked(*bodies)
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert answers[0].content == bodies[0]


@pytest.mark.django_db  # the handler itself looks after connections, where there are some
@pytest.mark.parametrize("site", ["asgi"], indirect=True)
@pytest.mark.parametrize("size", [65_537, 3_000_000])
def test_django_chunked_body_that_is_long_is_charged_to_the_address_and_reaches_the_view(site: Site, size: int) -> None:
    site.serve(lambda request: HttpResponse(str(len(read_stream(request)))), LIMITS=LIMITS)
    answers = chunked(*(f"user={user}&more=".ljust(size, "x").encode() for user in ("ann", "bob")))
    assert [answer.status_code for answer in answers] == [200, 429]
    assert int(answers[0].content) == size


# REST framework --------------------------------------------------------------------------------------------------


def rest(view: Any) -> Any:
    return api_view(["POST"])(authentication_classes([])(permission_classes([])(view)))


@pytest.mark.parametrize("body", [form("ann"), {"data": b'{"user": "ann"}', "content_type": JSON}])
def test_django_rest_data_is_charged_by_field_and_read_again(site: Site, body: Any) -> None:
    def echo(request: Any) -> Response:
        return Response(request.data["user"])

    site.serve(rest(echo), LIMITS=LIMITS)
    answers = [site.post(**body) for _ in range(2)]
    assert (answers[0].json(), answers[1].status_code) == ("ann", 429)


@pytest.mark.parametrize("kind", [FORM, JSON])
def test_django_rest_data_that_was_parsed_before_is_charged_by_field(site: Site, kind: str) -> None:
    @rate_limit("1/m", key="field:user")
    def inner(request: Any) -> Response:
        return Response("done")

    def outer(request: Any) -> Any:
        assert request.data["user"]
        return inner(request)

    site.serve(rest(outer))
    bodies = ({FORM: f"user={user}", JSON: f'{{"user": "{user}"}}'}[kind] for user in ("ann", "bob", "ann"))
    assert [site.post(data=body, content_type=kind).status_code for body in bodies] == [200, 200, 429]
