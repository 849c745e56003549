#!/usr/bin/env bash
# Makes the template a team's own: renames the Go module and the API group in every file that git knows.
#
# Usage: scripts/rename.sh MODULE GROUP     (make rename MODULE=... GROUP=...)
set -euo pipefail
cd "$(dirname "$0")/.."

module=${1:-} group=${2:-}
problems=()
[[ $module =~ ^[a-zA-Z0-9._~-]+(/[a-zA-Z0-9._~-]+)*$ ]] ||
  problems+=("MODULE is '$module', expected a Go module path such as git.example.org/team/things-apiserver")
[[ $group =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$ ]] ||
  problems+=("GROUP is '$group', expected a lower-case DNS name of two or more labels such as things.example.org")
[[ $group == *.k8s.io || $group == *.kubernetes.io ]] &&
  problems+=("GROUP is '$group': the domains k8s.io and kubernetes.io belong to the Kubernetes project, expected one of yours")
# The first label names the Go package of the types.
package=${group%%.*}
package=${package//-/}
[[ $package =~ ^[a-z] ]] || problems+=("GROUP is '$group': its first label names a Go package and must begin with a letter")
if git status --porcelain | grep -q .; then
  problems+=("the tree has uncommitted changes; commit them first, so that 'git checkout .' can undo the rename")
fi
if [ ${#problems[@]} -gt 0 ]; then
  printf 'rename: %s\n' "${problems[@]}" >&2
  exit 2
fi

old_module=$(go list -m)
old_group=$(sed -n 's/^const GroupName = "\(.*\)"$/\1/p' pkg/apis/*/register.go)
old_package=$(basename "$(dirname "$(grep -l '^const GroupName' pkg/apis/*/register.go)")")

reverse() { awk -F. '{ for (i = NF; i > 0; i--) printf "%s%s", $i, (i > 1 ? "." : "\n") }' <<<"$1"; }
quote() { sed 's/[.\/]/\\&/g' <<<"$1"; }
# Longest first: the group contains the package's name. The generated protobuf and OpenAPI names hold the group reversed.
git ls-files -z | grep -zv '^LICENSE$' | xargs -0 sed -i \
  -e "s/$(quote "$old_module")/$(quote "$module")/g" \
  -e "s/$(quote "$old_group")/$(quote "$group")/g" \
  -e "s/$(quote "$(reverse "$old_group")")/$(quote "$(reverse "$group")")/g" \
  -e "s/\b$old_package\b/$package/g"
if [ "$old_package" != "$package" ]; then
  git mv "pkg/apis/$old_package" "pkg/apis/$package"
fi
# Import blocks are sorted by path, and the paths changed.
gofmt -w $(git ls-files '*.go')
scripts/generate.sh
go build ./...
echo "Renamed to module $module and group $group (Go package pkg/apis/$package). Look at it with: git diff --stat"
echo "Then: make test"
