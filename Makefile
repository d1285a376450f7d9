# The verbs of the project; CI runs exactly these. A machine needs Rust, Python 3.10+ and a C compiler. What else the
# machine lacks is installed by tests/setup; Python's packages go into .venv the first time, and again when the lists of
# them change.

export PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# What builds the package is there; and all of requirements-dev.txt.
BUILDER := $(VENV)/.builder
READY   := $(VENV)/.ready
PYSRC  := $(wildcard python tests examples docs/hooks.py benchmarks/python release)

TARGET := $(or $(CARGO_TARGET_DIR),target)
# Where random runs begin, and for how long they go on.
SEED    ?= 1
SECONDS ?= 600

# One interpreter for everything: PyO3 builds against the one that will load the module.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX
# Debian keeps mkfs and other programs that tests run where not every user's PATH leads.
export PATH := $(PATH):/usr/sbin:/sbin

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
.DEFAULT_GOAL := help
.PHONY: help build program package demo setup machine tested check test rust lint code interfaces described api soak variations \
	kills worlds models versions fuzz packets rigs pythons tests-of-api miri bench man wheel wheels release docs site clean

help:  ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: program package  ## build the Rust program and the Python package

# The whole workspace is selected, so that program, package and wheel have the same features of each crate, which is
# then compiled once for all of them.
RELEASE := cargo build --release --workspace --exclude millstream-sim
program:
	$(RELEASE) --bin millstream

package: $(BUILDER)
	$(BIN)/maturin develop --release

# What a wheel has in it, and no more.
demo: package  ## run Market Spread, from generator to report
	$(BIN)/millstream demo

setup: machine $(READY)  ## install what tests need: packages of Debian or Ubuntu and of Python, and Kafka
	PYTHONPATH=tests/process $(BIN)/python tests/kafka/broker.py

# Before .venv: one line says at the start all that is missing.
machine:
	tests/setup

# What lints, tests, documentation and programs of tests are built of, in the profile `dev`: the same crates with the
# same features, so that cargo compiles each crate once, and Clippy is the compiler that does it. The package in .venv
# is then that of the tests; `make package` puts the release back.
ALL := $(shell cat tests/built_together.txt)
WITH_CLIPPY := code described interfaces api rust tested test tests-of-api variations kills worlds models versions packets rigs
$(WITH_CLIPPY): export RUSTC_WORKSPACE_WRAPPER := clippy-driver
$(WITH_CLIPPY): export CLIPPY_ARGS := -Dwarnings__CLIPPY_HACKERY__
NEXTEST := $(BIN)/cargo-nextest nextest run
tested:
	.ci/phase "package for tests" $(BIN)/maturin develop --features tested

# The three tiers: what one runs often; all behaviour, which README and CI run; and what takes hours. Both languages'
# tests wait more than they compute: they run beside each other here, and the output of each stays together.
check: $(READY) code  ## run what a change breaks first: format, lints, types, the tests of Rust, tests/api
	$(MAKE) --jobs 2 --output-sync=target rust tests-of-api

test: setup rust tested  ## run every test of behaviour, in Rust and Python
	.ci/phase "doctests of Rust" cargo test --doc --quiet $(ALL)
	.ci/phase "docstrings of Python" $(BIN)/pytest --doctest-modules python/millstream
	.ci/phase "stubs" $(BIN)/python -m mypy.stubtest millstream._millstream
	.ci/phase "tests of Python" $(PYTEST) tests --deselect $(ALONE)
	.ci/phase "a test alone" $(BIN)/pytest $(ALONE)

# Most tests wait for processes, disks and timers, so more run at once than there are cores. A server that gives way to
# others is tested with the machine to itself.
PYTEST := $(BIN)/pytest -n 8 --dist load --maxschedchunk 2 --durations 30
ALONE  := tests/process/test_queue_awake.py

rust:
	.ci/phase "tests of Rust" $(NEXTEST) $(ALL)

lint: $(READY) code interfaces  ## check format, lints, types, and the documentation and public API of the crates

code:
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path benchmarks/Cargo.toml --check
	.ci/phase "compile, with clippy" cargo build $(ALL) --all-targets
	$(BIN)/ruff check $(PYSRC)
	$(BIN)/ruff format --check $(PYSRC)
	.ci/phase "mypy" $(BIN)/mypy --strict python/millstream benchmarks/python/millstream_bench

interfaces: described
	cargo build --quiet $(ALL) --example public_api
	$(TARGET)/debug/examples/public_api $(TARGET)/doc

# JSON of the documentation, of which the snapshots of the API are made; rustdoc's own lints run as for pages. `cargo
# doc` would check every dependency for it, doctests link those that are built.
described:
	.ci/phase "rustdoc" env RUSTDOC="$(CURDIR)/tests/rustdoc-json" RUSTDOCFLAGS="-D warnings" DOC="$(abspath $(TARGET))/doc" \
		cargo test --doc --quiet $(ALL)

api: $(READY) described  ## renew the snapshots of the public API, crates/*/api.txt
	cargo build --quiet $(ALL) --example public_api
	$(TARGET)/debug/examples/public_api $(TARGET)/doc --write

# Hours. What finds something prints the seed that repeats it. Each part can be run alone.
soak: variations kills worlds models versions fuzz packets rigs pythons  ## run for hours: kills, simulated worlds, random flows, upgrades, fuzzing

variations: setup tested  ## the cases of tests that `make test` leaves out
	$(PYTEST) -m soak tests

TAKEOVERS := tests/process/test_machine_lost.py tests/cluster/test_takeovers.py
KILLS     := $(filter-out $(TAKEOVERS),$(shell grep -lE 'MILLSTREAM_KILLS|\bKILLS\b' tests/*/test_*.py))
kills: setup tested  ## kill processes of journals, queues, flows and services, hundreds of times
	MILLSTREAM_KILLS=$${MILLSTREAM_KILLS:-1000} $(NEXTEST) $(ALL) --no-capture -E 'test(kills_under_load)'
	MILLSTREAM_ALL_BITS=yes $(NEXTEST) $(ALL) -E 'test(bits::)'
	MILLSTREAM_KILLS=$${MILLSTREAM_KILLS:-200} $(BIN)/pytest -m '' -s -o faulthandler_timeout=7200 $(KILLS)
	MILLSTREAM_TAKEOVERS=$${MILLSTREAM_TAKEOVERS:-100} $(BIN)/pytest -s -o faulthandler_timeout=7200 $(TAKEOVERS)

SIM := cargo run $(ALL) --quiet --bin millstream-sim --
worlds:  ## crash journals, queues and processes in simulated worlds: SEED=1 SECONDS=600, or WORLDS=1 to repeat one of each
	$(SIM) crash --seed $(SEED) $(if $(WORLDS),--worlds $(WORLDS),--seconds $$(( $(SECONDS) * 2 / 5 )))
	$(SIM) queues --seed $(SEED) $(if $(WORLDS),--worlds $(WORLDS),--seconds $$(( $(SECONDS) * 2 / 5 )))
	$(SIM) cluster --seed $(SEED) $(if $(WORLDS),--worlds $(WORLDS),--seconds $$(( $(SECONDS) / 5 )))

models: setup tested  ## compare random flows with plain models: SEED=1 SECONDS=600
	MILLSTREAM_SEED=$(SEED) MILLSTREAM_SECONDS=$(SECONDS) $(BIN)/pytest -s -o faulthandler_timeout=7200 \
		tests/api/test_flows_against_models.py

versions: setup tested  ## upgrade a chain of services under kills and restores: SEED=1 SECONDS=600
	MILLSTREAM_SEED=$(SEED) MILLSTREAM_SECONDS=$(SECONDS) $(BIN)/pytest -s -o faulthandler_timeout=7200 \
		tests/process/test_service_versions.py

fuzz:  ## feed five parsers what libFuzzer thinks of: SECONDS=600 in all
	fuzz/run $(SECONDS)

# Tests of flows with batches between operators as bytes, as between processes.
FLOWS := $(shell grep -lw Flow tests/api/test_*.py)
packets: setup tested
	MILLSTREAM_PACKETS=bytes $(NEXTEST) $(ALL) -E 'package(millstream-flow) & kind(test)'
	MILLSTREAM_PACKETS=bytes $(PYTEST) $(FLOWS)

# The benchmarks, which nothing of the above compiles: each runs for a moment.
rigs: setup tested
	$(NEXTEST) $(RIGS)

# tests/api under each other Python of this machine, with a .venv of its own.
pythons:
	for one in 3.10 3.11 3.12 3.13 3.14; do \
		! python$$one -c '' 2>/dev/null || $(MAKE) PYTHON=python$$one VENV=.venv-$$one tests-of-api || exit 1; \
	done
tests-of-api: $(READY) tested
	$(PYTEST) tests/api

# A workspace of its own, with the same directory for what is compiled.
RIGS  := --manifest-path benchmarks/Cargo.toml --target-dir $(TARGET)
BENCH := MILLSTREAM_PYTHON=$(PYO3_PYTHON) $(TARGET)/release/millstream-bench
bench: $(READY) package  ## measure this machine
	cargo build --release $(RIGS)
	$(BENCH) market-spread
	$(BENCH) journal
	$(BENCH) flow --python
	$(BENCH) flow
	$(BENCH) queue

miri:  ## run the frame code under Miri; needs rustup +nightly component add miri rust-src
	cargo +nightly miri test -p millstream-journal --lib -- frame:: checksum::

# The program itself describes its verbs. What is in this directory is in the wheel, below the root of an environment.
PAGES := millstream._millstream.data
man: package
	rm -rf $(PAGES)
	$(BIN)/millstream man $(PAGES)/data/share/man/man1

wheel: man  ## build a wheel into dist/
	OPENSSL_SRC_PERL=$(CURDIR)/release/perl $(BIN)/maturin build --release --features kafka-vendored --out dist
	ls -lh dist

wheels:  ## build wheels for x86-64 and aarch64, glibc and musl, into dist/: minutes for each
	release/wheels

# All that is published. The interpreters of this machine try its wheels.
release:  ## check, build and try all packages of a version: VERSION=0.1.0
	release/check.py $(VERSION)
	rm -rf dist
	release/wheels
	release/sources
	release/try.py
	release/lists

docs:  ## build the Rust documentation into target/doc/
	cargo doc --no-deps $(ALL)

site: $(READY)  ## build the site of the documents into target/site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:  ## remove everything that was built
	cargo clean
	rm -rf $(VENV) dist $(PAGES) python/millstream/*.so

$(BUILDER): requirements.txt
	tests/setup demo
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -r $<
	touch $@

$(READY): requirements-dev.txt $(BUILDER)
	tests/setup lint
	$(INSTALL) -r $<
	touch $@
