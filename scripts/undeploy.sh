#!/usr/bin/env bash
# Removes an overlay from the cluster of the current kubeconfig. APIServices are deleted first:
# without the server behind them they would break discovery, and with it the deletion of every
# namespace. The data stays: the namespace, volumes and the Secrets of certificates. Safe to run
# again.
#
# Usage: scripts/undeploy.sh      Variables: scripts/overlay.sh, and
#   PURGE=1   delete the data too: nothing is left
#   TIMEOUT   seconds for each wait (default 300)
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=scripts/overlay.sh
source "$(dirname "$0")/overlay.sh"
timeout=${TIMEOUT:-300}
purge=${PURGE:-}
[[ $purge == "" || $purge == 0 || $purge == 1 ]] || fail "PURGE is '$purge': must be 1 or empty"

check_rights() {
  local resource
  for resource in apiservices.apiregistration.k8s.io clusterroles.rbac.authorization.k8s.io clusterrolebindings.rbac.authorization.k8s.io; do
    may delete "$resource"
  done
  may delete rolebindings.rbac.authorization.k8s.io kube-system
  may delete services "$namespace"
  [ "$purge" != 1 ] || may delete namespaces
}

# ours prints the rendered APIServices that exist in the cluster and belong to the overlay's
# Service.
ours() {
  local name want found
  while read -r name want; do
    found=$(backend_of "$name")
    case $found in
      "") ;;
      "$want") echo "$name" ;;
      *) say "keeping APIService $name, which belongs to ${found/local/kube-apiserver itself}" >&2 ;;
    esac
  done < <(backends)
}

# An external etcd outlives the namespace; its contents can only be deleted while the API works.
# Repeat while the number of objects decreases: finalizers take time, and the cause of a failed
# request may be over.
delete_objects() {
  grep -q -- '--etcd-servers=' "$work/rest.yaml" || return 0
  local group resource version end left found collection
  [ ${#apiservices[@]} -gt 0 ] || { say "the API is already deleted; objects in an external etcd stay there"; return 0; }
  # With the preferred version: the last columns are APIVERSION, NAMESPACED, KIND.
  for group in $(groups); do k api-resources --api-group "$group" --verbs=deletecollection --cached=false --no-headers; done |
    awk '{ print $1, $(NF-2) }' >"$work/resources"
  while read -r resource version; do
    left=
    while list "$resource" "$version"; [ -s "$work/paths" ]; do
      found=$(wc -l <"$work/paths")
      if [ "$found" -lt "${left:-$((found + 1))}" ]; then
        end=$((SECONDS + timeout))
      elif [ -s "$work/problem" ]; then
        fail "delete $resource: $(cat "$work/problem"); $found remain"
      fi
      left=$found
      [ $SECONDS -lt $end ] || fail "$left $resource remain, and none was deleted within $timeout s; check their finalizers, and run this again"
      say "deleting $left $resource"
      : >"$work/problem"
      while read -r collection; do delete_collection "$collection" || break; done < <(sort -u "$work/paths")
      sleep 1
    done
  done <"$work/resources"
}
# delete_collection PATH deletes a collection. kubectl delete --all would send one request per
# object. It deletes in pages, because kube-apiserver ends a request after 60 s, in which one
# worker deletes about 2,400 objects on three members of etcd. The response to a page has the
# token of the next one.
delete_collection() {
  local next=
  while
    ask "$kubectl" delete --raw "$1?limit=1000${next:+&continue=$next}" --request-timeout=65s </dev/null >"$work/page" || return 1
    next=$(sed -nE '1{s/"items":.*//; s/.*"continue":"([^"]*)".*/\1/p}' "$work/page")
    [ -n "$next" ]
  do :; done
}
# list RESOURCE VERSION prints for each object the path of its collection.
list() {
  k get "$1.${2#*/}.${2%/*}" --all-namespaces -o go-template='{{range .items}}{{with .metadata.namespace}}namespaces/{{.}}/{{end}}{{"\n"}}{{end}}' </dev/null >"$work/list" ||
    fail "cannot list $1, see above; objects may remain in the external etcd"
  sed "s#.*#/apis/$2/&$1#" "$work/list" >"$work/paths"
}

# pointing_here prints the APIServices whose Service is in the namespace, including those that this script did not create.
pointing_here() {
  k get apiservices -o go-template='{{range .items}}{{if .spec.service}}{{.spec.service.namespace}} {{.metadata.name}}{{"\n"}}{{end}}{{end}}' |
    awk -v ns="$namespace" '$1 == ns { print $2 }'
}
unavailable() {
  k get apiservices -o go-template='{{range .items}}{{$name := .metadata.name}}{{range .status.conditions}}{{if and (eq .type "Available") (ne .status "True")}}{{$name}} {{end}}{{end}}{{end}}'
}

delete_namespace() {
  local found label
  label=$(k get namespace "$namespace" --ignore-not-found -o go-template='there {{with .metadata.labels}}{{index . "app.kubernetes.io/part-of"}}{{end}}')
  [ -n "$label" ] || return 0
  [ "$label" = "there $part_of" ] || fail "cannot delete namespace $namespace: it does not belong to this deployment, because it has no label app.kubernetes.io/part-of=$part_of"
  found=$(pointing_here)
  [ -z "$found" ] || fail "cannot delete namespace $namespace: APIService $(tr '\n' ' ' <<<"$found")needs a Service in it; delete the APIService first"
  # The namespace controller lists the objects of every API, and never finishes while one API does
  # not respond.
  found=$(unavailable)
  [ -z "$found" ] || fail "cannot delete namespace $namespace while an APIService is not Available: $found"
  # Volumes are deleted after their claims. These are the volumes to wait for.
  k get persistentvolumes -o go-template='{{range .items}}{{if and .spec.claimRef (eq .spec.persistentVolumeReclaimPolicy "Delete")}}{{.spec.claimRef.namespace}} {{.metadata.name}}{{"\n"}}{{end}}{{end}}' |
    awk -v ns="$namespace" '$1 == ns { print $2 }' >"$work/volumes"
  say "deleting namespace $namespace"
  "$kubectl" delete namespace "$namespace" --timeout "${timeout}s" >/dev/null || {
    k get namespace "$namespace" -o go-template='{{range .status.conditions}}{{if eq .status "True"}}{{.type}}: {{.message}}{{"\n"}}{{end}}{{end}}' >&2
    fail "namespace $namespace was not deleted within $timeout s; its conditions above show the reason"
  }
  local volume
  while read -r volume; do
    say "waiting for PersistentVolume $volume to be deleted"
    "$kubectl" wait "persistentvolume/$volume" --for delete --timeout "${timeout}s" >/dev/null || fail "PersistentVolume $volume still exists after $timeout s"
  done <"$work/volumes"
}

render
check_kubeconfig
read -r _ namespace < <(names Namespace)
check_rights
mapfile -t apiservices < <(ours)
say "removing $overlay from $("$kubectl" config current-context)$([ "$purge" = 1 ] && echo ", with its data")"

[ "$purge" != 1 ] || delete_objects
if [ ${#apiservices[@]} -gt 0 ]; then
  say "deleting the APIServices: ${apiservices[*]}"
  "$kubectl" delete apiservice "${apiservices[@]}" --ignore-not-found --timeout "${timeout}s" >/dev/null
fi
# The CA's Secret is data: with a new CA, clients would not trust the server that serves the data
# on the volume.
select_kinds '^(APIService|Namespace|Secret|PersistentVolumeClaim)$' not >"$work/delete.yaml"
say "deleting $(grep -c '^kind: ' "$work/delete.yaml") objects"
"$kubectl" delete -f "$work/delete.yaml" --ignore-not-found --cascade=foreground --timeout "${timeout}s" >"$work/out" 2>&1 ||
  { tail -n 3 "$work/out" >&2; fail "kubectl delete failed, see above; correct the cause, and run this again"; }
if [ "$purge" = 1 ]; then
  delete_namespace
  say "everything is deleted"
else
  say "kept namespace $namespace with its volumes and Secrets; PURGE=1 deletes them"
fi
