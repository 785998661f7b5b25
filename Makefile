# Sunaba: `make demo` shows the main job, `make test` runs every test, `make check` is all that is
# checked without running a pod. `make` alone builds the two binaries and what is installed with them.

SHELL       := /bin/sh
GO          ?= go
# A release's tag, or else the commit; nothing where there is no checkout.
VERSION     ?= $(shell git describe --tags --match 'v[0-9]*' --exact-match --dirty=+dirty 2>/dev/null || git describe --always --exclude '*' --dirty=.dirty 2>/dev/null)
BIN         := bin
TOOLS       := tests/tools
CONTAINERD  := tests/tools-containerd
WASMTIME    := tests/tools-wasmtime
RUNC13      := tests/tools-runc13
RUNSC       := tests/tools-runsc
KUBELET     := tests/tools-kubelet
BROWSER     := tests/tools-browser
PACKAGING   := packaging
CRICTL_V     := 1.36.0
CONTAINERD_V := 2.4.2
KUBELET_V    := 1.36.0
ARCHES      := amd64 arm64 arm riscv64

# -trimpath is for what tests and targets build too: what is compiled with other flags is compiled twice.
export CGO_ENABLED := 0
export GOFLAGS     := -buildvcs=false -trimpath
export GOARM       := 7

# Package version makes a semantic version of it, in both binaries.
LDFLAGS := -s -w -X github.com/sunaba-project/sunaba/version.stamp=$(VERSION)
# no_grpc drops the gRPC halves of containerd's API: the shim binary's size is every pod's overhead. The other two drop text/template and
# html/template: with them the linker keeps every exported method, and sunaba grows by a fifth. tests/binaries has the same tags.
TAGS    := grpcnotrace,no_grpc,urfave_cli_no_template
# Checks and tests have the flags of the build, so that nothing is compiled twice.
FLAGS   := -trimpath -tags $(TAGS)
# The linker puts amd64's functions at multiples of 32 bytes, and those of other architectures at 16
# or less. At 16 both programs are a hundredth smaller, and no slower. tests/binaries has it too.
ALIGN   := [ "$$($(GO) env GOARCH)" != amd64 ] || echo -funcalign=16
BUILD   := $(GO) build $(FLAGS) -ldflags "$(LDFLAGS) $$($(ALIGN))"

.PHONY: all build share install uninstall dist check check-format check-vet check-staticcheck check-law check-modules check-cross check-clean \
        test setup setup-tests tools demo bench-pods bench-lists bench-scopes bench-images bench-wasm bench-components bench-agent bench-peers bench-small critest critest-diff kubelet-diff kubectl-diff wasi-suite gowasm-diff criwasm recovery soak containerd-test runtimes runtimes-test fuzz \
        v2-test v2-machines kubeadm-test vm-test test-arches clean

all: build share

build:
	$(BUILD) -o $(BIN)/ ./cmd/sunaba ./cmd/containerd-shim-sunaba-v1

# --- what is installed, and what is published ------------------------------------------------------

PREFIX  ?= /usr/local
# Where systemd finds the unit of the administrator's own programs; a package has its own place.
UNITDIR ?= $(PREFIX)/lib/systemd/system
# The date of all that is published: that of the commit, or that of the changelog where there is no checkout.
DATE    ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)

# Man pages and completions, made by the program itself.
share: build
	mkdir -p $(BIN)/share/completion
	for shell in bash zsh fish; do $(BIN)/sunaba completion $$shell > $(BIN)/share/completion/$$shell || exit 1; done
	rm -rf $(BIN)/share/man
	cd $(PACKAGING) && $(GO) run $(FLAGS) ./man -program $(abspath $(BIN))/sunaba -out $(abspath $(BIN))/share/man -date "$$(date -u -d @$(DATE) +%F)"

# After `make`, and as root without a Go toolchain: both programs, a unit for systemd, man pages, completions, and a
# configuration where there is none. It starts nothing. DESTDIR comes before all paths.
install:
	$(PACKAGING)/install.sh install "$(DESTDIR)" $(PREFIX) $(UNITDIR) $(BIN) $(BIN)/share

# Leaves /etc/sunaba, images, records and pods.
uninstall:
	$(PACKAGING)/install.sh remove "$(DESTDIR)" $(PREFIX) $(UNITDIR)

# Archives and packages for Debian and Fedora of all architectures, with checksums and lists of what is in them. The same
# commit makes the same bytes. DIST_ARCHES=amd64 makes a part.
DIST        ?= $(BIN)/dist
DIST_ARCHES ?= $(ARCHES)
dist: share
	rm -rf $(DIST)
	@for arch in $(DIST_ARCHES); do \
	  echo "build linux/$$arch"; \
	  export GOOS=linux GOARCH=$$arch; \
	  $(BUILD) -o $(BIN)/cross/$$arch/ ./cmd/sunaba ./cmd/containerd-shim-sunaba-v1 || exit 1; \
	done
	cd $(PACKAGING) && $(GO) run $(FLAGS) ./dist -version "$$($(abspath $(BIN))/sunaba version | cut -d' ' -f2)" -date $(DATE) \
	  -programs $(abspath $(BIN))/cross -share $(abspath $(BIN))/share -out $(abspath $(DIST)) \
	  -only "$$(echo $(DIST_ARCHES) | tr ' ' ,)"

# --- what is checked without running a pod --------------------------------------------------------

check: check-format check-vet check-staticcheck check-law check-modules check-cross check-clean

check-format:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not formatted (gofmt -w):"; echo "$$out"; exit 1; }

check-vet:
	$(GO) vet $(FLAGS) ./...
	GOOS=wasip1 GOARCH=wasm $(GO) vet ./examples/...
	cd $(PACKAGING) && $(GO) vet $(FLAGS) ./...

# Every check but SA1019: clients still send the CRI fields that are marked as deprecated, so they are read.
check-staticcheck: $(TOOLS)/bin/staticcheck
	$(TOOLS)/bin/staticcheck -tags $(TAGS) -checks "all,-SA1019" ./...
	GOOS=wasip1 GOARCH=wasm $(TOOLS)/bin/staticcheck -checks "all,-SA1019" ./examples/greeter ./examples/batch ./examples/page

check-law:
	$(GO) test $(FLAGS) -count=1 ./tests/law

check-modules:
	$(GO) mod verify
	$(GO) mod tidy -diff
	cd $(TOOLS) && $(GO) mod verify && $(GO) mod tidy -diff
	cd $(CONTAINERD) && $(GO) mod verify && $(GO) mod tidy -diff
	cd $(WASMTIME) && $(GO) mod verify && $(GO) mod tidy -diff
	cd $(RUNC13) && $(GO) mod verify && $(GO) mod tidy -diff
	cd $(RUNSC) && $(GO) mod verify && $(GO) mod tidy -diff
	cd $(KUBELET) && $(GO) mod verify && $(GO) mod tidy -diff
	cd $(BROWSER) && $(GO) mod verify && $(GO) mod tidy -diff
	cd $(PACKAGING) && $(GO) mod verify && $(GO) mod tidy -diff

check-cross:
	@for arch in $(ARCHES); do \
	  echo "cross-build linux/$$arch"; \
	  export GOOS=linux GOARCH=$$arch; \
	  $(BUILD) -o $(BIN)/cross/$$arch/ ./cmd/sunaba ./cmd/containerd-shim-sunaba-v1 || exit 1; \
	done

check-clean:
	@out=$$(git status --porcelain); [ -z "$$out" ] || { echo "the tree is not clean:"; echo "$$out"; exit 1; }

# --- what runs pods: as root, with the packages of tests/setup.sh ----------------------------------

setup:
	@tests/setup.sh

setup-tests:
	@tests/setup.sh --tests
	@tests/components.sh

# The packages whose tests take longest, so that they start first. Five run side by side, because
# most wait for a part of their time, each in folders, networks and cgroups of its own.
LONGEST := ./tests/scenario ./shim/wasm/engine ./tests/recovery ./tests/hostile ./tests/containerd ./tests/components ./tests/scripts ./images \
           ./cmd/containerd-shim-sunaba-v1 ./tests/gowasm ./tests/pages ./tests/recovery/pods ./shim/wasm/compile ./shim/runc ./tests/criwasm \
           ./pods/agent ./shim/wasm/wasihttp

# Many tests run binaries that they build, which the cache of results knows nothing of (-count=1). Those of tests/machine would switch this
# machine off: they run in others (v2-test). The binaries are those of `build`; `go vet` is a target of its own. The laws do not run again
# in `make check test`. The folder is for what packages make once and share (tests/binaries). Those of packaging run beside all others.
test: export SUNABA_TEST_BINARIES := $(abspath $(BIN))
test: setup-tests tools build $(CONTAINERD)/bin/runc $(BROWSER)/bin/browser
	@tests/scratch.sh sh -c 'export SUNABA_TEST_MADE="$$TMPDIR/made"; \
	  $(GO) -C $(PACKAGING) test $(FLAGS) -vet=off -count=1 ./... & packaging=$$!; \
	  $(GO) test $(FLAGS) -vet=off -count=1 -p 5 -timeout 45m $(LONGEST) \
	    $$($(GO) list ./... | grep -v "/tests/machine\$$$(if $(filter check check-law,$(MAKECMDGOALS)),\|/tests/law\$$)"); code=$$?; \
	  wait $$packaging && exit $$code'

demo: setup tools build
	$(GO) run $(FLAGS) ./tests/demo -bin $(BIN) -crictl $(TOOLS)/bin/crictl

# Pods have shims of their own here, so that their memory can be told apart. BENCH_FLAGS='-crowd 60' starts so many pods at once instead.
bench-pods: setup tools build
	$(GO) run $(FLAGS) ./tests/bench -bin $(BIN) $(BENCH_FLAGS)

# Pulls beside containerd's, on the same registry: time, and the daemon's memory. BENCH_FLAGS='-rounds 10 -only small' does a part.
bench-images: setup build $(CONTAINERD)/bin/containerd
	$(GO) run $(FLAGS) ./tests/bench/images -bin $(BIN) -containerd $(CONTAINERD)/bin $(BENCH_FLAGS)

# Guests beside wasmtime's, stock wazero's and beside Linux programs: starts, memory, speed of code, requests, what 200 idle
# ones cost. BENCH_FLAGS='-only http' does a part (starts, code, http, idle).
bench-wasm: setup build $(WASMTIME)/bin/wasmtime-host
	$(GO) run $(FLAGS) ./tests/bench/wasm -bin $(BIN) -wasmtime $(WASMTIME)/bin/wasmtime-host $(BENCH_FLAGS)

# Components of WASI 0.2: starts beside modules of preview 1 and beside wasmtime, and lowering.
bench-components: setup-tests build
	$(GO) run $(FLAGS) ./tests/bench/components -bin $(BIN) $(BENCH_FLAGS)

# A node of 128 MiB of memory and one processor, in one cgroup of version 1: starts of the server, idle guests, servers, a pull.
bench-small: setup build
	$(GO) run $(FLAGS) ./tests/bench/small -bin $(BIN) $(BENCH_FLAGS)

# What the agent, which runs the pods of manifests, costs above the bare CRI calls on the same server: memory, probes, starts,
# restarts, boots, writes and the program's size. It takes an hour; BENCH_FLAGS=-quick measures the main goals in ten minutes,
# BENCH_FLAGS='-only starts,writes -rounds 10' does a part. It is compared with a standalone kubelet too if that was built:
# make $(KUBELET)/bin/kubelet, ten minutes; BENCH_FLAGS='-quick -only kubelet' is that part alone.
bench-agent: setup build
	$(GO) run $(FLAGS) ./tests/bench/agent -bin $(BIN) $(if $(wildcard $(KUBELET)/bin/kubelet),-kubelet $(KUBELET)/bin/kubelet) $(BENCH_FLAGS)

# Pods beside those of containerd and CRI-O with the same runc and crun, and of runwasi's shim, by turns: time, processor time, memory,
# lists. BENCH_FLAGS='-crio FOLDER -wasmtime FILE' name the last two, which are left out elsewhere; '-write docs/performance' writes the
# page with its plots, '-check docs/performance/peers.json' fails if ours by a peer's is a third worse than on record.
bench-peers: setup build $(CONTAINERD)/bin/containerd $(CONTAINERD)/bin/runc
	@tests/runtimes.sh crun
	$(GO) run $(FLAGS) ./tests/bench/peers -bin $(BIN) -containerd $(CONTAINERD)/bin $(BENCH_FLAGS)

# Lists and stats of a node with 100 pods of 3 containers.
bench-lists: setup build
	$(GO) run $(FLAGS) ./tests/bench -bin $(BIN) -lists 100

# Pods with a shim of their own beside pods that share one: calls by turns, and the memory of the shims of 100 idle pods.
bench-scopes: setup build
	$(GO) run $(FLAGS) ./tests/bench -bin $(BIN) -scopes 100

# Kubernetes' conformance tests, one node per variant; CRITEST_FLAGS='-variants runc -focus REGEXP' runs a part.
critest: setup tools build $(TOOLS)/bin/critest
	$(GO) run $(FLAGS) ./tests/critest -bin $(BIN) -critest $(TOOLS)/bin/critest $(CRITEST_FLAGS)

# The same against containerd with runc, and where the two differ. Its binaries come from a module of their own.
critest-diff: setup tools build $(TOOLS)/bin/critest $(CONTAINERD)/bin/containerd $(CONTAINERD)/bin/runc
	$(GO) run $(FLAGS) ./tests/critest -bin $(BIN) -critest $(TOOLS)/bin/critest -containerd $(CONTAINERD)/bin \
	  -variants runc,websocket $(CRITEST_FLAGS)

# The same manifests under the agent and under a standalone kubelet, whose build takes ten minutes, and where the two differ.
# KUBELETDIFF_FLAGS='-run REGEXP -v' runs a part and prints the named differences too.
kubelet-diff: setup build $(KUBELET)/bin/kubelet
	$(GO) run $(FLAGS) ./tests/kubeletdiff -bin $(BIN) -kubelet $(KUBELET)/bin/kubelet $(KUBELETDIFF_FLAGS)

# Records what kubectl 1.36 prints for the command lines of cmd/sunaba/podcmd/testdata/lines.txt, from the objects beside them and the
# tables of Kubernetes' own API server, and where our commands differ; `make test` compares with the record.
kubectl-diff: $(KUBELET)/bin/kubectl $(KUBELET)/bin/tables
	$(GO) test $(FLAGS) -count=1 -run 'TestKubectl$$' ./cmd/sunaba/podcmd -args -kubectl $(abspath $(KUBELET)/bin/kubectl) -tables $(abspath $(KUBELET)/bin/tables)
	git diff --stat -- cmd/sunaba/podcmd/testdata

# The same themes for guests of the wasm handler; ends with how many specs passed, failed and were skipped.
criwasm: setup
	$(GO) test $(FLAGS) -count=1 -v ./tests/criwasm

# The shim as a plugin of Debian's containerd and of the newest; then critest against containerd with our shim and with its
# own: what passes with its own has to pass with ours.
containerd-test: setup tools build $(TOOLS)/bin/critest $(CONTAINERD)/bin/containerd $(CONTAINERD)/bin/runc
	$(GO) test $(FLAGS) -count=1 -timeout 20m -v ./tests/containerd
	$(GO) run $(FLAGS) ./tests/critest -bin $(BIN) -critest $(TOOLS)/bin/critest -containerd $(CONTAINERD)/bin -plugin \
	  -variants runc $(CRITEST_FLAGS)

# What an OCI runtime has to do, with each one that can be had here; prints a table. `make test` does the same with those
# that it has.
runtimes-test: runtimes
	$(GO) test $(FLAGS) -count=1 -v -timeout 20m -run 'TestRuntimes$$' ./tests/scenario

# The OCI runtimes beside Debian's: runc as Go modules, the newest crun of Debian, gVisor as a Go module, youki where cargo and
# a current Rust are. One that cannot be had is named, and left out.
runtimes: setup $(CONTAINERD)/bin/runc $(RUNC13)/bin/runc $(RUNSC)/bin/runsc
	@tests/runtimes.sh crun youki

# A folder of WASI preview 1 programs in wasi-testsuite's form (NAME.wasm beside NAME.json), and a table of what passed.
wasi-suite:
	@[ -n "$(DIR)" ] || { echo "wasi-suite: say where: make wasi-suite DIR=.../wasi-testsuite/tests" >&2; exit 1; }
	@out=$$(WASI_TESTSUITE="$(abspath $(DIR))" $(GO) test $(FLAGS) -count=1 -v -run 'TestSuite$$' ./shim/wasm/wasip1 ./shim/wasm/wasip3); code=$$?; \
	  echo "$$out" | grep -v '^ *--- PASS\|^=== '; exit $$code

# Every fuzz target for FUZZ_TIME each; FUZZ='Decode|Parse' takes those whose names match. `make test` runs their seeds.
FUZZ      ?= .
FUZZ_TIME ?= 10m
fuzz:
	@for file in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$file | grep -E '$(FUZZ)'); do \
	    echo "$$name of ./$$(dirname $$file)"; \
	    $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 10x ./$$(dirname $$file) || exit 1; \
	  done; \
	done

# Programs of Go's on stock wazero and with their functions rewritten: the standard library's tests, GOROOT/test, the compiler's tests
# and generated programs. Without GOWASM_FLAGS as many as ten minutes allow, in the order of a seed; GOWASM_FLAGS='-time 0' is all of it,
# '-run REGEXP -seed N' a part. What stock wazero does is kept in .cache/gowasm. Then the guests that `make test` compiles in fewer ways,
# with each step of compiling left out.
gowasm-diff: setup-tests
	$(GO) run $(FLAGS) ./tests/gowasm -time 10m $(GOWASM_FLAGS)
	$(GO) test $(FLAGS) -count=1 -timeout 45m -run 'BothWays$$' ./shim/wasm/engine -every

# The daemon and shims are killed before chosen system calls, one line per point. RECOVERY_FLAGS='-seed 7', or
# '-every' for a kill before every single step, which takes a while.
recovery: setup
	$(GO) test $(FLAGS) -count=1 -v -timeout 2h ./tests/recovery $(RECOVERY_FLAGS)
	$(GO) test $(FLAGS) -count=1 -v -timeout 2h ./tests/recovery/pods $(RECOVERY_PODS_FLAGS)

# Clients, kills, stops and full disks on one node for HOURS; after each ten minutes it is looked at, and nothing may be left or grow.
# `make test` does half a minute of it.
soak: setup
	$(GO) test $(FLAGS) -count=1 -v -timeout 0 -run 'TestHoursOfFaults$$' ./tests/hostile -args -hours $(or $(HOURS),2)

# The suites with cgroup version 2, in User-Mode Linux; V2_FLAGS='-run REGEXP' runs a part, V2_FLAGS=-short what
# continuous integration runs.
v2-test: setup-tests tools $(TOOLS)/bin/critest
	$(GO) run $(FLAGS) ./tests/v2 $(V2_FLAGS)

# Only the kernel and the root file system of v2-test, which are kept in the user's cache folder.
v2-machines:
	$(GO) run $(FLAGS) ./tests/v2 -machines

# docs/replace-containerd.md on a cluster that kubeadm makes, in User-Mode Linux. Building Kubernetes takes a quarter of an hour.
kubeadm-test: setup-tests tools $(CONTAINERD)/bin/containerd $(KUBELET)/bin/kube-apiserver
	$(GO) run $(FLAGS) ./tests/v2 -run page-kubeadm

# What needs Debian's own kernel, criu, huge pages or several processors: the suites in a virtual machine, which takes hours
# where the processor's virtualization cannot be used; VM_FLAGS='-run REGEXP' runs a part.
vm-test: setup tools $(TOOLS)/bin/critest
	$(GO) run $(FLAGS) ./tests/vm $(VM_FLAGS)

# Tests of other architectures, under qemu's emulators of single programs: ARCHES_FLAGS=-short is what continuous integration runs,
# '-run riscv64/images -tests REGEXP' a part. The rest of the machine knows nothing of the emulators.
test-arches: setup
	@tests/runtimes.sh qemu
	$(GO) run $(FLAGS) ./tests/arches $(ARCHES_FLAGS)

# --- pinned tools, a module of their own -----------------------------------------------------------

tools: $(TOOLS)/bin/crictl

$(TOOLS)/bin/crictl: $(TOOLS)/go.mod
	cd $(TOOLS) && $(GO) build -trimpath -ldflags "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=$(CRICTL_V)" \
	  -o bin/crictl sigs.k8s.io/cri-tools/cmd/crictl

$(TOOLS)/bin/critest: $(TOOLS)/go.mod
	cd $(TOOLS) && $(GO) test -c -trimpath -ldflags "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=$(CRICTL_V)" \
	  -o bin/critest sigs.k8s.io/cri-tools/cmd/critest

$(TOOLS)/bin/staticcheck: $(TOOLS)/go.mod
	cd $(TOOLS) && $(GO) build -trimpath -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck

# containerd, its own shim, ctr and CNI plugins: what tests compare with and plug the shim into. containerd comes without
# the snapshotters that need a file system or a tool of their own.
$(CONTAINERD)/bin/containerd: $(CONTAINERD)/go.mod
	cd $(CONTAINERD) && $(GO) build -trimpath -tags no_btrfs,no_devmapper,no_zfs \
	  -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=v$(CONTAINERD_V)" -o bin/ \
	  github.com/containernetworking/plugins/plugins/main/bridge github.com/containernetworking/plugins/plugins/main/loopback \
	  github.com/containernetworking/plugins/plugins/ipam/host-local github.com/containernetworking/plugins/plugins/meta/portmap \
	  github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 github.com/containerd/containerd/v2/cmd/ctr \
	  github.com/containerd/containerd/v2/cmd/containerd

# runc 1.5, which containerd is compared with too, and 1.3. They are C in part, and their packages are installed here: nothing
# else needs them.
$(CONTAINERD)/bin/runc $(RUNC13)/bin/runc: %/bin/runc: %/go.mod
	@tests/setup.sh gcc:gcc pkg-config:pkg-config /usr/include/seccomp.h:libseccomp-dev /usr/include/stdio.h:libc6-dev
	cd $* && CGO_ENABLED=1 $(GO) build -trimpath -tags seccomp -o bin/ github.com/opencontainers/runc

# What drives a headless Chromium for tests/statuspage.
$(BROWSER)/bin/browser: $(BROWSER)/go.mod $(BROWSER)/main.go
	cd $(BROWSER) && $(GO) build -trimpath -ldflags "-s -w" -o bin/browser .

KUBE_FLAGS := -s -w -X k8s.io/component-base/version.gitVersion=v$(KUBELET_V) \
  -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36

$(KUBELET)/bin/kubelet $(KUBELET)/bin/kubectl: %: $(KUBELET)/go.mod
	cd $(KUBELET) && $(GO) build -trimpath -ldflags "$(KUBE_FLAGS)" -o bin/ k8s.io/kubernetes/cmd/$(@F)

# All of a cluster, in one build, because most packages are the same.
$(KUBELET)/bin/kube-apiserver: $(KUBELET)/go.mod
	cd $(KUBELET) && $(GO) build -trimpath -ldflags "-s -w" -o bin/etcd go.etcd.io/etcd/server/v3 && \
	  $(GO) build -trimpath -ldflags "$(KUBE_FLAGS)" -o bin/ $(addprefix k8s.io/kubernetes/cmd/,kubeadm kubelet kubectl kube-controller-manager kube-scheduler kube-apiserver)

$(KUBELET)/bin/tables: $(KUBELET)/go.mod $(wildcard $(KUBELET)/tables/*.go)
	cd $(KUBELET) && $(GO) build -trimpath -ldflags "-s -w" -o bin/ ./tables

$(RUNSC)/bin/runsc: $(RUNSC)/go.mod
	cd $(RUNSC) && $(GO) build -trimpath -ldflags "-s -w \
	  -X gvisor.dev/gvisor/runsc/version.version=$$($(GO) list -m -f '{{.Version}}' gvisor.dev/gvisor)" -o bin/ gvisor.dev/gvisor/runsc

# The process that guests are compared with, in C so that it is as small as one with wasmtime can be; the library comes with
# wasmtime's Go module, whose folder is known once it has been downloaded.
$(WASMTIME)/bin/wasmtime-host: $(WASMTIME)/go.mod $(WASMTIME)/host.c
	@tests/setup.sh gcc:gcc /usr/include/stdio.h:libc6-dev
	cd $(WASMTIME) && $(GO) mod download && mkdir -p bin && \
	  build=$$($(GO) list -m -f '{{.Dir}}' github.com/bytecodealliance/wasmtime-go/v39)/build && \
	  gcc -O2 -Wall -I"$$build/include" -o bin/wasmtime-host host.c -L"$$build/linux-$$(uname -m)" -lwasmtime -lm -ldl -lpthread

clean:
	rm -rf $(BIN) $(TOOLS)/bin $(CONTAINERD)/bin $(WASMTIME)/bin $(RUNC13)/bin $(RUNSC)/bin $(KUBELET)/bin $(BROWSER)/bin .cache examples/filter/node_modules
