#!/usr/bin/env bash
# Makes a fork of the kit a team's own: renames the Go module in every file that git knows. Generated code is renamed like
# the rest, so nothing has to be generated, compiled or downloaded for it.
#
# Usage: scripts/rename.sh MODULE     (make rename MODULE=...)
set -euo pipefail
cd "$(dirname "$0")/.."

module=${1:-}
problems=()
[[ $module =~ ^[a-zA-Z0-9._~-]+(/[a-zA-Z0-9._~-]+)*$ ]] ||
  problems+=("MODULE is '$module', expected a Go module path such as git.example.org/team/things-apiserver")
if [ -n "$(git status --porcelain)" ]; then
  problems+=("the tree has changes that are not committed; commit them first, so that 'git reset --hard' can undo the rename")
fi
if [ ${#problems[@]} -gt 0 ]; then
  printf 'rename: %s\n' "${problems[@]}" >&2
  exit 2
fi

old=$(sed -n 's/^module //p' go.mod)
# Protobuf has the module with dots, OpenAPI's functions its last element.
proto() { tr '/-' '._' <<<"$1"; }
openapi() { tr -d . <<<"schema_${1##*/}_" | tr - _; }
quote() { sed 's/[.\/]/\\&/g' <<<"$1"; }
git grep -Ilz '' -- ':!LICENSE' | xargs -0 sed -i \
  -e "s/$(quote "$old")/$(quote "$module")/g" \
  -e "s/$(quote "$(proto "$old")")/$(quote "$(proto "$module")")/g" \
  -e "s/$(openapi "$old")/$(openapi "$module")/g"
# Import blocks are sorted by path, and the paths changed.
git ls-files -z '*.go' | xargs -0 gofmt -w
echo "Renamed to module $module. Look at it with: git diff --stat HEAD"
echo "Then: make generate, which puts some lists into the order of the new names, and make test"
