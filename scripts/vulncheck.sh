#!/usr/bin/env bash
# Runs the pinned govulncheck (scripts/tools/go.mod), which finds known vulnerabilities that the
# commands reach.
#
# Usage: [VULNDB=file:///DIRECTORY] scripts/vulncheck.sh [PACKAGE ...]     (default: ./cmd/...)
#   VULNDB   URL of the vulnerability database, https: or file: (default https://vuln.go.dev)
# Exit code: 0 for no findings, 3 for findings, 69 if the database cannot be read and nothing was
# checked.
set -euo pipefail
cd "$(dirname "$0")/.."

db=${VULNDB:-https://vuln.go.dev}
export CGO_ENABLED=0 # as the commands are built
(cd scripts/tools && go build -o ../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck)
# govulncheck would load every package first. With -version it only reads the time of the
# database.
state=$(bin/govulncheck -db "$db" -version 2>&1 || true)
if ! grep -q '^DB updated: ' <<<"$state"; then
  echo "vulncheck: the vulnerability database $db cannot be read, and nothing was checked;" \
    "hint: pass a directory with a copy: make vulncheck VULNDB=file:///DIRECTORY" >&2
  exit 69 # EX_UNAVAILABLE of sysexits.h
fi
[ $# -gt 0 ] || set -- ./cmd/...
exec bin/govulncheck -db "$db" "$@"
