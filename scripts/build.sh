#!/usr/bin/env bash
# Builds the binaries into bin/, or into OUT, with the version from git.
#
# Usage: scripts/build.sh [PACKAGE ...]     Variables: scripts/project.sh, DOCS_URL
# Default: the server of the project and certgen; without SERVER, the commands of the kit.
set -euo pipefail
# shellcheck source=scripts/project.sh
source "$(dirname "$0")/project.sh"

version=$(git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unstamped)
# Keep the version that Kubernetes' libraries report. The deprecation warnings of served versions
# compare with it, and disappear with another number.
libraries=$(go list -m -f '{{.Version}}' k8s.io/apiserver)
IFS=. read -r _ minor _ <<<"$libraries"
base=k8s.io/component-base/version
# -s -w omits symbols and debug information, a third of the size. CGO is off, so that one binary
# runs on every Linux and the packages that were compiled for the control plane are reused.
ldflags="-s -w -X $kit/internal/version.version=$version -X $base.gitVersion=v1${libraries#v0} -X $base.gitMajor=1 -X $base.gitMinor=$minor"
# The findings of kubectl aggregation doctor link to the folder docs/ at this URL.
ldflags+=" -X $kit/internal/doctor.docsURL=${DOCS_URL:-}"
export CGO_ENABLED=0
if [ $# -gt 0 ]; then
  go build -o "${OUT:-bin}/" -ldflags "$ldflags" "$@"
elif [ -n "${SERVER:-}" ]; then
  go build -o "${OUT:-bin}/" -ldflags "$ldflags" "$server" "$kit/cmd/certgen"
else
  go build -o "${OUT:-bin}/" -ldflags "$ldflags" ./cmd/...
fi
