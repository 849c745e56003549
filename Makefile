# Everything a person types. A bare `make` prints this list.

# One binary for every Linux; and the packages compiled for the control plane are used again for our own.
export CGO_ENABLED = 0
# As in images: what they, tests and `make run` have in common is compiled once. Binaries are linked without debug information (-s -w), and
# compilers that need not write it take a fifth less time. A test that runs programs or scripts is run each time: go test would take its result
# from a cache that does not know them.
export GOFLAGS ?= -trimpath -gcflags=all=-dwarf=false -count=1

# What runs tests in the place of go test, with its arguments; scripts use it too.
export GOTEST ?= go test

.DEFAULT_GOAL := help
# Prerequisites in their order: first what is needed, then what is compiled, which uses all CPUs by itself.
.NOTPARALLEL:

##@ Use

.PHONY: help
help: ## Print the targets.
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Start a control plane with our API behind it; Ctrl-C stops it. What of it is not in KUBEBUILDER_ASSETS is built the first time.
	@[ -x bin/run-env ] || echo "First run: an estimate follows in a few seconds."
	@go run ./pkg/envtest/build bin/run-env ./pkg/envtest/run && exec bin/run-env

.PHONY: run-clean
run-clean: ## Forget the objects and logs of `make run`.
	rm -rf .run

##@ Build

.PHONY: build
build: ## Build our binaries into bin/.
	@scripts/build.sh

.PHONY: sbom
sbom: build ## Write the SBOM of each binary beside it: bin/NAME.cdx.json. Images have theirs.
	@scripts/sbom.sh

.PHONY: build-fips
build-fips: ## Build our binaries into bin/fips/, in FIPS 140-3 mode with the Go Cryptographic Module GOFIPS140.
	@GOFIPS140=$(or $(GOFIPS140),v1.0.0) OUT=bin/fips/ scripts/build.sh

.PHONY: controlplane
controlplane: ## Build etcd, kube-apiserver, kube-controller-manager, kube-proxy, kubectl, sample-apiserver and konnectivity, once for a machine; bin/1.37 leads to them.
	@dir=$$(go run ./pkg/envtest/setup $(PROGRAMS)) && link=$$(basename "$$dir") && link=bin/$${link%%-*} && if [ "$$(readlink $$link)" != "$$dir" ]; then \
	  mkdir -p bin && rm -rf $$link && ln -s "$$dir" $$link; fi

# kubectl of the control plane, for who has none.
.PHONY: kubectl
kubectl:
	@[ -x bin/1.37/kubectl ] || command -v kubectl >/dev/null || $(MAKE) --no-print-directory controlplane PROGRAMS=kubectl

.PHONY: image
image: ## Write the container images into bin/images/, without Docker: make image PLATFORMS=linux/amd64,linux/arm64
	@PLATFORMS="$(PLATFORMS)" scripts/image.sh

.PHONY: generate
generate: ## Write every zz_generated.* file.
	@scripts/generate.sh

.PHONY: bump
bump: ## Move to another version of Kubernetes, and say what is left for a person: make bump KUBERNETES=1.37.2
	@scripts/bump.sh $(KUBERNETES)

##@ Check

.PHONY: test
test: needs-test-generate controlplane build ## Run all tests, against the real control plane. SHORT="test/rollout test/rotation" runs a minute of those packages.
	@# In that order the suites begin first, and small packages fill the time in which the last one waits.
	$(GOTEST) -timeout 20m $$(go list ./... | sort -r$(if $(strip $(SHORT)), | grep -v $(patsubst %,-e '/%$$',$(SHORT))))
	$(if $(strip $(SHORT)),$(GOTEST) -short -timeout 10m $(addprefix ./,$(SHORT)))

# What a target needs besides Go modules is said before anything is compiled: needs-test-generate for programs of tests and generators.
needs-%:
	@scripts/needs.sh $(subst -, ,$*)

.PHONY: test-quickstart
test-quickstart: needs-$(if $(filter TestQuickstart TestUpgrade,$(RUN)),,kind-)generate controlplane ## Do what docs/quickstart.md says, word for word, and upgrade a project (20 minutes), RUN=TestUpgrade that alone. Needs Docker, for kind.
	$(GOTEST) -tags quickstart -count=1 -timeout 30m -v $(if $(RUN),-run '^$(RUN)$$') ./test/quickstart

.PHONY: test-minors
test-minors: needs-test-generate build ## Test with the control planes of other minors of Kubernetes, and the upgrade (20 minutes each): make test-minors MINORS=1.35, or PART=1/6
	@scripts/test-minors.sh $(PART:%=--part=%) $(MINORS)

.PHONY: test-bump
test-bump: needs-generate ## Try `make bump` in copies of the tree, with the newest version that is pinned and with a patch (15 minutes), RUN=TestBumpPatch that alone.
	$(GOTEST) -tags bump -count=1 -timeout 40m -v ./test/release -run '^$(or $(RUN),TestBump(Patch)?)$$'

.PHONY: test-without-sample
test-without-sample: needs-test-generate controlplane ## Delete the sample in a copy; all else must build and pass (25 minutes). PART=2/6 tests a part of the packages.
	@scripts/test-without-sample.sh $(PART:%=--part=%)

.PHONY: test-security
test-security: needs-test-generate controlplane build ## Attack the server; SECURITY.md says what each test protects.
	$(GOTEST) -timeout 20m -skip '^TestAttacks$$' ./test/security/...
	ATTACK_P99=1s $(GOTEST) -timeout 20m -run '^TestAttacks$$' ./test/security/limits

.PHONY: test-attacks
test-attacks: needs-test controlplane build ## Attack the server for a minute in each way, with the machine for itself (28 minutes): make test-attacks PART=2/3
	ATTACK_FOR=60s ATTACK_P99=1s ATTACK_PART=$(or $(PART),1/1) $(GOTEST) -count=1 -timeout 60m -run '^TestAttacks$$' -v ./test/security/limits

.PHONY: test-all
test-all: needs-test-arm64-windows-fips-generate-kind-suites ## Run every test that there is, one after the other (3 hours). Needs root, and Docker for kind.
	$(MAKE) test test-without-sample test-security
	$(MAKE) test-minors test-quickstart test-attacks test-fips test-arm64 test-windows test-image test-bump test-mutations fuzz
	$(MAKE) kind-test-all kind-test-konnectivity verify

.PHONY: verify
verify: needs-generate ## Check formatting, lint, generated code, modules, pinned versions, and that the tree is clean.
	@scripts/verify.sh

.PHONY: lint
lint: ## Run the linters.
	@scripts/lint.sh

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities that our commands reach: make vulncheck VULNDB=file:///DIRECTORY
	@VULNDB="$(VULNDB)" scripts/vulncheck.sh

.PHONY: test-fips
test-fips: needs-fips controlplane build-fips ## Test the binaries of `make build-fips` (30 seconds, and minutes to build them once).
	FIPS_BINARIES=$(CURDIR)/bin/fips $(GOTEST) -count=1 ./test/release

.PHONY: test-arm64
test-arm64: needs-arm64 ## Test certgen as a program for linux/arm64, with QEMU (6 minutes).
	@scripts/test-arm64.sh

.PHONY: test-windows
test-windows: needs-windows ## Test certgen as a program for Windows, with Wine, as root (3 minutes).
	@scripts/test-windows.sh

.PHONY: test-image
test-image: ## Build the images in two clean folders, one with an empty build cache, compare them and look inside (7 minutes).
	$(GOTEST) -tags reproducible -timeout 40m -v ./scripts/image/...

.PHONY: test-mutations
test-mutations: needs-test-generate controlplane ## Take behaviours away one by one; the test named for each must fail. PART=2/3 is a third of them.
	@scripts/test-mutations.sh $(PART:%=--part=%)

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (default 30s): make fuzz FUZZTIME=5m
	@FUZZTIME="$(FUZZTIME)" scripts/fuzz.sh

.PHONY: measure
measure: needs-test controlplane build ## Measure start, memory and size; docs/measurements.md has the results.
	@scripts/measure.sh

.PHONY: measure-konnectivity
measure-konnectivity: needs-test controlplane build ## Measure recovery and growth behind konnectivity, mode by mode (35 minutes); docs/konnectivity.md.
	go test -tags measure ./test/konnectivity -run TestMeasure -v -timeout 90m

.PHONY: benchmark-konnectivity
benchmark-konnectivity: needs-test controlplane build ## Compare get, list and watch through konnectivity with a direct route (3 minutes).
	go test ./test/benchmark -run '^$$' -bench Konnectivity -benchtime 1x -v -timeout 30m

##@ Deploy

.PHONY: deploy
deploy: kubectl ## Install OVERLAY (default sample/manifests/kind) into the cluster of the kubeconfig: make deploy IMAGE=... CERTGEN_IMAGE=...
	@OVERLAY="$(OVERLAY)" IMAGE="$(IMAGE)" CERTGEN_IMAGE="$(CERTGEN_IMAGE)" scripts/deploy.sh

.PHONY: undeploy
undeploy: kubectl ## Take it out and keep the data; make undeploy PURGE=1 leaves nothing.
	@OVERLAY="$(OVERLAY)" PURGE="$(PURGE)" scripts/undeploy.sh

##@ Try it on kind

.PHONY: kind-up
kind-up: needs-kind$(if $(filter kind-test%,$(MAKECMDGOALS)),-suites) ## Create the cluster KIND_CLUSTER (default workshop) from KIND_NODE_IMAGE (default: kind's own); .kind/kubeconfig.
	@scripts/kind.sh up

.PHONY: kind-load
kind-load: needs-kind kubectl image ## Bring the images into the cluster.
	@scripts/kind.sh load

.PHONY: kind-deploy
kind-deploy: kind-load ## Install OVERLAY (default sample/manifests/kind) with these images.
	@scripts/kind.sh deploy

.PHONY: kind-test
kind-test: needs-kind-suites kubectl ## Run the end-to-end suites on it (default: default, then uninstall): make kind-test SUITE=production
	@scripts/kind-test.sh $(SUITE)

.PHONY: kind-test-all
kind-test-all: needs-kind-suites kubectl image ## Make a cluster, run SUITE on it (default: all suites, 45 minutes), and remove it.
	@scripts/kind-test.sh all $(SUITE)

.PHONY: kind-test-konnectivity
kind-test-konnectivity: needs-kind-suites image controlplane ## Make a cluster behind konnectivity, test it, and remove it (KEEP=1 does not).
	@KEEP="$(KEEP)" scripts/kind-konnectivity.sh

.PHONY: kind-down
kind-down: ## Remove that cluster, and no other.
	@scripts/kind.sh down

##@ Make it yours

.PHONY: new
new: needs-generate ## Make a project that imports the kit: make new DIR=... MODULE=... GROUP=... KIND=... FLAGS="--subresources=status"
	@go run ./cmd/scaffold new --dir="$(DIR)" --module="$(MODULE)" --group="$(GROUP)" --kind="$(KIND)" $(FLAGS)

.PHONY: rename
rename: ## Rename the Go module of a fork: make rename MODULE=git.example.org/team/api
	@scripts/rename.sh "$(MODULE)"
