#!/usr/bin/env bash
# Makes a Go module of the types and clients of the sample, for those who call the API: it has their dependencies and none of
# the server's. The import paths stay, so nothing in it is changed.
#
# Usage: scripts/client-module.sh DIRECTORY
set -euo pipefail
to=$(realpath -m "${1:?expected the directory to make the module in}")
cd "$(dirname "$0")/.."
[ ! -e "$to" ] || { echo "client-module: $to exists, expected a new directory" >&2; exit 2; }

mkdir -p "$to"
git ls-files -z --cached --others --exclude-standard -- sample/apis sample/client | grep -zv '_test\.go$' | xargs -0 cp --parents -t "$to"
mv "$to"/sample/* "$to"
rmdir "$to/sample"
cp LICENSE "$to"
# The same versions as the server's.
sed "1,/^module /s|^module .*|module $(go list -m)/sample|" go.mod >"$to/go.mod"
cp go.sum "$to"
cd "$to"
go mod tidy
echo "The module $(go list -m) is in $to"
