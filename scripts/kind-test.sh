#!/usr/bin/env bash
# Runs the end-to-end suites of the kit on the cluster of scripts/kind.sh.
#
# Usage: scripts/kind-test.sh [SUITE ...]      default: default uninstall
#        scripts/kind-test.sh all [SUITE ...]  creates a cluster, runs the suites (default: all),
#                                              deletes the cluster
# Variables: those of scripts/kind.sh. test/konnectivity/kind/run.sh runs the suite konnectivity.
set -euo pipefail
# shellcheck source=scripts/project.sh
source "$(dirname "$0")/project.sh"
export KUBECONFIG=$PWD/.kind/kubeconfig

fail() { echo "kind-test: $*" >&2; exit 1; }

# Each suite is a test of test/e2e: TestUninstall, TestDefault and so on. "uninstall" is first,
# because it needs a cluster to which nothing was ever deployed.
suites=(uninstall default doctor access scheduler components production rotation frontproxy)

# load_etcd loads the etcd of the control plane into the cluster. Three of the suites need it.
load_etcd() {
  make --no-print-directory controlplane PROGRAMS=etcd
  local binary version
  binary=bin/$(sed -n 's/^const DefaultMinor = "\(.*\)"/\1/p' internal/controlplane/pins.go)/etcd
  version=$("$binary" --version | sed -n 's/^etcd Version: //p')
  export ETCD_IMAGE=localhost/etcd:v$version
  bin/image --ref "$ETCD_IMAGE" --out bin/images/etcd --created 0 --binary "linux/$(go env GOARCH)=$binary"
  echo "$ETCD_IMAGE" >bin/images/etcd.ref
  scripts/kind.sh load etcd
}

check() {
  local suite
  for suite; do [[ " ${suites[*]} " == *" $suite "* ]] || fail "unknown suite '$suite' in SUITE; the suites are ${suites[*]}"; done
}

run() {
  local suite
  check "$@"
  scripts/kind.sh need-cluster
  [ -f "bin/images/$server_name.ref" ] || fail "bin/images/$server_name.ref does not exist; build and load the images with: make kind-load"
  IMAGE=$(cat "bin/images/$server_name.ref")
  CERTGEN_IMAGE=$(cat bin/images/certgen.ref)
  DOCTOR_IMAGE=$(cat bin/images/kubectl-aggregation.ref)
  export IMAGE CERTGEN_IMAGE DOCTOR_IMAGE
  CGO_ENABLED=0 go test -tags e2e -c -o .kind/e2e.test ./test/e2e # once: go test would link it for each suite
  for suite; do
    .kind/e2e.test -test.list "^Test${suite^}\$" | grep -q . || fail "test/e2e has no Test${suite^}"
    case $suite in production | rotation | frontproxy) load_etcd ;; esac
    [ "$suite" != frontproxy ] || scripts/build.sh ./cmd/certgen # runs on the node
    printf '%(%H:%M:%S)T kind-test: suite %s\n' -1 "$suite"
    (cd test/e2e && CLUSTER_GOES=$([ "$suite" != "${last:-}" ] || echo 1) ../../.kind/e2e.test -test.timeout 30m -test.v -test.run "^Test${suite^}\$") | tee ".kind/$suite.log"
    ! grep -e '--- SKIP' ".kind/$suite.log" || fail "suite $suite: a test was skipped"
  done
}

all() {
  local status=0 suite first=() rest=()
  [ $# -gt 0 ] || set -- "${suites[@]}"
  check "$@"
  for suite; do
    if [ "$suite" = uninstall ]; then first=(scripts/kind-test.sh uninstall); else rest+=("$suite"); fi
  done
  [ ${#rest[@]} -gt 0 ] || rest=(default)
  export last=${rest[-1]} # the cluster is deleted after this suite, so it need not restore anything
  { scripts/kind.sh up && scripts/kind.sh load && "${first[@]:-true}" &&
    scripts/kind.sh deploy && scripts/kind-test.sh "${rest[@]}"; } || status=$?
  scripts/kind.sh down && return $status
}

[ $# -gt 0 ] || set -- default uninstall
if [ "$1" = all ]; then all "${@:2}"; else run "$@"; fi
