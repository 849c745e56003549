#!/usr/bin/env bash
# Moves go.mod to the libraries of a version of Kubernetes, and to the etcd version in
# internal/controlplane/pins for its minor version.
#
# Usage: scripts/libraries.sh 1.37.2
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?expected a version of Kubernetes, such as 1.37.2}
# at lists the modules that go.mod requires at version $1, with version $2.
at() { awk -v old="$1" -v new="$2" '$2 == old { print $1 "@" new } $1 == "require" && $3 == old { print $2 "@" new }' go.mod; }
etcd=$(sed -n 's|.*go.etcd.io/etcd/server/v3 \(v[^ ]*\).*|\1|p' "internal/controlplane/pins/${version%.*}.mod")
mapfile -t modules < <(at "$(go list -m -f '{{.Version}}' k8s.io/api)" "v0.${version#1.}"; at "$(go list -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)" "$etcd")
go get "${modules[@]}"
go mod tidy
