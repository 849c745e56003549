#!/usr/bin/env bash
# Manages a kind cluster for trying and testing the deployment. Its kubeconfig is .kind/kubeconfig;
# ~/.kube/config is not changed.
#
# Usage: scripts/kind.sh up|load|deploy|down
#        scripts/kind.sh load NAME                    loads bin/images/NAME.tar
#        scripts/kind.sh need-cluster                 fails if there is no cluster, and writes the
#                                                     kubeconfig
#        scripts/kind.sh routing endpoints|cluster-ip
#        scripts/kind.sh node COMMANDS                runs commands on the node
#        scripts/kind.sh kube-apiserver               prints the ID of kube-apiserver's container
#        scripts/kind.sh await-kube-apiserver BEFORE  waits for a container other than BEFORE, after
#                                                     a change of kube-apiserver's manifest
# Variables: scripts/project.sh, and
#   KIND_CLUSTER     name of the cluster (default: workshop)
#   KIND_NODE_IMAGE  node image (default: that of this kind version, which the engine pulls)
#   KIND_CONFIG      kind's configuration (default: scripts/kind.yaml)
#   KIND_TLS_SERVER_NAME  a name in kube-apiserver's certificate, if KIND_CONFIG omits the loopback
#                         address that kind publishes
#   KIND_EXPERIMENTAL_PROVIDER  podman or nerdctl instead of docker, as for kind itself
set -euo pipefail
# shellcheck source=scripts/project.sh
source "$(dirname "$0")/project.sh"

cluster=${KIND_CLUSTER:-workshop}
engine=${KIND_EXPERIMENTAL_PROVIDER:-docker}
export KUBECONFIG=$PWD/.kind/kubeconfig
made=.kind/$cluster.made # this checkout created the cluster, so it may delete it

say() { printf '%(%H:%M:%S)T kind: %s\n' -1 "$*"; }
fail() { echo "kind: $*" >&2; exit 1; }

# kind is a tool of a project's module. The kit has a separate module for tools.
build_kind() {
  local module=.
  [ ! -d "$scripts/tools" ] || module=$scripts/tools
  CGO_ENABLED=0 go build -C "$module" -o "$PWD/bin/kind" sigs.k8s.io/kind
}
# exists reports the engine's error if the clusters cannot be listed; kind's --quiet would hide
# it.
exists() {
  local clusters
  clusters=$(bin/kind get clusters 2>&1) || fail "cannot list clusters: $clusters"
  grep -qx -- "$cluster" <<<"$clusters"
}
# write_kubeconfig must run after each kind command that writes the kubeconfig.
write_kubeconfig() {
  bin/kind export kubeconfig --quiet --name "$cluster" --kubeconfig "$KUBECONFIG"
  [ -z "${KIND_TLS_SERVER_NAME:-}" ] ||
    bin/1.37/kubectl config set-cluster "kind-$cluster" --tls-server-name "$KIND_TLS_SERVER_NAME" >/dev/null
}
ours() { [ -e "$made" ] || fail "$1"; }

up() {
  bash "$scripts/needs.sh" kind
  build_kind
  mkdir -p .kind
  if exists; then
    ours "the kind cluster $cluster exists, and this checkout did not create it; set another name in KIND_CLUSTER, or delete it with: bin/kind delete cluster --name $cluster"
    write_kubeconfig
    say "cluster $cluster already exists"
  else
    say "creating cluster $cluster"
    touch "$made"
    bin/kind create cluster --name "$cluster" --kubeconfig "$KUBECONFIG" --wait 180s \
      --config "${KIND_CONFIG:-$scripts/kind.yaml}" ${KIND_NODE_IMAGE:+--image "$KIND_NODE_IMAGE"}
    write_kubeconfig
  fi
  say "ready; use it with: export KUBECONFIG=$KUBECONFIG"
}

# need_cluster also makes the kubeconfig point to this cluster.
need_cluster() {
  bash "$scripts/needs.sh" kind
  build_kind
  exists || fail "cluster $cluster does not exist; run: make kind-up"
  write_kubeconfig
}

load() {
  need_cluster
  [ $# -gt 0 ] || set -- "$server_name" "${tools[@]}" "${controllers[@]}"
  local name
  for name; do
    [ -f "bin/images/$name.tar" ] || fail "bin/images/$name.tar does not exist; run: make image"
    bin/kind load image-archive --quiet --name "$cluster" "bin/images/$name.tar"
    say "loaded $(cat "bin/images/$name.ref")"
  done
}

deploy() {
  need_cluster
  local name images=()
  for name in "$server_name" certgen "${controllers[@]}"; do
    [ -f "bin/images/$name.ref" ] || fail "bin/images/$name.ref does not exist; build and deploy the images with: make kind-deploy"
  done
  for name in "${controllers[@]}"; do images+=("$(cat "bin/images/$name.ref")"); done
  IMAGE=$(cat "bin/images/$server_name.ref") CERTGEN_IMAGE=$(cat bin/images/certgen.ref) CONTROLLER_IMAGES="${images[*]}" bash "$scripts/deploy.sh"
}

node_shell() { "$engine" exec --interactive "$cluster-control-plane" bash -euo pipefail -c "$1"; }
kube_apiserver() { node_shell "crictl ps --quiet --name '^kube-apiserver\$'"; }

# await_kube_apiserver waits until kube-apiserver is ready in a container other than the given
# one.
await_kube_apiserver() {
  local now n
  for ((n = 0; n < 120; n++)); do
    now=$(kube_apiserver)
    [ -n "$now" ] && [ "$now" != "$1" ] && node_shell "kubectl --kubeconfig /etc/kubernetes/admin.conf get --raw /readyz" >/dev/null 2>&1 && return
    sleep 1
  done
  fail "kube-apiserver was not ready within 2 minutes; see: $engine exec $cluster-control-plane crictl ps -a"
}

# routing sets how kube-apiserver reaches the Services of aggregated APIs.
routing() {
  need_cluster
  local flag=--enable-aggregator-routing=true edit
  case ${1:-} in
    endpoints) edit="-e /$flag/d -e 's/^\\( *\\)- kube-apiserver\$/&\\n\\1- $flag/'" ;;
    cluster-ip) edit="-e /$flag/d" ;;
    *) echo "kind: routing is '${1:-}': must be endpoints or cluster-ip" >&2; exit 2 ;;
  esac
  local manifest=/etc/kubernetes/manifests/kube-apiserver.yaml new=/etc/kubernetes/kube-apiserver.yaml.new before
  node_shell "sed $edit $manifest >$new"
  if ! node_shell "cmp -s $new $manifest"; then
    before=$(kube_apiserver)
    node_shell "mv $new $manifest" # rename it, because the kubelet acts on every file that it sees in the directory
    await_kube_apiserver "$before"
  fi
  say "kube-apiserver reaches Services by: $1"
}

down() {
  bash "$scripts/needs.sh" kind
  build_kind
  if exists; then
    ours "this checkout did not create the kind cluster $cluster; delete it with: bin/kind delete cluster --name $cluster"
    bin/kind delete cluster --quiet --name "$cluster" --kubeconfig "$KUBECONFIG"
    say "deleted cluster $cluster"
  else
    say "cluster $cluster does not exist"
  fi
  rm -f "$made"
}

case ${1:-} in
  up | deploy | down) "$1" ;;
  load) shift; load "$@" ;;
  need-cluster) need_cluster ;;
  routing) routing "${2:-}" ;;
  node) node_shell "${2:?expected commands}" ;;
  kube-apiserver) kube_apiserver ;;
  await-kube-apiserver) await_kube_apiserver "${2:?expected the container before}" ;;
  *) echo "kind: unknown command '${1:-}'; the commands are up, load, need-cluster, deploy, routing, node, kube-apiserver, await-kube-apiserver and down" >&2; exit 2 ;;
esac
