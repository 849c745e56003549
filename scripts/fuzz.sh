#!/usr/bin/env bash
# Runs every fuzz target of the tree, one after another, each for FUZZTIME. It writes a failing
# input to testdata/fuzz beside its target, where it becomes part of the tests: fix the bug, and
# commit both.
#
# Usage: [FUZZTIME=30s] scripts/fuzz.sh [NAME ...]     NAME is a regular expression (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

time=${FUZZTIME:-30s}
wanted=$(IFS='|'; echo "${*:-.}")
failed=()
ran=0
for dir in $(git grep --untracked -lE '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do
  # A package that does not compile stops the run. A package without a selected target does not.
  listed=$(go test -list '^Fuzz' "./$dir")
  for target in $(grep -E '^Fuzz' <<<"$listed" | grep -E -- "$wanted" || true); do
    echo "=== $target in $dir, for $time"
    ran=$((ran + 1))
    # The time to minimize a failing input is limited too.
    go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10s || failed+=("$target in $dir")
  done
done

[ "$ran" -gt 0 ] || { echo "no fuzz target matches $wanted" >&2; exit 1; }
echo "$ran targets fuzzed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ] || { printf '  %s\n' "${failed[@]}" >&2; exit 1; }
