# SPDX-License-Identifier: Apache-2.0
#
# The front door. Every target calls one tool; the tools have --help.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# Asked for when first used, by the shell, after "env" has run.
VENV = $$(tools/bootstrap --print-venv)
RUN = PATH=$(VENV)/bin:$$PATH

# Options of the tool behind a target, as in: make demo ARGS="--memory 512"
ARGS =

.PHONY: help
help: ## Show this list
	@echo "Targets (options of the tool behind one: make TARGET ARGS=...):"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' \
	    $(MAKEFILE_LIST)

.PHONY: demo
demo: both ## Migrate a small guest twice, stock and deduplicated; compare
	$(RUN) python -m benchmarks.demo $(ARGS)

.PHONY: bench-shared-storage
bench-shared-storage: both ## Measure against stock as the first paper does
	$(RUN) python -m benchmarks.shared_storage $(ARGS)

.PHONY: bench-overhead
bench-overhead: both ## Measure what recording guest I/O costs
	$(RUN) python -m benchmarks.overhead $(ARGS)

.PHONY: test
test: env ## Run all tests, style checks included
	$(RUN) tools/test $(ARGS)

.PHONY: env
env: ## Install packages and the Python environment, where missing
	@tools/bootstrap

.PHONY: qemu
qemu: env ## Build the patched QEMU and print where it is
	@qemu/build patched $(ARGS)

.PHONY: qemu-stock
qemu-stock: env ## Build the same QEMU without our changes
	@qemu/build stock $(ARGS)

.PHONY: both
both: env
	@qemu/build stock patched >/dev/null

.PHONY: unit
unit: env ## Run the unit tests
	$(RUN) tools/test c-unit unit $(ARGS)

.PHONY: fuzz
fuzz: env ## Fuzz and stress the C files for half an hour
	$(RUN) qemu/tests/run --fuzz-seconds 900 --stress-seconds 60 $(ARGS)

.PHONY: functional
functional: env ## Run the tests that start QEMU
	$(RUN) tools/test qemu functional $(ARGS)

.PHONY: pep8
pep8: env ## Check the style
	$(RUN) tools/pep8

.PHONY: docs
docs: env ## Build the documentation into doc/build/html
	$(RUN) sphinx-build -q -W --keep-going -b html doc/source doc/build/html
	@echo doc/build/html/index.html

.PHONY: qemu-check
qemu-check: both ## Compare QEMU's own tests on the patched and stock QEMU
	$(RUN) tools/qemu-check $(ARGS)

# Runs of the soak, as in: make soak N=300
N = 10

.PHONY: soak
soak: both ## Migrate N guests at random, with faults; check all memory
	$(RUN) python -m benchmarks.soak --runs $(N) $(ARGS)

.PHONY: clean
clean: ## Remove what was built in this folder (not the cache)
	rm -rf build cover dist doc/build releasenotes/build .stestr *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
