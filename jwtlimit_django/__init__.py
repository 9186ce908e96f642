"""The Django adapter of jwtlimit; it has no public names yet."""

__all__: list[str] = []
