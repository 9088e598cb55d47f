# Two commands on a fresh machine with Python 3.11 or 3.12 and make: `make serve` and `make test`.

PYTHON ?= $(firstword $(foreach p,python3 python3.12 python3.11 python,$(shell command -v $(p) 2>/dev/null)))
VENV_PYTHON := .venv/bin/python
SETUP = $(PYTHON) scripts/setup_env.py
HOST ?= 127.0.0.1
PORT ?= 30000
PAIRS ?= 500

.PHONY: help setup serve test check bench pairs python

help:
	@echo "make serve   set up .venv and serve the embedded default on $(HOST):$(PORT)"
	@echo "make test    set up .venv and run the tests (ARGS='-k name' goes to pytest)"
	@echo "make check   ruff, mypy and the layer contracts"
	@echo "make bench   measure: methods, transformers, concurrency; writes results/*.json"
	@echo "make pairs   random pairs of environments against their oracle (PAIRS=500); writes results/pairs.json"

python:
	@test -n "$(PYTHON)" || { echo "setup: error: no python3, python3.12 or python3.11 on the PATH; install one, or make PYTHON=/path/to/python3.12" >&2; exit 1; }

setup: python
	@$(SETUP) --extras server

serve: setup
	@$(VENV_PYTHON) -m treegraft pull smollm2-135m
	@$(VENV_PYTHON) -m treegraft serve smollm2-135m --host $(HOST) --port $(PORT)

test: python
	@$(SETUP) --extras server,train,dev
	@$(VENV_PYTHON) -m pytest $(ARGS)

check: python
	@$(SETUP) --extras server,train,dev
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy
	$(VENV_PYTHON) -c "from importlinter.cli import lint_imports_command as lint; lint()"

bench: python
	@$(SETUP) --extras server,train,dev
	@$(VENV_PYTHON) scripts/run_benchmarks.py --out results

pairs: python
	@$(SETUP) --extras server,train,dev
	@$(VENV_PYTHON) scripts/pairs.py $(PAIRS) --out results/pairs.json
