# make demo    builds, and shows a cluster on this machine
# make test    formatting, lints, all tests; the last line is "N passed, N failed"
# make test-long  the same with loads that are ten times as large or more: hours
# make test-kernels  the core tests with other kernels, in QEMU: half an hour; docs/limits.md
# make test-kubernetes  with a real API server and controllers, which take a quarter of an hour to build, with Go 1.26
# make fuzz    random input to parsers, programs and the dispatcher, SWITCHBACK_FUZZ_SECONDS (30) for each
# make test-upgrade  replaces the version of the commit BEFORE, one machine after the other, under load, and goes back
# make bench   measures beside HAProxy and nginx, and what the log costs: half an hour on a quiet machine; docs/benchmarks.md
# make soak    half an hour of faults under load: nothing may be lost, nothing may leak
# make lab     a cluster in network namespaces that stays until `switchback lab down`
# make release the program for other machines: linked statically, so that it runs on any Linux
# make deb     the Debian package of it
# make dist    archive, Debian package and RPM of it, with their checksums, in target/dist
# make image   the image of it for containers, in target: docs/kubernetes.md
# make manifests  writes packaging/kubernetes/switchback.yaml from the chart beside it
# make fmt     formats Rust and C
# make deps    installs what is missing for all of these (Debian and Ubuntu). Each of them begins with its own part:
#              deps-build, deps-dist, deps-image, deps-demo, deps-bench or deps-test

SHELL := /bin/bash
.DEFAULT_GOAL := demo
.PHONY: demo test test-long test-upgrade test-kernels test-kubernetes fuzz fuzz-guided bench soak lab release deb dist image \
	manifests fmt deps deps-build deps-dist deps-image deps-demo deps-bench deps-test deps-kernels python rust root

BPF_SOURCES := crates/*/bpf/*.c crates/*/bpf/*.h
# The whole program, and one that is built faster: without the experiments, and with less optimization.
WHOLE := --release --package switchback-cli
QUICK := --profile demo --no-default-features --package switchback-cli

# What a target needs: command:package, and packages that have no command.
NEEDS_build := protoc:protobuf-compiler libprotobuf-dev cc:gcc pkg-config:pkg-config clang:clang libelf-dev zlib1g-dev linux-libc-dev
NEEDS_dist := $(NEEDS_build) rpmbuild:rpm
NEEDS_image := $(NEEDS_build) umoci:umoci ca-certificates
NEEDS_demo := $(NEEDS_build) ip:iproute2 nft:nftables ethtool:ethtool nginx:nginx-light wrk:wrk curl:curl
NEEDS_bench := $(NEEDS_demo) haproxy:haproxy bird:bird2 h2load:nghttp2-client openssl:openssl debian-archive-keyring
NEEDS_test := $(NEEDS_bench) $(NEEDS_dist) $(NEEDS_image) clang-format:clang-format dnsmasq:dnsmasq-base libclang-dev \
	etcd:etcd-server etcdctl:etcd-client apache2:apache2-bin caddy:caddy php-fpm keepalived:keepalived \
	ping:iputils-ping tcpdump:tcpdump sslscan:sslscan fonts-dejavu-core \
	go:golang-go node:nodejs node-undici chromium:chromium \
	python3-requests python3-httpx python3-websockets python3-pip gunicorn python3-waitress python3-hypercorn \
	javac:default-jdk-headless libtomcat10-java libjetty9-java libservlet-api-java \
	groff:groff-base systemd-analyze:systemd
NEEDS_kernels := $(NEEDS_test) qemu-system-x86_64:qemu-system-x86 busybox:busybox-static modprobe:kmod cpio:cpio xz:xz-utils

demo: deps-demo root
	cargo build $(QUICK)
	@cargo run --quiet $(QUICK) -- lab demo

# HAProxy and nginx of a later Debian than that of most machines. `make bench PEERS=` does without them.
PEERS := target/peers
target/peers: crates/experiments/peers/fetch | deps-bench
	$< $@ trixie

# The committed files have the last measurements, with whose ratios those of this one are compared: to HAProxy, and with the
# log to without.
bench: deps-bench root $(PEERS)
	cargo build $(WHOLE)
	@cargo run --quiet $(WHOLE) -- lab run proxies $(PEERS:%=--peers %) --compare docs/benchmarks/proxies.csv
	@cargo run --quiet $(WHOLE) -- lab run log-cost --compare docs/benchmarks/log-cost.csv
	@cargo run --quiet $(WHOLE) -- lab run tls-proxies --compare docs/benchmarks/tls-proxies.csv

soak: deps-bench root
	cargo build $(WHOLE)
	@cargo run --quiet $(WHOLE) -- lab run soak

lab: deps-demo root
	cargo build $(QUICK)
	@cargo run --quiet $(QUICK) -- lab up --nodes 3 --server nginx
	@echo "These commands take target/demo/switchback. A shell on a host: switchback lab exec node0; to remove the lab:"
	@echo "switchback lab down."

# A client of HTTP/2 that tries what RFC 9113 says, for the tests.
H2SPEC := target/tools/h2spec
$(H2SPEC): crates/cli/tests/tls/h2spec/go.sum | deps-test
	cd $(<D) && go build -o $(CURDIR)/$@ github.com/summerwind/h2spec/cmd/h2spec

# The CA that Let's Encrypt tests clients with, and a name server for it.
PEBBLE := target/tools/pebble target/tools/pebble-challtestsrv
$(PEBBLE): target/tools/%: crates/cli/tests/tls/pebble/go.sum | deps-test
	cd $(<D) && go build -o $(CURDIR)/$@ github.com/letsencrypt/pebble/v2/cmd/$*

# A client and a server of gRPC's own tests, of the implementation in Go.
GRPC := target/tools/grpc
$(GRPC): crates/cli/tests/grpc/main.go crates/cli/tests/grpc/go.sum | deps-test
	cd $(<D) && go build -o $(CURDIR)/$@ .

# Sets `ok` and `bad` from what cargo test has said in `log`, and from its `status`.
COUNT = read -r ok bad < <(awk '/^test result:/ { ok += $$4; bad += $$6 } END { print ok + 0, bad + 0 }' "$$log"); \
	if [ "$$status" != 0 ] && [ "$$bad" = 0 ]; then bad=1; fi

# Suites that also run with replayed handshakes, behind a switch with three L7 threads. The longest loads do so by hand:
# SWITCHBACK_ADOPTION=replay cargo test.
REPLAYED := one_connection pipelining loss tcp draining crash sessions split access_log

# Every step runs, whatever became of the one before. A step other than the tests counts only if it fails.
test: deps-test root python $(H2SPEC) $(PEBBLE) $(GRPC)
	@failed=0; passed=0; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	step() { echo "== $$*"; "$$@" || failed=$$((failed + 1)); }; \
	step cargo fmt --all --check; \
	step clang-format --dry-run -Werror $(BPF_SOURCES); \
	step cargo clippy --workspace --all-targets -- -D warnings; \
	RUSTDOCFLAGS='-D warnings' step cargo doc --quiet --workspace --no-deps; \
	tests() { echo "== cargo test $$*"; cargo test --no-fail-fast "$$@" 2>&1 | tee -a "$$log"; \
		[ "$${PIPESTATUS[0]}" = 0 ] || status=1; }; \
	status=0; tests --workspace; \
	SWITCHBACK_ADOPTION=replay SWITCHBACK_THREADS=3 tests --workspace $(REPLAYED:%=--test %) -- --skip bad_path; \
	$(COUNT); \
	passed=$$((passed + ok)); failed=$$((failed + bad)); \
	echo "$$passed passed, $$failed failed"; \
	[ "$$failed" = 0 ]

test-long: export SWITCHBACK_LONG := 1
test-long: export SWITCHBACK_FUZZ_SECONDS ?= 30
test-long: test

# The commit before generations and lists of flows.
BEFORE := e67d032
OLD := $(CURDIR)/target/before
test-upgrade: deps-test root
	@[ -d $(OLD)/source ] || git worktree add --detach $(OLD)/source $(BEFORE)
	cd $(OLD)/source && git checkout -q --detach $(BEFORE) && cargo build --package switchback-cli --target-dir $(OLD)/build
	SWITCHBACK_BEFORE=$(OLD)/build/debug/switchback cargo test --package switchback-cli --test upgrade -- --ignored --nocapture

# The kernel of Debian 12, which has neither tcx nor bpf_sk_assign_tcp_reqsk(), and a later one. What takes BPF trampolines,
# and a switch on virtio_net, are for the later one. Loads that fill a processor are not for emulated ones.
KERNELS := $(CURDIR)/target/kernels
FIRST := $(KERNELS)/linux-image-cloud-amd64
LATER := $(KERNELS)/linux-image-6.12-cloud-amd64
VM := $(CURDIR)/crates/cli/tests/kernels/vm
$(KERNELS)/%: | deps-kernels
	@mkdir -p $(KERNELS)
	cd $(KERNELS) && package=$$(apt-cache depends $* | awk '$$1 == "Depends:" { print $$2; exit }') \
		&& apt-get download -q $$package && dpkg-deb -x $$package"_"*.deb $@.part && mv $@.part $@

# Packet tests that the first of these kernels cannot run: without metadata in test runs, and with other sums of memory; and
# those that take long in emulation.
LATER_ONLY := headroom every_counter many_flows fuzz invariants

# Go builds its server on this machine first, because that takes minutes in emulation. The last line is "N passed, N failed".
test-kernels: export CARGO_TERM_COLOR := never
test-kernels: export SWITCHBACK_EMULATED := 1
test-kernels: deps-kernels root $(FIRST) $(LATER)
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; status=0; \
	tests() { cargo test --no-fail-fast --package "$$@" 2>&1 | tee -a "$$log"; \
		[ "$${PIPESTATUS[0]}" = 0 ] || status=1; }; \
	within() { echo "== $$1"; export CARGO_TARGET_$$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)_RUNNER="$(VM) $$1 3600"; }; \
	tests switchback-cli --test replay go_with_its_defaults; \
	core="switchback-cli --test one_connection --test containers"; \
	within $(FIRST); tests switchback-switch --lib program::tests -- $(LATER_ONLY:%=--skip %); \
	tests $$core -- --test-threads=1; \
	tests switchback-tls --lib kernel -- --ignored; \
	tests switchback-cli --test tls the_kernel_moves -- --ignored; \
	within $(LATER); tests $$core -- --test-threads=1; \
	tests switchback-cli --test replay -- --ignored; \
	unset $${!CARGO_TARGET_*}; SWITCHBACK_KERNEL=$(LATER) tests switchback-cli --test kernels -- --ignored; \
	$(COUNT); \
	echo "$$ok passed, $$bad failed"; \
	[ "$$bad" = 0 ]

# API server and controllers of Kubernetes, and what the Gateway API has for tests: a server, its conformance suite, and the
# kinds of its objects.
KUBERNETES := $(CURDIR)/target/tools/kubernetes
KUBERNETES_VERSION := -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34 \
	-X k8s.io/component-base/version.gitVersion=v1.34.4
$(KUBERNETES)/cluster: crates/cli/tests/kubernetes/cluster/main.go crates/cli/tests/kubernetes/cluster/go.sum | deps-test
	cd $(<D) && go build -ldflags='-s -w $(KUBERNETES_VERSION)' -o $@ .
$(KUBERNETES)/echo: crates/cli/tests/kubernetes/conformance/go.sum | deps-test
	cd $(<D) && go build -o $@ sigs.k8s.io/gateway-api/conformance/echo-basic
$(KUBERNETES)/conformance: crates/cli/tests/kubernetes/conformance/conformance_test.go \
		crates/cli/tests/kubernetes/conformance/go.sum | deps-test
	cd $(<D) && go test -c -o $@ .
$(KUBERNETES)/gateway-api.yaml: crates/cli/tests/kubernetes/conformance/go.sum | deps-test
	@mkdir -p $(@D)
	cd $(<D) && go mod download sigs.k8s.io/gateway-api && \
		for file in $$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard/*.yaml; do \
			echo ---; cat $$file; \
		done > $@

# What packs applications for Kubernetes.
$(KUBERNETES)/helm: crates/cli/tests/kubernetes/helm/go.sum | deps-test
	cd $(<D) && go build -ldflags='-s -w' -o $@ helm.sh/helm/v4/cmd/helm

# The chart without its Namespace, which whoever installs a chart names and makes.
manifests: $(KUBERNETES)/helm
	cd packaging/kubernetes && { cat namespace.yaml && $< template switchback chart --namespace switchback-system; } > $<.yaml
	mv $<.yaml packaging/kubernetes/switchback.yaml

test-kubernetes: deps-test root $(KUBERNETES)/cluster $(KUBERNETES)/echo $(KUBERNETES)/conformance $(KUBERNETES)/gateway-api.yaml \
		$(KUBERNETES)/helm
	cargo test --package switchback-cli --test kubernetes -- --ignored --nocapture

# The last line is "N targets passed, N failed".
fuzz: export SWITCHBACK_FUZZ_SECONDS ?= 30
fuzz: export SWITCHBACK_LONG := 1
fuzz: deps-test root
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; status=0; \
	for tests in "-p switchback-http -p switchback-hello -p switchback-tls -p switchback-config -p switchback-wire --test fuzz" \
		"-p switchback-switch -p switchback-node -p switchback-client --lib fuzz" \
		"-p switchback-cli --test corpus agreement"; do \
		echo "== cargo test $$tests"; \
		cargo test --no-fail-fast $$tests -- --nocapture 2>&1 | tee -a "$$log"; \
		[ "$${PIPESTATUS[0]}" = 0 ] || status=1; \
	done; \
	$(COUNT); \
	echo "$$ok targets passed, $$bad failed"; \
	[ "$$bad" = 0 ]

# One target with libFuzzer, guided by coverage, for as long; in the switch's dispatcher for example:
#     make fuzz-guided PACKAGE=switchback-switch TESTS=--lib TARGET=dispatch::tests::fuzz::whatever_comes
# What it keeps stays in target/guided for the next run. `cargo bolero test` would do the same, but builds all
# tests of a package, and those that do not use bolero cannot be linked.
PACKAGE := switchback-http
TESTS := --test=fuzz
TARGET := heads
GUIDED := $(CURDIR)/target/guided
KEPT = $(GUIDED)/$(PACKAGE)/$(subst :,_,$(TARGET))
fuzz-guided: export SWITCHBACK_FUZZ_SECONDS ?= 30
fuzz-guided: export RUSTFLAGS := --cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
fuzz-guided: export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS := true
fuzz-guided: export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS := true
fuzz-guided: export BOLERO_LIBTEST_HARNESS := 1
fuzz-guided: export BOLERO_TEST_NAME = $(TARGET)
fuzz-guided: export BOLERO_LIBFUZZER_ARGS = $(KEPT) -artifact_prefix=$(KEPT)- -timeout=10 -max_len=2048 \
	-max_total_time=$(SWITCHBACK_FUZZ_SECONDS) -print_final_stats=1
fuzz-guided: rust
	@mkdir -p $(KEPT)
	cargo test --release --target "$$(rustc -vV | sed -n 's/^host: //p')" --target-dir $(GUIDED)/build \
		-p $(PACKAGE) $(TESTS) -- --exact $(TARGET) --nocapture

# It loads no libraries, not even for the names of CAs (crates/acme/src/http.rs), so nothing is lost with glibc as an archive. Without the default features it
# has no experiments (`lab run`) and no plots.
TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
RELEASE = $(TARGET_DIR)/$(HOST)/release/switchback
release: export RUSTFLAGS := -C target-feature=+crt-static
release: export LIBBPF_SYS_LIBRARY_PATH = $(dir $(realpath $(shell cc -print-file-name=libelf.a)))
release: deps-build
	cargo build --release --package switchback-cli --no-default-features --features static --target $(HOST)
	@echo $(RELEASE)

deb: release
	packaging/deb $(RELEASE) $(TARGET_DIR)/debian

dist: deps-dist release
	packaging/dist $(RELEASE) $(TARGET_DIR)/dist

image: deps-image release
	packaging/kubernetes/image $(RELEASE) $(TARGET_DIR)

fmt:
	cargo fmt --all
	clang-format -i $(BPF_SOURCES)

deps: deps-test
# Without a terminal apt must not ask.
deps-build deps-dist deps-image deps-demo deps-bench deps-test deps-kernels: deps-%: rust
	@missing=(); \
	for entry in $(NEEDS_$*); do \
		case "$$entry" in \
			*:*) command -v "$${entry%%:*}" > /dev/null ;; \
			*) ! command -v dpkg > /dev/null || dpkg -s "$$entry" > /dev/null 2>&1 ;; \
		esac || missing+=("$${entry##*:}"); \
	done; \
	[ "$${#missing[@]}" = 0 ] && exit 0; \
	mapfile -t missing < <(printf '%s\n' "$${missing[@]}" | sort -u); \
	if ! command -v apt-get > /dev/null || [ "$$(id -u)" != 0 ]; then \
		echo "make: missing, by their Debian names: $${missing[*]}; install them, or try again as root of a Debian" >&2; \
		exit 2; \
	fi; \
	echo "Installing with apt-get: $${missing[*]}"; \
	case " $${missing[*]} " in *" nginx-light "* | *" caddy "* | *" php-fpm "*) \
		echo "On a machine with systemd apt also starts those services, on port 80, which Switchback does not need:"; \
		echo "systemctl disable --now nginx caddy php<version>-fpm" ;; \
	esac; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -q && apt-get install -q -y --no-install-recommends "$${missing[@]}" < /dev/null

# What only PyPI has, for clients of the tests.
PYTHON := $(TARGET_DIR)/python
python: deps-test
	@cmp -s crates/cli/tests/python.txt $(PYTHON)/python.txt || { \
		/usr/bin/python3 -m pip install -q --root-user-action=ignore --upgrade --target $(PYTHON) -r crates/cli/tests/python.txt && \
		cp crates/cli/tests/python.txt $(PYTHON)/; }

root:
	@[ "$$(id -u)" = 0 ] || { echo "make: network namespaces and BPF need root; run it as root" >&2; exit 2; }

RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rust:
	@found=$$(rustc --version 2> /dev/null | cut -d ' ' -f 2); \
	printf '%s\n' $(RUST) "$${found:-0}" | sort --version-sort --check=quiet || { \
		echo "make: Rust $(RUST) or later is needed, and in this PATH is $${found:-none}. rustup (https://rustup.rs) has it:"; \
		echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"; \
		echo "With rustup already there: rustup update stable"; exit 2; } >&2
