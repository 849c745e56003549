#!/usr/bin/env bash
# Builds our binaries into bin/, or into OUT, with the version from git. Go rebuilds only what changed.
#
# Usage: scripts/build.sh [PACKAGE ...]     (default: the commands, and the server of the tests' fixture as fixture-apiserver)
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unstamped)
module=$(go list -m)
# The version that Kubernetes' libraries report stays theirs: with another number there, the deprecation warnings of
# served versions, which compare with it, go silent.
libraries=$(go list -m -f '{{.Version}}' k8s.io/apiserver)
IFS=. read -r _ minor _ <<<"$libraries"
base=k8s.io/component-base/version
# -s -w leaves out symbols and debug information: a third of the size. CGO is off, so that one binary runs on every
# Linux and the packages compiled for the control plane are used again.
ldflags="-s -w -X $module/internal/version.version=$version -X $base.gitVersion=v1${libraries#v0} -X $base.gitMajor=1 -X $base.gitMinor=$minor"
export CGO_ENABLED=0
if [ $# -gt 0 ]; then
  go build -o "${OUT:-bin}/" -ldflags "$ldflags" "$@"
else
  go build -o "${OUT:-bin}/" -ldflags "$ldflags" ./cmd/...
  go build -o "${OUT:-bin}/fixture-apiserver" -ldflags "$ldflags" ./test/fixture/server
fi
