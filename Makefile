# Every target is one line of help and few lines of recipe; CI calls the same ones.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python3.14; do "$$p" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && { echo "$$p"; break; }; done)
BIN := .venv/bin
PY := $(BIN)/python
PIP := $(PY) -m uv pip install --python $(PY)
PYTEST := $(PY) -m pytest
# Tests of whole services measure time and take ports, so only the others run side by side.
PROCESSES ?= 2

.PHONY: help setup demo test test-versions test-fast fmt lint types imports protos protos-check web web-check fuzz bench docs helm clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/base: pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "podscope needs Python 3.11 or newer on PATH (make PYTHON=/path/to/python3.12)" >&2; exit 2; fi
	@echo "== environment: .venv ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv .venv || { echo "cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@$(PY) -m pip install --quiet --disable-pip-version-check --upgrade pip uv
	@touch $@

# The web pages are built by `make web`, with progress, not inside the installation.
.venv/demo: .venv/base
	@echo "== installing podscope[all] and what the demo trains with"
	@PODSCOPE_SKIP_WEB_BUILD=1 $(PIP) --quiet --editable '.[all]' --group demo
	@touch $@

.venv/dev: .venv/base
	@echo "== installing podscope[all] and every test, lint and interop tool (about 2 GB)"
	@PODSCOPE_SKIP_WEB_BUILD=1 $(PIP) --quiet --editable '.[all]' --group dev
	@touch $@

setup: .venv/dev web ## create .venv with everything that development needs

demo: .venv/demo web ## profile a real job: DEMO=jax (4 processes) or DEMO=pod (16 simulated hosts); DEMO_EXIT=1 ends by itself
	@$(PY) examples/demo.py --kind "$(or $(DEMO),jax)" $(if $(DEMO_EXIT),--exit)

test: .venv/dev web ## set up and run every check and the whole suite
	@$(MAKE) lint types imports protos-check web-check
	@echo "== unit and conformance tests"
	@$(PYTEST) -q -n $(PROCESSES) $(PYTEST_ARGS) tests/unit tests/conformance
	@echo "== integration and end-to-end tests"
	@$(PYTEST) -q $(PYTEST_ARGS) tests/integration tests/e2e
	@$(MAKE) test-versions

# The library runs in other people's processes: the base distribution alone, on every Python there is.
VERSIONS ?= 3.11 3.12 3.13 3.14
UV_FIND = PATH="$$PATH:$$(echo $$HOME/.pyenv/versions/3.1[1-9]*/bin | tr ' ' ':')" $(PY) -m uv python find --no-project --no-python-downloads --system

# Only the base distribution is installed there; what needs more is skipped, in CI too.
test-versions: .venv/base ## the in-process library on every supported Python that is installed
	@for version in $(VERSIONS); do \
		if found=$$($(UV_FIND) "$$version" 2>/dev/null); then \
			echo "== the library on Python $$version: $$found"; \
			there=".venv/python$$version"; \
			[ -x "$$there/bin/python" ] || $(PY) -m uv venv --quiet --python "$$found" "$$there"; \
			PODSCOPE_SKIP_WEB_BUILD=1 $(PY) -m uv pip install --quiet --python "$$there/bin/python" --editable . 'pytest>=8.3' 'pytest-timeout>=2.3'; \
			env -u CI "$$there/bin/python" -m pytest -q -m 'not slow' $(PYTEST_ARGS) tests/unit/podscope; \
		else \
			echo "== the library on Python $$version: not installed here, left out"; \
		fi; \
	done

WEB_SOURCES := $(shell find collector/web -path '*/node_modules' -prune -o -type f -print 2>/dev/null | sed 's/ /\\ /g')
NPM = PATH="$$PWD/$(BIN):$$PATH" npm --prefix collector/web

web: collector/podscope_collector/static/index.html ## build the web pages

collector/podscope_collector/static/index.html: $(WEB_SOURCES)
	@echo "== web pages"
	@$(NPM) ci --no-audit --no-fund --loglevel=error && $(NPM) run --silent build

web-check: web ## type check and test the web pages
	@echo "== web: types and tests"
	@$(NPM) run --silent check && $(NPM) run --silent test

fuzz: ## damaged files through every analysis: FUZZ=100000 of them, FUZZ_SEED=1
	@$(PY) -m tests.fuzz --files $(or $(FUZZ),100000) --seed $(or $(FUZZ_SEED),1)

test-fast: ## unit tests only, in the environment that is there
	@$(PYTEST) -q tests/unit -m 'not slow'

fmt: ## format and fix what can be fixed
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

lint: ## ruff, both halves
	@echo "== ruff"
	@$(PY) -m ruff check . && $(PY) -m ruff format --check --quiet .

types: ## mypy --strict
	@echo "== mypy"
	@$(PY) -m mypy

imports: ## the import contracts
	@echo "== import contracts"
	@$(BIN)/python -c 'from importlinter.cli import lint_imports_command as run; run()' | tail -n 12

PROTOC = $(PY) -m grpc_tools.protoc -Iprotos
PROTO_FILES = protos/podscope_protos/v1/*.proto
# The in-process library builds its messages from this, see its wire.py.
DESCRIPTORS = agent/podscope/wire.binpb
LIBRARY_PROTOS = $(addprefix protos/podscope_protos/v1/,xplane.proto profiler_service.proto)

protos: ## regenerate the message classes
	@$(PROTOC) --python_out=protos --pyi_out=protos $(PROTO_FILES) && $(PROTOC) --descriptor_set_out=$(DESCRIPTORS) $(LIBRARY_PROTOS)

protos-check: ## the committed message classes are those of the .proto files
	@echo "== generated message classes"
	@rm -rf build/protos && mkdir -p build/protos
	@$(PROTOC) --python_out=build/protos --pyi_out=build/protos $(PROTO_FILES) && $(PROTOC) --descriptor_set_out=build/wire.binpb $(LIBRARY_PROTOS)
	@cmp build/wire.binpb $(DESCRIPTORS) || { echo "stale: run 'make protos'" >&2; exit 1; }
	@for f in build/protos/podscope_protos/v1/*; do cmp "$$f" "protos/podscope_protos/v1/$${f##*/}" || { echo "stale: run 'make protos'" >&2; exit 1; }; done

bench: ## run every benchmark (long)
	@for b in benchmarks/*.py; do echo "== $$b"; $(PY) "$$b"; done

helm: ## lint and render the chart
	@$(PYTEST) -q tests/unit/deploy

clean: ## remove what was built, keep the environment
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache collector/podscope_collector/static
