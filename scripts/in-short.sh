#!/usr/bin/env bash
# go test -exec runs each package's tests with this: in their short form if SHORT names the package.
set -euo pipefail
project=$(cd "$(dirname "$0")/.." && pwd)
if [[ " $SHORT " == *" ${PWD#"$project/"} "* ]]; then set -- "$@" -test.short; fi
exec "$@"
