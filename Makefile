# make demo, make test: everything they need is installed into .venv from requirements.lock
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2
# no analytics of any library, and none of the machine's own Prefect settings
QUIET := DO_NOT_TRACK=1 PREFECT_SERVER_ANALYTICS_ENABLED=false

.PHONY: setup demo test lint unit test-faults bench bench-detection lock clean

setup: $(READY)

$(READY): requirements.lock tests/bench/otava.txt tests/record/axe.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "watchkeeper needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement tests/bench/otava.txt --requirement tests/record/axe.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

demo: $(READY)
	$(QUIET) $(BIN)/watchkeeper demo

test: lint unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(READY)
	$(QUIET) $(BIN)/python -m pytest -m "not faults" --numprocesses $(JOBS) --dist loadgroup

test-faults: $(READY)
	$(QUIET) $(BIN)/python -m pytest -m faults

bench: $(READY)
	$(QUIET) $(BIN)/python tests/bench/speed.py
	$(QUIET) $(BIN)/python tests/bench/record_size.py

# 20 minutes a system at the most; ARGS="--system watchkeeper" for one row
bench-detection: $(READY)
	$(QUIET) $(BIN)/python tests/bench/detection.py --jobs $(JOBS) $(ARGS)

lock: $(READY)
	$(BIN)/python -m pip install --quiet uv
	printf 'duckdb==1.5.5\n' | $(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --constraint - --output-file requirements.lock

clean:
	rm -rf $(VENV) demo .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
