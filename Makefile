# One word per wish. Each sets up .venv by itself, from locked and hashed dependencies;
# only Python 3.11 or newer and make need to be there.

PYTHON ?= python3
LOCK_FLAGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
CODE := $(wildcard src tests bench scripts examples docs/extensions)
BENCHES := $(filter-out bench/_%,$(wildcard bench/*.py))  # a leading underscore marks a helper

define new_venv
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Bartack needs Python 3.11 or newer, which '$(PYTHON)' is not; name one with: make PYTHON=python3.11" >&2; exit 1; }; \
$(PYTHON) -m venv --clear .venv
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test style types cover bench docs lock format clean

help:
	@sed -n 's/^#: //p' Makefile

#: make run      talk with a real local model, with no API key; without a terminal a scripted conversation with it
run: .venv/ready
	@if [ -t 0 ] && [ -t 1 ]; then \
		$(BIN)/bartack models pull >/dev/null && { $(BIN)/bartack chat --model local || [ $$? -eq 130 ]; }; \
	else $(BIN)/python examples/local_agent.py; fi

#: make test     style, types, and every test with branch coverage
test: style types
	$(BIN)/python -m pytest --cov

#: make style    lint and formatting
style: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

#: make types    mypy --strict over everything
types: .venv/ready
	$(BIN)/mypy $(CODE)

#: make cover    coverage line by line, in htmlcov/index.html
cover: .venv/ready
	$(BIN)/python -m pytest --cov --cov-report=term --cov-report=html

#: make bench    every measurement in bench/
bench: .venv/ready
	@set -e; for file in $(BENCHES:bench/%.py=%); do echo "== bench/$$file.py"; $(BIN)/python -m bench.$$file; done

#: make bench-peers  Bartack beside other libraries, each in an environment of its own in .venv-peers
.PHONY: bench-peers
bench-peers: .venv/ready
	@$(BIN)/python -m bench.peers

#: make crash    kill writers at random moments: no acknowledged entry may be lost
.PHONY: crash
crash: .venv/ready
	$(BIN)/python scripts/crash.py --store sqlite --kills 200
	$(BIN)/python scripts/crash.py --store jsonl --kills 200
	$(BIN)/python scripts/crash_postgres.py --kills 50
	$(BIN)/python scripts/crash_agent.py

#: make docs     redraw what the docs take from the code, and build the site in site/
docs: .venv/ready
	$(BIN)/python scripts/draw_tables.py
	$(BIN)/python scripts/draw_cli.py
	$(BIN)/python scripts/draw_benchmark.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

#: make picture  photograph `bartack chat` with the local model (needs tmux)
.PHONY: picture
picture: .venv/ready
	$(BIN)/bartack models pull >/dev/null
	$(BIN)/python scripts/draw_terminal.py

#: make format   let ruff repair and format the code
format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

#: make lock     resolve the dependencies again (LOCK_FLAGS=--upgrade for newer ones)
lock:
	@test -x $(BIN)/python || { $(new_venv); }
	@$(PIP) install uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --extra all $(LOCK_FLAGS) \
		--output-file requirements/dev.txt pyproject.toml requirements/dev.in

#: make clean    remove .venv and everything that was generated
clean:
	rm -rf .venv .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov dist site
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +

# Built anew when the lock changes, so that nothing unlocked stays behind.
.venv/locked: requirements/dev.txt
	@echo "setting up .venv ..."
	@$(new_venv)
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

.venv/ready: .venv/locked pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(PIP) check
	@touch $@
