"""The application, for ``INSTALLED_APPS``: it brings the system checks, and nothing else."""

from django.apps import AppConfig
from django.core.checks import register

__all__ = ["JWTLimitConfig"]


class JWTLimitConfig(AppConfig):
    """Registers the checks."""

    name = "jwtlimit_django"
    verbose_name = "jwtlimit"

    def ready(self) -> None:
        """Register the checks, whose module needs the settings."""
        from jwtlimit_django.checks import check_deployment, check_settings

        register(check_settings, "jwtlimit")
        register(check_deployment, "jwtlimit", deploy=True)
