"""The Flask adapter of jwtlimit."""
