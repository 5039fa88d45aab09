# Hayloft. `make up` starts a cluster, `make test` checks everything.

SHELL := /bin/bash
# rustup's usual place, for shells that have not read its profile yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

# What `make up` started, or what `make build` made where nothing else is there.
HAYLOFT = $(firstword $(wildcard target/up/hayloft target/release/hayloft))

.PHONY: help check-deps build packages image lab hadoop up down status test test-arm64 suites test-fast bench bench-placement fmt doc clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check-deps: ## Check for make, Rust, JDK and Maven; as root on Debian or Ubuntu, install what they package
	@scripts/check-deps

build: check-deps ## Build the release binary, for servers
	cargo build --release --locked -p hayloft --features snapshots

packages: check-deps ## Build a deb, an rpm and a tar.gz for glibc 2.28 and later, under target/packages (ARCH=arm64: for 64-bit ARM)
	@scripts/packages

image: ## Build an OCI image, without a daemon, from the tar.gz that `make packages` left
	@scripts/image

lab: build ## Build what measures it too: hayloft-lab
	cargo build --release --locked -p hayloft-lab

hadoop: check-deps ## Fetch a stock Hadoop's jars from Maven Central (not if HADOOP_HOME names one)
	@[ -n "$$HADOOP_HOME" ] || scripts/fetch-hadoop >/dev/null

up: check-deps ## Start a cluster, copy files in, read them back, run MapReduce, leave it running
	@scripts/up
	@target/up/hayloft up $(UP)

down: ## Stop the cluster; its data stays
	@[ -n "$(HAYLOFT)" ] || { echo "hayloft: error: not built yet: run 'make up'" >&2; exit 2; }
	@$(HAYLOFT) down $(DOWN)

status: ## Say what runs and where
	@[ -n "$(HAYLOFT)" ] || { echo "hayloft: error: not built yet: run 'make up'" >&2; exit 2; }
	@$(HAYLOFT) status

test: ## The gate: format, lints, unit tests, docs, Java, clusters of real processes (< 35 min)
	@scripts/test

suites: ## What is too heavy for the gate, in pieces of 30 min at most; goes on where it stopped
	@scripts/suites $(SUITES)

test-arm64: ## Unit tests of what computes, on 64-bit ARM by qemu; it needs more packages of Debian
	@scripts/test-arm64

test-fast: ## Unit and property tests, no JVM (< 3 min)
	@scripts/test --fast

bench: lab hadoop ## Stock DataNode against Hayloft, on this machine; raw results under target/bench/
	@scripts/bench $(BENCH)

bench-placement: ## What choosing targets costs, our policy and the stock one; raw results under target/bench/
	@scripts/bench-placement $(BENCH)

fmt: ## Format the Rust code
	cargo fmt --all

doc: ## Build the API documentation
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --document-private-items --locked

clean: ## Remove what was built, fetched and measured; a cluster's data (.hayloft) stays
	cargo clean
	rm -rf hadoop/*/target hadoop/target
