# shellcheck shell=bash
# Sourced by deploy.sh and undeploy.sh: renders the overlay, runs kubectl, and prints messages.
#
# Variables: those of scripts/project.sh, and
#   IMAGE, CERTGEN_IMAGE  full names with tags, instead of those in the overlay
#   CONTROLLER_IMAGES     full names with tags of the controllers, separated by spaces; the last
#                         element of a name is the name of the container
#   KUBECONFIG            as for kubectl
#   KUBECTL               the command (default: bin/1.37/kubectl if it was built, or kubectl)

# shellcheck source=scripts/project.sh
source "$(dirname "${BASH_SOURCE[0]}")/project.sh"
kubectl=${KUBECTL:-$([ -x bin/1.37/kubectl ] && echo bin/1.37/kubectl || echo kubectl)}

me=$(basename "$0" .sh)
began=$SECONDS
say() { printf '%(%H:%M:%S)T %4ds  %s\n' -1 $((SECONDS - began)) "$*"; }
fail() { echo "$me: $*" >&2; exit 1; }

# A request without a response after 20 s will get none. Waits use --timeout.
k() { "$kubectl" --request-timeout=20s "$@"; }
# ask COMMAND... prints the command's output. If it fails, $work/problem has the last line of its
# errors.
ask() { "$@" 2>"$work/errors" || { grep -v '^E[0-9]' "$work/errors" | tail -n 1 >"$work/problem"; return 1; }; }

# render writes to $work: all.yaml, apiservices.yaml (kind APIService), namespace.yaml (kind
# Namespace), rest.yaml. It sets part_of to the name of the Service. Every object has it in a
# label, by which these scripts recognize their own objects.
render() {
  command -v "$kubectl" >/dev/null || fail "command $kubectl not found; install kubectl, or run: make controlplane"
  [ -f "$overlay/kustomization.yaml" ] || fail "OVERLAY is '$overlay': must be a directory with a kustomization.yaml, such as sample/manifests/kind"
  build "$overlay"
  part_of=$(backends | sed 's#.*/##' | sort -u)
  [[ -n $part_of && $part_of != *$'\n'* ]] || fail "the APIServices of $overlay have the Services '${part_of//$'\n'/ }', and must have one"
  mkdir "$work/overlay"
  {
    printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: ["%s"]\n' "$(realpath --relative-to="$work/overlay" "$overlay")"
    printf 'labels:\n- pairs: {app.kubernetes.io/part-of: %s}\nimages:\n' "$part_of"
    image_entry extension-apiserver "${IMAGE:-}"
    image_entry certgen "${CERTGEN_IMAGE:-}"
    local image container
    for image in ${CONTROLLER_IMAGES:-}; do
      container=${image##*/}
      image_entry "${container%%:*}" "$image"
    done
  } >"$work/overlay/kustomization.yaml"
  build "$work/overlay"
}

# build DIRECTORY renders a kustomization into $work.
build() {
  "$kubectl" kustomize "$1" >"$work/all.yaml" 2>"$work/errors" || fail "render $overlay: $(tail -n 1 "$work/errors")"
  select_kinds '^APIService$' >"$work/apiservices.yaml"
  select_kinds '^Namespace$' >"$work/namespace.yaml"
  select_kinds '^(APIService|Namespace)$' not >"$work/rest.yaml"
  [ -s "$work/apiservices.yaml" ] && [ -s "$work/namespace.yaml" ] || fail "$overlay renders no APIService or no Namespace; see manifests/README.md"
}

# image_entry CONTAINER IMAGE prints an entry that replaces the container's image. The entry must
# refer to the name that the overlay gives the image.
image_entry() {
  [ -n "$2" ] || return 0
  local name=${2%:*} tag=${2##*:} inner
  [[ $2 == *:* && $tag != */* ]] || fail "image '$2' has no tag: must be NAME:TAG"
  awk -v container="$1" '
    { indent = match($0, /[^ ]/) }
    $1 == "image:" { image = $2; at = indent }
    # kustomize sorts keys: the name of a container follows its image. The next name at that depth
    # belongs to another object.
    $1 == "name:" && indent == at { if ($2 == container) print image; at = 0 }' "$work/all.yaml" | sed -E 's#[:@][^/]*$##' | sort -u |
    while read -r inner; do printf -- '- {name: "%s", newName: "%s", newTag: "%s"}\n' "$inner" "$name" "$tag"; done
}

# select_kinds REGEX [not] prints the documents of all.yaml whose kind matches, or does not.
select_kinds() {
  awk -v want="$1" -v not="${2:-}" '
    function flush() { if (doc != "" && ((kind ~ want) == (not == ""))) printf "---\n%s", doc; doc = ""; kind = "" }
    /^---$/ { flush(); next }
    /^kind: / { kind = $2 }
    { doc = doc $0 "\n" }
    END { flush() }' "$work/all.yaml"
}

# names KIND prints "NAMESPACE NAME" for each rendered object of that kind, with - for no
# namespace.
names() {
  select_kinds "^$1\$" | awk '
    function flush() { if (name != "") print (ns == "" ? "-" : ns), name; name = ns = "" }
    /^---$/ { flush(); meta = 0 }
    /^[a-z]/ { meta = ($1 == "metadata:") }
    meta && /^  name: / { name = $2 }
    meta && /^  namespace: / { ns = $2 }
    END { flush() }'
}

# backends prints "NAME NAMESPACE/SERVICE" for each rendered APIService.
backends() {
  awk '
    function flush() { if (name != "") print name, sns "/" sname; name = sns = sname = "" }
    /^---$/ { flush() }
    /^[a-z]/ { meta = ($1 == "metadata:") }
    /^  [a-z]/ { service = ($1 == "service:") }
    meta && /^  name: / { name = $2 }
    service && /^    name: / { sname = $2 }
    service && /^    namespace: / { sns = $2 }
    END { flush() }' "$work/apiservices.yaml"
}

# backend_of APISERVICE prints its NAMESPACE/SERVICE in the cluster, "local" if kube-apiserver
# serves it itself, or "" if it does not exist.
backend_of() {
  k get apiservice "$1" --ignore-not-found -o go-template='{{with .spec.service}}{{.namespace}}/{{.name}}{{else}}local{{end}}'
}

# groups prints the API groups of the rendered APIServices.
groups() { awk '/^  group: / && !seen[$2]++ { print $2 }' "$work/apiservices.yaml"; }

# check_kubeconfig sets version, such as 1.37.2.
check_kubeconfig() {
  version=$(ask k get --raw /version) || {
    # For a missing file, kubectl reports that localhost:8080 refuses connections.
    [[ ${KUBECONFIG:-} == *:* || -e ${KUBECONFIG:-${HOME:-}/.kube/config} ]] || echo "no such file; set KUBECONFIG" >"$work/problem"
    fail "the cluster of the kubeconfig (${KUBECONFIG:-~/.kube/config}, context $("$kubectl" config current-context 2>/dev/null || echo none)) cannot be used: $(cat "$work/problem")"
  }
  version=$(sed -nE 's/.*"gitVersion": *"v?([^"]*)".*/\1/p' <<<"$version")
  [[ $version =~ ^[0-9]+\.[0-9]+ ]] || fail "the server in the kubeconfig is not a kube-apiserver: its /version has no gitVersion"
}

# may VERB RESOURCE [NAMESPACE] fails unless the user has the permission.
may() {
  [ "$(k auth can-i "$1" "$2" ${3:+--namespace "$3"} 2>/dev/null)" = yes ] ||
    fail "the user of the kubeconfig cannot $1 $2${3:+ in namespace $3}; use a cluster administrator (ClusterRole cluster-admin)"
}
