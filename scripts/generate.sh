#!/usr/bin/env bash
# Regenerates all generated code: zz_generated.* and generated.{proto,pb.go}, with the generators of the very
# version of k8s.io/* that go.mod names: the grammar of the tags changes between minors. Those of konnectivity have a generator of ours. They are built into
# bin/generators. Protobuf needs protoc, which scripts/needs.sh sees to.
#
# Usage: scripts/generate.sh [TYPES=OPENAPI ...]
#   TYPES    folder of types, with a folder for each group and in it one for each version. Where a type has the tag +genclient, its
#            clients are written to TYPES/client.
#   OPENAPI  folder for the OpenAPI definitions of these types. Default: the folders of the kit.
# Variables: ROOT of scripts/project.sh
set -euo pipefail
# shellcheck source=scripts/project.sh
source "$(dirname "$0")/project.sh"
bash "$scripts/needs.sh" generate
own=
[ $# -gt 0 ] || own=1
[ $# -gt 0 ] || set -- pkg/apis=pkg/apis/openapi sample/apis=sample/openapi

module=$(go list -m)
dir() { go mod download "$1" && go list -m -f '{{.Dir}}' "$1"; }
codegen=$(dir k8s.io/code-generator)
export GOBIN=$PWD/bin/generators GOFLAGS="${GOFLAGS:-} -mod=mod"
# A project has the header of its generated files, if any, beside its go.mod.
boilerplate=$scripts/boilerplate.go.txt
[ -f "$boilerplate" ] || boilerplate=$PWD/boilerplate.go.txt
[ -f "$boilerplate" ] || boilerplate=/dev/null

# shellcheck source=/dev/null
source "$codegen/kube_codegen.sh"
roots=("${@%=*}")
# Our types refer to types in these packages. The generators must not write them: root could change the module cache.
others=(k8s.io/api/authentication/v1 k8s.io/api/autoscaling/v1)
KUBE_CODEGEN_READONLY_PKGS+=("${others[@]}")
# Protobuf code of a type that was deleted does not compile and would stop the other generators.
find "${roots[@]}" -name generated.pb.go -o -name generated.proto | xargs -r rm -f

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
# validation-gen refuses a type that contains metav1.Condition unless the package with the validation of metav1 is an input, and it writes
# into its inputs. So it reads a copy of apimachinery. It also refuses that package if no type contains a Condition, so there the Condition
# is a type to generate for by itself. See https://github.com/kubernetes/kubernetes/issues/141765.
cp -r "$(dir k8s.io/apimachinery)" "$work/apimachinery"
chmod -R u+w "$work/apimachinery"
sed -i 's|^type Condition struct {$|// +k8s:validation-gen=true\n&|' "$work/apimachinery/pkg/apis/meta/v1/types.go"
cp go.mod "$work/validation.mod"
cp go.sum "$work/validation.sum"
go mod edit -replace "k8s.io/apimachinery=$work/apimachinery" "$work/validation.mod"

# helpers runs NAME-gen for the packages that have its tag, with the further arguments.
helpers() { # NAME FILE ARGUMENT...
  local name=$1 file=$2 packages
  shift 2
  find "${roots[@]}" -name "zz_generated.$file.go" | xargs -r rm -f
  mapfile -t packages < <(grep -rl "^// +k8s:$name-gen=" "${roots[@]}" --include '*.go' | xargs -r -n 1 dirname | sort -u | sed "s|^|$module/|")
  [ ${#packages[@]} -gt 0 ] || return 0
  echo "Generating $file for ${#packages[@]} packages"
  "$GOBIN/$name-gen" --output-file "zz_generated.$file.go" --go-header-file "$boilerplate" "$@" "${packages[@]}"
}
go build -o "$GOBIN/" k8s.io/code-generator/cmd/{deepcopy,validation,defaulter,conversion}-gen
helpers deepcopy deepcopy
GOFLAGS="$GOFLAGS -modfile=$work/validation.mod" helpers validation validations "${KUBE_CODEGEN_READONLY_PKGS[@]/#/--readonly-pkg=}" \
  k8s.io/apimachinery/pkg/apis/meta/v1/validation
helpers defaulter defaults
helpers conversion conversion

# OpenAPI: not by that script, which does not take a package of ours beside those in one directory. Each file has the
# definitions of what its kinds refer to, by names that the generator only knows of the packages that it is given.
echo "Generating OpenAPI definitions"
(cd "$codegen" && go install k8s.io/kube-openapi/cmd/openapi-gen)
packages() { grep -rl '^// +k8s:openapi-gen=true' "$@" --include doc.go | xargs -n 1 dirname | sort | sed "s|^|$module/|"; }
gen_openapi() { # DIRECTORY TYPES
  # shellcheck disable=SC2046 # the words shall be split
  "$GOBIN/openapi-gen" --go-header-file "$boilerplate" --output-dir "$1" --output-pkg "$module/$1" --output-file zz_generated.openapi.go \
    --output-model-name-file zz_generated.model_name.go --report-filename /dev/null "${KUBE_CODEGEN_READONLY_PKGS[@]/#/--readonly-pkg=}" \
    $(packages "$2") "${others[@]}" k8s.io/apimachinery/pkg/{apis/meta/v1,runtime,version,api/resource}
}
for pair; do gen_openapi "${pair#*=}" "${pair%=*}"; done

# plurals are the exceptions from English in the tags +resourceName, as Kind:Kinds.
plurals() {
  grep -rh -e '^// +resourceName=' -e '^type .* struct {$' "$1" --include '*.go' | awk '
    /^\/\// { sub(/.*=/, ""); plural = $0; next }
    plural != "" {
      for (n = 0; substr(tolower($2), n + 1, 1) == substr(plural, n + 1, 1); n++);
      printf "%s%s:%s%s", sep, $2, substr($2, 1, n), substr(plural, n + 1); sep = ","; plural = ""
    }'
}
# client-gen looks for types by directory, and only in the module of the directory that it runs in.
gen_clients() { # TYPES
  local types module_directory
  types=$(realpath "$1")
  module_directory=$(go -C "$1" list -m -f '{{.Dir}}')
  (cd "$module_directory" && kube::codegen::gen_client --boilerplate "$boilerplate" --with-watch --with-applyconfig \
    --plural-exceptions "$(plurals "$types")" --output-dir "$types/client" --output-pkg "$module/$1/client" "$types")
}
for root in "${roots[@]}"; do
  grep -rq '^// +genclient$' "$root" --include '*.go' || continue
  gen_clients "$root"
done

# The methods by which the library knows that a version is deprecated: that script has no part for it.
echo "Generating lifecycle methods"
go build -o "$GOBIN/" k8s.io/code-generator/cmd/prerelease-lifecycle-gen
{ grep -rl '+k8s:prerelease-lifecycle-gen=true' "${roots[@]}" --include doc.go || true; } | xargs -r -n 1 dirname | sed 's|^|./|' |
  xargs -r "$GOBIN/prerelease-lifecycle-gen" --go-header-file "$boilerplate" --output-file zz_generated.prerelease-lifecycle.go

# Protobuf: nor for it. go-to-protobuf wants all packages below one directory by import path, so a
# directory of symlinks is made for it; a package with "-" is imported and not written.
echo "Generating protobuf code"
tree=$work/protobuf
mkdir -p "$tree/$(dirname "$module")" "$tree/k8s.io" "$tree/github.com/gogo"
ln -s "$PWD" "$tree/$module"
ln -s "$(dir k8s.io/apimachinery)" "$tree/k8s.io/apimachinery"
ln -s "$(dir k8s.io/api)" "$tree/k8s.io/api"
ln -s "$(dir github.com/gogo/protobuf)" "$tree/github.com/gogo/protobuf"
go build -o "$GOBIN/" k8s.io/code-generator/cmd/go-to-protobuf k8s.io/code-generator/cmd/go-to-protobuf/protoc-gen-gogo \
  golang.org/x/tools/cmd/goimports
PATH=$GOBIN:$PATH go-to-protobuf --go-header-file "$boilerplate" --output-dir "$tree" --proto-import "$tree/github.com/gogo/protobuf/protobuf" \
  --packages "$(packages "${roots[@]}" | paste -sd, -)$(printf ',-%s' "${others[@]}")" \
  --apimachinery-packages -k8s.io/apimachinery/pkg/util/intstr,-k8s.io/apimachinery/pkg/api/resource,-k8s.io/apimachinery/pkg/runtime/schema,-k8s.io/apimachinery/pkg/runtime,-k8s.io/apimachinery/pkg/apis/meta/v1

# The defaults of konnectivity's flags: of the kit alone.
[ -z "$own" ] || GOFLAGS="$GOFLAGS -mod=readonly" go generate ./internal/konnectivity

# What conversion-gen cannot do it leaves as a comment, and what a person must write is missing then.
unwritten() { # FILE
  awk '
    /^func autoConvert_/ { name = $2; sub(/^auto/, "", name); sub(/\(.*/, "", name) }
    /\/\/ WARNING: in\./ { sub(/.*WARNING: /, ""); print name, $0 }' "$1" |
    while read -r name problem; do
      grep -q "^func $name(" "$(dirname "$1")"/*.go || echo "generate: write the function $name in $(dirname "$1"): $problem"
    done
}
find "${roots[@]}" -name zz_generated.conversion.go | sort | while read -r file; do unwritten "$file"; done >&2
