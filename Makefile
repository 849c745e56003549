# Everything a person types. A bare `make` prints this list.

# One binary for every Linux; and the packages compiled for the control plane are used again for our own.
export CGO_ENABLED = 0

.DEFAULT_GOAL := help

##@ Use

.PHONY: help
help: ## Print the targets.
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: controlplane build ## Start a control plane with our API behind it; Ctrl-C stops it.
	@go build -o bin/run-env ./test/env/run && exec bin/run-env

.PHONY: run-clean
run-clean: ## Forget the objects and logs of `make run`.
	rm -rf .run

##@ Build

.PHONY: build
build: ## Build our binaries into bin/.
	@scripts/build.sh

.PHONY: controlplane
controlplane: ## Build etcd, kube-apiserver, kube-controller-manager, kube-proxy and kubectl into bin/1.36/.
	@scripts/controlplane.sh

.PHONY: generate
generate: ## Write every zz_generated.* file anew.
	@scripts/generate.sh

##@ Check

.PHONY: test
test: controlplane build ## Run all tests, against the real control plane.
	go test -timeout 20m ./...

.PHONY: test-security
test-security: controlplane build ## Attack the server; SECURITY.md says what each test protects.
	go test -timeout 20m ./test/security/...

.PHONY: verify
verify: ## Check formatting, lint, generated code, modules, pinned versions, and that the tree is clean.
	@scripts/verify.sh

.PHONY: lint
lint: ## Run the linters.
	@scripts/lint.sh

.PHONY: test-mutations
test-mutations: controlplane ## Take behaviours away one by one; the test named for each must fail.
	@scripts/test-mutations.sh

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (default 30s): make fuzz FUZZTIME=5m
	@FUZZTIME="$(FUZZTIME)" scripts/fuzz.sh

.PHONY: measure
measure: controlplane build ## Measure start, memory and size; docs/measurements.md has the results.
	@scripts/measure.sh

##@ Make it yours

.PHONY: rename
rename: ## Rename module and API group: make rename MODULE=git.example.org/team/api GROUP=things.example.org
	@scripts/rename.sh "$(MODULE)" "$(GROUP)"
