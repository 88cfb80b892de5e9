# Every target sets up what it needs: Python >= 3.11, make and git are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test test-slow reproduce-quick check format bench clean
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/'

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## make .venv with exact versions

demo: $(STAMP) ## evaluate three unseen Boyan chains, and compare with critics that train
	@rm -rf runs/demo
	@for chain in 1000 1001 1002; do \
		$(BIN)/icrl evaluate BoyanChain-v0 --env-kwargs "{\"task_seed\": $$chain}" --n-steps 300 \
			--run-dir runs/demo/chain-$$chain || exit $$?; \
	done
	@$(BIN)/icrl compare BoyanChain-v0 --run-dir runs/demo/comparison --n-tasks 1 --steps 30 100 300 \
		--methods "agent, theorem" "DQN, linear, one-hot" "A2C, linear, one-hot" "LSTD, one-hot" "mean fill"
	@echo "All of it on one page: $(BIN)/icrl tensorboard runs/demo"

test: $(STAMP) ## the tests, under six minutes on two cores
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu"

test-slow: $(STAMP) ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

bench: $(STAMP) ## the speed ratios, with their bounds, to docs/benchmarks.md
	$(BIN)/python benchmarks/run_all.py

reproduce-quick: $(STAMP) ## the paper's claims at small size, about two minutes on two cores
	@rm -rf runs/reproduce-quick
	$(BIN)/icrl reproduce --quick --run-dir runs/reproduce-quick

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
