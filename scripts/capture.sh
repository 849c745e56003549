#!/usr/bin/env bash
# Draws what a terminal shows in README's quick start and at the end of a conformance run, into
# docs/start/quickstart.svg and docs/reference/conformance.svg. It runs the commands in a project
# that it creates and deletes.
#
# Usage: scripts/capture.sh
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD work=$(mktemp -d)
finish() {
  [ -z "${server:-}" ] || { kill -- "-$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true
  rm -rf "$work"
}
trap finish EXIT
set -m # make run gets its own process group, so that finish ends all of it

# draw FILE draws standard input. The font is that of the reader, because an embedded one has 360 KB.
draw() {
  cat >"$work/transcript"
  CGO_ENABLED=0 go run github.com/charmbracelet/freeze@v0.2.2 "$work/transcript" --output "$1" --language console \
    --theme github --font.family "ui-monospace, monospace" --font.size 13 --padding 16 --border.radius 6 --border.width 1 \
    --border.color "#d0d7de" >/dev/null
  echo "$1"
}
# show prints commands as they are typed, and what they print.
show() {
  local command
  for command; do
    printf '$ %s\n' "$command"
    bash -euo pipefail -c "$command" 2>&1
  done
}

make --no-print-directory build controlplane >/dev/null
export PATH=$root/bin:$root/bin/1.37:$PATH
flags='--subresources=status --short-names=bp --selectable=spec.suspended:boolean --columns=spec.schedule,spec.suspended'
new="make new DIR=$work/backup MODULE=git.example.org/platform/backup GROUP=backup.example.org KIND=BackupPlan FLAGS='$flags'"
{
  show "$new" | sed "s|$work|..|g; s|\([^\\]*\) FLAGS=|\1 \\\\\n    FLAGS=|" | grep -v '^make'
  cd "$work/backup"
  printf '$ make run &\n'
  make --no-print-directory run >"$work/run" 2>&1 &
  server=$!
  until grep -q '^Ready' "$work/run"; do kill -0 "$server"; sleep 0.2; done
  grep '^Ready' "$work/run"
  export KUBECONFIG=$work/backup/.run/kubeconfig
  show 'export KUBECONFIG=$PWD/.run/kubeconfig PATH=$PWD/bin/1.37:$PATH' 'kubectl create -f objects/backupplan.yaml' \
    'kubectl get backupplans' 'kubectl explain backupplan.spec.schedule'
} >"$work/quickstart"
change='{"spec":{"schedule":"0 4 * * *"}}'
show "kubectl aggregation conformance --sample=objects/backupplan.yaml --change='$change'" >"$work/conformance" || [ $? = 1 ]
cd "$root"
draw docs/start/quickstart.svg <"$work/quickstart"
# The command, and the table at the end.
sed -n -e 1p -e '/^AREA/,$p' "$work/conformance" | sed "s|^\$ .*=objects/backupplan.yaml|& \\\\\n   |" | draw docs/reference/conformance.svg
