#!/usr/bin/env bash
# Runs the tests of certgen, and of what reads and writes its files, as programs for linux/arm64, with QEMU. Those tests start certgen, so the
# kernel has to know the emulator (binfmt_misc); where it does not, root tells it.
set -euo pipefail
cd "$(dirname "$0")/.."

formats=/proc/sys/fs/binfmt_misc
if [ "$(uname -m)" != aarch64 ] && [ ! -e $formats/qemu-aarch64 ]; then
  [ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats
  update-binfmts --enable qemu-aarch64
fi
GOOS=linux GOARCH=arm64 ${GOTEST:-go test} -timeout 20m ./cmd/certgen ./internal/certs/... ./internal/kubeconfig
