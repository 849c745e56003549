#!/usr/bin/env bash
# Copies the tree to an empty directory: tracked and untracked files, except ignored ones, as they
# are on disk. It links the built control plane, so that it is not built again. For tests that
# change a tree or need a clean one.
#
# Usage: scripts/copy-tree.sh DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:?expected the directory to copy to}
mkdir -p "$to/bin"
# Deleted files are listed twice, so uniq -u removes them.
{ git ls-files --cached --others --exclude-standard; git ls-files --deleted; } | sort | uniq -u | tr '\n' '\0' | xargs -0 cp --parents -t "$to"
for controlplane in bin/[0-9]*; do ln -s "$PWD/$controlplane" "$to/$controlplane"; done
