#!/usr/bin/env bash
# Proves that the tests test: each test/mutations/*.patch takes one behaviour away, and the test that it names must then
# fail. A patch begins with lines such as
#   Test: go test ./pkg/apiserver -run 'TestRBAC' -count=1
# The patches are applied to a copy of the tree, never to the tree itself.
#
# Usage: scripts/test-mutations.sh [--part=K/N | PATCH ...]
# Default: all, which takes more than half an hour. --part=2/4 is the second of every four, by name.
set -uo pipefail
cd "$(dirname "$0")/.."

patches=("$@")
[ ${#patches[@]} -gt 0 ] || patches=(test/mutations/*.patch)
if [[ ${1:-} == --part=* ]]; then
  IFS=/ read -r k n <<<"${1#--part=}"
  if ! [[ $k =~ ^[1-9][0-9]*$ && $n =~ ^[1-9][0-9]*$ ]] || ((k > n)); then
    echo "test-mutations: $1, expected --part=K/N with K from 1 to N" >&2
    exit 2
  fi
  patches=()
  i=0
  for patch in test/mutations/*.patch; do
    ((i++ % n + 1 == k)) && patches+=("$patch")
  done
  echo "part $k of $n: ${#patches[@]} of $i mutations"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/copy-tree.sh "$work"
(cd "$work" && git init -q && git add -A && git -c user.name=mutations -c user.email=mutations@localhost commit -qm base)

survived=()
for patch in "${patches[@]}"; do
  test=$(sed -n 's/^Test: //p' "$patch" | head -n 1)
  began=$SECONDS
  if ! (cd "$work" && git apply "$OLDPWD/$patch"); then
    echo "  BROKEN    $patch: it no longer applies; write it again"
    survived+=("$patch")
  elif out=$(cd "$work" && timeout 600 bash -c "$test" 2>&1); then
    echo "  SURVIVED  $patch: '$test' passes although the behaviour is gone"
    survived+=("$patch")
  elif grep -qE '^(FAIL.*\[build failed\]|.*: undefined: )' <<<"$out"; then
    echo "  BROKEN    $patch: it does not compile"
    printf '%s\n' "$out" | tail -n 5
    survived+=("$patch")
  elif ! grep -q -- '--- FAIL' <<<"$out"; then
    echo "  BROKEN    $patch: '$test' did not run a test that failed"
    printf '%s\n' "$out" | tail -n 5
    survived+=("$patch")
  else
    printf '  killed    %s (%ds)\n' "$patch" $((SECONDS - began))
  fi
  (cd "$work" && git checkout -q . && git clean -qfd)
done
printf '%d of %d mutations were found by their test\n' $((${#patches[@]} - ${#survived[@]})) ${#patches[@]}
[ ${#survived[@]} -eq 0 ]
