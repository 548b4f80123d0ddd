# One command per task. Each sets up .venv first if needed, from locked and hashed dependencies.
# The only requirements are make and Python 3.11 or newer.

PYTHON ?= python3
LOCK_FLAGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CODE := $(wildcard src tests bench scripts examples docs/extensions)
BENCHES := $(filter-out bench/_%,$(wildcard bench/*.py))  # a leading underscore marks a module that others import

# The unit tests of the pure half must cover it completely; coverage doubles their time, so nothing else is measured.
# Together with the laws they also run under other Pythons, and with the recordings under the oldest.
UNIT := $(addprefix tests/,nouns stream formats session views protocols seeds test_exports.py)
PYTHONS = $(BIN)/python scripts/other_pythons.py $(1) $(UNIT) tests/properties --oldest tests/recordings
CORES := $(shell getconf _NPROCESSORS_ONLN || echo 2)
COVER := $(BIN)/python -m pytest -n $(CORES) $(UNIT) --cov
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
.PHONY: help run test style types cover pythons bench docs lock format clean

help:
	@sed -n 's/^#: //p' Makefile

#: make run          chat with a local model, no API key needed; without a terminal, run a scripted conversation
run: .venv/ready
	@if [ -t 0 ] && [ -t 1 ]; then \
		$(BIN)/bartack models pull >/dev/null && { $(BIN)/bartack chat --model local || [ $$? -eq 130 ]; }; \
	else $(BIN)/python examples/local_agent.py; fi

#: make test         lint, type-check and run all tests, the pure ones also under the oldest and newest Python found
test: .venv/ready
	$(if $(CI),@$(MAKE) --no-print-directory schema-suite || echo "Cannot download the JSON Schema suite; its test is skipped.")
	@$(SIDE_BY_SIDE) style types unit
	@$(SIDE_BY_SIDE) outermost others
	$(if $(CI),$(BIN)/python -m scripts.check_wheel)

# Much of this waits: mypy has one thread, and the other tests wait for terminals, processes and servers.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs
.PHONY: unit outermost others
unit: .venv/ready
	if $(TRACES_WELL); then $(COVER); else $(COVER:--cov=); fi
outermost: .venv/ready
	$(call PYTHONS,--outermost)
# In CI, a failed test is repeated once and listed: one hiccup of a browser or a database should not cost a whole run.
others: .venv/ready
	$(BIN)/python -m pytest -n auto --dist loadgroup $(UNIT:%=--ignore=%) $(if $(CI),--reruns 1 --rerun-show-tracebacks -rR)

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

#: make pythons      pure tests under every other Python on this machine, each with an environment in .venv-py
pythons: .venv/ready
	$(call PYTHONS)

#: make schema-suite fetch the official JSON Schema tests, which the source of the package jsonschema contains
.PHONY: schema-suite
schema-suite: .venv/schema-suite
.venv/schema-suite: .venv/locked
	@mkdir -p .venv/sources && sed -n '/^jsonschema==/,/# via/p' requirements/dev.txt >.venv/sources/jsonschema.txt
	@$(PIP) download --no-deps --no-binary jsonschema --require-hashes -r .venv/sources/jsonschema.txt --dest .venv/sources
	@mkdir -p $@ && tar -xzf .venv/sources/jsonschema-*.tar.gz -C $@ --strip-components=4 --wildcards '*/tests/draft2020-12/*'

#: make wheel        build the wheel and check it in clean environments; with CI set, make test does this too
.PHONY: wheel
wheel: .venv/ready
	$(BIN)/python -m scripts.check_wheel

#: make mutants      break rules on purpose; the tests that cite them must fail
.PHONY: mutants
mutants: .venv/ready
	$(BIN)/python -m scripts.mutants

#: make bench        run every benchmark in bench/
bench: .venv/ready
	@set -e; for file in $(BENCHES:bench/%.py=%); do echo "== bench/$$file.py"; $(BIN)/python -m bench.$$file; done

#: make bench-peers  compare with other libraries, each with an environment in .venv-peers
.PHONY: bench-peers
bench-peers: .venv/ready
	@$(BIN)/python -m bench.peers

#: make crash        kill writers at random moments while others continue; no acknowledged entry may be lost
.PHONY: crash
crash: .venv/ready
	$(BIN)/python scripts/crash.py
	$(BIN)/python scripts/bit_flips.py
	$(BIN)/python scripts/crash_agent.py
	$(BIN)/python scripts/race_runs.py --store sqlite
	$(BIN)/python scripts/race_runs.py --store jsonl
	$(BIN)/python scripts/race_runs.py --store postgres
	$(BIN)/python scripts/outside_hands.py --store sqlite
	$(BIN)/python scripts/outside_hands.py --store jsonl
	$(BIN)/python scripts/outside_hands.py --store postgres
	$(BIN)/python scripts/follow_answer.py --store sqlite
	$(BIN)/python scripts/follow_answer.py --store jsonl
	$(BIN)/python scripts/follow_answer.py --store postgres

#: make chaos        kill, stop and wake workers and restart their database (RUNS=2000) while they work: half an hour
RUNS ?= 2000
.PHONY: chaos
chaos: .venv/ready
	@failed=; for words in "--store sqlite" "--store postgres" "--store postgres --engine dbos"; do \
	    echo "$$words"; \
	    $(BIN)/python -m scripts.chaos $$words --runs $(RUNS) --write docs/guides/workers.md || failed=1; \
	done; \
	for control in repeat fence; do \
	    echo "without protection: $$control"; $(BIN)/python -m scripts.chaos --control $$control || failed=1; \
	done; \
	test -z "$$failed"

#: make capacity     measure workers and their queues, and fill the tables of docs/guides/capacity.md
.PHONY: capacity
capacity: .venv/ready
	$(BIN)/python -m bench.workers --million --save
	$(BIN)/python -m scripts.capacity

#: make fuzz         fuzz the wire formats (SECONDS=600 for ten minutes of CPU time)
SECONDS ?= 60
.PHONY: fuzz
fuzz: .venv/ready
	$(BIN)/python -m scripts.fuzz $(SECONDS) --save fuzz

#: make interop      prove imports and exports with the real agents, installed from npm and PyPI in .interop (needs Node)
# Not `npm ci`, which fails if a registry lacks the package of any other platform; versions are those of the lock.
.PHONY: interop
interop: .venv/ready .interop/ready
	$(BIN)/python -m scripts.interop .interop
.interop/ready: tests/interop/programs/package-lock.json tests/interop/programs/requirements.txt
	@mkdir -p .interop && cp tests/interop/programs/package.json tests/interop/programs/package-lock.json .interop
	cd .interop && npm install --no-save --no-audit --no-fund
	$(PYTHON) -m venv --clear .interop/venv
	.interop/venv/bin/python -m pip install -qq --no-deps --require-hashes -r tests/interop/programs/requirements.txt
	@touch $@

#: make docs         regenerate the parts of the docs that come from the code, and build the site in site/
docs: .venv/ready
	$(BIN)/python scripts/draw_tables.py
	$(BIN)/python scripts/draw_cli.py
	$(BIN)/python scripts/draw_benchmark.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

#: make picture      record `bartack chat` in a terminal, with a scripted model (needs tmux)
.PHONY: picture
picture: .venv/ready
	$(BIN)/python -m scripts.record_walk
	$(BIN)/python -m scripts.draw_chat

#: make trace        draw the spans of a run that is killed and resumed, docs/pictures/trace.svg
.PHONY: trace
trace: .venv/ready
	$(BIN)/python -m scripts.draw_trace

#: make viewers      send spans to Phoenix, and let the SDKs of Logfire and Langfuse read them, in .venv-viewers
.PHONY: viewers
viewers: .venv/ready
	$(BIN)/python -m scripts.check_viewers

#: make web-pictures take the screenshots of the web page (needs chromium)
.PHONY: web-pictures
web-pictures: .venv/ready
	$(BIN)/python -m scripts.draw_web

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
	$(COMPILE) --extra all $(LOCK_FLAGS) --output-file requirements/dev.txt pyproject.toml requirements/dev.in
	$(COMPILE) --constraint requirements/dev.txt --output-file requirements/test.txt requirements/test.in
	$(COMPILE) $(LOCK_FLAGS) --output-file tests/interop/programs/requirements.txt tests/interop/programs/requirements.in

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

.venv/ready: .venv/locked pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(PIP) check
	@touch $@
