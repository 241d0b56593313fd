# The two commands of a newcomer are `make quickstart` and `make test`; each does all the set-up it
# needs. ARGS goes to the program: make quickstart ARGS="--smoke", make test ARGS="-m unit".
ARGS ?=
# Hundreds of Python programs are started: compiling our sources in each would cost minutes.
unexport PYTHONDONTWRITEBYTECODE
# Workers of pytest: one more than there are cores, for many tests wait; at most 5, since each may
# take 3 GB. One that has nothing left takes over half of what another still has to do.
WORKERS ?= -n $$(( $$(nproc) + 1 )) --maxprocesses 5 --dist worksteal
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests quickstart test test-all lint format doctor docs

help: ## show this text
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' Makefile | \
		while IFS='|' read -r target text; do printf '%-18s%s\n' "$$target" "$$text"; done

setup: ## install what is missing: uv, the locked packages, g++, bubblewrap
	@sh scripts/setup.sh

setup-tests: ## the same, and chromium for the viewer's tests
	@sh scripts/setup.sh tests

quickstart: setup ## the main job: evaluate, SFT, multi-turn RL, evaluate; writes report.html
	@$(BIN)/cuda-rl quickstart $(ARGS)

test: setup-tests ## the tests that a person runs all day; whole runs are left out
	@$(BIN)/python -m pytest $(WORKERS) $(ARGS)

test-all: setup-tests ## every test, with coverage: whole runs, every attack, README's commands
	@FUZZ_EXAMPLES=80 $(BIN)/python -m pytest $(WORKERS) -m "" --every-attack \
		--cov=coding_framework tests experiments $(ARGS)

lint: setup ## format, style, types and layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: setup ## rewrite the sources in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

doctor: setup ## check every component on this machine
	@$(BIN)/cuda-rl doctor $(ARGS)

docs: setup ## build the site of the documents and the API reference in site/; warnings fail
	@PATH="$$PATH:.tools/bin:$$HOME/.local/bin" uv sync --frozen --inexact --quiet --group docs
	@$(BIN)/mkdocs build --quiet
