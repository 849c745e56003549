#!/usr/bin/env bash
# Checks everything that needs no running API. It prints one line per check, and lists the failed
# checks at the end. It fails on a tree with uncommitted changes.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=()
check() {
  local what=$1 began=$SECONDS out
  shift
  if out=$("$@" 2>&1); then
    printf '  ok      %-40s %4ds\n' "$what" $((SECONDS - began))
  else
    printf '  FAILED  %-40s %4ds\n%s\n' "$what" $((SECONDS - began)) "$out"
    failed+=("$what")
  fi
}

clean() {
  local changes
  changes=$(git status --porcelain) || return 1
  [ -z "$changes" ] || { echo "$changes"; git diff --stat; return 1; }
}
# It runs in a copy, because `make verify` may run while other commands compile the tree, and
# generators delete files before they write them. The commands are one chain, because check runs
# them where set -e has no effect.
generated() (
  copy=$(mktemp -d) && trap 'rm -rf "$copy"' EXIT && scripts/copy-tree.sh "$copy" && cd "$copy" &&
    git init -q && git add -A && git -c user.name=verify -c user.email=verify@localhost commit -qm base &&
    scripts/generate.sh && clean
)
pins_tidy() {
  local dir status=0
  dir=$(mktemp -d)
  cp "$1.mod" "$dir/go.mod" && cp "$1.sum" "$dir/go.sum" && (cd "$dir" && go mod tidy -diff) || status=1
  rm -r "$dir"
  return $status
}
tidy() {
  local dir pins
  for dir in . scripts/tools test/manifests/crds test/manifests/monitoring; do (cd "$dir" && go mod tidy -diff) || return 1; done
  for pins in internal/controlplane/pins/*.mod; do pins_tidy "${pins%.mod}" || return 1; done
  go mod verify
}
# Everything that is downloaded must be pinned.
pinned() {
  local status=0
  git grep -nE '@latest|:latest\b|image: .*:(master|main)\b|insecureSkipTLSVerify: *true' -- ':!scripts/verify.sh' ':!.golangci.yaml' ':!docs' || status=$?
  [ $status = 1 ] # no match
}
scripts_parse() { local s; for s in $(git ls-files '*.sh' .ci); do bash -n "$s" || return 1; done; }
# certgen also runs on administrators' machines. go vet type-checks its tests too. With empty
# caches each platform takes three minutes.
platforms() {
  local p
  for p in linux/arm64 darwin/arm64 windows/amd64; do
    GOOS=${p%/*} GOARCH=${p#*/} go vet ./cmd/certgen ./internal/certs/... ./internal/kubeconfig || { echo "for $p"; return 1; }
  done
}
# Not in scripts/tools: it needs another version of the YAML module than golangci-lint.
workflows() { go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12; }

# Prose has at most 100 columns; tables, code and lines with links can be longer.
columns() {
  git ls-files '*.md' | grep -v testdata/ | xargs awk '
    FNR == 1 { code = 0 }
    /^ *```/ { code = !code }
    !code && length > 100 && !/^\|/ && !/\]\(/ { print FILENAME ":" FNR ": " length " columns"; long = 1 }
    END { exit long }'
}
# Words with a term of the field: .vale.ini. Files in testdata and generated files have other owners.
words() {
  git ls-files '*.md' '*.go' '*.yaml' '*.yml' '*.yaml.tmpl' | grep -v -e zz_generated -e 'generated\.' -e apis/client/ -e testdata/ |
    CGO_ENABLED=1 GOFLAGS= xargs go run github.com/errata-ai/vale/v3/cmd/vale@v3.18.0 --output=line
}

check "the tree is clean" clean
check "generated code is current" generated
check "modules are tidy and match go.sum" tidy
check "certgen for other platforms" platforms
check "vet, lint and format" scripts/lint.sh
check "everything fetched is pinned" pinned
check "words" words
check "columns of Markdown" columns
check "scripts parse" scripts_parse
check "workflows" workflows
check "the tree is still clean" clean
scripts/apidiff.sh 2>&1 || failed+=("breaking changes of the library cannot be shown")

if [ ${#failed[@]} -gt 0 ]; then
  printf 'verify: %d failed:\n' ${#failed[@]} >&2
  printf '  %s\n' "${failed[@]}" >&2
  exit 1
fi
