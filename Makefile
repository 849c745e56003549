# Run `make help` to list targets.

# Static binaries run on every Linux. With one setting for all programs, packages that the control
# plane and the servers share are compiled once.
export CGO_ENABLED = 0
# -dwarf=false: binaries are linked without debug information, and compiling takes a fifth less
# time. -vet=off: `make verify` vets everything. -count=1: tests run programs and scripts that Go's
# test cache does not track.
export GOFLAGS ?= -trimpath -gcflags=all=-dwarf=false -vet=off -count=1

.DEFAULT_GOAL := help
# Prerequisites run in order: first the check for missing tools, then compilation, which uses all
# CPUs by itself.
.NOTPARALLEL:

##@ Use

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Start a control plane with the sample API behind it. Ctrl-C stops it.
	@[ -x bin/local-up ] || echo "First run: an estimate follows in a few seconds."
	@go run ./cmd/setup-envtest build bin/local-up ./cmd/local-up && exec bin/local-up

.PHONY: run-clean
run-clean: ## Delete the objects and logs of `make run`.
	rm -rf .run

.PHONY: new
new: needs-generate ## Create a project that imports the kit: make new DIR=... MODULE=... GROUP=... KIND=... FLAGS="--subresources=status"
	@go run ./cmd/scaffold new --dir="$(DIR)" --module="$(MODULE)" --group="$(GROUP)" --kind="$(KIND)" $(FLAGS)

##@ Build

.PHONY: build
build: ## Build the binaries into bin/.
	@scripts/build.sh

.PHONY: build-fips
build-fips: ## Build the binaries into bin/fips/, in FIPS 140-3 mode with the Go Cryptographic Module GOFIPS140 (default: v1.0.0).
	@GOFIPS140=$(or $(GOFIPS140),v1.0.0) OUT=bin/fips/ scripts/build.sh

.PHONY: sbom
sbom: build ## Write the SBOM of each binary to bin/NAME.cdx.json. Images contain theirs.
	@scripts/sbom.sh

.PHONY: image
image: ## Write the container images into bin/images/, without Docker: make image PLATFORMS=linux/amd64,linux/arm64
	@PLATFORMS="$(PLATFORMS)" scripts/image.sh

.PHONY: krew
krew: ## Write the archives of kubectl-aggregation and the plugin's manifest for krew into bin/krew/: make krew URL=https://...
	@PLATFORMS="$(PLATFORMS)" scripts/krew.sh "$(URL)"

.PHONY: controlplane
controlplane: ## Build the control plane of the tests (etcd, kube-apiserver, kubectl and others), once per machine. bin/1.37 links to it.
	@dir=$$(go run ./cmd/setup-envtest programs $(PROGRAMS)) && link=$$(basename "$$dir") && link=bin/$${link%%-*} && if [ "$$(readlink $$link)" != "$$dir" ]; then \
	  mkdir -p bin && rm -rf $$link && ln -s "$$dir" $$link; fi

# Builds kubectl if it is not installed.
.PHONY: kubectl
kubectl:
	@[ -x bin/1.37/kubectl ] || command -v kubectl >/dev/null || $(MAKE) --no-print-directory controlplane PROGRAMS=kubectl

.PHONY: generate
generate: ## Write the generated code: zz_generated.*, generated.pb.go, clients.
	@scripts/generate.sh

.PHONY: bump
bump: ## Move to another version of Kubernetes, and list what remains to be done: make bump KUBERNETES=1.37.2
	@scripts/bump.sh $(KUBERNETES)

##@ Test

# Lists missing tools before anything is compiled. needs-test-generate checks the tools of tests
# and generators.
needs-%:
	@scripts/needs.sh $(subst -, ,$*)

.PHONY: test
test: GO_TEST = go test -short -timeout 30m
test: run-tests ## Run the tests against a real control plane (up to an hour on 2 cores).

.PHONY: test-long
test-long: GO_TEST = go test -timeout 60m
test-long: run-tests ## Run the same tests with their long variants.

# In reverse order the longest suites start first, and short packages run while the last one
# waits. Suites wait for a fifth of their time, so the number of parallel packages is one more
# than the number of CPUs.
.PHONY: run-tests
run-tests: needs-test-generate controlplane build
	@began=$$(date +%s); $(GO_TEST) -p $$(($$(nproc) + 1)) $$(go list ./... | sort -r); status=$$?; \
	  echo "The tests took $$((($$(date +%s) - began) / 60)) minutes."; exit $$status

.PHONY: test-all
test-all: needs-test-fips-generate-verify-kind-suites
test-all: test-long test-minors test-security test-quickstart test-fips test-image fuzz
test-all: kind-test-all kind-test-konnectivity verify ## Run all tests, one after the other (3 hours). Needs root, and Docker for kind.

.PHONY: test-minors
test-minors: needs-test-generate build ## Run the version-dependent tests with the other Kubernetes minor versions, and upgrades: make test-minors MINORS=1.36
	@scripts/test-minors.sh $(MINORS)

.PHONY: test-security
test-security: needs-test controlplane build ## Run each attack on the server for a minute (45 minutes), on an otherwise idle machine: make test-security ATTACK_FOR=1h RUN=TestGeneratedRequests
	ATTACK_FOR=$(or $(ATTACK_FOR),60s) ATTACK_P99=1s go test -timeout 120m -run '^($(or $(RUN),TestAttacks|TestCosts|TestUnreadResponses|TestCancelled|TestReaders|TestObjectsLeaveSelectors|TestWatchEncodings|TestRejectedWatches|TestLogs|TestGeneratedRequests|TestLargeWrites))$$' -v ./test/security/limits

.PHONY: test-quickstart
test-quickstart: needs-kind-generate controlplane ## Follow docs/start and docs/build, and create and upgrade projects (30 minutes). Needs Docker for kind.
	go test -tags quickstart -timeout 50m -v -run '^Test(Quickstart|Deployed|Upgrade|UpstreamTypes|Backups|Inventory|Reservations)$$' ./test/docs ./test/project

.PHONY: test-gitops
test-gitops: needs-test controlplane ## Install and upgrade the sample with the engines of Argo CD, Flux and Helm.
	cd test/gitops && KUBEBUILDER_ASSETS=$(CURDIR)/bin/1.37 go test -timeout 20m ./...

.PHONY: test-fips
test-fips: needs-fips controlplane build-fips ## Test the binaries of `make build-fips`.
	FIPS_BINARIES=$(CURDIR)/bin/fips go test ./test/security/fips

.PHONY: test-image
test-image: ## Build the images twice, once with an empty build cache, and compare them (7 minutes).
	go test -tags reproducible -timeout 40m -v ./scripts/image/...

.PHONY: fuzz
fuzz: needs-test controlplane build ## Fuzz each target for FUZZTIME (default 30s): make fuzz FUZZTIME=5m
	@FUZZTIME="$(FUZZTIME)" scripts/fuzz.sh

.PHONY: verify
verify: needs-generate-verify ## Check formatting, lint, generated code, modules, pinned versions, and that the tree is clean.
	@scripts/verify.sh

.PHONY: lint
lint: ## Run the linters.
	@scripts/lint.sh

.PHONY: vulncheck
vulncheck: ## Check for known vulnerabilities in the code of the commands: make vulncheck VULNDB=file:///DIRECTORY
	@VULNDB="$(VULNDB)" scripts/vulncheck.sh

.PHONY: measure
measure: needs-test controlplane build ## Measure start, memory and size; docs/reference/measurements.md has the results.
	@scripts/measure.sh

# WRITE=1 writes docs/reference/performance.md and its plots. SIZE=full takes hours.
.PHONY: benchmark
benchmark: controlplane ## Compare the sample's server with a CRD, ConfigMaps and sample-apiserver, on an otherwise idle machine: make benchmark SIZE=full WRITE=1
	@go test ./test/benchmark -run '^$$' -bench '^BenchmarkCompare$$' -benchtime 1x -timeout 6h -size=$(or $(SIZE),quick) $(if $(WRITE),-write=$(CURDIR)/docs/reference)

##@ Deploy

.PHONY: deploy
deploy: kubectl ## Install OVERLAY (default: sample/manifests/kind) into the current cluster: make deploy IMAGE=... CERTGEN_IMAGE=...
	@OVERLAY="$(OVERLAY)" IMAGE="$(IMAGE)" CERTGEN_IMAGE="$(CERTGEN_IMAGE)" scripts/deploy.sh

.PHONY: undeploy
undeploy: kubectl ## Remove OVERLAY (default: sample/manifests/kind) from the current cluster and keep the data: make undeploy PURGE=1 deletes it too
	@OVERLAY="$(OVERLAY)" PURGE="$(PURGE)" scripts/undeploy.sh

##@ Try it on kind

.PHONY: kind-up
kind-up: needs-kind$(if $(filter kind-test%,$(MAKECMDGOALS)),-suites) ## Create the cluster KIND_CLUSTER (default: workshop) from KIND_NODE_IMAGE (default: kind's own). Its kubeconfig is .kind/kubeconfig.
	@scripts/kind.sh up

.PHONY: kind-load
kind-load: needs-kind kubectl image ## Load the images into the cluster KIND_CLUSTER.
	@scripts/kind.sh load

.PHONY: kind-deploy
kind-deploy: kind-load ## Load the images, and install OVERLAY (default: sample/manifests/kind) with them.
	@scripts/kind.sh deploy

.PHONY: kind-test
kind-test: needs-kind-suites kubectl ## Run end-to-end suites on the cluster (default: default, then uninstall): make kind-test SUITE=production
	@scripts/kind-test.sh $(SUITE)

.PHONY: kind-test-all
kind-test-all: needs-kind-suites kubectl image ## Create a cluster, run SUITE on it (default: all suites, 45 minutes), and delete it.
	@scripts/kind-test.sh all $(SUITE)

.PHONY: kind-test-konnectivity
kind-test-konnectivity: needs-kind-suites image controlplane ## Create a cluster behind konnectivity, test it, and delete it (KEEP=1 keeps it).
	@KEEP="$(KEEP)" test/konnectivity/kind/run.sh

.PHONY: kind-down
kind-down: ## Delete the cluster KIND_CLUSTER.
	@scripts/kind.sh down
