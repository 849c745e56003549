#!/usr/bin/env bash
# Fuzzes every target of the tree, one after another, each for FUZZTIME. An input that fails is written to testdata/fuzz
# beside its target and is from then on a part of the tests: mend what it found, and commit both.
#
# Usage: [FUZZTIME=30s] scripts/fuzz.sh [NAME ...]     (names of targets as a regular expression each; default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

time=${FUZZTIME:-30s}
wanted=$(IFS='|'; echo "${*:-.}")
failed=()
ran=0
for dir in $(git grep --untracked -lE '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do
  # A package that does not compile ends this; one of which no target is wanted does not.
  listed=$(go test -list '^Fuzz' "./$dir")
  for target in $(grep -E '^Fuzz' <<<"$listed" | grep -E -- "$wanted" || true); do
    echo "=== $target in $dir, for $time"
    ran=$((ran + 1))
    # Making an input that fails shorter is bounded too.
    go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10s || failed+=("$target in $dir")
  done
done

[ "$ran" -gt 0 ] || { echo "no fuzz target matches $wanted" >&2; exit 1; }
echo "$ran targets fuzzed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ] || { printf '  %s\n' "${failed[@]}" >&2; exit 1; }
