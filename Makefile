# SPDX-License-Identifier: Apache-2.0
# Every habit of this repository by name. `make` alone lists them.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup kernel demo demo-virtual test test-virtual test-swaps test-ranges test-twins test-switch soak test-ryu test-servers test-compose test-page test-bare test-dist dashboards screenshots lint fmt bench bench-analysis bench-coder bench-controller bench-hosts bench-link bench-metrics bench-planning bench-pep bench-residual-loss bench-statistics bench-studies bench-traffic bench-virtual release dist lock msrv clean

BIN := .venv/bin
CARGO := tools/cargo
PACKAGES := cli api studies daemon testbed controller hosts emulation dashboards apps switch-configs analysis core
PYTEST_BY_TWO := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Hundreds of processes begin in tests: each module is compiled once, also where the environment forbids to keep that.
unexport PYTHONDONTWRITEBYTECODE
# Tests with laboratories wait more than they compute: three at a time.
PYTEST_LABS := $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
# The whole of a target, unless somebody chooses tests of it: then as many tests must run as tests/counts.toml records.
# RECORD=1 records how many ran.
whole = $(or $(PYTEST_ARGS),--target $(1)$(if $(RECORD), --record))
KERNEL_TESTS := tests/system/virtual/test_virtual_kernel.py tests/system/virtual/test_virtual_repeat.py
RYU_TESTS := tests/system/twins tests/system/swaps tests/system/switches tests/system/controller \
	tests/system/hardware/test_rack_in_band.py::test_connections_of_agents_survive_an_apply_and_a_swap
ELSEWHERE := not virtual and not browser and not servers and not compose

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: ## get what is missing (packages, Python, Rust) and build; a second one takes a second
	@tools/setup

demo: setup ## run the demo experiment (one minute on a GEO link) and print where its report is; ON=mininet or virtual
	@tools/demo $(ON)

kernel: ## build the kernel for virtual time, as root for every user; minutes, once; ATOLL_KERNEL=6.1 builds that release
	@tools/kernel

demo-virtual: kernel ## run ten minutes of the demo experiment in virtual time, in less than one; DURATION="60 s"
	@$(BIN)/atoll run examples/geo.yaml --on virtual --duration '$(or $(DURATION),600 s)'

test: ## all tests but those that the next targets have; units first, then Rust, so that compiling disturbs no laboratory
	@tools/setup test
	@$(PYTEST_BY_TWO) -m "$(ELSEWHERE)" tests/unit tests/property tests/contract tests/repo $(call whole,test-units)
	@tools/test-rust
	@$(PYTEST_LABS) -m "not figures and $(ELSEWHERE)" tests/system $(call whole,test)
	@$(BIN)/python -m pytest -m "figures and $(ELSEWHERE)" $(call whole,test-figures)

test-virtual: kernel ## the tests in virtual time, some also on Linux 6.1 if built; `make test` leaves them out
	@$(PYTEST_BY_TWO) -m "virtual and not figures" $(call whole,test-virtual)
	@$(BIN)/python -m pytest -m "virtual and figures" $(call whole,test-virtual-figures)
	@[ -n "$${ATOLL_KERNEL:-}" ] || [[ $$($(BIN)/atoll kernel path) = */6.1.* ]] || \
		! ATOLL_KERNEL=6.1 $(BIN)/atoll kernel status >/dev/null 2>&1 || \
		ATOLL_KERNEL=6.1 $(PYTEST_BY_TWO) -m virtual $(KERNEL_TESTS)

test-swaps: kernel ## a hundred chain swaps under traffic, real and virtual, and twenty deaths of the controller; `make test` has eight
	@ATOLL_SWAPS=100 $(BIN)/python -m pytest -s tests/system/swaps/test_swap_traffic.py tests/system/virtual/test_virtual_swaps.py $(call whole,$@)

test-ranges: kernel ## every end of every documented range in virtual time, 13 minutes; `make test-virtual` has twenty random pairs
	@ATOLL_RANGES=all $(BIN)/python -m pytest -s tests/system/virtual/test_virtual_ranges.py $(call whole,$@)

test-twins: kernel ## the controller on twins of every kind of hardware, and a hundred swaps on one; `make test` and `make test-virtual` have v2
	@ATOLL_TWINS=all ATOLL_SWAPS=$(or $(SWAPS),100) $(BIN)/python -m pytest -s tests/unit/emulation/test_twin_model.py tests/unit/emulation/test_twin_process.py tests/system/switches tests/system/twins tests/system/virtual/test_virtual_twins.py $(call whole,$@)

test-switch: setup ## the controller on a real switch that carries nothing else: SWITCH=lab.yaml:sw-c LISTEN=192.168.100.1
	@$(BIN)/python -m pytest tests/system/switches --switch '$(or $(SWITCH),$(error write which switch: SWITCH=LAB.yaml:NAME))' \
		--listen '$(or $(LISTEN),127.0.0.1:6653)' $(PYTEST_ARGS)

soak: kernel ## random applies, runs, deaths of controller and switches; fails if anything grows; DURATION="8 h" ON=mininet SEED=2 OF=peps
	@$(BIN)/python -m tests.support.soak --duration "$(or $(DURATION),30 min)" --on $(or $(ON),virtual) --seed $(or $(SEED),1) --of $(or $(OF),events)

test-ryu: setup ## the tests of the controller, swaps and twins, and one of a rack, with Ryu as runtime; makes its environment first
	@tools/ryu
	@ATOLL_TEST_RUNTIME=ryu ATOLL_SWAPS=$(or $(SWAPS),4) $(PYTEST_BY_TWO) --numprocesses 3 -m "lab and not virtual" $(RYU_TESTS) $(call whole,$@)

test-servers: setup ## metrics in real InfluxDB servers, dashboards on a real Grafana; builds them first, a quarter of an hour, once
	@tools/servers
	@ATOLL_REQUIRE_SERVERS=1 $(PYTEST_BY_TWO) -m servers $(call whole,$@)

test-compose: setup ## dashboards/compose.yaml brought up by Docker, which must be installed; it fetches missing images
	@ATOLL_REQUIRE_COMPOSE=1 $(BIN)/python -m pytest -m compose $(call whole,$@)

test-page: ## the live page in a real Chromium, which is installed first
	@tools/setup page
	@ATOLL_REQUIRE_BROWSER=1 $(PYTEST_BY_TWO) -m browser $(call whole,$@)

test-bare: ## setup, demo and test in a root file system of their own that debootstrap makes, half an hour; ARGS="setup" that part, ARGS="wheel" a wheel of `make dist` without a clone; DIST=trixie or noble in that distribution
	@DIST='$(DIST)' tools/bare $(ARGS)

dashboards: setup ## make dashboards/atoll_dashboards/grafana/files/*.json again from their builder
	@$(BIN)/python -m atoll_dashboards.grafana.grafana_dashboards

screenshots: kernel ## make the pictures of docs/images again, from a run of the demo; ARGS="--help"
	@tools/setup page
	@tools/servers influxd-2.7.12 grafana-10.0
	@tools/screenshots/run $(ARGS)

lint: ## style, types and imports of Python and Rust
	@tools/setup lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/pyright
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --quiet --workspace --all-targets -- -D warnings

fmt: ## rewrite Python and Rust in the house's format
	@tools/setup lint
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(CARGO) fmt --all

bench: kernel ## run every benchmarks/*/run
	@for run in benchmarks/*/run; do [ -x "$$run" ] || continue; echo "== $${run%/run}"; "$$run"; done

bench-controller: setup ## time to install ten to ten thousand entries on a switch, compared with other controllers; ARGS="--quick", "--help"
	@benchmarks/controller/run $(ARGS)

bench-coder: setup ## network coding compared with the crate rlnc, a minute; ARGS="--quick", "--help"
	@benchmarks/coder/run $(ARGS)

bench-link: kernel ## the link engine compared with other emulators, half an hour; ARGS="--quick" a minute, "--help"
	@benchmarks/link/run $(ARGS)

bench-analysis: setup ## memory and time of the analysis of runs of 1 h and 4 h; ARGS="--quick", "--help"
	@benchmarks/analysis/run $(ARGS)

bench-metrics: setup ## 100,000 points a second into a real InfluxDB; ARGS="--lateness" the cost of metrics for a run, "--quick", "--help"
	@tools/servers influxd-2.7.12
	@benchmarks/metrics/run $(ARGS)

bench-planning: setup ## how long plans and swaps of up to a thousand hosts take, a minute; ARGS="--quick", "--help"
	@benchmarks/planning/run $(ARGS)

bench-pep: setup ## the proxy beside plain routing and PEPsal, four minutes; ARGS="--quick", "--pepsal FILE", "--help"
	@benchmarks/pep/run $(ARGS)

bench-residual-loss: setup ## losses that stay with adapted redundancy, compared with an ideal code, ten minutes; ARGS="--quick", "--help"
	@benchmarks/residual-loss/run $(ARGS)

bench-virtual: kernel ## how long experiments in virtual time take, and two at once; ARGS="--quick", "--help"
	@benchmarks/virtual/run $(ARGS)

release: ## atoll-host as one static file for x86-64, aarch64 and armv7, each of them run; ARGS="aarch64" builds one
	@tools/release $(ARGS)

dist: setup ## wheels in dist/ for Linux on x86-64 and aarch64, which run without a clone, with the files of `make release`; ARGS="x86_64" that one
	@tools/dist $(ARGS)

test-dist: dist ## make the wheels again in another clone elsewhere; fails unless they are the same to the byte
	@tools/same-wheels $(ARGS)

bench-studies: kernel ## what a sweep gains by several runs at a time, and twenty kill -9; ARGS="--quick", "--only", "--help"
	@benchmarks/studies/run $(ARGS)

bench-traffic: setup ## short flows per second, compared with nginx with ab and wrk, two minutes; ARGS="--quick"; "--fairness" of channels, half an hour; "--help"
	@benchmarks/traffic/run $(ARGS)

bench-statistics: setup ## how often intervals of studies contain the true value, and what stopping saves, ten minutes; ARGS="--quick", "--help"
	@benchmarks/statistics/run $(ARGS)

bench-hosts: setup ## one program started on a hundred machines, compared with pssh and Ansible; ARGS="--quick", "--help"
	@benchmarks/hosts/run $(ARGS)

lock: setup ## choose the Python packages' versions again (requirements.lock)
	@$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --no-header \
		--extra dev --extra cluster pyproject.toml --output-file requirements.lock

msrv: ## prove that the workspace builds with the oldest supported Rust
	@tools/msrv

clean: ## remove what make made; runs/ holds results and stays
	rm -rf .venv .venv-ryu target build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(PACKAGES) tests tools -type d -name __pycache__ -prune -exec rm -rf {} +
