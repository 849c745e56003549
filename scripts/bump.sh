#!/usr/bin/env bash
# Moves the kit to another version of Kubernetes: the libraries, the generators, the control plane
# of the tests, and the versions in texts. Then it generates, builds and vets. It changes files
# and commits nothing. At the end it lists the remaining manual steps.
#
# Usage: scripts/bump.sh 1.37.2
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "bump: $*" >&2; exit 1; }
step() { echo "== $*"; }

version=${1:-}
[[ $version =~ ^1\.[0-9]+\.[0-9]+$ ]] || fail "the version is \"$version\": must have the form 1.37.2, as in: make bump KUBERNETES=1.37.2"
[ -z "$(git status --porcelain)" ] || fail "the tree has changes; commit or stash them, so that you can review the changes of the bump"
scripts/needs.sh generate
minor=${version%.*} staging=v0.${version#1.}
go list -m "k8s.io/api@$staging" "k8s.io/kubernetes@v$version" >/dev/null || fail "Kubernetes $version cannot be downloaded, or does not exist: see above"
was_staging=$(go list -m -f '{{.Version}}' k8s.io/api)
was=1.${was_staging#v0.}
was_minor=$(sed -n 's/^const DefaultMinor = "\(.*\)"/\1/p' internal/controlplane/pins.go)
[ "$was" != "$version" ] || fail "the kit already uses Kubernetes $version"

trap 'echo "bump: stopped halfway; to undo the changes, run: git restore . && git clean -fd" >&2' ERR
step "control plane"
scripts/pin-controlplane.sh "$version"

step "libraries and generators"
scripts/libraries.sh "$version"

step "texts"
trap - ERR
# Replace full versions, with or without the v, and minor versions in these patterns. Other
# mentions of minor versions are left for a person.
mapfile -t files < <(git grep -lIF -e "$was_staging" -e "$was" -e "bin/$was_minor" -e "use $was_minor" -e "libraries of $was_minor" -e "DefaultMinor = " -- \
  ':!*go.mod' ':!*go.sum' ':!internal/controlplane/pins' ':!.ci')
escaped() { sed 's/\./\\./g' <<<"$1"; }
sed -i -e "s/$(escaped "$was_staging")\b/$staging/g" -e "s/\b\(v\?\)$(escaped "$was")\b/\1$version/g" -e "s|bin/$(escaped "$was_minor")\b|bin/$minor|g" \
  -e "s/use $(escaped "$was_minor")\b/use $minor/g" -e "s/libraries of $(escaped "$was_minor")\b/libraries of $minor/g" \
  -e "s/DefaultMinor = \"$(escaped "$was_minor")\"/DefaultMinor = \"$minor\"/" "${files[@]}"
go test ./test/docs -run TestVersions -update >/dev/null || true # repeated below

status=0
try() {
  local what=$1
  shift
  step "$what"
  "$@" || { status=1 left+=("$what failed: $*"); }
}
left=()
try "generated code" scripts/generate.sh
try "build" go build ./...
try "vet" go vet -tags e2e,measure,quickstart,reproducible ./...
try "versions in the README" go test ./test/docs -run TestVersions

step "remaining steps"
left+=("read the changes: https://github.com/kubernetes/kubernetes/blob/master/CHANGELOG/CHANGELOG-$minor.md")
left+=("run: make test-all; the tables of docs/reference/conformance.md may change")
left+=("set KIND_NODE_IMAGE to a kind node image of $version")
left+=("when sigs.k8s.io/apiserver-network-proxy $staging is released, update internal/controlplane/pins/konnectivity.mod and the images in konnectivity/, and run: make generate")
if [ "$minor" != "$was_minor" ]; then
  left+=("internal/controlplane/pins has one more minor version; delete the oldest one when upstream no longer supports it")
  left+=("check the texts that contain $was_minor:")
fi
printf -- '- %s\n' "${left[@]}"
[ "$minor" = "$was_minor" ] || git grep -nIwF "$was_minor" -- ':!*go.mod' ':!*go.sum' ':!internal/controlplane/pins' ':!konnectivity' | cut -c1-160 | sed 's/^/    /'
exit $status
