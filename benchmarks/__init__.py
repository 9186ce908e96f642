"""Figures of jwtlimit beside its peers; `make bench` prints them."""
