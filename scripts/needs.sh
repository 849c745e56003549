#!/usr/bin/env bash
# Checks that the machine has the tools that make targets need besides Go modules, before anything
# is compiled. It reports missing tools in one message, with the command that installs them. As root
# on Debian it installs them, except for a container engine.
#
# Usage: scripts/needs.sh test|fips|generate|kind|suites ...     suites are those that run on kind
# Variables: KIND_EXPERIMENTAL_PROVIDER  podman or nerdctl instead of docker, as for kind itself
set -euo pipefail

engine=${KIND_EXPERIMENTAL_PROVIDER:-docker}
# Administrators' commands are in sbin, which is not in the PATH of Debian's other users.
PATH=$PATH:/usr/sbin:/sbin
root=
[ "$(id -u)" != 0 ] || root=1
# found looks for a command, a module of the distribution's Python (python:NAME), a running
# container engine (engine:NAME), root, or the permission to create network namespaces.
found() {
  case $1 in
    python:*) /usr/bin/python3 -c "import ${1#python:}" 2>/dev/null ;;
    engine:*) command -v "${1#engine:}" >/dev/null && "${1#engine:}" info >/dev/null 2>&1 ;;
    root) [ -n "$root" ] ;;
    namespaces) unshare --net true 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# Columns: the need, the tool, how to find it, its Debian package, and its use. Tests as root also
# need the permission to create network namespaces.
table() {
  cat <<END
root      namespaces          namespaces         -                   each host of a test has a network namespace
test      nft                 nft                nftables            kube-proxy writes its rules with it
test      openssl             openssl            openssl             reads certificates independently of certgen
test      curl                curl               curl                a client of kube-apiserver behind konnectivity
test      tinyproxy           tinyproxy          tinyproxy-bin       an HTTP proxy between a client and kube-apiserver
test      microsocks          microsocks         microsocks          a SOCKS5 proxy between a client and kube-apiserver
test      python3-websocket   python:websocket   python3-websocket   a WebSocket client of the API
test      python3-kubernetes  python:kubernetes  python3-kubernetes  a client of the API
test      node                node               nodejs              runs clients in JavaScript
test      npm                 npm                npm                 downloads clients in JavaScript, the first time
fips      openssl             openssl            openssl             a client of the server
generate  protoc              protoc             protobuf-compiler   writes the protobuf code of types
verify    gcc                 gcc                gcc                 builds Vale, which reads documentation and comments
kind      $engine             engine:$engine      -                   runs the nodes of kind clusters
suites    tinyproxy           tinyproxy          tinyproxy-bin       an HTTP proxy between a client and kube-apiserver
suites    curl                curl               curl                runs the commands of docs/operate/access.md and docs/operate/second-scheduler.md
suites    openssl             openssl            openssl             reads the certificate of kube-apiserver
END
}

if [[ " $* " == *" test "* ]]; then
  if [ -n "$root" ]; then set -- "$@" root; else echo "not root: tests of several hosts are skipped, except those of konnectivity if the kernel allows user namespaces; go test -v lists them" >&2; fi
fi
missing=() packages=() by_hand=()
while read -r who what how package why; do
  [[ " $* " == *" $who "* ]] || continue
  if [[ " ${packages[*]} " == *" $package "* ]] || found "$how"; then continue; fi
  missing+=("$what ($why)")
  case $what in
    root) [[ " ${by_hand[*]} " == *"as root"* ]] || by_hand+=("run it as root") ;;
    namespaces) by_hand+=("give the container CAP_SYS_ADMIN and CAP_NET_ADMIN, as docker run --privileged does") ;;
    "$engine") by_hand+=("install $engine and start it, or set KIND_EXPERIMENTAL_PROVIDER to podman or nerdctl; $engine info shows the problem") ;;
    *) packages+=("$package") ;;
  esac
done < <(table)
[ ${#missing[@]} -gt 0 ] || exit 0

list=$(printf '%s, ' "${missing[@]}")
if [ -n "$root" ] && command -v apt-get >/dev/null && [ ${#by_hand[@]} = 0 ]; then
  echo "Installing ${packages[*]}: ${list%, }"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null && exit 0
fi
{
  echo "missing: ${list%, }"
  [ ${#packages[@]} = 0 ] || echo "hint: apt-get install ${packages[*]}"
  [ ${#by_hand[@]} = 0 ] || printf 'hint: %s\n' "${by_hand[@]}"
} >&2
exit 1
