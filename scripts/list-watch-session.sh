#!/usr/bin/env bash
# The commands that explain list and watch, with revstore-apiserver: the session in apiserver/README.md.
#
#     scripts/list-watch-session.sh [--server PATH] [--check | --write]
#
# Prints the session; --write puts it into the README, --check compares it with the README. The commands use
# port 8080, as they are written, or a free port if another program has that one. In the output, values that
# differ from run to run are replaced (V1, V2, ... for resource versions), and long lines are cut. Needs curl, python3 and the
# kubectl of scripts/install-kubectl.sh, or that of KUBECTL.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readme=$root/apiserver/README.md
# The number of pods, in three pages of 500.
readonly PODS=1253
# The number of characters of a line that are shown.
readonly WIDTH=118

server=$root/target/debug/revstore-apiserver
mode=print
while (($# > 0)); do
    case $1 in
    --server)
        server=$(realpath -e -- "${2:?--server needs a path}")
        shift
        ;;
    --check | --write) mode=${1#--} ;;
    *)
        echo "usage: $0 [--server PATH] [--check | --write]" >&2
        exit 2
        ;;
    esac
    shift
done

work=$(mktemp -d)
pids=()
finish() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# Port 8080 if it is free, otherwise a free one.
port=$(python3 - <<'PYTHON'
import socket
for port in (8080, 0):
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            print(probe.getsockname()[1])
            break
    except OSError:
        pass
PYTHON
)

kubectl=${KUBECTL:-$root/tests/.tools/bin/kubectl-1.36}
[[ -x $kubectl ]] || kubectl=$root/tests/.tools/bin/kubectl-1.20
mkdir "$work/bin" "$work/home"
ln -s "$(realpath -e -- "$kubectl")" "$work/bin/kubectl"
export PATH=$work/bin:$PATH HOME=$work/home

mkfifo "$work/ready"
"$server" --listen-http 127.0.0.1:0 --secure-port 0 --etcd-listen-url http://127.0.0.1:0 \
    --controllers none --min-request-timeout 3600 >"$work/ready" 2>"$work/server.log" &
pids+=($!)
read -r _ _ url KUBECONFIG <"$work/ready" || {
    cat "$work/server.log" >&2
    exit 1
}
export KUBECONFIG
etcd=$(sed -n "s/^etcd's API on //p" "$work/server.log")
api=127.0.0.1:$port

# The session as it is recorded: lines that are not commands are cut, and versions are numbered.
cat >"$work/normalize.py" <<'PYTHON'
import re, sys

port, etcd, width = sys.argv[1], sys.argv[2], int(sys.argv[3])
numbers = {}

def number(match):
    return match[1] + numbers.setdefault(match[2], f"V{len(numbers) + 1}")

for line in sys.stdin:
    line = line.rstrip("\r\n").replace(etcd, "http://127.0.0.1:2379")
    line = re.sub(rf"(127\.0\.0\.1:|--port ){port}\b", r"\g<1>8080", line)
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:]{8}(\.\d+)?Z", "TIME", line)
    line = re.sub(r"^(date: ).*", r"\1TIME", line, flags=re.I)
    line = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", line)
    line = re.sub(r'"(cluster_id|member_id)":"\d+"', r'"\1":"ID"', line)
    line = re.sub(r"((?:, |&)continue[ =])[^,&\"]+", r"\1TOKEN", line)
    line = re.sub(r'(resourceVersion(?:": ?"|=| )|"revision": ?")(\d+)', number, line)
    line = re.sub(r"(content-length: )\d+", r"\1N", line, flags=re.I)
    print(line if line.startswith("$ ") or len(line) <= width else line[: width - 3] + "...")
PYTHON
normalize() { python3 "$work/normalize.py" "$port" "$etcd" "$WIDTH"; }

# run COMMAND: shows a command and its output. Here and below, curl also gets -sN, because its output is no terminal.
run() {
    printf '$ %s\n' "$1"
    bash -c "${1/#curl/curl -sN}" 2>&1
}

# ends: the first and the last lines of the standard input.
ends() { awk '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) if (i <= 6 || i > NR - 6) print line[i]; else if (i == 7) print "    ..." }'; }

# watching LINES COMMAND [CHANGE]: shows a command that does not end, until it has printed some lines; then makes
# a change, and shows one line more.
watching() {
    local lines=$1 change=${3-} count line
    printf '$ %s\n' "$2"
    exec 9< <(exec bash -c "exec ${2/#curl/curl -sN --max-time 120}" 2>&1)
    local pid=$!
    for ((count = 0; count < lines; count++)); do
        IFS= read -r line <&9 || break
        printf '%s\n' "$line"
    done
    if [[ -n $change ]]; then
        bash -c "$change" >/dev/null
        IFS= read -r line <&9 || true
        printf '%s\n' "$line"
    fi
    kill "$pid" 2>/dev/null || true
    exec 9<&-
    printf '^C\n'
}

# page: the metadata of a list on the standard input, and the number of its items.
cat >"$work/bin/page" <<'PYTHON'
#!/usr/bin/env python3
import json, sys
page = json.load(sys.stdin)
if page["kind"] == "Status":
    print("Status:", page["code"], page["reason"])
else:
    fields = [f"{name} {value}" for name, value in sorted(page["metadata"].items(), reverse=True)]
    print(f"{page['kind']}: {len(page['items'])} items,", ", ".join(fields))
PYTHON
chmod +x "$work/bin/page"

# field NAME: one field of the last line that `page` printed.
field() { sed -n "s/.*[ ,]$1 \([^,]*\).*/\1/p" "$work/page" | tail -1; }

# list QUERY: shows one page of the pods.
list() { run "curl \"$api/api/v1/pods?$1\" | page" | tee "$work/page"; }

# pods: creates the pods, over one connection.
pods() {
    local number
    for ((number = 0; number < PODS; number++)); do
        ((number == 0)) || echo next
        printf 'url = "%s/api/v1/namespaces/many/pods"\nheader = "Content-Type: application/json"\n' "$url"
        printf 'output = /dev/null\nsilent\nfail\n'
        printf 'data = "{\\"metadata\\":{\\"name\\":\\"pod-%04d\\"},' "$number"
        printf '\\"spec\\":{\\"containers\\":[{\\"name\\":\\"main\\",\\"image\\":\\"nginx\\"}]}}"\n'
    done | curl -K -
}

session() {
    kubectl create deployment web --image=nginx >/dev/null
    kubectl run web --image=nginx >/dev/null

    local apps=$api/apis/apps/v1/namespaces/default/deployments core=$api/api/v1/namespaces/default/pods
    printf '$ kubectl proxy --port %s &\n' "$port"
    exec 8< <(exec kubectl proxy --port "$port" 2>&1)
    local proxy=$! line first token version
    IFS= read -r line <&8
    printf '%s\n' "$line"

    run "curl $apps" | ends
    # The line of the status, four headers, an empty line and an event.
    watching 7 "curl -i \"$apps?watch=true\"" 'kubectl scale deployment web --replicas=3'
    watching 1 "curl \"$core?watch=true\"" 'kubectl label pod web tier=front'
    watching 1 "curl \"$api/api/v1/watch/namespaces/default/pods\"" 'kubectl delete pod web'

    kubectl create namespace many >/dev/null
    pods
    list limit=500
    first=$(field continue)
    list "limit=500&continue=$first"
    token=$(field continue)
    list "limit=500&continue=$token"
    version=$(field resourceVersion)

    # A bookmark needs a change after the version where the watch began.
    kubectl create configmap other >/dev/null
    run "curl \"$core?watch=true&allowWatchBookmarks=true&resourceVersion=$version&timeoutSeconds=3\" | tail -1" |
        tee "$work/bookmark"
    version=$(sed -n 's/.*"resourceVersion":"\([0-9]*\)".*/\1/p' "$work/bookmark")
    kubectl run again --image=nginx >/dev/null
    run "curl \"$core?watch=true&resourceVersion=$version&timeoutSeconds=1\""

    run "curl $etcd/v3/kv/compaction -d '{\"revision\":\"$version\"}'"
    printf '\n'
    list "limit=500&continue=$token"
    run "curl -i \"$api/api/v1/pods?resourceVersion=$((version - 1))&resourceVersionMatch=Exact\""

    kill "$proxy" 2>/dev/null || true
}

session | normalize >"$work/session"

case $mode in
print) cat "$work/session" ;;
*)
    python3 - "$readme" "$work/session" "$mode" <<'PYTHON'
import difflib, re, sys

readme, session, mode = sys.argv[1:]
with open(readme) as file:
    text = file.read()
with open(session) as file:
    new = file.read()
pattern = r"(<!-- session -->\n```console\n)(.*?)(```\n<!-- end -->)"
found = re.search(pattern, text, re.S)
if not found:
    sys.exit(f"{readme} has no place for the session")
if mode == "write":
    with open(readme, "w") as file:
        file.write(text[: found.start(2)] + new + text[found.end(2) :])
elif found[2] != new:
    difference = difflib.unified_diff(found[2].splitlines(True), new.splitlines(True), "README", "now")
    sys.exit("".join(difference) + "the session differs from that in apiserver/README.md")
else:
    print(f"passed: the session of {len(new.splitlines())} lines is that of apiserver/README.md")
PYTHON
    ;;
esac
