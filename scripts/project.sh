# shellcheck shell=bash
# Sourced by the other scripts: the project whose server they build and deploy. It is the kit with
# its sample, unless variables define another one, as the Makefile of a project does:
#
#   ROOT      its folder, in which the commands run
#   SERVER    package of its server; the last element is the name of its binary and of its image
#   OVERLAY   directory of the kustomization to deploy
#   OBJECTS   directory with objects of its API, which are created in a dry run after a deployment
scripts=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
cd "${ROOT:-$scripts/..}" || exit 1

# shellcheck disable=SC2034 # they are used where this is sourced
# The module path of the kit, which also contains the commands of these scripts.
kit=example.com/extension-apiserver
server=${SERVER:-./cmd/extension-apiserver}
server_name=${server##*/}
overlay=${OVERLAY:-sample/manifests/kind}
objects_directory=${OBJECTS:-sample/objects}
# Commands of a project that run beside its server, each in its own image.
controllers=()
for directory in cmd/*-controller/; do
  [ ! -d "$directory" ] || controllers+=("$(basename "$directory")")
done
# Commands of the kit, each in its own image. A project uses the kit's image of kubectl-aggregation.
tools=(certgen)
[ -n "${SERVER:-}" ] || tools+=(kubectl-aggregation)
