#!/usr/bin/env bash
# Installs the real etcd and etcdctl that the tests compare against.
#
#     scripts/install-etcd.sh [DIRECTORY]        default: tests/.tools
#
# The binaries come from Debian 13's packages etcd-server and etcd-client and end up in DIRECTORY/bin.
# Nothing else is changed: apt uses separate lists and a separate cache in a temporary directory,
# needs no root, and installs no package. Packages are fetched from the mirror that this machine's apt
# already uses and checked against Debian's archive keys. Running it again is cheap.
set -euo pipefail

readonly ETCD_VERSION=3.5.16
readonly SUITE=trixie

say() { printf 'install-etcd: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
# shellcheck source=scripts/debian-packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian-packages.sh"

# Prints the version of an etcd or etcdctl binary, or nothing if it does not run.
version_of() {
    case $1 in
        */etcdctl) "$1" version 2>/dev/null | sed -n 's/^etcdctl version: //p' ;;
        *) "$1" --version 2>/dev/null | sed -n 's/^etcd Version: //p' ;;
    esac
}

installed() {
    [[ $(version_of "$1/etcd" || true) == "$ETCD_VERSION" ]] &&
        [[ $(version_of "$1/etcdctl" || true) == "$ETCD_VERSION" ]]
}

report() {
    say "etcd $(version_of "$1/etcd") at $1/etcd"
    say "etcdctl $(version_of "$1/etcdctl") at $1/etcdctl"
}

main() {
    (($# <= 1)) || die "usage: $0 [DIRECTORY]"
    local here destination
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    destination=${1:-$here/tests/.tools}
    mkdir -p "$destination/bin"
    destination=$(cd "$destination" && pwd)

    if installed "$destination/bin"; then
        report "$destination/bin"
        return
    fi

    # Global for the trap, which runs after `main` has returned.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    unpack_debian_packages "$SUITE" "$work" "etcd-server=$ETCD_VERSION" "etcd-client=$ETCD_VERSION" ||
        die "elsewhere, put etcd and etcdctl $ETCD_VERSION on PATH, or name them in the variables ETCD and ETCDCTL"

    local tool
    # Renamed into place, so that an interrupted run leaves either the old binary or the new one.
    for tool in etcd etcdctl; do
        install -m 755 "$work/root/usr/bin/$tool" "$destination/bin/.$tool.new"
        mv -f "$destination/bin/.$tool.new" "$destination/bin/$tool"
    done
    installed "$destination/bin" || die "the unpacked binaries do not run, or are not $ETCD_VERSION"
    report "$destination/bin"
}

main "$@"
