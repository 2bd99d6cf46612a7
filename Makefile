# Every target does its own set-up; a fresh machine needs make and Python 3.11 or newer.

BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo serve test check bench soak clients fake-gpu stripe-spec docs lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

install: $(STAMP) ## Make .venv with the command gpuledger in it

demo: $(STAMP) ## Watch the product work: a server, three hosts, renters, invoices
	@$(BIN)/gpuledger demo

serve: $(STAMP) ## Run API, projections and jobs on the embedded database
	@$(BIN)/gpuledger serve

# A third of the time of a test is waiting, for programs that start, end and look: three processes
# keep two cores busy.
test: $(STAMP) ## Run the tests, in three processes
	@$(BIN)/pytest -n 3 --dist worksteal

check: $(STAMP) ## Check lint, format, types and the arrows between packages
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/make_docs.py --check

bench: $(STAMP) ## Measure speed and size, write docs/performance.md
	@$(BIN)/python -m tests.bench

soak: $(STAMP) ## Run the long tests that kill processes again and again
	@$(BIN)/pytest -m soak
	@$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile soak tests/property tests/unit \
		tests/services/test_outages.py tests/services/test_maintenance.py tests/http/test_bad_input.py

clients: $(STAMP) ## Run other people's clients against the server (installs them once)
	@$(BIN)/pytest -m clients

fake-gpu: $(STAMP) ## Build a stub of NVML with GPUs from a file, and say how to use it
	@$(BIN)/python -m adapters.hostagent.nvml.build build/fake-gpu

stripe-spec: $(STAMP) ## Check the stand-in for Stripe against Stripe's own description
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT \
	&& $(BIN)/python -m pip download --quiet --no-deps --python-version 3.14 \
		--only-binary=:all: --dest "$$folder" seahaven-stripe-world \
	&& $(BIN)/python -m zipfile -e "$$folder"/seahaven_stripe_world-*.whl "$$folder" \
	&& $(BIN)/python -m tests.support.stripe.spec "$$folder"/seahaven_stripe_world/spec/spec3.json

docs: $(STAMP) ## Write the generated parts of docs/ again
	@$(BIN)/python tools/make_docs.py

lock: ## Choose versions again (needs uv): uv.lock and requirements.lock
	@uv lock --upgrade --default-index https://pypi.org/simple
	@uv export --quiet --frozen --all-extras --no-emit-project --no-header --output-file requirements.lock

clean: ## Remove .venv, caches and build outputs
	@rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(STAMP): pyproject.toml uv.lock requirements.lock tools/install.sh
	@tools/install.sh
	@touch $@
