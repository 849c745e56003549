#!/usr/bin/env bash
# Writes into bin/krew/ what users need to install kubectl-aggregation with krew: an archive for each
# platform, and the manifest aggregation.yaml.
#
# Usage: scripts/krew.sh URL    URL is the folder from which users will download the archives.
# Variables: PLATFORMS (default: Linux, macOS and Windows on amd64 and arm64)
# The same commit and version of Go give the same archives.
set -euo pipefail
cd "$(dirname "$0")/.."

url=${1:-}
[[ $url =~ ^https://[^[:space:]]+$ ]] || { echo "krew: the URL of the archives is '$url': must begin with https://" >&2; exit 2; }
version=$(git describe --tags --always)
[[ $version == v* ]] || version=v0.0.0-$version
created=$(git log -1 --format=%ct)
out=bin/krew
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d "$out/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT

cat >"$out/aggregation.yaml" <<YAML
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: aggregation
spec:
  version: $version
  shortDescription: Diagnose and test aggregated APIs
  description: |
    Finds the root cause of a broken aggregated API, of any server, with its evidence and a fix
    (kubectl aggregation doctor), and checks that a resource behaves like a built-in one
    (kubectl aggregation conformance).
  platforms:
YAML
for platform in $(tr , ' ' <<<"${PLATFORMS:-linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64}"); do
  os=${platform%/*} arch=${platform#*/} bin=kubectl-aggregation
  [ "$os" != windows ] || bin+=.exe
  folder=$work/$os-$arch archive=kubectl-aggregation-$os-$arch.tar.gz
  GOFLAGS="-buildvcs=false -trimpath -gcflags=all=-dwarf=false" GOOS=$os GOARCH=$arch OUT=$folder \
    scripts/build.sh ./cmd/kubectl-aggregation
  cp LICENSE "$folder"
  tar --create --sort=name --mtime="@$created" --owner=0 --group=0 --numeric-owner --mode=a+rX,go-w \
    --directory "$folder" . | gzip --no-name >"$out/$archive"
  cat >>"$out/aggregation.yaml" <<YAML
  - selector: {matchLabels: {os: $os, arch: $arch}}
    uri: ${url%/}/$archive
    sha256: $(sha256sum "$out/$archive" | cut -d ' ' -f 1)
    bin: $bin
YAML
  echo "$out/$archive"
done
echo "$out/aggregation.yaml"
