#!/usr/bin/env bash
# Runs the tests of certgen, and of what reads and writes its files, as programs for Windows, with Wine. It is Debian 13's, fetched once into a
# directory that root changes its root to: Go's random numbers need Wine 9 or newer, which Debian 12 has not.
# On Windows itself: go test with the same packages.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${OWN_MOUNTS-}" ]; then OWN_MOUNTS=1 exec unshare --mount "$0"; fi

# quietly shows what a program said when it failed.
quietly() {
  "$@" >"$root.log" 2>&1 || {
    tail "$root.log" >&2
    exit 1
  }
}

root=${XDG_CACHE_HOME:-$HOME/.cache}/extension-apiserver/wine
if [ ! -d "$root" ]; then
  echo "Fetching Wine (1 GB on disk, 3 minutes)"
  rm -rf "$root.part"
  mkdir -p "$root.part"
  quietly debootstrap --variant=minbase --include=wine64 trixie "$root.part"
  mv "$root.part" "$root"
fi
work=$(mktemp -d)
export WINEPREFIX=$work/wine WINEDEBUG=-all
trap 'rm -rf "$work"' EXIT
for directory in /proc "$PWD" "$work"; do
  mkdir -p "$root$directory"
  mount --rbind "$directory" "$root$directory"
done
wine=/usr/lib/wine/wine64
quietly chroot "$root" "$wine" wineboot --init # once, before packages that are tested side by side need it
GOOS=windows GOARCH=amd64 GOTMPDIR=$work go test -timeout 20m ./cmd/certgen ./internal/certs/... ./internal/kubeconfig \
  -exec "sh -c 'exec chroot $root env -C \"\$PWD\" -u GOTMPDIR $wine \"\$@\"' wine"
