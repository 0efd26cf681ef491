#!/usr/bin/env bash
# Builds a static binary of the server and runs it in an empty root directory.
#
#     scripts/static-binary.sh [OUTPUT]        default: target/static/revstore
#
# The binary needs no libc, loader or other file of the system. To check that, the script runs it in a
# root directory that contains nothing else, in separate namespaces. There the server starts, responds
# to a health check and to a Put and a Range through the JSON gateway, and stops on SIGTERM. Needs
# bash, curl, unshare and chroot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

output=${1:-${CARGO_TARGET_DIR:-target}/static/revstore}
triple=$(rustc -vV | sed -n 's/^host: //p')
directory=${CARGO_TARGET_DIR:-target}/static

# With --target the flags do not apply to build scripts and procedural macros, which cannot be static.
RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --locked --release -p revstore --target "$triple" --target-dir "$directory"
mkdir -p "$(dirname "$output")"
install -m 755 "$directory/$triple/release/revstore" "$output"

if readelf --program-headers "$output" | grep -q INTERP; then
    echo "$output needs a dynamic loader" >&2
    exit 1
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install -m 755 "$output" "$root/revstore"

# Runs in a separate network namespace, so that the port is free.
check() {
    set -euo pipefail
    local root=$1 url=http://127.0.0.1:2379 server
    ip link set lo up 2>/dev/null || ifconfig lo up
    chroot "$root" /revstore --listen-client-urls "$url" --advertise-client-urls "$url" \
        --listen-peer-urls http://127.0.0.1:2380 &
    server=$!
    trap 'kill -9 "$server" 2>/dev/null || true' EXIT
    curl --silent --fail --retry 200 --retry-delay 0 --retry-max-time 10 --retry-connrefused \
        --output /dev/null "$url/health"
    curl --silent --fail "$url/version" && echo
    # base64: "color", "blue"
    curl --silent --fail --data '{"key":"Y29sb3I=","value":"Ymx1ZQ=="}' "$url/v3/kv/put" && echo
    curl --silent --fail --data '{"key":"Y29sb3I="}' "$url/v3/kv/range" | grep '"value":"Ymx1ZQ=="'
    kill -TERM "$server"
    # etcd and this server end by the signal that stopped them.
    local code=0
    wait "$server" || code=$?
    trap - EXIT
    ((code == 143 || code == 0)) || { echo "the server ended with status $code" >&2; return 1; }
}
export -f check
namespaces=(--net --mount)
((EUID == 0)) || namespaces+=(--user --map-root-user)
unshare "${namespaces[@]}" bash -c 'check "$1"' check "$root"

printf '%s: static, %s bytes, runs in an empty root directory\n' "$output" "$(stat -c %s "$output")"
