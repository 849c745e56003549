#!/usr/bin/env bash
# Installs an overlay into the cluster of the current kubeconfig, and waits until its API can be
# used. All checks run before the first change. The APIServices come last, when the server behind
# them is ready: kube-apiserver adds a group with a broken backend to discovery, and then
# namespaces cannot be deleted anywhere in the cluster. Safe to run again.
#
# Usage: scripts/deploy.sh        Variables: scripts/overlay.sh, and
#   TIMEOUT   seconds for each wait (default 300)
set -euo pipefail
work=$(mktemp -d)
# shellcheck source=scripts/overlay.sh
source "$(dirname "$0")/overlay.sh"
timeout=${TIMEOUT:-300}
# Seccomp, restricted Pod Security and policy/v1 are older. ValidatingAdmissionPolicy v1, which
# the server evaluates, came with 1.30.
oldest=1.30

created=() # APIServices that did not exist before this run
finish() {
  local status=$?
  rm -rf "$work"
  [ $status != 0 ] && [ ${#created[@]} -gt 0 ] || return 0
  # After any failure, remove the APIServices that do not work.
  echo "$me: deleting the APIServices that this run created: ${created[*]}" >&2
  k delete apiservice "${created[@]}" --ignore-not-found >&2
}
trap finish EXIT
trap 'exit 130' INT TERM

# ---- checks before the first change

check_version() {
  local major minor
  IFS=. read -r major minor _ <<<"$version"
  ((major > 1 || minor >= ${oldest#1.})) || fail "the cluster runs Kubernetes $version, and $oldest or later is required"
  local served missing
  served=$(k api-versions 2>/dev/null || true) # another API's broken APIService must not stop the deployment
  missing=$(sed -n 's/^apiVersion: //p' "$work/all.yaml" | sort -u | grep -vxF -e "$served" || true)
  [ -z "$missing" ] || fail "the cluster does not serve $(tr '\n' ' ' <<<"$missing")which $overlay requires; install the API, or choose another overlay"
}

check_rights() {
  local resource namespace
  for resource in apiservices.apiregistration.k8s.io namespaces clusterroles.rbac.authorization.k8s.io clusterrolebindings.rbac.authorization.k8s.io; do
    may create "$resource"
    may patch "$resource"
  done
  may create rolebindings.rbac.authorization.k8s.io kube-system
  read -r _ namespace < <(names Namespace)
  for resource in services deployments.apps statefulsets.apps serviceaccounts; do may create "$resource" "$namespace"; done
}

check_aggregation() {
  local ca
  ca=$(k get configmap extension-apiserver-authentication --namespace kube-system --ignore-not-found \
    -o go-template='{{with .data}}{{index . "requestheader-client-ca-file"}}{{end}}')
  grep -q 'BEGIN CERTIFICATE' <<<"$ca" ||
    fail "the aggregation layer of the cluster is not configured: ConfigMap kube-system/extension-apiserver-authentication has no requestheader-client-ca-file; start kube-apiserver with --requestheader-client-ca-file and --proxy-client-cert-file"
}

# The script never takes over a Service or namespace of another installation.
check_foreign() {
  local kind namespace name label
  for kind in Namespace Service; do
    while read -r namespace name; do
      [ "$namespace" != - ] || namespace=
      label=$(k get "$kind" "$name" ${namespace:+--namespace "$namespace"} --ignore-not-found \
        -o go-template='there {{with .metadata.labels}}{{index . "app.kubernetes.io/part-of"}}{{end}}')
      [ -z "$label" ] || [ "$label" = "there $part_of" ] ||
        fail "$kind ${namespace:+$namespace/}$name exists, and does not belong to this deployment: it has no label app.kubernetes.io/part-of=$part_of; delete it, add the label, or deploy into another namespace"
    done < <(names "$kind")
  done
}

check_apiservices() {
  local name want found
  while read -r name want; do
    found=$(backend_of "$name")
    case $found in
      "" | "$want") ;;
      local) fail "APIService $name is served by kube-apiserver itself, for a CustomResourceDefinition of the same group; delete the CustomResourceDefinition first" ;;
      *) fail "APIService $name belongs to the Service $found, not to the Service $want; delete the APIService first" ;;
    esac
    [ -n "$found" ] || missing_apiservices+=("$name")
  done < <(backends)
}

# Each replica with embedded storage would have different objects.
check_replicas() {
  local replicas
  replicas=$(awk '
    function flush() { if (workload && server && replicas > 1 && !etcd) print replicas; workload = server = replicas = etcd = 0 }
    /^---$/ { flush() }
    /^kind: (Deployment|StatefulSet)$/ { workload = 1 }
    /^    app.kubernetes.io\/component: server$/ { server = 1 } # and not of a controller
    /^  replicas: / { replicas = $2 }
    /--etcd-servers=/ { etcd = 1 }
    END { flush() }' "$work/rest.yaml")
  [ -z "$replicas" ] || fail "$overlay has $replicas replicas with embedded storage, and each would store other objects; use 1 replica, or the component external-etcd"
}

# A change of an immutable field, such as the selector of a Deployment, or a denial by admission
# would stop the run halfway.
check_objects() {
  local namespace
  read -r _ namespace < <(names Namespace)
  [ -n "$(k get namespace "$namespace" --ignore-not-found -o name)" ] || return 0 # a dry run needs the namespace
  # This script deletes the Jobs before it applies them. A dry run does not create the roles that
  # bindings refer to.
  select_kinds '^(APIService|Namespace|Job|RoleBinding|ClusterRoleBinding)$' not >"$work/check.yaml"
  k apply --server-side --dry-run=server -f "$work/check.yaml" >/dev/null 2>"$work/errors" ||
    fail "kubectl apply --dry-run=server: $(paste -sd ' ' "$work/errors")"
}

# ---- the changes

# Server-side apply keeps the caBundle that certgen or cert-manager sets, because these manifests
# do not contain it.
apply() { k apply --server-side -f "$1" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "kubectl apply failed, see above"; }; }

delete_jobs() { # Jobs are immutable, and this one can be repeated
  local namespace name
  while read -r namespace name; do
    "$kubectl" delete job "$name" --namespace "$namespace" --ignore-not-found --cascade=foreground --timeout "${timeout}s" >/dev/null
  done < <(names Job)
}

# diagnose prints the objects, events and logs that help to find the cause of a failure.
diagnose() {
  local namespace
  read -r _ namespace < <(names Namespace)
  {
    k get pods,jobs --namespace "$namespace" -o wide
    k get events --namespace "$namespace" --field-selector type=Warning --sort-by=.lastTimestamp | tail -n 10
    k logs --namespace "$namespace" --selector "app.kubernetes.io/part-of=$part_of" --all-containers --prefix --tail 15
  } >&2 || true
}
# wait_for WHAT FUNCTION calls the function each second. 0 is success, 2 is a permanent failure.
wait_for() {
  local end=$((SECONDS + timeout)) why status
  say "waiting for $1"
  while true; do
    status=0
    why=$("$2" 2>&1) || status=$?
    [ $status != 0 ] || return 0
    if [ $status = 2 ] || [ $SECONDS -ge $end ]; then
      diagnose
      fail "$1: $([ $status = 2 ] && echo failed || echo "timed out after $timeout s"): $(tail -n 1 <<<"$why")"
    fi
    sleep 1
  done
}

# job_states prints "NAME Complete", "NAME Failed" or "NAME " for each rendered Job.
job_states() {
  local namespace name
  while read -r namespace name; do
    k get job "$name" --namespace "$namespace" -o go-template='{{.metadata.name}} {{range .status.conditions}}{{if and (eq .status "True") (or (eq .type "Complete") (eq .type "Failed"))}}{{.type}}{{end}}{{end}}{{"\n"}}'
  done < <(names Job)
}
jobs_complete() {
  local states
  states=$(job_states)
  ! grep 'Failed$' <<<"$states" || return 2
  ! grep -v 'Complete$' <<<"$states" | grep .
}
rolled_out() {
  local kind namespace name out
  ! job_states | grep 'Failed$' || return 2 # a server without its certificate never gets ready
  for kind in StatefulSet Deployment; do
    while read -r namespace name; do
      out=$(k rollout status "$kind/$name" --namespace "$namespace" --watch=false 2>&1)
      grep -qE 'successfully rolled out|roll out complete|rolling update complete' <<<"$out" || { echo "$out"; return 1; }
    done < <(names "$kind")
  done
}
available() {
  local name
  while read -r name _; do
    k get apiservice "$name" -o go-template='{{range .status.conditions}}{{if eq .type "Available"}}{{.status}} {{.message}}{{end}}{{end}}' |
      tee "$work/available" | grep -q '^True' || { echo "APIService $name: $(cat "$work/available")"; return 1; }
  done < <(backends)
}
# Available only says that kube-apiserver reached the server once.
discovered() {
  local group found
  for group in $(groups); do
    found=$(k api-resources --api-group "$group" --cached=false --no-headers 2>&1) || { echo "$found"; return 1; }
    [ -n "$found" ] || { echo "discovery has no kind of $group"; return 1; }
  done
}
# A rejection with another cause does not matter: the object exists, an object that it refers to
# does not, or its kind is read-only. Wait only while the server does not accept writes yet.
writable() {
  local object out refused='\((BadRequest|Forbidden|NotFound|MethodNotAllowed|AlreadyExists|Conflict)\)| is invalid:'
  : >"$work/refused"
  for object in "${objects[@]}"; do
    out=$(k create --dry-run=server -f "$object" 2>&1) && continue
    if ! grep -qE "$refused" <<<"$out" || grep -q 'not yet ready to handle request' <<<"$out"; then
      echo "$object: $out"
      return 1
    fi
    grep -q AlreadyExists <<<"$out" || echo "$object: ${out//$'\n'/ }" >>"$work/refused"
  done
}

# ---- main

render
all=$(groups | paste -sd ' ')
check_kubeconfig
check_version
check_rights
check_aggregation
check_foreign
missing_apiservices=()
check_apiservices
check_replicas
check_objects
say "deploying $overlay to $("$kubectl" config current-context), Kubernetes $version: all checks passed"

apply "$work/namespace.yaml"
delete_jobs
say "applying $(grep -c '^kind: ' "$work/rest.yaml") objects"
apply "$work/rest.yaml"
wait_for "the servers" rolled_out
say "applying the APIServices: $(backends | cut -d' ' -f1 | tr '\n' ' ')"
created=("${missing_apiservices[@]}")
apply "$work/apiservices.yaml"
wait_for "the Jobs" jobs_complete
wait_for "the APIServices to be Available" available
wait_for "discovery to show $all" discovered
# From here on nothing is rolled back, because clients can use the API.
created=()
mapfile -t objects < <(grep -lE "^apiVersion: \"?(${all// /|})/" "$objects_directory"/*.yaml 2>/dev/null)
if [ ${#objects[@]} -gt 0 ]; then
  wait_for "a write to be accepted (dry run of ${objects[*]})" writable
  while read -r line; do say "the API works, and rejects $line"; done <"$work/refused"
else
  say "skipping the test write: OBJECTS is '$objects_directory', which has no object of $all"
fi
say "the API $all is ready"
