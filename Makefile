# Everything that a developer or a user of a checkout types. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What Perdure is measured against and must not share an environment with.
PEERS := .venv-peers
COMPOSE ?= $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.PHONY: help setup setup-servers demo up stack compose-env compose-up compose-smoke test explore lint format proto bench lock clean

help: ## Show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv and install everything into it

# Installed anew whenever the lock file or the project file changes.
$(READY): requirements.lock pyproject.toml infra/setup.sh
	PYTHON=$(PYTHON) VENV=$(VENV) bash infra/setup.sh
	@touch $@

setup-servers: ## Install RabbitMQ and PostgreSQL from the system's packages (as root on Debian or Ubuntu)
	@bash infra/setup-servers.sh

demo: setup ## Train on drawn birds, kill the training in the middle, see it finish
	$(BIN)/perdure demo

up: setup ## Start the server: all services in one process
	$(BIN)/perdure up

stack: setup setup-servers ## Start broker, database, object store and services as processes of their own
	$(BIN)/python -m infra.stack

compose-env: ## Write random passwords for docker-compose.yml into .env, unless it is there
	@infra/compose-env.sh

compose-up: compose-env ## Build the images, and start everything in containers
	$(COMPOSE) up -d --build

compose-smoke: setup ## Try the containers for real: train, and break things meanwhile (needs Docker)
	$(BIN)/python -m infra.compose_smoke

test: setup setup-servers ## Run all tests
	$(BIN)/pytest $(TESTS)

explore: setup ## Try the properties of the unit tests on thousands of new examples
	$(BIN)/pytest -m hypothesis --hypothesis-profile explore --timeout 3600 tests/unit

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

bench: setup setup-servers $(PEERS)/.ready ## Measure, and print JSON lines
	$(BIN)/python -m tests.bench.bench_eventlog
	$(BIN)/python -m tests.bench.bench_eventsourcing
	$(BIN)/python -m tests.bench.bench_messaging
	$(BIN)/python -m tests.bench.bench_datasets
	$(BIN)/python -m tests.bench.bench_training

$(PEERS)/.ready: tests/bench/peers.txt
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

lock: ## Write requirements.lock anew from pyproject.toml (needs network)
	PYTHON=$(PYTHON) bash infra/lock.sh

clean: ## Remove what make, the demo and the stack have made
	rm -rf $(VENV) $(PEERS) perdure-demo perdure-stack build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
