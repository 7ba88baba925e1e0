# make build   the holdfast binary, ./bin/holdfast, with its C libraries inside; and ./bin/hfreplay
# make demo    train, checkpoint three times, kill, restore, compare (docs/howto-train.md)
# make test    everything that CI runs
# make lint    formatting, vet, staticcheck, generated files
# make bench   figures
# make soak    long fault injection: ROUNDS=5000 of each kind
# make flake   every test N times while all cores are busy, and what failed how often. N=20; PKG='./test/shim …'
#              for some packages. Whoever changes what waits, locks or ends processes runs it until nothing fails.
# make peers   Numba's CUDA suite on the software GPU, compared with what is expected. MODULES=test_ipc for a part.
# make chromium  a browser for the test of Pack's web page, where there is none
# make install PREFIX=/usr/local
#
# demo and test install what they miss on a Debian-like machine (scripts/setup.sh).

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
.NOTPARALLEL: # the order of a target's prerequisites is meant

GO       ?= go
CC       ?= cc
CFLAGS   ?= -O2 -g
PREFIX   ?= /usr/local
DESTDIR  ?=
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The software GPU computes with vector instructions where Go's simd experiment is on. Without it (make
# GOEXPERIMENT=nosimd), or without this Makefile, it is slower and computes the same.
export GOEXPERIMENT ?= simd

# Tests are compiled the way the commands are: without cgo and without the directory in what the compiler writes. So
# both share what is compiled, also with other checkouts.
export CGO_ENABLED ?= 0
export GOFLAGS     := $(shell $(GO) env GOFLAGS 2>/dev/null) -trimpath

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

LIB      := internal/embedded/lib
LIBS     := $(LIB)/libholdfast.so $(LIB)/libcuda.so.1
EXAMPLES := build/examples/train build/examples/vecadd build/examples/infer
CRIU     := libexec/holdfast/criu
GOFILES  := $(shell find cmd internal ptx -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
EMBEDDED := $(shell find cmd internal -name '*.ptx' 2>/dev/null)
SHIMSRC  := $(wildcard shim/*.c shim/*.h shim/*.sh)
STUBSRC  := $(wildcard stub/*.c stub/*.h stub/*.sh)
TINYSRC  := $(wildcard replay/tiny/*.c replay/tiny/*.h replay/tiny/*.sh)
PLAYER   := internal/hfx/player/lib/player

# LANES has code for both settings of GOEXPERIMENT, VECTORS run it.
LANES   := ./internal/softgpu/lanes
VECTORS := ./internal/softgpu $(LANES)

# lint has vetted everything: go test need not again.
VETTED := -vet=off

# Packages that are pure enough for the race detector to be worth its time.
RACE := ./internal/pack/machine ./internal/client ./internal/wire ./internal/keeper ./internal/process ./internal/store

.PHONY: build install demo test lint bench soak flake peers clean generate fuzz-smoke setup examples criu e2e race unit
.PHONY: portable late chromium

build: bin/holdfast bin/hfreplay

bin/holdfast: $(LIBS) $(GOFILES) $(EMBEDDED)
	@mkdir -p bin
	$(GO) build -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./cmd/holdfast

# Recordings without a CUDA library: see docs/howto-replay.md.
bin/hfreplay: $(PLAYER) $(GOFILES)
	@mkdir -p bin
	$(GO) build -ldflags '-s -w' -o $@ ./cmd/hfreplay

$(LIB)/libholdfast.so: $(SHIMSRC)
	CC='$(CC)' sh shim/build.sh $(@D)

$(LIB)/libcuda.so.1: $(STUBSRC)
	CC='$(CC)' sh stub/build.sh $(@D)

$(PLAYER): $(TINYSRC)
	CC='$(CC)' sh replay/tiny/build.sh $(@D)

examples: $(EXAMPLES)

# An ordinary CUDA program: it links against the driver library, whoever provides that.
build/examples/train: examples/train/train.c examples/train/train.ptx examples/include/cuda.h $(LIB)/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) -std=c11 $(CFLAGS) -Wall -Wextra -Iexamples/include -Wa,-Iexamples/train -o $@ $< -L$(LIB) -l:libcuda.so.1 -Wl,--allow-shlib-undefined

build/examples/infer: examples/infer/infer.c examples/infer/infer.ptx $(wildcard examples/include/*.h) \
		$(LIB)/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) -std=c11 $(CFLAGS) -Wall -Wextra -Iexamples/include -Wa,-Iexamples/infer -o $@ $< \
		-L$(LIB) -l:libcuda.so.1 -Wl,--allow-shlib-undefined -ldl

build/examples/vecadd: examples/vecadd/vecadd.c examples/include/cuda.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(CFLAGS) -Wall -Wextra -Iexamples/include -o $@ $< -ldl

setup:
	@bash scripts/setup.sh

chromium:
	@bash scripts/setup.sh chromium

# holdfast finds CRIU beside itself: PREFIX/bin/holdfast, PREFIX/libexec/holdfast/criu.
criu: setup
	@sh scripts/criu.sh $(dir $(CRIU))

demo: setup build examples criu
	@bash scripts/demo.sh

install: build
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 bin/holdfast '$(DESTDIR)$(PREFIX)/bin/holdfast'

# Unit tests first, then end to end: what fails cheaply fails early.
test: setup lint build examples criu unit late

# e2e mostly waits for processes: what computes runs beside it.
late: build examples criu
	@bash scripts/beside.sh '$(MAKE) --no-print-directory e2e' \
		'nice $(MAKE) --no-print-directory portable race fuzz-smoke'

# Some packages compute, others mostly wait for processes, so more of them run at once than there are cores.
unit: build examples criu
	HOLDFAST_CRIU='$(CURDIR)/$(CRIU)' $(GO) test $(VETTED) -p $$((2 * $$(nproc))) \
		$$($(GO) list ./... | grep -v '/test/e2e$$')

# The same without vector instructions.
portable: build
	GOEXPERIMENT=nosimd $(GO) vet $(LANES)
	GOEXPERIMENT=nosimd $(GO) run $(STATICCHECK) $(LANES)
	GOEXPERIMENT=nosimd $(GO) test $(VETTED) $(VECTORS)

race: build
	CGO_ENABLED=1 $(GO) test $(VETTED) -race $(RACE)

e2e: build examples criu
	HOLDFAST_E2E=required $(GO) test $(VETTED) -parallel 6 -timeout 12m ./test/e2e

fuzz-smoke: $(LIBS)
	@GO='$(GO)' bash scripts/fuzz-smoke.sh

lint: $(LIBS)
	@test -z "$$(gofmt -l cmd internal ptx test | tee /dev/stderr)" || { echo 'gofmt: the files above are not formatted' >&2; exit 1; }
	@bash scripts/beside.sh "GO='$(GO)' bash scripts/check-generated.sh" \
		'$(GO) vet ./... && $(GO) run $(STATICCHECK) ./...'

# Every generated file. A change of a generator is committed together with what it makes.
generate:
	$(GO) generate ./...
	$(GO) test ./cmd/holdfast -run '^TestReference$$' -update

bench: build examples
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...

# How many faults each test injects. The matrix of operations and faults alone: SOAK=FaultMatrix.
ROUNDS ?= 5000
SOAK   ?= Fault

soak: build examples criu
	HOLDFAST_E2E=required HOLDFAST_SOAK=1 HOLDFAST_ROUNDS='$(ROUNDS)' $(GO) test -timeout 24h -v -run '$(SOAK)' ./test/e2e

N   ?= 20
PKG ?= ./...

# Failures and the table stay in build/flake. scripts/flake.sh has more options.
flake: setup build examples criu
	@GO='$(GO)' HOLDFAST_E2E=required bash scripts/flake.sh -n '$(N)' $(PKG)

# Where other projects' suites are provided: some 500 MB, for all checkouts.
PEERS   ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/holdfast-peers
MODULES ?=

peers: setup build
	@sh scripts/peers.sh '$(PEERS)'
	HOLDFAST_PEERS='$(PEERS)' HOLDFAST_PEERS_MODULES='$(MODULES)' $(GO) test -count=1 -v -timeout 2h ./test/peers

clean:
	rm -rf bin build libexec $(LIBS) $(PLAYER)
