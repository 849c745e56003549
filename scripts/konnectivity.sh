#!/usr/bin/env bash
# Builds the konnectivity server and agent that test/controlplane/konnectivity/go.mod pins into bin/MINOR/ as proxy-server
# and proxy-agent. Does nothing when they are current. Safe to run twice at once, as scripts/controlplane.sh is.
#
# Usage: scripts/konnectivity.sh [MINOR]     (default: 1.36)
set -euo pipefail
cd "$(dirname "$0")/.."

out=bin/${1:-1.36}
module=test/controlplane/konnectivity
mkdir -p "$out"
exec 9>"$out/.konnectivity.lock"
flock 9

stamp=$({ cat "$module/go.mod" "$module/go.sum" scripts/konnectivity.sh; go version; uname -m; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/.konnectivity.stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$out/proxy-server" ] && [ -x "$out/proxy-agent" ]; then exit 0; fi

export GOFLAGS="${GOFLAGS:-} -mod=readonly" GOWORK=off CGO_ENABLED=0
echo "konnectivity: building proxy-server and proxy-agent into $out/"
for b in server agent; do
  # Upstream's go.mod replaces a module by a directory beside it, so that go install of a version fails: hence a module of ours.
  (cd "$module" && go build -ldflags "-s -w" -o "$PWD/../../../$out/.proxy-$b.new" "sigs.k8s.io/apiserver-network-proxy/cmd/$b")
  mv -f "$out/.proxy-$b.new" "$out/proxy-$b"
done
echo "$stamp" >"$out/.konnectivity.stamp"
