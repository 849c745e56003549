#!/usr/bin/env bash
# Installs konnectivity in a kind cluster with the commands of konnectivity/README.md, as they stand there, and runs the suite
# through it: once with the server as a sidecar of a kube-apiserver in a pod, once as a static pod beside kind's own, which is then
# switched over. Two agents with tokens each time. In the end all of it is taken out again.
#
# Usage: scripts/kind-konnectivity.sh        Variables: those of scripts/kind.sh, and
#   KEEP=1   leave the cluster up, and konnectivity in it
set -euo pipefail
cd "$(dirname "$0")/.."

export KIND_CLUSTER=${KIND_CLUSTER:-workshop}-konnectivity
node=$KIND_CLUSTER-control-plane
engine=${KIND_EXPERIMENTAL_PROVIDER:-docker}
export KUBECONFIG=$PWD/.kind/kubeconfig
kit=/kit # on the node
service=10.96.200.32 # test/e2e/kind/sidecar/service.yaml

say() { printf '%(%H:%M:%S)T konnectivity: %s\n' -1 "$*"; }
fail() { echo "konnectivity: $*" >&2; exit 1; }

for program in proxy-server proxy-agent; do
  [ -x "bin/1.36/$program" ] || fail "there is no bin/1.36/$program; run: make controlplane"
done
kubectl=bin/1.36/kubectl
work=$(mktemp -d)

finish() {
  local status=$?
  rm -rf "$work"
  if [ $status != 0 ] && "$engine" inspect "$node" >/dev/null 2>&1; then
    "$kubectl" get pods --all-namespaces -o wide >&2 || true
    on_node 'tail -n 20 /var/log/pods/*konnectivity-*/*/*.log /var/log/pods/clusters-demo_*/*/*.log' >&2 || true
  fi
  [ "${KEEP:-}" = 1 ] || scripts/kind.sh down
}
trap finish EXIT

on_node() { "$engine" exec --interactive --env KUBECONFIG=/etc/kubernetes/admin.conf --workdir "$kit" "$node" bash -euo pipefail -c "$1"; }

# section prints the blocks of a language under a heading of konnectivity/README.md.
section() {
  awk -v heading="^##+ $1\$" -v fence="\`\`\`$2" '
    /^##/ { there = $0 ~ heading }
    there && $0 == "```" { inside = 0 }
    inside { print; found = 1 }
    there && $0 == fence { inside = 1 }
    END { exit !found }' konnectivity/README.md || fail "konnectivity/README.md has no $2 under the heading '$1'"
}

# follow runs a section's commands on the node.
follow() {
  local commands
  commands=$(section "$1" sh)
  say "$1"
  on_node "${commands//--konnectivity-agent-server-name konnectivity.example.com/--konnectivity-agent-server-name $node --konnectivity-agent-server-name $service}"
}

# agents installs them, with the address of the server.
agents() {
  on_node 'mkdir -p agents && cat >agents/kustomization.yaml' < <(section Agents yaml | sed "s/konnectivity.example.com/$1/")
  follow Agents
}

# load_images builds both images from the binaries of the pinned module, under the names that the manifests have.
load_images() {
  local ref program
  "$kubectl" kustomize konnectivity/agents/base >"$work/manifests"
  "$kubectl" kustomize konnectivity/server/static-pod >>"$work/manifests"
  for program in server agent; do
    ref=$(sed -n "s/^ *image: \(.*proxy-$program:.*\)/\1/p" "$work/manifests")
    bin/image --ref "$ref" --out "bin/images/konnectivity-$program" --created 0 --binary "linux/$(go env GOARCH)=bin/1.36/proxy-$program"
    bin/kind load image-archive --quiet --name "$KIND_CLUSTER" "bin/images/konnectivity-$program.tar"
  done
}

copy_kit() {
  "$engine" exec "$node" mkdir -p "$kit"
  "$engine" cp --quiet konnectivity "$node:$kit/"
  "$engine" cp --quiet bin/certgen "$node:/usr/local/bin/"
}

# demo is what the section about the sidecar expects: a kube-apiserver, the overlay, a namespace. The Service gets its address.
demo() {
  local image
  image=$("$kubectl" --namespace kube-system get pod "kube-apiserver-$node" -o jsonpath='{.spec.containers[0].image}')
  mkdir "$work/demo"
  sed "s#IMAGE#$image#" test/e2e/kind/sidecar/kube-apiserver.yaml >"$work/demo/kube-apiserver.yaml"
  cp test/e2e/kind/sidecar/service.yaml "$work/demo/"
  { section "The server as a sidecar" yaml; printf 'patches:\n- {path: service.yaml, target: {kind: Service}}\n'; } >"$work/demo/kustomization.yaml"
  "$engine" cp --quiet "$work/demo" "$node:$kit/"
  "$kubectl" create namespace clusters-demo >/dev/null
}

# suite runs it through kube-apiserver at a URL.
suite() {
  "$kubectl" config view --raw --flatten >"$work/kubeconfig"
  "$kubectl" --kubeconfig "$work/kubeconfig" config set-cluster "kind-$KIND_CLUSTER" --server "$1" >/dev/null
  say "suite through $1"
  KUBECONFIG=$work/kubeconfig CGO_ENABLED=0 go test -tags e2e -count 1 -timeout 20m -v -run '^TestKonnectivity$' ./test/e2e
}

# remove_sidecar takes out what belonged to it.
remove_sidecar() {
  "$kubectl" delete namespace clusters-demo >/dev/null
  on_node 'kubectl delete -k agents && kubectl -n kube-system delete configmap konnectivity-agent-ca' >/dev/null
}

# restarted runs a section that changes kube-apiserver, and waits for the new one.
restarted() {
  local before
  before=$(scripts/kind.sh kube-apiserver)
  follow "$1"
  say "waiting for the new kube-apiserver"
  scripts/kind.sh await-kube-apiserver "$before"
}

scripts/build.sh
scripts/kind.sh up
load_images
scripts/kind.sh load
scripts/kind.sh deploy
copy_kit
follow Certificates

demo
follow "The server as a sidecar"
agents "$service"
address=$("$kubectl" get node "$node" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}')
suite "https://$address:6444"
remove_sidecar

follow "The server as a static pod"
agents "$node"
restarted "Switch kube-apiserver over"
follow "Check it"
suite "$("$kubectl" config view --raw -o jsonpath='{.clusters[0].cluster.server}')"

[ "${KEEP:-}" != 1 ] || exit 0
restarted "Switch kube-apiserver back"
follow "Remove konnectivity"
for ((n = 0; n < 120; n++)); do
  # kube-apiserver dials the server by itself. For some seconds after a restart it may refuse, and the server may not reach it.
  "$kubectl" get widgets && exit 0
  sleep 1
done
fail "no answer within 2 minutes after konnectivity was removed"
