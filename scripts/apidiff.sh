#!/usr/bin/env bash
# Prints the changes of the public packages that break their users. The base is the last tag;
# without a tag, the merge base with the default branch of origin; on that branch, the previous
# commit. It never fails because of a break, since people decide whether a break is wanted.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(git describe --tags --abbrev=0 2>/dev/null || git merge-base HEAD "$(git rev-parse --verify --quiet origin/HEAD || git rev-parse HEAD)")
if [ "$(git rev-parse "$base^{commit}")" = "$(git rev-parse HEAD)" ]; then base=$(git rev-parse --verify --quiet HEAD^ || echo "$base"); fi
if git diff --quiet "$base" -- pkg; then
  echo "The packages of the library have not changed since $(git rev-parse --short "$base")."
  exit
fi
(cd scripts/tools && CGO_ENABLED=0 go build -o ../../bin/apidiff golang.org/x/exp/cmd/apidiff)

work=$(mktemp -d)
trap 'git worktree remove --force "$work/base"; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"
breaks=
dirs=$(cd "$work/base" && go list -f '{{if ne .Name "main"}}{{.Dir}}{{end}}' ./pkg/...)
for dir in $dirs; do
  pkg=${dir#"$work/base/"}
  # Loading both versions takes seconds. Types of other packages are compared in their own
  # package. Of internal/controlplane, a package exposes only DefaultMinor, which is meant to
  # change.
  if git diff --quiet "$base" -- ":(glob)$pkg/*.go" ":(exclude)*_test.go"; then continue; fi
  (cd "$work/base" && "$OLDPWD/bin/apidiff" -w "$work/export" "./$pkg")
  if [ ! -d "$pkg" ]; then
    breaks+="$pkg: gone"$'\n'
    continue
  fi
  found=$(bin/apidiff -incompatible "$work/export" "./$pkg")
  [ -z "$found" ] || breaks+="$pkg:"$'\n'"$found"$'\n'
done
base=$(git rev-parse --short "$base")
if [ -n "$breaks" ]; then
  printf 'Breaking changes of the library since %s:\n%s' "$base" "$breaks"
else
  echo "No breaking changes of the library since $base."
fi
