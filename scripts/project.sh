# shellcheck shell=bash
# Sourced by the other scripts: the project whose server they build and deploy. It is the kit with its sample, unless the environment
# says otherwise, as the Makefile of a project does:
#
#   ROOT      its folder, in which the commands run
#   SERVER    package of its server; the last element is the name of its binary and of its image
#   OVERLAY   what is deployed: the directory of a kustomization
#   OBJECTS   directory with objects of its API, whose creation is tried after a deployment
scripts=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
cd "${ROOT:-$scripts/..}" || exit 1

# shellcheck disable=SC2034 # they are used where this is sourced
# The module of the kit, by which a project has the packages of these scripts.
kit=example.com/extension-apiserver
server=${SERVER:-./cmd/extension-apiserver}
server_name=${server##*/}
overlay=${OVERLAY:-sample/manifests/kind}
objects_directory=${OBJECTS:-sample/objects}
# Commands of a project that run beside its server, each in an image of its own.
controllers=()
for directory in cmd/*-controller/; do
  [ ! -d "$directory" ] || controllers+=("$(basename "$directory")")
done
