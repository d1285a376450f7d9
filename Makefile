# The verbs of the project; CI runs exactly these. A machine needs Rust, Python 3.10+ and a C compiler. What else the machine lacks is
# installed by tests/setup; Python's packages go into .venv the first time, and again when the lists of them change.

export PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# What builds the package is there; and all of requirements-dev.txt.
BUILDER := $(VENV)/.builder
READY   := $(VENV)/.ready
PYSRC  := $(wildcard python tests examples crates/millstream-bench/python)

TARGET := $(or $(CARGO_TARGET_DIR),target)
# The profile of what is tested, and of the tests: `checked`, or `dev` for a quick build of one's own.
export PROFILE ?= checked
# Where random runs begin, and for how long they go on.
SEED    ?= 1
SECONDS ?= 60

# One interpreter for everything: PyO3 builds against the one that will load the module.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX
# Debian keeps mkfs and other programs that tests run where not every user's PATH leads.
export PATH := $(PATH):/usr/sbin:/sbin

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UNPUBLISHED := millstream-bench millstream-python millstream-sim
.DEFAULT_GOAL := help
.PHONY: help build program package demo setup machine checked test lint api crash sim fuzz miri bench wheel crates docs clean

help:  ## list the verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: program package  ## build the Rust program and the Python package

program:
	cargo build --release -p millstream-cli

package: $(BUILDER)
	$(BIN)/maturin develop --release

# The Python package has the whole program in it: the engine is compiled once.
demo: package  ## run Market Spread, from generator to report
	$(BIN)/millstream demo

setup: machine $(READY)  ## install what tests need: packages of Debian or Ubuntu and of Python, and Kafka
	$(BIN)/python tests/kafka/broker.py

# Before .venv: one line says at the start all that is missing.
machine:
	tests/setup

# What tests run, all of one profile: program, benchmarks, package and examples share each crate with the tests of Rust. Cargo compiles a
# crate again for other features of it or of what it needs, so all select the same crates and features. The package in .venv is then this
# one; `make package` puts the release back.
TOGETHER := $(shell cat tests/built_together.txt)
checked: setup
	cargo build --profile $(PROFILE) $(TOGETHER) --bins
	$(BIN)/maturin develop --profile $(PROFILE) --features kafka

# The crate millstream-python links only inside an interpreter: it has no tests here, and is selected for its features. The simulation
# has a journal with planted bugs; selected apart from the others, it does not make cargo build them on that journal.
APART := millstream-journal millstream-sim
# Most tests of Python wait for processes and disks, so more run at once than there are cores. A server that gives way to others is
# tested with the machine to itself. Tests of flows run a second time with batches between operators as bytes, as between processes.
SEVERAL := -n 3 --dist loadfile --durations 30
FLOWS   := $(shell grep -lw Flow tests/api/test_*.py)

test: checked  ## run every test: Rust, types, docstrings, pytest, a minute of worlds and of fuzzing
	cargo test --profile $(PROFILE) $(TOGETHER)
	cargo test --profile $(PROFILE) $(APART:%=-p %)
	MILLSTREAM_PACKETS=bytes cargo test --profile $(PROFILE) $(TOGETHER) --test flow
	$(BIN)/python -m mypy.stubtest millstream._millstream
	$(BIN)/pytest --doctest-modules python/millstream
	$(BIN)/pytest $(SEVERAL) tests --ignore tests/process/test_queue_awake.py
	$(BIN)/pytest tests/process/test_queue_awake.py
	MILLSTREAM_PACKETS=bytes $(BIN)/pytest $(SEVERAL) $(FLOWS)
	$(TARGET)/$(PROFILE:dev=debug)/millstream-sim crash --seed $(SEED) --seconds $$(( $(SECONDS) / 2 ))
	$(TARGET)/$(PROFILE:dev=debug)/millstream-sim queues --seed $(SEED) --seconds $$(( $(SECONDS) / 2 ))
	$(TARGET)/$(PROFILE:dev=debug)/millstream-sim cluster --seed $(SEED) --seconds $$(( $(SECONDS) / 4 ))
	fuzz/run $(SECONDS)

lint: $(READY) docs  ## check format, lints, types, prose and the documentation of the crates
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(BIN)/ruff check $(PYSRC)
	$(BIN)/ruff format --check $(PYSRC)
	$(BIN)/mypy --strict python/millstream crates/millstream-bench/python/millstream_bench
	$(BIN)/python tests/prose.py
	$(BIN)/python tests/public_api.py $(TARGET)/doc

api: docs  ## renew the snapshots of the public API, crates/*/api.txt
	$(BIN)/python tests/public_api.py $(TARGET)/doc --write

crash: checked  ## kill processes of journals, queues, flows and services, hundreds of times
	MILLSTREAM_KILLS=$${MILLSTREAM_KILLS:-1000} cargo test --profile $(PROFILE) -p millstream-journal --test journal kills_under_load -- --nocapture
	MILLSTREAM_KILLS=$${MILLSTREAM_KILLS:-200} $(BIN)/pytest -s -o faulthandler_timeout=7200 tests/process/test_queue_kills.py tests/process/test_queue_full_disk.py tests/process/test_queue_space.py tests/process/test_queues_in_process.py tests/process/test_flow_kills.py tests/process/test_flow_full_disk.py tests/process/test_outbox_kills.py tests/process/test_outbox_full_disk.py \
		tests/process/test_queue_flow_kills.py tests/process/test_service_kills.py tests/process/test_service_kills_across.py tests/process/test_service_moves.py tests/process/test_durable_kills.py tests/process/test_numbered_kills.py tests/process/test_position_kills.py tests/process/test_slow_step_kills.py tests/process/test_adapter_kills.py tests/kafka/test_kafka_kills.py tests/postgres/test_write_kills.py tests/postgres/test_changes_kills.py tests/objects/test_object_kills.py tests/process/test_http_kills.py tests/process/test_http_post_kills.py \
		tests/cluster/test_cluster_kills.py tests/cluster/test_cluster_sources.py tests/kafka/test_gathered_topic.py
	MILLSTREAM_TAKEOVERS=$${MILLSTREAM_TAKEOVERS:-100} $(BIN)/pytest -s -o faulthandler_timeout=7200 tests/process/test_machine_lost.py tests/cluster/test_takeovers.py

BENCH := MILLSTREAM_PYTHON=$(PYO3_PYTHON) $(TARGET)/release/millstream-bench
bench: $(READY) package  ## measure this machine
	cargo build --release -p millstream-bench
	$(BENCH) market-spread
	$(BENCH) journal
	$(BENCH) flow --python
	$(BENCH) flow
	$(BENCH) queue

sim:  ## crash journals, queues and processes in simulated worlds: SEED=1 SECONDS=60, or WORLDS=1 to repeat one of each
	cargo run --profile $(PROFILE) --quiet -p millstream-sim -- crash --seed $(SEED) $(if $(WORLDS),--worlds $(WORLDS),--seconds $$(( $(SECONDS) / 2 )))
	cargo run --profile $(PROFILE) --quiet -p millstream-sim -- queues --seed $(SEED) $(if $(WORLDS),--worlds $(WORLDS),--seconds $$(( $(SECONDS) / 2 )))
	cargo run --profile $(PROFILE) --quiet -p millstream-sim -- cluster --seed $(SEED) $(if $(WORLDS),--worlds $(WORLDS),--seconds $$(( $(SECONDS) / 4 )))

fuzz:  ## feed five parsers what libFuzzer thinks of: SECONDS=60 in all
	fuzz/run $(SECONDS)

miri:  ## run the frame code under Miri; needs rustup +nightly component add miri rust-src
	cargo +nightly miri test -p millstream-journal --lib -- frame:: checksum::

wheel: $(BUILDER)  ## build a wheel into dist/
	$(BIN)/maturin build --release --features kafka-vendored --out dist
	ls -lh dist

# Verified packages would compile everything again: `cargo publish` does it.
crates:  ## package the published crates into target/package/
	cargo package --workspace $(UNPUBLISHED:%=--exclude %) --no-verify --allow-dirty

# With the JSON of which the API snapshots are made. The cfg tells cargo that pages of a plain `cargo doc` will not do.
# The crate millstream has all its features on docs.rs too; the others need none that is off.
docs: $(READY)  ## build the Rust documentation into target/doc/
	RUSTDOC="$(CURDIR)/tests/rustdoc-json" RUSTDOCFLAGS="-D warnings --cfg=rustdoc_json" \
		cargo doc --no-deps --workspace --features millstream/cluster,millstream/http,millstream/kafka,millstream/observe,millstream/queue-server,millstream/replication

clean:  ## remove everything that was built
	cargo clean
	rm -rf $(VENV) dist python/millstream/*.so

$(BUILDER): requirements.txt
	tests/setup demo
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -r $<
	touch $@

$(READY): requirements-dev.txt $(BUILDER)
	tests/setup lint
	$(INSTALL) -r $<
	touch $@
