#!/usr/bin/env bash
# Builds the control plane that test/controlplane/MINOR/go.mod pins into bin/MINOR/: etcd, kube-apiserver,
# kube-controller-manager, kube-proxy and kubectl, and k8s.io/sample-apiserver, which tests compare our server with. Does nothing
# when bin/MINOR is current. Safe to run twice at once: the second run waits for the first and then finds its work done.
#
# Usage: scripts/controlplane.sh [MINOR]     (default: 1.36)
set -euo pipefail
cd "$(dirname "$0")/.."

minor=${1:-1.36}
module=test/controlplane/$minor
out=bin/$minor
if [ ! -f "$module/go.mod" ]; then
  echo "controlplane: no $module/go.mod; expected one of: $(ls test/controlplane | tr '\n' ' ')" >&2
  exit 2
fi
mkdir -p "$out"

# One builder at a time: the lock is on a file beside the binaries and ends with the process, however it ends.
exec 9>"$out/.lock"
if ! flock --nonblock 9; then
  echo "controlplane $minor: another build is running; waiting for it"
  flock 9
fi

# What the binaries depend on: the pins, this script, and the Go version. A missing binary also means "not current".
# uname -m too: a checkout can be shared between machines.
stamp=$({ cat "$module/go.mod" "$module/go.sum" scripts/controlplane.sh; go version; uname -m; } | sha256sum | cut -d' ' -f1)
binaries=(etcd kube-apiserver kube-controller-manager kube-proxy kubectl sample-apiserver)
current() {
  [ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] || return 1
  for b in "${binaries[@]}"; do [ -x "$out/$b" ] || return 1; done
}
if current; then exit 0; fi

export GOFLAGS="${GOFLAGS:-} -mod=readonly" GOWORK=off CGO_ENABLED=0
version=$(cd "$module" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major min _ <<<"${version#v}"

# A plain build calls itself v0.0.0-master+$Format:%H$, which kubectl and the feature gates' emulation cannot parse. The version
# is stamped in both packages that hold one.
ldflags="-s -w"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=$major -X $pkg.gitMinor=$min -X $pkg.gitTreeState=clean"
done

package() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    sample-apiserver) echo k8s.io/sample-apiserver ;;
    *) echo "k8s.io/kubernetes/cmd/$1" ;;
  esac
}

echo "controlplane $minor: building ${binaries[*]} ($version) into $out/"
echo "  The first time takes 4 to 10 minutes on 2 cores: about 2,000 packages are compiled from source. Go caches them."
n=0
for b in "${binaries[@]}"; do
  n=$((n + 1))
  began=$SECONDS
  # go build -v prints each package that it compiles (not those that are cached): that is the progress.
  (cd "$module" && go build -v -ldflags "$ldflags" -o "$PWD/../../../$out/.$b.new" "$(package "$b")") 2>&1 | awk -v what="  [$n/${#binaries[@]}] $b" '
    BEGIN { "date +%s" | getline last; close("date +%s") }
    /^[a-z0-9.-]+(\/|$)/ && !/: / { count++; if (count % 20 == 0) { "date +%s" | getline now; close("date +%s")
      if (now - last >= 10) { print what ": " count " packages compiled"; fflush(); last = now } }; next }
    /^go: downloading/ { if (!d++) { print what ": downloading modules"; fflush() }; next }
    { print }'
  mv -f "$out/.$b.new" "$out/$b"
  echo "  [$n/${#binaries[@]}] $b: done in $((SECONDS - began))s"
done
echo "$stamp" >"$out/.stamp"
