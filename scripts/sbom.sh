#!/usr/bin/env bash
# Writes the SBOM of each binary in bin/, or in OUT, beside it: bin/NAME.cdx.json.
# scripts/image.sh writes the SBOMs of the images.
set -euo pipefail
# shellcheck source=scripts/project.sh
source "$(dirname "$0")/project.sh"

dir=${OUT:-bin}
version=$(git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unstamped)
CGO_ENABLED=0 go build -o bin/sbom "$kit/scripts/image/sbom"
for name in "$server_name" certgen; do
  bin/sbom --version "$version" --out "${dir%/}/$name.cdx.json" "${dir%/}/$name"
  echo "${dir%/}/$name.cdx.json"
done
