#!/usr/bin/env bash
# scripts/generate-apiserver.sh [--check]
#
# Writes facts about kube-apiserver that its packages tell only when they are built: apiserver/tests/data/columns.txt, the
# columns of tables, apiserver/data/selectable-fields.txt, the labels of field selectors, and
# apiserver/data/flow-control.jsonl, the flow schemas and priority levels that it keeps; into the cases of
# apiserver/tests/data/prepared.json it writes what its strategies make of the objects, into those of warnings.json what they
# warn of. With --check, compares instead: the
# exit code is 1 if a file is not what the sources say. Needs Go; the modules come from its proxy, at the versions in
# scripts/apiserver/go.mod. The first build takes five minutes of processor time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/apiserver"
export GOTOOLCHAIN=local GOFLAGS=-mod=readonly
kinds=../../kinds/data/kinds.txt
directory() { go list -m -f '{{.Dir}}' "$1"; }
kubernetes=$(directory k8s.io/kubernetes)
api=$(directory k8s.io/api)
# Only read.
aggregator=$(cd ../kinds && directory k8s.io/kube-aggregator)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -trimpath -o "$work/" . ./strategies
mv "$work/apiserver" "$work/facts"
# Writes a file with a program, or compares it.
facts() {
    local file=$1 check=$2
    shift 2
    local program=$work/$1
    shift
    "$program" "$@" >"$work/new"
    if [[ $check == --check ]]; then
        diff -u "$file" "$work/new" || { echo "${file#../../} differs: run scripts/generate-apiserver.sh" >&2; exit 1; }
    else
        cat "$work/new" >"$file"
    fi
}
facts ../../apiserver/tests/data/columns.txt "${1:-}" facts columns "$kinds" "$kubernetes" "$aggregator"
facts ../../apiserver/data/selectable-fields.txt "${1:-}" facts fields "$kinds" "$kubernetes" "$api"
facts ../../apiserver/data/flow-control.jsonl "${1:-}" facts flow-control
prepared=../../apiserver/tests/data/prepared.json
facts "$prepared" "${1:-}" strategies prepared "$prepared"
warnings=../../apiserver/tests/data/warnings.json
facts "$warnings" "${1:-}" strategies warnings "$warnings"
