# SPDX-License-Identifier: Apache-2.0
#
# The front door. Every target calls one tool; the tools have --help.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# Asked for when first used, by the shell, after "env" has run.
VENV = $$(tools/bootstrap --print-venv)
RUN = PATH=$(VENV)/bin:$$PATH
# The environment with a whole OpenStack.
LAB_VENV = $$(tools/bootstrap lab $(NOVA:%=--nova %) --print-venv)
RUN_LAB = PATH=$(LAB_VENV)/bin:$$PATH
# A lab that is there has its own, whatever was required since.
LAB_PYTHON = $$(ls build/lab/python/bin/python 2>/dev/null || \
                echo $(LAB_VENV)/bin/python)
# An older release of Nova for a lab, as in: make lab NOVA=33
NOVA =
# Options of all lab targets, as in: make lab LAB="--name second"
LAB =

# Options of the tool behind a target, as in: make demo ARGS="--memory 512"
ARGS =

.PHONY: help
help: ## Show this list
	@echo "Targets (options of the tool behind one: make TARGET ARGS=...):"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' \
	    $(MAKEFILE_LIST)

.PHONY: demo
ifeq (,$(findstring --disk,$(ARGS)))
demo: demo-ready ## Migrate a small guest twice, stock and deduplicated; compare
	$(RUN) python -m benchmarks.demo $(ARGS)
else
# It is the agents' code that builds disks, so it is their environment.
demo: lab-env qemu
	$(RUN_LAB) python -m benchmarks.demo $(ARGS)
endif

# The environment and the guest wait for the network, QEMU for the
# processors.
.PHONY: demo-ready
demo-ready:
	@tools/bootstrap demo --packages
	@qemu/build --small stock patched >/dev/null & \
	tools/bootstrap demo && \
	$(RUN) python -m guests.synthetic.image >/dev/null && \
	wait $$! || { kill $$! 2>/dev/null; exit 1; }

.PHONY: bench-shared-storage
bench-shared-storage: both ## Measure against stock as the first paper does
	$(RUN) python -m benchmarks.shared_storage $(ARGS)

.PHONY: bench-postcopy
bench-postcopy: both ## Measure post-copy with and without lazy fetches
	$(RUN) python -m benchmarks.postcopy $(ARGS)

.PHONY: bench-wan
bench-wan: both ## Migrate over links with round trips of 60 and 150 ms
	$(RUN) python -m benchmarks.wan $(ARGS)

.PHONY: bench-pre-copy
bench-pre-copy: both ## Measure the adaptive rate, and estimated downtimes
	$(RUN) python -m benchmarks.pre_copy $(ARGS)

.PHONY: bench-free-pages
bench-free-pages: both ## Measure what free page reporting saves and costs
	$(RUN) python -m benchmarks.free_pages $(ARGS)

.PHONY: bench-overhead
bench-overhead: both ## Measure what recording guest I/O costs
	$(RUN) python -m benchmarks.overhead $(ARGS)

.PHONY: bench-volumes
bench-volumes: lab-env ## Move volumes as the third paper does, and from backups
	@qemu/build patched >/dev/null
	$(RUN_LAB) python -m benchmarks.volumes $(ARGS)

.PHONY: bench-compression
bench-compression: both ## Measure what compression gains and costs
	$(RUN) python -m benchmarks.compression $(ARGS)

.PHONY: bench-page-cache
bench-page-cache: lab-ready ## Measure as the second paper does, in the lab
	$(RUN_LAB) python -m benchmarks.page_cache $(ARGS)

.PHONY: bench-disks
bench-disks: lab-env both ## Measure mirrors of disks that were built before
	$(RUN_LAB) python -m benchmarks.disks $(ARGS)

.PHONY: lab-disks
lab-disks: lab-ready ## Measure block migrations in the lab, built and not
	$(RUN_LAB) python -m benchmarks.lab_disks $(ARGS)

.PHONY: bench-index
bench-index: lab-env ## Measure how fast blocks are indexed and found
	$(RUN_LAB) python -m benchmarks.index $(ARGS)

.PHONY: lab
lab: lab-ready ## Bring up an OpenStack with two compute hosts here
	@$(RUN_LAB) python -m lab $(LAB) up $(ARGS)

# The environment waits for the network, QEMU for the processors.
.PHONY: lab-ready
lab-ready: env
	@qemu/build patched >/dev/null & \
	tools/bootstrap lab $(NOVA:%=--nova %) && wait $$! || \
	{ kill $$! 2>/dev/null; exit 1; }

.PHONY: lab-migrate
lab-migrate: ## Migrate a guest in it, stock and deduplicated in turn
	@$(LAB_PYTHON) -m lab $(LAB) migrate $(ARGS)

.PHONY: lab-volumes
lab-volumes: ## Move volumes in use to another backend, with faults
	@$(LAB_PYTHON) -m lab $(LAB) volumes $(ARGS)

.PHONY: lab-faults
lab-faults: ## Inject faults during migrations and check the instances
	@$(LAB_PYTHON) -m lab $(LAB) faults $(ARGS)

.PHONY: lab-off-cost
lab-off-cost: lab-ready both ## Compare it, with nothing to do, to LibvirtDriver
	$(RUN_LAB) python -m benchmarks.off_cost $(ARGS)

.PHONY: lab-concurrent
lab-concurrent: lab-ready ## Migrate twenty guests at once; count what it takes
	$(RUN_LAB) python -m benchmarks.concurrent_cost $(ARGS)

.PHONY: tempest
tempest: lab-ready ## Run Tempest in the lab, with Nova's driver and with ours
	@$(RUN_LAB) python -m lab --name temp tempest $(ARGS)

.PHONY: lab-upgrade
lab-upgrade: lab-ready ## Upgrade a lab's hosts one by one, migrating meanwhile
	@$(RUN_LAB) python -m lab --name upgr upgrade $(ARGS)

.PHONY: lab-status
lab-status: ## Show the lab's hosts and services
	@$(LAB_PYTHON) -m lab $(LAB) status $(ARGS)

.PHONY: lab-logs
lab-logs: ## Show the last lines of logs, ARGS=compute1/nova-compute
	@$(LAB_PYTHON) -m lab $(LAB) logs $(ARGS)

.PHONY: lab-down
lab-down: ## End the lab; its directory stays
	@$(LAB_PYTHON) -m lab $(LAB) down $(ARGS)

.PHONY: api-check
api-check: lab-env ## Fuzz the controller's API, run its gabbi tests
	$(RUN_LAB) python -m benchmarks.api_check $(ARGS)

.PHONY: dashboard-check
dashboard-check: lab-env ## Drive the panels of Horizon in a browser
	@tools/bootstrap dashboard
	$(RUN_LAB) python -m benchmarks.dashboard_check \
	    --python $$(tools/bootstrap dashboard --print-venv)/bin/python $(ARGS)

.PHONY: dashboard-lab
dashboard-lab: lab-ready ## Drain hosts of the lab from Horizon in a browser
	@tools/bootstrap dashboard
	$(RUN_LAB) python -m benchmarks.dashboard_lab $(ARGS)

.PHONY: controller-scale
controller-scale: lab-env ## Measure the controller with a large emulated cloud
	$(RUN_LAB) python -m benchmarks.controller_scale $(ARGS)

.PHONY: drain-demo
drain-demo: lab-ready ## Empty a host in the lab; compare with Nova by hand
	$(RUN_LAB) python -m benchmarks.drain_demo $(ARGS)

.PHONY: test
test: lab-env ## Run all tests, style checks included
	$(RUN_LAB) tools/test $(ARGS)

.PHONY: env
env: ## Install what the demonstration needs, where missing
	@tools/bootstrap

.PHONY: lab-env
lab-env: ## The same for the lab and the tests: a whole OpenStack
	@tools/bootstrap lab

.PHONY: qemu
qemu: env ## Build the patched QEMU and print where it is
	@qemu/build patched $(ARGS)

.PHONY: qemu-stock
qemu-stock: env ## Build the same QEMU without our changes
	@qemu/build stock $(ARGS)

.PHONY: qemu-faulty
qemu-faulty: env ## Build the patched one with the faults that tests inject
	@qemu/build faulty $(ARGS)

.PHONY: both
both: env
	@qemu/build stock patched >/dev/null

.PHONY: all-three
all-three: env
	@qemu/build stock patched faulty >/dev/null

.PHONY: unit
unit: lab-env ## Run the unit tests
	$(RUN_LAB) tools/test c-unit unit $(ARGS)

.PHONY: fuzz
fuzz: env ## Fuzz and stress the C files for half an hour
	$(RUN) qemu/tests/run --fuzz-seconds 900 --stress-seconds 60 $(ARGS)

.PHONY: fuzz-backups
fuzz-backups: lab-env ## Fuzz what reads backups, 10^7 inputs of each parser
	$(RUN_LAB) python -m cinder_backup_assist.tests.fuzz $(ARGS)

.PHONY: fuzz-listings
fuzz-listings: env ## Fuzz what reads page-cache listings, 10^7 inputs each
	$(RUN) python -m nova_dedup_migrate.tests.fuzz_listing $(ARGS)

.PHONY: fuzz-storage
fuzz-storage: lab-env ## Fuzz what reads input for built disks, 10^7 inputs each
	$(RUN_LAB) python -m nova_dedup_migrate.tests.fuzz_storage $(ARGS)

.PHONY: coverage
coverage: lab-env ## Measure which lines of the product the tests run
	$(RUN_LAB) tools/coverage $(ARGS)

.PHONY: mutation
mutation: lab-env ## Change the planner's source; count what no test notices
	$(RUN_LAB) tools/mutation $(ARGS)

.PHONY: functional
functional: lab-env ## Run the tests that start QEMU
	$(RUN_LAB) tools/test qemu functional $(ARGS)

.PHONY: debian-guest-check
debian-guest-check: lab-ready ## Boot the lab's Debian guest, migrate it under load
	$(RUN_LAB) stestr run --serial \
	    --test-path ./guests/tests/debian $(ARGS)

.PHONY: pep8
pep8: lab-env ## Check style and types
	$(RUN_LAB) tools/pep8

.PHONY: docs
docs: lab-env ## Build the documentation into doc/build/html
	$(RUN_LAB) sphinx-build -q -W --keep-going -b html doc/source doc/build/html
	@echo doc/build/html/index.html

.PHONY: nova-boundary
nova-boundary: lab-env ## Fail each last step of Nova's, show what is left
	$(RUN_LAB) python -m benchmarks.nova_boundary $(ARGS)

.PHONY: bench-lister
bench-lister: both ## Measure the cost of listing the page cache in a guest
	$(RUN) python -m benchmarks.lister $(ARGS)

.PHONY: bench-content-index
bench-content-index: qemu ## Measure what the content index finds, and its cost
	$(RUN) python -m benchmarks.content_index $(ARGS)

.PHONY: lister-kernels
lister-kernels: lab-env both ## Test the page-cache lister with other kernels
	$(RUN_LAB) tools/lister-kernels $(ARGS)

.PHONY: qemu-check
qemu-check: both ## Compare QEMU's own tests on the patched and stock QEMU
	$(RUN) tools/qemu-check $(ARGS)

.PHONY: qemu-hardening
qemu-hardening: lab-env all-three ## Provoke the known faults of the QEMU part
	$(RUN_LAB) python -m benchmarks.qemu_hardening $(ARGS)

.PHONY: qemu-series
qemu-series: lab-env all-three ## Migrate with another series of QEMU, and across
	@qemu/build stock patched faulty --series 10.2 >/dev/null
	$(RUN_LAB) python -m benchmarks.qemu_series $(ARGS)

.PHONY: nova-releases
nova-releases: lab-env ## Run the tests that depend on Nova with each release
	$(RUN_LAB) tools/nova-releases $(ARGS)

.PHONY: libvirt-releases
libvirt-releases: package-env all-three ## Run the tests of libvirt with other versions of it
	$(RUN_LAB) tools/libvirt-releases $(ARGS)

# Runs of the soak, as in: make soak N=300
N = 10

.PHONY: soak
soak: all-three ## Migrate N guests at random, with faults; check all memory
	@qemu/build stock faulty --series 10.2 >/dev/null
	$(RUN) python -m benchmarks.soak --runs $(N) $(ARGS)

.PHONY: install-matrix
install-matrix: lab-env ## Install beside Nova in each way that there is
	$(RUN_LAB) tools/install-matrix $(ARGS)

.PHONY: package-env
package-env: ## The same, and what builds and checks packages
	@tools/bootstrap package

.PHONY: devstack-check
devstack-check: package-env ## Check the DevStack plugin; run its phases twice
	$(RUN_LAB) tools/devstack-check $(ARGS)

.PHONY: deb
deb: package-env ## Build Debian packages; QEMU's with ARGS=qemu
	$(RUN_LAB) tools/deb $(ARGS)

.PHONY: deb-check
deb-check: package-env ## Install, upgrade, purge the packages in clean systems
	$(RUN_LAB) tools/deb-check $(ARGS)

.PHONY: repo
repo: ## Make a directory that apt installs from, of what is built
	$(RUN_LAB) tools/repo $(ARGS)

.PHONY: package-check
package-check: package-env ## Check sdist, wheel, RPM specs, AppArmor rules
	$(RUN_LAB) tools/package-check $(ARGS)

.PHONY: clean
clean: ## Remove what was built in this directory (not the cache)
	rm -rf build cover dist doc/build releasenotes/build .stestr *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
