#!/usr/bin/env bash
# Runs the pinned golangci-lint (scripts/tools/go.mod), built into bin/ the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
(cd scripts/tools && CGO_ENABLED=0 go build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
exec bin/golangci-lint run "$@" ./...
