# Two commands for a machine that has Python 3.11+ and make, nothing else:
#   make demo [ARGS=--exit]     a server, killed workers, others that go on: one document, one cancelled order
#   make test                   everything that CI checks
# What runs for minutes is `make soak`, and CI's nightly mode: ATMEM_NIGHTLY=1 .ci/run

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml hatch_build.py app/vendored.py

# Hundreds of processes of the tests load the same modules: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter of the path that is new enough; PYTHON=… overrides it.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done)

.PHONY: help demo test lint format soak lock tools screenshots bill audit clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   make/make/p' Makefile

# The server and LangChain, for the agent of the demo, with exactly the locked packages, each checked against its hash,
# then this project itself.
$(VENV)/.demo: requirements/demo.lock $(BUILD_INPUTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/demo.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

# The same with the tools of development; the second lock holds all of the first, at the same versions.
$(VENV)/.dev: requirements/dev.lock $(BUILD_INPUTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@ $(VENV)/.demo

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed on the path (or PYTHON=/path/to/python3)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

demo: $(VENV)/.demo
	@$(BIN)/atmem demo $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint tools
	$(BIN)/pytest -n 2 --dist worksteal -m "not soak" $(ARGS)
	.ci/langgraph $(BIN)

soak: $(VENV)/.dev tools
	$(BIN)/pytest -m soak $(ARGS)
	mkdir -p build
	$(BIN)/python -m tests.bench.scale --json build/scale.json

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

tools: $(VENV)/.dev
	@.ci/tools $(BIN)/python

# The pictures of the README, taken by the browser tests on their way.
screenshots: $(VENV)/.dev tools
	ATMEM_SCREENSHOTS=docs/images $(BIN)/pytest -m browser $(ARGS)

# Resolve again, for every supported Python and platform at once, with all hashes and no address of an index.
LOCK = $(VENV)/lock/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet
lock: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet 'uv>=0.9,<1'
	$(LOCK) --extra server --extra postgres --output-file requirements/server.lock
	$(LOCK) --extra dev --constraint requirements/server.lock --output-file requirements/dev.lock
	$(LOCK) --extra server --extra postgres --extra threads --constraint requirements/dev.lock \
		--output-file requirements/demo.lock
	for version in 1.1.5 1.2.12; do $(LOCK) --extra server --extra postgres --extra langchain \
		requirements/langgraph/tests.in requirements/langgraph/$$version.in --constraint requirements/server.lock \
		--output-file requirements/langgraph/$$version.lock || exit 1; done

# What the server is made of, and what is known against it: tools of their own environment (docs/adr/0020).
$(VENV)/bill/.made: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/bill
	$(VENV)/bill/bin/python -m pip install --quiet 'cyclonedx-bom>=7,<8' 'pip-audit>=2.9,<3'
	@touch $@

bill: $(VENV)/bill/.made
	@mkdir -p dist
	$(VENV)/bill/bin/cyclonedx-py requirements requirements/server.lock --of JSON --output-file dist/bill.json

# Needs a network: it asks an advisory service.
audit: $(VENV)/bill/.made
	$(VENV)/bill/bin/pip-audit --no-deps --disable-pip --requirement requirements/server.lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
