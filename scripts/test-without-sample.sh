#!/usr/bin/env bash
# Deletes the sample and its command in a copy of the tree. What is left must build, vet and pass its tests: the kit knows nothing
# of the sample. Prints how many of the tests are left.
#
# Usage: scripts/test-without-sample.sh [--part=K/N]     (--part=2/6 runs the short tests of the second of every six packages; default: all tests)
set -euo pipefail
cd "$(dirname "$0")/.."

part=${1:---part=1/1}
IFS=/ read -r k n <<<"${part#--part=}"
if [[ $part != --part=* ]] || ! [[ $k =~ ^[1-9][0-9]*$ && $n =~ ^[1-9][0-9]*$ ]] || ((k > n)); then
  echo "test-without-sample: $part, expected --part=K/N with K from 1 to N" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count() { grep -rhE '^func (Test|Fuzz)[A-Z]\w*\(' --include='*_test.go' "$1" | grep -vc '^func TestMain('; }
scripts/copy-tree.sh "$work"
cd "$work"
all=$(count .)
rm -r sample cmd/extension-apiserver test/mutations/widget-*
# Tests copy the tree as Git knows it.
git init -q && git add -A && git -c user.name=test -c user.email=test@localhost commit -qm "Without the sample"
echo "without the sample: $(count .) of $all test functions are left"
go build ./...
go vet ./...
scripts/build.sh
# shellcheck disable=SC2046 # the words shall be split
${GOTEST:-go test} -timeout 20m $([ "$n" = 1 ] || echo -short) $(go list ./... | awk -v k="$k" -v n="$n" 'NR % n == k - 1')
