# The two commands: `make demo` and `make test`. All that they need goes into .venv.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN = .venv/bin
PEERS = .venv-peers/bin

.PHONY: demo test lint types tox bench clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: .venv/ready
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

tox: .venv/ready
	$(BIN)/tox run

bench: .venv-peers/ready
	$(PEERS)/python -m benchmarks

.venv/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "jwtlimit needs Python 3.11 or newer; none was found as python3.13, python3.12, python3.11 or python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) comes without venv: install the package that brings it (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[django,flask,starlette,redis]' --group dev
	touch $@

.venv-peers/ready: pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv --clear .venv-peers
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check --editable '.[django,flask,starlette]' -r benchmarks/requirements.txt
	touch $@

clean:
	rm -rf .venv .venv-peers .tox .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
