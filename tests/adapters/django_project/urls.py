"""URLs that a middleware chooses for some requests."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from adapters.django_project import hello


def handler429(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse("of other urls", status=429)


urlpatterns = [path("", hello)]
