#!/usr/bin/env bash
# Installs konnectivity in a kind cluster with the commands of docs/konnectivity/{install,new-cluster,check,operate}.md, and runs the suite
# through it, with two agents with tokens each time:
# 1. the server as a static pod of a new cluster, whose kube-apiserver has the egress selector from its first start. Then kube-apiserver is
#    switched back, and all is taken out
# 2. the server as a sidecar of a kube-apiserver in a pod
# 3. the server as a static pod again, and kind's own kube-apiserver is switched over
#
# kube-apiserver's certificate has the names that kubeadm gives it, without those that kind adds.
#
# Usage: test/konnectivity/kind/run.sh       Variables: those of scripts/kind.sh, and
#   KEEP=1   leave the cluster up, with konnectivity as in 3
set -euo pipefail
cd "$(dirname "$0")/../../.."

export KIND_CLUSTER=${KIND_CLUSTER:-workshop}-konnectivity
node=$KIND_CLUSTER-control-plane
engine=${KIND_EXPERIMENTAL_PROVIDER:-docker}
export KUBECONFIG=$PWD/.kind/kubeconfig KIND_TLS_SERVER_NAME=kubernetes
kit=/kit # on the node
service=10.96.200.32 # test/konnectivity/kind/sidecar/service.yaml

say() { printf '%(%H:%M:%S)T konnectivity: %s\n' -1 "$*"; }
fail() { echo "konnectivity: $*" >&2; exit 1; }

for program in proxy-server proxy-agent; do
  [ -x "bin/1.37/$program" ] || fail "there is no bin/1.37/$program; run: make controlplane"
done
if "$engine" inspect "$node" >/dev/null 2>&1; then
  fail "there is a cluster $KIND_CLUSTER already, expected none; remove it with: KIND_CLUSTER=$KIND_CLUSTER make kind-down"
fi
kubectl=bin/1.37/kubectl
work=$(mktemp -d)

finish() {
  local status=$?
  rm -rf "$work"
  if [ $status != 0 ] && "$engine" inspect "$node" >/dev/null 2>&1; then
    "$kubectl" get pods --all-namespaces -o wide >&2 || true
    on_node 'tail -n 20 /var/log/pods/*konnectivity-*/*/*.log /var/log/pods/clusters-demo_*/*/*.log /var/log/pods/workshop-system_extension-apiserver-0*/*/*.log' >&2 || true
  fi
  [ "${KEEP:-}" = 1 ] || scripts/kind.sh down
}
trap finish EXIT

on_node() { "$engine" exec --interactive --env KUBECONFIG=/etc/kubernetes/admin.conf --workdir "$kit" "$node" bash -euo pipefail -c "$1"; }

pages=(docs/konnectivity/{install,new-cluster,check,operate}.md)

# section prints the blocks of a language under a heading of the pages.
section() {
  awk -v heading="^##+ $1\$" -v fence="\`\`\`$2" '
    /^##/ { there = $0 ~ heading }
    there && $0 == "```" { inside = 0 }
    inside { print; found = 1 }
    there && $0 == fence { inside = 1 }
    END { exit !found }' "${pages[@]}" || fail "${pages[*]}: expected a block $2 under the heading '$1', found none"
}

# follow runs a section's commands on the node.
follow() {
  local commands
  commands=$(section "$1" sh)
  say "$1"
  commands=${commands//--konnectivity-agent-server-name konnectivity.example.com/--konnectivity-agent-server-name $node --konnectivity-agent-server-name $service}
  on_node "${commands//https:\/\/kube-apiserver.example.com:6443/https://$address:6443}"
}

# agents installs them, with the address of the server.
agents() {
  on_node 'mkdir -p agents && cat >agents/kustomization.yaml' < <(section "Install the agents" yaml | sed "s/konnectivity.example.com/$1/")
  follow "Install the agents"
}

# load_images builds both images from the binaries of the pinned module, under the names that the manifests have.
load_images() {
  local ref program
  "$kubectl" kustomize konnectivity/agents/base >"$work/manifests"
  "$kubectl" kustomize konnectivity/server/static-pod >>"$work/manifests"
  for program in server agent; do
    ref=$(sed -n "s/^ *image: \(.*proxy-$program:.*\)/\1/p" "$work/manifests")
    bin/image --ref "$ref" --out "bin/images/konnectivity-$program" --created 0 --binary "linux/$(go env GOARCH)=bin/1.37/proxy-$program"
    bin/kind load image-archive --quiet --name "$KIND_CLUSTER" "bin/images/konnectivity-$program.tar"
  done
}

# cluster_config is kind's configuration with what docs/konnectivity/new-cluster.md says of a new cluster: its commands run on the node before
# kubeadm does, its part of kubeadm's configuration is in kind's.
cluster_config() {
  mkdir -p .kind
  section "Prepare a new cluster" sh >.kind/prepare.sh # not in $work: a cluster that is kept mounts it when it starts again
  cat scripts/kind.yaml
  printf '  kubeadmConfigPatches:\n  - |\n'
  section "Prepare a new cluster" yaml | sed 's/^/    /'
  cat <<EOF
  # kind adds localhost and its address; a merge patch only adds more names.
  kubeadmConfigPatchesJSON6902:
  - group: kubeadm.k8s.io
    version: v1beta4
    kind: ClusterConfiguration
    patch: '[{"op": "remove", "path": "/apiServer/certSANs"}]'
  extraMounts:
  - {hostPath: konnectivity, containerPath: $kit/konnectivity, readOnly: true}
  - {hostPath: .kind/prepare.sh, containerPath: $kit/prepare.sh, readOnly: true}
  - {hostPath: test/konnectivity/kind/konnectivity.service, containerPath: /etc/systemd/system/konnectivity.service, readOnly: true}
  - {hostPath: test/konnectivity/kind/sysinit.conf, containerPath: /etc/systemd/system/sysinit.target.d/konnectivity.conf, readOnly: true}
EOF
}

# from_the_start is called before anything else is done to the cluster.
from_the_start() {
  local certificate names expected
  certificate=$(on_node 'cat /etc/kubernetes/pki/apiserver.crt')
  names=$(openssl x509 -noout -ext subjectAltName <<<"$certificate" | tr -d ' ' | tr , '\n' | grep -E '^(DNS|IPAddress):' | sort -u)
  # The control plane endpoint has the node's name.
  expected=$(printf '%s\n' "DNS:$node" DNS:kubernetes DNS:kubernetes.default DNS:kubernetes.default.svc DNS:kubernetes.default.svc.cluster.local \
    "IPAddress:$("$kubectl" get service kubernetes -o jsonpath='{.spec.clusterIP}')" "IPAddress:$address" | sort)
  [ "$names" = "$expected" ] || fail "kube-apiserver's certificate has the names $names; kubeadm gives it $expected"
}

# patched fails unless kube-apiserver's manifest has all of the egress selector, or with an argument nothing of it.
patched() {
  local found
  found=$(on_node "grep -cE -- '--egress-selector-config-file=|mountPath: /etc/kubernetes/konnectivity|^    - 65532$' /etc/kubernetes/manifests/kube-apiserver.yaml || true")
  [ "$found" = "${1:-5}" ] || fail "kube-apiserver's manifest has $found of the flag, three mounts and the group, expected ${1:-5}"
}

# demo is what the section about the sidecar expects: a kube-apiserver, the overlay, a namespace. The Service gets its address.
demo() {
  local image certgen
  certgen=$(cat bin/images/certgen.ref)
  image=$("$kubectl" --namespace kube-system get pod "kube-apiserver-$node" -o jsonpath='{.spec.containers[0].image}')
  mkdir "$work/demo"
  sed "s#IMAGE#$image#" test/konnectivity/kind/sidecar/kube-apiserver.yaml >"$work/demo/kube-apiserver.yaml"
  cp test/konnectivity/kind/sidecar/service.yaml "$work/demo/"
  {
    section "Install the server as a sidecar" yaml | sed "s#newName: registry.example.com/certgen, newTag: v1.2.3#newName: ${certgen%:*}, newTag: \"${certgen##*:}\"#"
    printf 'patches:\n- {path: service.yaml, target: {kind: Service}}\n'
  } >"$work/demo/kustomization.yaml"
  "$engine" cp --quiet "$work/demo" "$node:$kit/"
  "$kubectl" create namespace clusters-demo >/dev/null
}

# checked runs the daily check of the sidecar's certificates now, which must have a result: Complete or Failed.
checked() {
  local job=check-${1,,}
  "$kubectl" --namespace clusters-demo create job "$job" --from=cronjob/konnectivity-certificates >/dev/null
  "$kubectl" --namespace clusters-demo wait "job/$job" --for="condition=$1" --timeout=120s >/dev/null ||
    fail "the check of certificates was not $1: $("$kubectl" --namespace clusters-demo logs "job/$job" 2>&1)"
}

# expiring gives the sidecar's kubeconfig a certificate of ten days.
expiring() {
  on_node "certgen konnectivity kubeconfig --user system:konnectivity-server --ca ca.crt --lifetime 10d --server https://$address:6443 --server-ca ca.crt --out due.kubeconfig
    kubectl -n clusters-demo create secret generic konnectivity-server-kubeconfig --from-file=kubeconfig=due.kubeconfig --from-file=ca.crt \
      --from-file=due.kubeconfig.d/tls.crt --from-file=due.kubeconfig.d/tls.key --dry-run=client -o yaml | kubectl apply -f -" >/dev/null
}

# suite runs it through kube-apiserver at a URL.
suite() {
  "$kubectl" config view --raw --flatten >"$work/kubeconfig"
  "$kubectl" --kubeconfig "$work/kubeconfig" config set-cluster "kind-$KIND_CLUSTER" --server "$1" \
    --tls-server-name "$KIND_TLS_SERVER_NAME" >/dev/null # which a new server would take away
  say "suite through $1"
  KUBECONFIG=$work/kubeconfig CGO_ENABLED=0 go test -tags e2e -count 1 -timeout 20m -v -run '^TestKonnectivity$' ./test/e2e
}

# remove_sidecar takes out what belonged to it.
remove_sidecar() {
  "$kubectl" delete namespace clusters-demo >/dev/null
  on_node 'kubectl delete -k agents && kubectl -n kube-system delete configmap konnectivity-agent-ca' >/dev/null
}

# responds waits until our API has responded for 30 seconds in a row, each time to a request for another name, for which the
# server has to send a SubjectAccessReview. After a restart kube-apiserver may use what it stored about the API before, and the
# server may not reach kube-apiserver. Even when both are healthy, the endpoints may change again: the kubelet reports changes
# within 10 s, and kube-controller-manager needs 15 s to lead again.
responds() {
  local n=0 end=$((SECONDS + 180)) since=$SECONDS
  while [ $((SECONDS - since)) -lt 30 ]; do
    [ $SECONDS -lt $end ] || fail "$1, our API did not respond for 30 seconds in a row within 3 minutes: $(cat "$work/errors")"
    "$kubectl" get widget "none-$((n += 1))" --ignore-not-found --request-timeout=10s 2>"$work/errors" || since=$SECONDS
    sleep 0.5
  done
}

# restarted runs a section that changes kube-apiserver, and waits for the new one.
restarted() {
  local before
  before=$(scripts/kind.sh kube-apiserver)
  follow "$1"
  say "waiting for the new kube-apiserver"
  scripts/kind.sh await-kube-apiserver "$before"
  responds "after: $1"
}

# static_pod runs the server beside kind's kube-apiserver.
static_pod() {
  follow "Install the server as a static pod"
  agents "$node"
}
suite_through_kind() { suite "$("$kubectl" config view --raw -o jsonpath='{.clusters[0].cluster.server}')"; }

scripts/build.sh
cluster_config >"$work/cluster.yaml"
KIND_CONFIG=$work/cluster.yaml scripts/kind.sh up
address=$("$kubectl" get node "$node" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}')
from_the_start
patched
"$engine" cp --quiet bin/certgen "$node:/usr/local/bin/"
load_images
scripts/kind.sh load
follow "Issue the certificates"

static_pod
scripts/kind.sh deploy
suite_through_kind
restarted "Switch kube-apiserver back" # as kubeadm upgrade does without --patches
patched 0
follow "Remove konnectivity"
responds "without konnectivity"

demo
on_node 'cp /etc/kubernetes/pki/ca.{crt,key} .'
follow "Install the server as a sidecar"
checked Complete
agents "$service"
suite "https://$address:6444"
expiring
checked Failed
remove_sidecar

static_pod
restarted "Switch kube-apiserver over"
patched
written=$(on_node 'stat -c %y /etc/kubernetes/manifests/kube-apiserver.yaml')
follow "Switch kube-apiserver over" # as kubeadm upgrade does with --patches
patched
[ "$(on_node 'stat -c %y /etc/kubernetes/manifests/kube-apiserver.yaml')" != "$written" ] || fail "kubeadm did not write kube-apiserver's manifest again"
follow "Check the installation"
suite_through_kind
