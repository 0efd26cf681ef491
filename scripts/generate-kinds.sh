#!/usr/bin/env bash
# scripts/generate-kinds.sh [--check]
#
# Writes kinds/data/kinds.txt, the facts about the kinds of Kubernetes, and apiserver/data/bootstrap-policy.jsonl, the roles
# and bindings of a fresh cluster. With --check, compares instead: the exit code is 1 if a file is not what the sources say. Needs Go; the modules come from its proxy, at the versions here and in
# scripts/kinds/go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/kinds"
table=../../kinds/data/kinds.txt
policy=../../apiserver/data/bootstrap-policy.jsonl

# Discovery and OpenAPI documents. The module is not built, only read: its go.mod needs hundreds of others.
kubernetes=v1.36.3
sum=h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=

export GOTOOLCHAIN=local GOFLAGS=-mod=readonly
module=$(cd / && go mod download -json "k8s.io/kubernetes@$kubernetes")
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\?$/\1/p" <<<"$module"; }
[[ $(field Sum) == "$sum" ]] || { echo "k8s.io/kubernetes $kubernetes has the hash $(field Sum)" >&2; exit 1; }

new=$(mktemp)
trap 'rm -f "$new"' EXIT
# Compares the new file with the one in the repository, or replaces it.
finish() {
    if [[ $1 == --check ]]; then
        diff -u "$2" "$new" || { echo "${2#../../} differs: run scripts/generate-kinds.sh" >&2; exit 1; }
    else
        mkdir -p "$(dirname "$2")"
        cat "$new" >"$2"
    fi
}
go run . "$(field Dir)" "$kubernetes" >"$new"
finish "${1:-}" "$table"
go run . --policy "$(field Dir)" >"$new"
finish "${1:-}" "$policy"
