# `make` lists what can be asked for. Each target first sets up .venv where it is missing or old.

PYTHON ?= python3
# Which TensorFlow goes into .venv: cpu, tensorflow or cuda.
TENSORFLOW ?= cpu
PYTEST_ARGS ?=

BIN := .venv/bin
READY := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check bench lab docs system-packages

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## train a model on a small device until it runs out, and show the report
	$(BIN)/python -m oommagic demo

test: $(READY) system-packages ## run the tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-long: $(READY) ## run the tests that take minutes: staged failures, large models, compiled steps, notebooks
	$(BIN)/python -m pytest -m "long or beside" $(PYTEST_ARGS)

check: $(READY) ## lint, format, types, the rooms' contracts, generated pages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

bench: $(READY) ## measure start-up, overhead beside other profilers, the tape, plans, advice, running out (BENCH_QUICK=1: only see that it runs)
	$(BIN)/python -m bench.startup.run
	$(BIN)/python -m bench.overhead.run
	$(BIN)/python -m bench.tape.run
	$(BIN)/python -m bench.plan.run --again
	$(BIN)/python -m bench.advice.speed
	$(BIN)/python -m bench.advice.run
	$(BIN)/python -m bench.advice.nets
# Thirty failures of ten seconds and more: there is no quick way.
ifneq ($(BENCH_QUICK),1)
	$(BIN)/python -m bench.running_out.run
endif

lab: $(READY) ## open JupyterLab on the notebooks
	$(BIN)/jupyter lab --notebook-dir=notebooks

docs: $(READY) ## build the pages into docs/_build
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/build.py

system-packages:
	@.ci/system-packages

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "oommagic needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev,$(TENSORFLOW)]'
	@touch $@
