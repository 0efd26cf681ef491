#!/usr/bin/env bash
# Installs the kubectl of two releases of Kubernetes, which the tests of tests/clients/kubernetes run.
#
#     scripts/install-kubectl.sh [DIRECTORY]        default: tests/.tools
#
# kubectl 1.20 comes from Debian 12's package kubernetes-client, as install-etcd.sh gets etcd. kubectl 1.36 is
# built from its Go modules, of which scripts/kubectl/go.sum has the checksums, where Go is installed. They
# end up in DIRECTORY/bin as kubectl-1.20 and kubectl-1.36. Needs no root. Running it again is cheap.
set -euo pipefail

readonly OLD_VERSION=1.20.2
readonly OLD_PACKAGE=1.20.5+really1.20.2
readonly SUITE=bookworm

say() { printf 'install-kubectl: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/debian-packages.sh
source "$here/scripts/debian-packages.sh"

# installed PATH VERSION: whether a kubectl runs and has a version.
installed() { [[ $("$1" version --client -o json 2>/dev/null) == *"\"gitVersion\": \"v$2\""* ]]; }

# build VERSION PATH: builds the kubectl of scripts/kubectl.
build() {
    local flags=-s\ -w package
    for package in component-base/version client-go/pkg/version; do
        flags+=" -X k8s.io/$package.gitVersion=v$1"
    done
    (cd "$here/scripts/kubectl" && go build -trimpath -ldflags "$flags" -o "$2" .)
}

main() {
    (($# <= 1)) || die "usage: $0 [DIRECTORY]"
    local destination version
    destination=${1:-$here/tests/.tools}
    mkdir -p "$destination/bin"
    destination=$(cd "$destination" && pwd)/bin
    # Global for the trap, which runs after `main` has returned.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT

    # Renamed into place, so that an interrupted run leaves either the old binary or the new one.
    if ! installed "$destination/kubectl-1.20" "$OLD_VERSION"; then
        unpack_debian_packages "$SUITE" "$work" "kubernetes-client=$OLD_PACKAGE"
        install -m 755 "$work/root/usr/bin/kubectl" "$destination/.kubectl-1.20.new"
        mv -f "$destination/.kubectl-1.20.new" "$destination/kubectl-1.20"
        installed "$destination/kubectl-1.20" "$OLD_VERSION" || die "the unpacked kubectl does not run"
    fi
    say "kubectl $OLD_VERSION at $destination/kubectl-1.20"

    # The modules of Kubernetes 1.36 have the versions v0.36.
    version=1.$(sed -n 's|^\tk8s.io/kubectl v0\.||p' "$here/scripts/kubectl/go.mod")
    if ! installed "$destination/kubectl-1.36" "$version"; then
        export GOTOOLCHAIN=local
        if ! (cd "$here/scripts/kubectl" && go list -m) &>/dev/null; then
            say "NOT INSTALLED: kubectl $version: Go is missing, or older than scripts/kubectl/go.mod requires"
            return
        fi
        say "building kubectl $version"
        build "$version" "$destination/.kubectl-1.36.new"
        mv -f "$destination/.kubectl-1.36.new" "$destination/kubectl-1.36"
        installed "$destination/kubectl-1.36" "$version" || die "the built kubectl does not run"
    fi
    say "kubectl $version at $destination/kubectl-1.36"
}

main "$@"
