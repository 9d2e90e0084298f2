# Strom. `make help` lists the targets. Everything is set up in $(VENV) on first use; a second run is fast.
# Needs make and Python 3.11 or newer with pip and venv; network for package registries only.

PYTHON ?= python3
VENV ?= .venv
# Folder with the cases, clients, recordings and benchmark, beside the repository by default.
SHARED ?= ../shared
# More arguments for the command that a target runs: make serve ARGS="--backend http://127.0.0.1:11434"
ARGS ?=
# Processes that run tests; many wait for servers they started.
JOBS ?= 4

BIN := $(abspath $(VENV))/bin
RUN := $(VENV)/.run.stamp
DEV := $(VENV)/.dev.stamp
UV := $(VENV)/lock/bin/uv
AUDIT := $(VENV)/audit/.stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade \
	--custom-compile-command "make lock"

export STROM_SHARED = $(abspath $(SHARED))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test lint check coverage cases clients bench bench-library soak soak-library docs reference docs-serve lock audit sbom release clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 18

serve: $(RUN) ## start the gateway; with no local backend it brings a small model of its own
	@exec $(BIN)/strom serve $(ARGS)

test: $(DEV) ## run the tests
	$(BIN)/python -m pytest -rs -n $(JOBS) --dist loadfile $(ARGS)

check: lint test ## everything that has to pass: lint, then the tests

lint: $(DEV) ## formatting, lint, strict types, import directions, sizes
	$(BIN)/ruff format --check src tests tools
	$(BIN)/ruff check src tests tools
	$(BIN)/mypy src tests tools
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py src tests tools

coverage: $(DEV) ## run the tests and show what they do not reach
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage report --skip-covered --show-missing

cases: $(DEV) $(SHARED)/cases ## try the gateway on cases of real deviations, in all four protocols
	$(BIN)/python $(SHARED)/cases/run_cases.py --strom $(BIN)/strom $(ARGS)

clients: $(DEV) $(SHARED)/clients ## real clients against the gateway, before scripted and real backends
	$(BIN)/python -m pytest -m live tests/live -rs --durations=5 $(ARGS)

bench: $(RUN) $(SHARED)/bench ## measure the gateway beside nginx (Linux, gcc, nginx; about 4 minutes)
	$(BIN)/python $(SHARED)/bench/bench.py --strom $(BIN)/strom $(ARGS)

bench-library: $(DEV) ## measure the library beside other clients of one stream (more with httpx-sse and mojentic installed)
	$(BIN)/python tools/bench_library.py $(ARGS)

soak: $(DEV) ## half an hour of load, faults and killed workers: no lie, no leak, no lost call (Linux)
	$(BIN)/python tools/soak.py $(ARGS)

soak-library: $(DEV) ## open and abandon ten thousand streams; nothing may stay behind
	PYTHONPATH=. $(BIN)/python tools/soak_library.py $(ARGS)

docs: $(DEV) ## build the documentation into build/docs, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict $(ARGS)

reference: $(DEV) ## write the pages of docs/reference that are made from the program
	PYTHONPATH=. $(BIN)/python tools/reference.py

docs-serve: $(DEV) ## show the documentation while you write it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --watch src/strom $(ARGS)

lock: $(UV) ## make the lock files anew with the newest versions that fit
	$(LOCK) --extra local pyproject.toml requirements/build.in -o requirements/run.lock
	$(LOCK) --extra local --extra docs --extra dev pyproject.toml requirements/build.in -o requirements/dev.lock
	$(LOCK) --extra redis --extra postgres --extra encryption --extra otel -c requirements/dev.lock \
		pyproject.toml requirements/build.in -o requirements/deploy.lock
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade \
		--custom-compile-command "make lock" requirements/audit.in -o requirements/audit.lock

audit: $(AUDIT) $(UV) ## look up the locked versions: vulnerabilities, withdrawn ones, forgotten ones (ARGS=--strict)
	$(BIN)/python tools/audit.py $(ARGS) --pip-audit $(VENV)/audit/bin/pip-audit --uv $(UV) \
		requirements/run.lock requirements/dev.lock requirements/audit.lock

sbom: $(AUDIT) ## list what an installation consists of (CycloneDX) in build/sbom.json, from the lock file
	@mkdir -p build
	$(VENV)/audit/bin/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
		--of JSON -o build/sbom.json requirements/run.lock
	@$(BIN)/python -c 'import json; print("build/sbom.json:", len(json.load(open("build/sbom.json"))["components"]), "components")'

release: $(DEV) sbom ## build a release into build/release and sign it: make release KEY=FILE (an SSH key)
	$(BIN)/python tools/release.py --key "$(KEY)" $(ARGS)

clean: ## remove everything that is made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Strom needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# The package goes in editable and without build isolation: everything it is built with comes out of the lock file.
$(RUN): requirements/run.lock pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes -r requirements/run.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements/dev.lock pyproject.toml | $(BIN)/python
	$(PIP) install --require-hashes -r requirements/dev.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@ $(RUN)

$(UV): | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8,<1'

$(AUDIT): requirements/audit.lock | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip --disable-pip-version-check --no-input --quiet install --require-hashes -r requirements/audit.lock
	@touch $@

$(SHARED)/%:
	@echo "$@ is missing: name the folder that holds it with SHARED=FOLDER" >&2; exit 2
