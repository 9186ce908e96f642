"""The Starlette and FastAPI adapter of jwtlimit; it has no public names yet."""

__all__: list[str] = []
