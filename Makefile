# make demo    builds, and shows a cluster on this machine
# make test    formatting, lints, all tests; the last line is "N passed, N failed"
# make bench   measures beside HAProxy and nginx: seven minutes on a quiet machine; docs/benchmarks.md
# make lab     a cluster in network namespaces that stays until `switchback lab down`
# make fmt     formats Rust and C
# make deps    installs what is missing (Debian and Ubuntu); the others begin with it

SHELL := /bin/bash
.DEFAULT_GOAL := demo
.PHONY: demo test bench lab fmt deps rust root

BPF_SOURCES := crates/*/bpf/*.c crates/*/bpf/*.h
SWITCHBACK := cargo run --quiet --release --package switchback-cli --

# command:package, and packages that have no command.
COMMANDS := cc:gcc make:make pkg-config:pkg-config clang:clang clang-format:clang-format \
	ip:iproute2 bridge:iproute2 nft:nftables ethtool:ethtool ping:iputils-ping \
	curl:curl wrk:wrk nginx:nginx-light apache2:apache2-bin caddy:caddy \
	go:golang-go node:nodejs chromium:chromium
PACKAGES := libelf-dev zlib1g-dev linux-libc-dev libclang-dev \
	python3-requests python3-httpx python3-websockets node-undici

demo: deps
	cargo build --release --package switchback-cli
	@$(SWITCHBACK) lab demo

bench: COMMANDS += haproxy:haproxy
bench: deps
	cargo build --release --package switchback-cli
	@$(SWITCHBACK) lab run proxies

lab: deps
	cargo build --release --package switchback-cli
	@$(SWITCHBACK) lab up --nodes 3 --server nginx
	@echo "A shell on a host: switchback lab exec node0. Remove the lab: switchback lab down."

# Every step runs, whatever became of the one before. A step other than the tests counts only if it fails.
test: deps
	@failed=0; passed=0; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	step() { echo "== $$*"; "$$@" || failed=$$((failed + 1)); }; \
	step cargo fmt --all --check; \
	step clang-format --dry-run -Werror $(BPF_SOURCES); \
	step cargo clippy --workspace --all-targets -- -D warnings; \
	echo "== cargo test --workspace"; \
	cargo test --workspace --no-fail-fast 2>&1 | tee "$$log"; status=$${PIPESTATUS[0]}; \
	read -r ok bad < <(awk '/^test result:/ { ok += $$4; bad += $$6 } END { print ok + 0, bad + 0 }' "$$log"); \
	if [ "$$status" != 0 ] && [ "$$bad" = 0 ]; then bad=1; fi; \
	passed=$$((passed + ok)); failed=$$((failed + bad)); \
	echo "$$passed passed, $$failed failed"; \
	[ "$$failed" = 0 ]

fmt:
	cargo fmt --all
	clang-format -i $(BPF_SOURCES)

# Without a terminal apt must not ask.
deps: root rust
	@missing=(); \
	for entry in $(COMMANDS); do \
		command -v "$${entry%%:*}" > /dev/null || missing+=("$${entry##*:}"); \
	done; \
	if command -v dpkg > /dev/null; then \
		for package in $(PACKAGES); do \
			dpkg -s "$$package" > /dev/null 2>&1 || missing+=("$$package"); \
		done; \
	fi; \
	[ "$${#missing[@]}" = 0 ] && exit 0; \
	mapfile -t missing < <(printf '%s\n' "$${missing[@]}" | sort -u); \
	if ! command -v apt-get > /dev/null; then \
		echo "make: missing, by their Debian names: $${missing[*]}; install them and try again" >&2; exit 2; \
	fi; \
	echo "Installing with apt-get: $${missing[*]}"; \
	case " $${missing[*]} " in *" nginx-light "* | *" caddy "*) \
		echo "On a machine with systemd apt also starts the services nginx and caddy, on port 80;"; \
		echo "Switchback does not need them: systemctl disable --now nginx caddy" ;; \
	esac; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -q && apt-get install -q -y --no-install-recommends "$${missing[@]}" < /dev/null

root:
	@[ "$$(id -u)" = 0 ] || { echo "make: network namespaces and BPF need root; run it as root" >&2; exit 2; }

rust:
	@command -v cargo > /dev/null || { \
		echo "make: cargo is not in root's PATH; install Rust 1.88 or later" >&2; exit 2; }
