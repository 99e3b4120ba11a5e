# make help lists the targets. Everything that a target needs is fetched by it, or named with the package to install.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Not the time of the build, so that the same sources make the same bytes.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
DATE ?= $(shell date -u -d @$(SOURCE_DATE_EPOCH) +%FT%TZ 2>/dev/null || date -u -r $(SOURCE_DATE_EPOCH) +%FT%TZ)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
# The exporter of spans brings gRPC, and that a page for its traces whose templates keep the linker from leaving out what is not
# used: the binaries would be a third larger.
BUILDTAGS = grpcnotrace

# Lint tools have a module of their own, so that what they need never reaches ours.
TOOL = $(GO) tool -modfile=tools/go.mod

# The Kafka that tests run on; empty: the one that testkit names.
KAFKA ?=
ifneq ($(KAFKA),)
export REDRIVE_TEST_KAFKA := $(KAFKA)
endif

# The tag makes the Kafka client's mutexes visible to testing/synctest: see testkit.Virtual.
TEST = $(GO) test -tags synctests -timeout 30m
PACKAGES = $$($(GO) list ./... | grep -vE '/test/(e2e|docs)$$')

# Of make chaos; what is empty is as the harness has it for the target, and it picks a SEED and prints it.
TARGET ?= forwarder
KILLS ?=
BROKER_KILLS ?= 3
RATE ?=
LETTERS ?=
KEYS ?=
LEDGER ?= postgres
SEED ?=

# Of make hostile.
RECORDS ?= 1000000

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/forwarder and bin/dlt-replayer
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(BUILDTAGS) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/forwarder ./cmd/dlt-replayer

# The images have a module of their own as well.
.PHONY: image
image: ## out/image: an OCI archive and the bills of materials of each binary, without a container engine; PLATFORMS=linux/amd64,linux/arm64
	cd deploy/image && $(GO) run . -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)' -tags '$(BUILDTAGS)' $(if $(PLATFORMS),-platforms $(PLATFORMS))

.PHONY: image-test
image-test: ## the images: contents, entry point, user, bill of materials, twice the same
	cd deploy/image && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: demo
demo: build ## the quick start, ends by itself; BROKERS=host:port runs it on your own Kafka
	@BROKERS='$(BROKERS)' $(GO) run ./examples/quickstart

.PHONY: clean
clean: ## remove bin/ and out/
	rm -rf bin out

.PHONY: test
test: tools kafka ## everything: vet, unit and time tests under the race detector, stories on real Kafka; KAFKA=3.9.2 picks a version
	$(GO) vet ./...
	$(MAKE) race e2e image-test chart rendered

.PHONY: test-short
test-short: ## what needs no Kafka
	$(TEST) -short ./...

.PHONY: race
race: ## all but the stories, under the race detector
	$(TEST) -race $(PACKAGES)

.PHONY: e2e
e2e: build ## the stories of test/e2e and the commands of the documents, on real Kafka
	$(TEST) -count=1 -p 1 ./test/e2e ./test/docs

# The tests of the chart have a module of their own, which keeps Helm and the types of Kubernetes out of ours. They run without the
# race detector, since compiling all of Helm is most of what they cost, and never from the cache: go test does not see that a file of
# the chart has changed, as it is in no module.
CHARTTEST = deploy/helm/charttest

.PHONY: chart
chart: ## the chart: ci values rendered and decoded strictly, wrong values refused, rules and dashboards, lint; UPDATE=1 writes what is generated
	$(if $(UPDATE),cd $(CHARTTEST) && for package in ./dashboards ./rules .; do $(GO) test -count=1 $$package -args -update; done)
	cd $(CHARTTEST) && $(GO) vet ./... && $(GO) test -count=1 -timeout 15m $$($(GO) list ./... | grep -v '/rendered$$')

.PHONY: rendered
rendered: tools kafka ## what the chart would run, run on real Kafka and Postgres, probed as its pods say
	cd $(CHARTTEST) && $(GO) test -count=1 -timeout 15m ./rendered

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (5s)
	@grep -rn --include='*_test.go' -E '^func Fuzz[A-Za-z0-9_]+\(' . | sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]+).*|\1 \2|' | sort | \
	while read -r dir name; do \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(or $(FUZZTIME),5s) "$$dir" </dev/null; \
	done

.PHONY: bench
bench: build tools kafka ## figures on real Kafka and Postgres, out/bench.json; ONLY=index,replay,list
	$(GO) run ./test/bench $(if $(ONLY),-only $(ONLY))

.PHONY: chaos
chaos: build tools kafka ## kill harness, out/chaos*.json; TARGET=forwarder KILLS=20 BROKER_KILLS=3 RATE=2000 SEED= | TARGET=index LETTERS=1000000 KILLS=30 LEDGER=postgres | TARGET=replay LETTERS=50000 KEYS=1000 KILLS=30
	$(GO) run ./test/chaos -target $(TARGET) -ledger $(LEDGER) -broker-kills $(BROKER_KILLS) $(if $(KILLS),-kills $(KILLS)) $(if $(RATE),-rate $(RATE)) \
		$(if $(LETTERS),-letters $(LETTERS)) $(if $(KEYS),-keys $(KEYS)) $(if $(SEED),-seed $(SEED))

.PHONY: faults
faults: build tools kafka ## every fault of docs/guarantees.md on real Kafka, out/faults.json; ONLY=name,name
	$(GO) run ./test/faults $(if $(ONLY),-only $(ONLY))

.PHONY: hostile
hostile: build tools kafka ## forged headers on real Kafka, out/hostile.json; RECORDS=1000000 SEED=
	$(GO) run ./test/hostile -records $(RECORDS) $(if $(SEED),-seed $(SEED))

.PHONY: upgrade
upgrade: tools kafka ## the previous build and this one exchanged under load, replica by replica and back, out/upgrade.json; RATE=500 SEED=
	$(GO) run ./test/upgrade $(if $(RATE),-rate $(RATE)) $(if $(SEED),-seed $(SEED))

.PHONY: schemathesis
schemathesis: build ## requests made from the OpenAPI document against a dlt-replayer; needs python3-venv and a package index; EXAMPLES=50
	test/schemathesis/run.sh bin/dlt-replayer

# What the tests call, as program:package. Debian keeps the programs of a database server out of PATH. Without root, or without
# apt, the missing ones are named and the run ends.
NEEDED = cc:gcc java:default-jre-headless mvn:maven kcat:kcat initdb:postgresql

.PHONY: tools
tools:
	@missing=; PATH="$$PATH:$$(printf '%s:' /usr/lib/postgresql/*/bin)"; for pair in $(NEEDED); do \
		command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair#*:}"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; install='apt-get install -q -y --no-install-recommends'; apt-get update -q; \
		case $$missing in *postgresql*) \
			$$install postgresql-common; \
			: "The tests start servers of their own: the package shall not start one."; \
			sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf;; \
		esac; \
		$$install $$missing; \
	else \
		echo "missing Debian packages:$$missing (apt-get install$$missing)" >&2; exit 1; \
	fi

# Before the tests, so that their time limits do not count a download.
.PHONY: kafka
kafka:
	@$(TEST) -count=1 -run '^TestFetchBringsTheBroker$$' ./internal/testkit

.PHONY: lint
lint: ## golangci-lint, formatting included
	$(TOOL) golangci-lint run ./...
	cd $(CHARTTEST) && $(GO) tool -modfile=../../../tools/go.mod golangci-lint run ./...

.PHONY: fmt
fmt: ## format all Go files
	$(TOOL) golangci-lint fmt ./...
	cd $(CHARTTEST) && $(GO) tool -modfile=../../../tools/go.mod golangci-lint fmt ./...

.PHONY: generate
generate: ## write what is generated
	$(GO) generate ./...

.PHONY: verify
verify: ## go.mod tidy, generated files up to date
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd deploy/image && $(GO) mod tidy -diff
	cd $(CHARTTEST) && $(GO) mod tidy -diff
	@before=$$(git status --porcelain; git diff); $(MAKE) generate; after=$$(git status --porcelain; git diff); \
	[ "$$before" = "$$after" ] || { echo "make generate changed files: commit what it writes" >&2; git status --short >&2; exit 1; }

.PHONY: check
check: lint verify test fuzz ## all of the above that can fail
