#!/usr/bin/env bash
# Checks that a machine has what make targets need besides Go modules, before anything is compiled. What is missing is said in one
# message, with the command that installs it. As root on Debian it is installed, but for a container engine.
#
# Usage: scripts/needs.sh test|generate|kind|suites ...     suites are those that run on kind
# Variables: KIND_EXPERIMENTAL_PROVIDER  podman or nerdctl instead of docker, as kind itself has it
set -euo pipefail

engine=${KIND_EXPERIMENTAL_PROVIDER:-docker}
# found looks for a command, or for a module of the distribution's Python: python:NAME.
found() { if [[ $1 == python:* ]]; then /usr/bin/python3 -c "import ${1#python:}" 2>/dev/null; else command -v "$1" >/dev/null; fi; }

# Who needs it, what, how it is found, its Debian package, and what for.
table() {
  cat <<END
test      nft                 nft                nftables            kube-proxy writes its rules with it
test      openssl             openssl            openssl             the second reading of certificates
test      curl                curl               curl                a client of kube-apiserver behind konnectivity
test      tinyproxy           tinyproxy          tinyproxy-bin       an HTTP proxy between a client and kube-apiserver
test      microsocks          microsocks         microsocks          a SOCKS5 proxy likewise
test      python3-websocket   python:websocket   python3-websocket   a client of a console
test      python3-kubernetes  python:kubernetes  python3-kubernetes  a client of the API
test      node                node               nodejs              runs clients in JavaScript
test      npm                 npm                npm                 fetches them, the first time
generate  protoc              protoc             protobuf-compiler   writes the protobuf code of types
kind      $engine             $engine             -                   runs the nodes of kind clusters
suites    curl                curl               curl                runs the commands of docs/access.md and docs/second-scheduler.md
suites    openssl             openssl            openssl             reads the certificate of kube-apiserver
END
}

missing=() packages=() by_hand=
while read -r who what how package why; do
  [[ " $* " == *" $who "* ]] || continue
  if found "$how" || [[ " ${packages[*]} " == *" $package "* ]]; then continue; fi
  missing+=("$what ($why)")
  if [ "$package" = - ]; then by_hand="install $what, or set KIND_EXPERIMENTAL_PROVIDER to podman or nerdctl"; else packages+=("$package"); fi
done < <(table)
if [[ " $* " == *" test "* ]] && [ "$(id -u)" != 0 ]; then
  echo "not root: tests of several hosts, which make network namespaces, are skipped; go test -v names them" >&2
fi
if [[ " $* " == *" test "* ]] && [ "$(id -u)" = 0 ] && ! unshare --net true 2>/dev/null; then
  echo "missing: the right to make network namespaces, although this is root" >&2
  echo "hint: give the container CAP_SYS_ADMIN and CAP_NET_ADMIN, as docker run --privileged does" >&2
  exit 1
fi
[ ${#missing[@]} -gt 0 ] || exit 0

list=$(printf '%s, ' "${missing[@]}")
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ -z "$by_hand" ]; then
  echo "Installing ${packages[*]}: ${list%, }"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null && exit 0
fi
{
  echo "missing: ${list%, }"
  [ ${#packages[@]} = 0 ] || echo "hint: apt-get install ${packages[*]}"
  [ -z "$by_hand" ] || echo "hint: $by_hand"
} >&2
exit 1
