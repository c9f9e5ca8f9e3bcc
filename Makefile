# Everything that a developer or a user of a checkout types. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo up test lint format proto bench lock clean

help: ## Show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv and install everything into it

# Installed anew whenever the lock file or the project file changes.
$(READY): requirements.lock pyproject.toml infra/setup.sh
	PYTHON=$(PYTHON) VENV=$(VENV) bash infra/setup.sh
	@touch $@

demo: setup ## Train on drawn birds, kill the training in the middle, see it finish
	$(BIN)/perdure demo

up: setup ## Start the server: all services in one process
	$(BIN)/perdure up

test: setup ## Run all tests
	$(BIN)/pytest $(TESTS)

lint: setup ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Put the code into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup ## Generate libs/perdure/contracts from proto/
	$(BIN)/python infra/generate_contracts.py

bench: setup ## Measure, and print JSON lines
	$(BIN)/python -m tests.bench.bench_eventlog
	$(BIN)/python -m tests.bench.bench_training

lock: ## Write requirements.lock anew from pyproject.toml (needs network)
	PYTHON=$(PYTHON) bash infra/lock.sh

clean: ## Remove what make and the demo have made
	rm -rf $(VENV) perdure-demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
