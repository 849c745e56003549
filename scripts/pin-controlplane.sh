#!/usr/bin/env bash
# Writes the pins of a control plane: internal/controlplane/pins/MINOR.mod and .sum. They pin the
# given patch version of Kubernetes, or the newest one of a minor version in the Go module proxy,
# and the etcd that it was released with.
#
# Usage: scripts/pin-controlplane.sh 1.35|1.35.4 ...
set -euo pipefail
cd "$(dirname "$0")/.."
pins=$PWD/internal/controlplane/pins
export GOFLAGS=-mod=mod GOWORK=off

# newest prints the newest release of a minor version, or the given patch version.
newest() {
  [[ $1 == *.*.* ]] && { echo "v$1"; return; }
  go list -m -versions -f '{{range .Versions}}{{println .}}{{end}}' k8s.io/kubernetes |
    grep -E "^v${1//./\\.}\.[0-9]+$" | sort -V | tail -n 1 | grep . || { echo "pin-controlplane: no release of Kubernetes $1 found" >&2; return 1; }
}

pin() {
  local version staging module etcd upstream minor
  version=$(newest "$1")
  minor=${version#v} minor=${minor%.*}
  staging=v0.${version#v1.}
  upstream=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p') ||
    { echo "pin-controlplane: Kubernetes ${version#v} cannot be downloaded, or does not exist; see: go mod download k8s.io/kubernetes@$version" >&2; return 1; }
  etcd=$(sed -n 's|^\tgo.etcd.io/etcd/client/v3 \(v[^ ]*\).*|\1|p' "$upstream")
  {
    echo "// Pins the control plane of Kubernetes $minor. It is written as a module of its own into the cache where it is built, because its pins of"
    echo "// Kubernetes' libraries are not those of the kit. scripts/pin-controlplane.sh writes it."
    printf 'module controlplane\n\ngo %s\n\nrequire k8s.io/kubernetes %s\n\nrequire go.etcd.io/etcd/server/v3 %s\n\nrequire k8s.io/sample-apiserver %s\n\n' \
      "$(go list -m -f '{{.GoVersion}}')" "$version" "$etcd" "$staging"
    # In the upstream go.mod these modules are directories.
    sed -n 's|^\t\(k8s.io/[^ ]*\) => ./staging/.*|\1|p' "$upstream" | while read -r module; do echo "replace $module => $module $staging"; done
    printf 'tool (\n'
    printf '\t%s\n' go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-proxy,kubectl} k8s.io/sample-apiserver
    printf ')\n'
  } >"$work/go.mod"
  rm -f "$work/go.sum"
  # -e, because some tests of Kubernetes import packages that no module has. The programs must be
  # complete.
  (cd "$work" && go mod tidy -e && go list -mod=readonly -deps tool >/dev/null) 2>"$work/log" || { cat "$work/log" >&2; return 1; }
  cp "$work/go.mod" "$pins/$minor.mod" && cp "$work/go.sum" "$pins/$minor.sum"
  echo "Kubernetes $version with etcd $etcd: $pins/$minor.mod"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version; do pin "$version"; done
