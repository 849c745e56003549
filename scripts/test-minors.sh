#!/usr/bin/env bash
# Runs what a version of Kubernetes may change against the control planes of other minors than the one of `make test`: how requests
# arrive and are authorized, admission, discovery, conformance, rotation, the rules of deployments, and an upgrade under load.
#
# Usage: scripts/test-minors.sh [MINOR ...]   default: all that are pinned in pkg/envtest/pins, but the default
set -euo pipefail
cd "$(dirname "$0")/.."

default=$(sed -n 's/^const DefaultMinor = "\(.*\)"/\1/p' pkg/envtest/pins.go)
if [ $# = 0 ]; then
  for pins in pkg/envtest/pins/[0-9]*.mod; do
    minor=$(basename "$pins" .mod)
    [ "$minor" = "$default" ] || set -- "$@" "$minor"
  done
fi
for minor; do
  echo "== Kubernetes $minor"
  export ENVTEST_K8S_VERSION=$minor
  make --no-print-directory controlplane
  go test -timeout 20m ./test/integration ./test/access ./test/rights ./test/manifests ./test/rotation ./test/security/aggregated
  go test -timeout 20m ./test/security/direct -run 'TestS0'
  go test -timeout 20m ./test/conformance -run 'TestCalibration/(engines|items)|TestSecurity'
  go test -timeout 20m ./test/rollout -run TestUpgrade
done
