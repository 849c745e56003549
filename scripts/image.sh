#!/usr/bin/env bash
# Writes the container images of the commands into bin/images/, without Docker and without a
# registry. For each command:
#   bin/images/NAME/          OCI layout: crane push bin/images/NAME REGISTRY/NAME:TAG
#   bin/images/NAME.tar       the same as one file: kind load image-archive, ctr images import,
#                             docker load; or
#                             skopeo copy oci-archive:bin/images/NAME.tar docker://REGISTRY/NAME:TAG
#   bin/images/NAME.ref       the name with the tag, for the field image of a manifest
#   bin/images/NAME.cdx.json  the SBOM: the image by its digest, its binaries and their modules
#
# Usage: scripts/image.sh     Variables: scripts/project.sh, and
#   IMAGE_PREFIX       the name before /NAME (default: localhost, which no node pulls from)
#   PLATFORMS          a list such as linux/amd64,linux/arm64; more than one creates an index
#                      (default: linux on this architecture)
#   IMAGE_SOURCE       URL of the server's source, a label of its image (default: the remote
#                      origin, if it has an https URL)
#   IMAGE_LICENSES     the server's licenses as an SPDX expression, a label of its image
#                      (default: none)
#   SOURCE_DATE_EPOCH  the time of the image and of its files (default: that of the commit)
# The same commit, platforms and version of Go give the same digest in every folder.
set -euo pipefail
# shellcheck source=scripts/project.sh
source "$(dirname "$0")/project.sh"

version=$(git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unstamped)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
created=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
prefix=${IMAGE_PREFIX:-localhost}
module=$(go list -m)
IFS=, read -ra platforms <<<"${PLATFORMS:-linux/$(go env GOARCH)}"

mkdir -p bin/images
work=$(mktemp -d bin/images/.build.XXXXXX)
trap 'rm -rf "$work"' EXIT
env -u GOOS -u GOARCH CGO_ENABLED=0 go build -o bin/ "$kit/scripts/image" "$kit/scripts/image/sbom"

# Without -trimpath the binary would contain the path of this folder. With -buildvcs it would
# record whether the tree is a git checkout.
for platform in "${platforms[@]}"; do
  IFS=/ read -r os arch rest <<<"$platform"
  if [ "$os" != linux ] || [ -z "$arch" ] || [ -n "$rest" ]; then
    echo "image: PLATFORMS has '$platform': must be linux/amd64, linux/arm64 or another linux/ARCHITECTURE" >&2
    exit 2
  fi
  mkdir -p "$work/$platform"
  GOFLAGS="-mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false" GOOS=$os GOARCH=$arch OUT=$work/$platform bash "$scripts/build.sh" "$server" "${tools[@]/#/$kit/cmd/}" "${controllers[@]/#/./cmd/}"
done

# The server and its controllers belong to the project, the tools to the kit.
source=${IMAGE_SOURCE:-$(git remote get-url origin 2>/dev/null | grep '^https://' | sed 's|//[^/@]*@|//|' || true)} licenses=${IMAGE_LICENSES:-}
[ "$module" != "$kit" ] || source=https://$kit licenses=Apache-2.0
for name in "$server_name" "${controllers[@]}" "${tools[@]}"; do
  [[ " ${tools[*]} " != *" $name "* ]] || source=https://$kit licenses=Apache-2.0
  labels=()
  [ -z "$source" ] || labels+=(--label "org.opencontainers.image.source=$source")
  [ -z "$licenses" ] || labels+=(--label "org.opencontainers.image.licenses=$licenses")
  # A tag cannot contain a +, but a version can.
  ref=$prefix/$name:${version//+/_}
  args=()
  for platform in "${platforms[@]}"; do args+=(--binary "$platform=$work/$platform/$name"); done
  image=$(bin/image --ref "$ref" --out "bin/images/$name" --created "$created" "${args[@]}" \
    --label "org.opencontainers.image.title=$name" \
    --label "org.opencontainers.image.version=$version" \
    --label "org.opencontainers.image.revision=$revision" "${labels[@]}")
  echo "$image"
  bin/sbom --image "$image" --version "$version" --out "bin/images/$name.cdx.json" "$work"/linux/*/"$name"
  echo "$ref" >"bin/images/$name.ref"
done
