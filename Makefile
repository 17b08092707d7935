# The five verbs, the same here and in CI. Each installs what it needs by itself.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install check test bench demo clean
.DEFAULT_GOAL := test

install: $(STAMP)

# constraints.txt pins what CI runs; torch above all, whose newest wheels bring gigabytes of CUDA.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or newer is needed; name it: make PYTHON=python3.12 $(MAKECMDGOALS)'; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing into $(VENV); the first time takes a few minutes ...'
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: install
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered $(ARGS)

bench: install
	$(BIN)/python -m benchmarks.core_latency $(ARGS)

demo: install
	$(BIN)/python examples/quickstart.py $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
