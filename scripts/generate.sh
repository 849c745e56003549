#!/usr/bin/env bash
# Writes every zz_generated.* file anew with the generators of the very version of k8s.io/* that go.mod names.
# The work is done by the script that k8s.io/code-generator ships for this; generators are built into bin/generators.
set -euo pipefail
cd "$(dirname "$0")/.."

# The generators and the code they write must have one version: the tag grammar changes between minors.
go mod download k8s.io/code-generator
codegen=$(go list -m -f '{{.Dir}}' k8s.io/code-generator)
module=$(go list -m)
export GOBIN=$PWD/bin/generators GOFLAGS="${GOFLAGS:-} -mod=mod"
# shellcheck source=/dev/null
source "$codegen/kube_codegen.sh"

boilerplate=scripts/boilerplate.go.txt
kube::codegen::gen_helpers --boilerplate "$boilerplate" pkg/apis
kube::codegen::gen_openapi --boilerplate "$boilerplate" \
  --extra-pkgs k8s.io/api/authentication/v1 \
  --output-dir pkg/apis/openapi --output-pkg "$module/pkg/apis/openapi" \
  --output-model-name-file zz_generated.model_name.go \
  --report-filename "$(mktemp)" --update-report \
  pkg/apis
