#!/usr/bin/env bash
# Makes a directory for the variable KUBEBUILDER_ASSETS, with which controller-runtime's envtest and others start
# revstore-apiserver in the place of kube-apiserver and of etcd.
#
#     scripts/envtest-assets.sh DIRECTORY [PROFILE]        the profile of the build: release by default, or debug
#
# kubectl is the one that scripts/install-kubectl.sh has installed, else that of PATH, else it is installed.
set -euo pipefail

die() { printf 'envtest-assets: error: %s\n' "$*" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# put FILE NAME: copies a program. Renamed into place, so that one that runs is not overwritten.
put() {
    install -m 755 "$1" "$destination/.$2.new"
    mv -f "$destination/.$2.new" "$destination/$2"
}

(($# == 1 || $# == 2)) || die "usage: $0 DIRECTORY [release|debug]"
profile=${2:-release}
case $profile in
release) flags=(--release) ;;
debug) flags=() ;;
*) die "unknown profile '$profile'" ;;
esac
mkdir -p "$1"
destination=$(cd "$1" && pwd)
cd "$here"
cargo build --locked --quiet "${flags[@]}" -p revstore-apiserver
target=$(cargo metadata --locked --no-deps --format-version 1 |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')/$profile
put "$target/revstore-apiserver" kube-apiserver
# The same program, so that the server can run in the process of the etcd.
put "$target/revstore-apiserver" etcd

kubectl=
for candidate in tests/.tools/bin/kubectl-1.36 "$(type -P kubectl || true)" tests/.tools/bin/kubectl-1.20; do
    if [[ -x $candidate ]]; then
        kubectl=$candidate
        break
    fi
done
if [[ -z $kubectl ]]; then
    scripts/install-kubectl.sh
    kubectl=tests/.tools/bin/kubectl-1.36
    [[ -x $kubectl ]] || kubectl=tests/.tools/bin/kubectl-1.20
fi
put "$kubectl" kubectl
printf 'export KUBEBUILDER_ASSETS=%q\n' "$destination"
