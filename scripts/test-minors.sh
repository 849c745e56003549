#!/usr/bin/env bash
# Runs what a version of Kubernetes may change against the control planes of other minors than the one of `make test`: how requests
# arrive and are authorized, admission, discovery, conformance, rotation, the rules of deployments, and an upgrade under load.
#
# Usage: scripts/test-minors.sh [--part=K/N] [MINOR ...]
# Default: all that are pinned in internal/controlplane/pins, but the default. Each has three thirds of six minutes; --part=2/6 is the second of every
# six thirds.
set -euo pipefail
cd "$(dirname "$0")/.."

# third runs a third of the tests: third MINOR 1|2|3
third() {
  echo "== Kubernetes $1, third $2"
  export ENVTEST_K8S_VERSION=$1
  make --no-print-directory controlplane
  case $2 in
    1)
      ${GOTEST:-go test} -timeout 20m ./test/integration ./test/access ./test/rights ./test/manifests
      ;;
    2)
      ${GOTEST:-go test} -timeout 20m ./test/rollout -run TestUpgrade
      ${GOTEST:-go test} -timeout 20m ./test/conformance -run 'TestCalibration/(engines|items)|TestSecurity'
      ;;
    3)
      # What a killed certgen left, and two of them, are told apart by what is in files and objects, whatever the version.
      ${GOTEST:-go test} -timeout 20m -skip '^(TestKilled|TestTwoOperators)$' ./test/rotation ./test/security/aggregated
      ${GOTEST:-go test} -timeout 20m ./test/security/direct -run 'TestS0'
      ;;
  esac
}

default=$(sed -n 's/^const DefaultMinor = "\(.*\)"/\1/p' internal/controlplane/pins.go)
part=1/1
if [[ ${1:-} == --part=* ]]; then
  part=${1#--part=}
  [[ $part =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] && ((${part%/*} <= ${part#*/})) || { echo "test-minors: $1, expected --part=K/N with K from 1 to N" >&2; exit 2; }
  shift
fi
if [ $# = 0 ]; then
  for pins in internal/controlplane/pins/[0-9]*.mod; do
    minor=$(basename "$pins" .mod)
    [ "$minor" = "$default" ] || set -- "$@" "$minor"
  done
fi
thirds=0
for minor; do
  for t in 1 2 3; do
    if ((thirds++ % ${part#*/} + 1 == ${part%/*})); then third "$minor" $t; fi
  done
done
