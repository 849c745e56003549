#!/usr/bin/env bash
# Makes the template a team's own: renames the Go module and the API group in every file that git knows, and the Go
# package of the types after the group. Generated code is renamed like the rest, so nothing has to be generated,
# compiled or downloaded for it.
#
# Usage: scripts/rename.sh MODULE GROUP     (make rename MODULE=... GROUP=...)
set -euo pipefail
cd "$(dirname "$0")/.."

module=${1:-} group=${2:-}
problems=()
[[ $module =~ ^[a-zA-Z0-9._~-]+(/[a-zA-Z0-9._~-]+)*$ ]] ||
  problems+=("MODULE is '$module', expected a Go module path such as git.example.org/team/things-apiserver")
# The first label names the Go package of the types.
package=${group%%.*}
package=${package//-/}
if ! [[ $group =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$ ]]; then
  problems+=("GROUP is '$group', expected a lower-case DNS name of two or more labels such as things.example.org")
elif [[ $group =~ (^|\.)(k8s|kubernetes)\.io$ ]]; then
  problems+=("GROUP is '$group': the domains k8s.io and kubernetes.io belong to the Kubernetes project, expected one of yours")
elif ! [[ $package =~ ^[a-z] ]]; then
  problems+=("GROUP is '$group': its first label names a Go package, expected it to begin with a letter")
fi
if [ -n "$(git status --porcelain)" ]; then
  problems+=("the tree has changes that are not committed; commit them first, so that 'git reset --hard' can undo the rename")
fi
if [ ${#problems[@]} -gt 0 ]; then
  printf 'rename: %s\n' "${problems[@]}" >&2
  exit 2
fi

old_module=$(sed -n 's/^module //p' go.mod)
register=$(grep -l '^const GroupName' pkg/apis/*/register.go)
old_group=$(sed -n 's/^const GroupName = "\(.*\)"$/\1/p' "$register")
old_package=$(basename "$(dirname "$register")")

# A name that the code has for something else (a keyword, a variable, a package that it imports) gets a suffix.
code() { git ls-files -z '*.go' | xargs -0 sed -e 's://.*::' -e '/^\t\?"/!s/"[^"]*"//g'; }
if [ "$package" != "$old_package" ] && code | grep -E "(^|[^a-zA-Z0-9_/\"])$package([^a-zA-Z0-9_/]|$)|^[[:space:]]+\"([^\"]*/)?$package\"\$" >/dev/null; then
  package=${package}api
fi

reverse() { awk -F. '{ for (i = NF; i > 0; i--) printf "%s%s", $i, (i > 1 ? "." : "\n") }' <<<"$1"; }
proto() { tr '/-' '._' <<<"$1"; }
quote() { sed 's/[.\/]/\\&/g' <<<"$1"; }
# Longest first: the group contains the package's name. OpenAPI names hold the group reversed, protobuf's the module with
# dots, and conversion functions the package between underscores. The new names come last, or a part of them could be
# taken for the old package.
git grep -Ilz '' -- ':!LICENSE' | xargs -0 sed -i \
  -e "s/$(quote "$old_module")/\x01/g" \
  -e "s/$(quote "$(proto "$old_module")")/\x02/g" \
  -e "s/$(quote "$old_group")/\x03/g" \
  -e "s/$(quote "$(reverse "$old_group")")/\x04/g" \
  -e "s/\b$old_package\b/$package/g" \
  -e "s/_${old_package}_/_${package}_/g" \
  -e "s/\x01/$(quote "$module")/g" \
  -e "s/\x02/$(quote "$(proto "$module")")/g" \
  -e "s/\x03/$(quote "$group")/g" \
  -e "s/\x04/$(quote "$(reverse "$group")")/g"
if [ "$old_package" != "$package" ]; then
  git mv "pkg/apis/$old_package" "pkg/apis/$package"
fi
# Import blocks are sorted by path, and the paths changed.
git ls-files -z '*.go' | xargs -0 gofmt -w
echo "Renamed to module $module and group $group (Go package pkg/apis/$package). Look at it with: git diff --stat HEAD"
echo "Then: make generate, which puts some lists into the order of the new names, and make test"
