#!/usr/bin/env bash
# Copies the tree to an empty directory: what git knows and what it would (not what it ignores), as it is on disk now. The
# built control plane is linked, so that it is not built again. For tests that change a tree, or want a clean one.
#
# Usage: scripts/copy-tree.sh DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:?expected the directory to copy to}
mkdir -p "$to/bin"
# Listed once with and once without the deleted ones, names that occur twice are those deleted on disk.
{ git ls-files --cached --others --exclude-standard; git ls-files --deleted; } | sort | uniq -u | tr '\n' '\0' | xargs -0 cp --parents -t "$to"
for controlplane in bin/[0-9]*; do ln -s "$PWD/$controlplane" "$to/$controlplane"; done
