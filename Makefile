# Everything a newcomer needs: `make demo` and `make test` each set up .venv on their own.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export OMP_NUM_THREADS ?= 1

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml tools/setup_venv.py
	$(PYTHON) tools/setup_venv.py

setup: $(READY) ## create .venv and install everything into it

vllm: $(READY) ## create .venv/vllm, in which tests run vLLM (`make test` does it, too)
	$(BIN)/python tools/setup_vllm.py

demo: $(READY) ## a draft server and a verifier on a real model: speed, acceptance, unchanged output
	$(BIN)/sidedraft demo --assets demo $(if $(JSON),--json $(JSON))

test: $(READY) ## all tests but the long ones
	@$(BIN)/python tools/setup_vllm.py --optional
	$(BIN)/python -m pytest -m "not long" -n 2 --dist loadgroup $(ARGS)

test-fast: $(READY) ## the tests that take no more than a few seconds each
	$(BIN)/python -m pytest -m "not long and not slow" -n 2 --dist loadgroup $(ARGS)

test-long: $(READY) ## the tests that take minutes
	@$(BIN)/python tools/setup_vllm.py --optional
	$(BIN)/python -m pytest -m long $(ARGS)

lint: $(READY) ## ruff, mypy --strict, the layers, file sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/sidedraft
	$(BIN)/lint-imports
	$(BIN)/python tools/file_sizes.py

check: $(READY) ## the project's promises as figures; one of them: make check NAME=ladder
	$(BIN)/python checks/run.py $(NAME)

bench: $(READY) ## the benchmarks' tables
	$(BIN)/python bench/engine.py
	$(BIN)/python bench/transport.py

format: $(READY) ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: help setup vllm demo test test-fast test-long lint check bench format
