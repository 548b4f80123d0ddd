# One command per task. Each sets up .venv first if needed, from locked and hashed dependencies.
# The only requirements are make and Python 3.11 or newer.

PYTHON ?= python3
LOCK_FLAGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
PACKAGES := bartack bartack-transcripts bartack-server bartack-code
CODE := packages tests bench lab examples docs/extensions conftest.py
BENCHES := $(filter-out bench/_%,$(wildcard bench/*.py))  # a leading underscore marks a module that others import

# The unit tests of the pure half must cover it completely; coverage doubles their time, so nothing else is measured.
UNIT = $(shell $(BIN)/python -c 'from lab.repository import PURE_TESTS; print(*PURE_TESTS)')
CORES := $(shell getconf _NPROCESSORS_ONLN || echo 2)
COVER = $(BIN)/python -m pytest -n $(CORES) $(UNIT) --cov
# Python 3.11.2 reports lines inside a `match` that it did not execute; 3.11.7 does not. Before, nothing is measured.
TRACES_WELL := $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11, 7))'

# Cached bytecode saves every worker, subprocess and other Python from compiling the code and the tests again.
unexport PYTHONDONTWRITEBYTECODE

define new_venv
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Bartack needs Python 3.11 or newer; '$(PYTHON)' is older or does not run. Choose another: make PYTHON=python3.11" >&2; exit 1; }; \
$(PYTHON) -m venv --clear .venv || { \
	echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu, install the package python3-venv." >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test style types cover bench lab docs format lock clean

help:
	@sed -n 's/^#: //p' Makefile

#: make run          chat with a local model, no API key needed; without a terminal, run a scripted conversation
run: .venv/ready
	@if [ -t 0 ] && [ -t 1 ]; then \
		$(BIN)/bartack models pull >/dev/null && { $(BIN)/bartack chat --model local || [ $$? -eq 130 ]; }; \
	else $(BIN)/python examples/local_agent.py; fi

#: make test         lint, type-check and run all tests, the pure ones also under the oldest and newest Python found
test: .venv/ready
	$(if $(CI),@$(MAKE) --no-print-directory .venv/schema-suite || echo "Cannot download the JSON Schema suite; its test is skipped.")
	@$(SIDE_BY_SIDE) style types unit
	@$(SIDE_BY_SIDE) others outermost $(if $(CI),wheels)

# Much of this waits: mypy has one thread, the other tests wait for terminals, processes and servers, and the wheels for
# the package index. What runs beside the other tests takes the time that they leave, because they take longest.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs
.PHONY: unit outermost others wheels
unit: .venv/ready
	if $(TRACES_WELL); then $(COVER); else $(COVER:--cov=); fi
outermost: .venv/ready
	nice $(BIN)/python -m lab.other_pythons --outermost
wheels: .venv/ready
	nice $(BIN)/python -m lab.check_wheel $(PACKAGES)
others: .venv/ready
	$(BIN)/python -m pytest -n auto --dist loadgroup $(addprefix --ignore=,$(UNIT))

#: make style        check lint rules and formatting
style: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

#: make types        type-check everything with mypy --strict
types: .venv/ready
	$(BIN)/mypy $(CODE)

#: make cover        branch coverage of the pure half, line by line, in htmlcov/index.html
cover: .venv/ready
	$(COVER) --cov-report=term --cov-report=html

# The official JSON Schema tests, which the source of the package jsonschema contains.
.venv/schema-suite: .venv/locked
	@mkdir -p .venv/sources && sed -n '/^jsonschema==/,/# via/p' requirements/dev.txt >.venv/sources/jsonschema.txt
	@$(PIP) download --no-deps --no-binary jsonschema --require-hashes -r .venv/sources/jsonschema.txt --dest .venv/sources
	@mkdir -p $@ && tar -xzf .venv/sources/jsonschema-*.tar.gz -C $@ --strip-components=4 --wildcards '*/tests/draft2020-12/*'

#: make bench        run every benchmark in bench/, and write the ratios of five runs to docs/performance.md
bench: .venv/ready
	@set -e; for file in $(BENCHES:bench/%.py=%); do echo "== bench/$$file.py"; $(BIN)/python -m bench.$$file; done
	$(BIN)/python -m lab.performance

#: make lab          list the long experiments; make lab NAME=fuzz ARGUMENTS="600" runs one
lab: .venv/ready
	@$(BIN)/python -m lab $(NAME) $(ARGUMENTS)

#: make docs         regenerate the parts of the docs that come from the code, and build the site in site/
docs: .venv/ready
	$(BIN)/python -m lab.draw_docs
	$(BIN)/python -m lab.draw_charts benchmark
	$(BIN)/python -m lab.figures
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

#: make format       fix lint findings and format the code
format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

#: make lock         resolve the dependencies again (LOCK_FLAGS=--upgrade for newer versions)
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url
lock:
	@test -x $(BIN)/python || { $(new_venv); }
	@$(PIP) install uv
	$(COMPILE) --all-extras $(LOCK_FLAGS) $(PACKAGES:%=--no-emit-package %) --output-file requirements/dev.txt \
		$(PACKAGES:%=packages/%/pyproject.toml) requirements/dev.in
	$(COMPILE) --constraint requirements/dev.txt --output-file requirements/test.txt requirements/test.in
	$(COMPILE) $(LOCK_FLAGS) --output-file packages/bartack-transcripts/tests/transcripts/programs/requirements.txt packages/bartack-transcripts/tests/transcripts/programs/requirements.in

#: make clean        remove .venv and all generated files
clean:
	rm -rf .venv .venv-peers .venv-py .venv-viewers .interop .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov dist site fuzz
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +

# Rebuilt when the lock changes, so that nothing unlocked stays behind. The lock is complete, hence --no-deps: with a package that
# is required once with and once without an extra, pip would also look at releases newer than the locked one, and then refuse.
.venv/locked: requirements/dev.txt
	@echo "Setting up .venv (once; takes a minute or two) ..."
	@$(new_venv)
	@$(PIP) install --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

.venv/ready: .venv/locked $(PACKAGES:%=packages/%/pyproject.toml)
	@$(PIP) install --no-deps --no-build-isolation $(PACKAGES:%=--editable packages/%)
	@$(PIP) check
	@touch $@
