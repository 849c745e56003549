#!/usr/bin/env bash
# Runs the tests that depend on the version of Kubernetes against other control planes than that of
# `make test`: requests, authorization, admission, discovery, conformance, rotation, manifests, the
# doctor, and an upgrade under load. Each minor version takes 20 minutes.
#
# Usage: scripts/test-minors.sh [MINOR ...]
# Default: all minor versions in internal/controlplane/pins except the default.
set -euo pipefail
cd "$(dirname "$0")/.."

default=$(sed -n 's/^const DefaultMinor = "\(.*\)"/\1/p' internal/controlplane/pins.go)
if [ $# = 0 ]; then
  for pins in internal/controlplane/pins/[0-9]*.mod; do
    minor=$(basename "$pins" .mod)
    [ "$minor" = "$default" ] || set -- "$@" "$minor"
  done
fi
for minor; do
  echo "== Kubernetes $minor"
  export ENVTEST_K8S_VERSION=$minor
  make --no-print-directory controlplane
  go test -timeout 30m ./test/integration ./test/clients/access ./test/manifests/permissions ./test/manifests ./test/security/aggregated
  go test -timeout 20m ./test/rollout -run '^TestUpgrade$'
  go test -timeout 20m ./test/conformance -run 'TestCalibration/(widgets|gadgets)|TestSecurity'
  # How certgen resumes after a kill depends on files and objects, not on the version.
  go test -timeout 20m ./test/certgen/rotation -skip '^(TestKilled|TestTwoOperators)$'
  go test -timeout 20m ./test/doctor -short
  go test -timeout 20m ./test/security/direct -run 'TestS0'
done
