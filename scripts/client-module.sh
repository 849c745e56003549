#!/usr/bin/env bash
# Creates a Go module with the types and clients of the sample, for clients of the API. It has
# their dependencies and none of the server's. Its path differs from the kit's, because a package
# must be in only one module.
#
# Usage: scripts/client-module.sh DIRECTORY MODULE
set -euo pipefail
[ $# = 2 ] || { echo "usage: client-module.sh DIRECTORY MODULE" >&2; exit 2; }
to=$(realpath -m "$1") module=$2
cd "$(dirname "$0")/.."
[ ! -e "$to" ] || { echo "client-module: $to already exists" >&2; exit 2; }

mkdir -p "$to"
(cd sample/apis && find . -type f ! -name '*_test.go' -print0 | xargs -0 cp --parents -t "$to")
cp LICENSE go.sum "$to"
# The same versions as the server's, without its tools.
sed "s|^module .*|module $module|; /^tool (/,/^)/d; /^tool /d" go.mod >"$to/go.mod"
ours=$(go list -m)
cd "$to"
find . -name '*.go' -print0 | xargs -0 sed -i "s|\"$ours/sample/apis/|\"$module/|"
go mod tidy
gofmt -l . | xargs -r gofmt -w
echo "The module $module is in $to"
