#!/usr/bin/env python3
"""Runs revstore-apiserver and a real kube-apiserver over one etcd, and checks that each reads what the other writes.

usage: KUBE_APISERVER=PROGRAM shared_etcd.py BINARY ETCD

KUBE_APISERVER is a kube-apiserver 1.36. With REVSTORE_KINDS_EXAMPLES, the directory testdata/HEAD of the Go module
k8s.io/api, it also compares how the servers read all kinds from protobuf and JSON.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

from processes import Etcd, Front, Process, call, free_port, open_url, version, wait_for

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
# Seconds between two compactions.
INTERVAL = 5
# Seconds without requests, in which nothing but leases is written.
REST = 20
# Services that each server creates at a time.
SERVICES_EACH = 60
NAMED = {"metadata": {"name": "a"}}
# What a kube-apiserver writes at intervals.
LEASES = ("/registry/leases/", "/registry/masterleases/", "/registry/peerserverleases/")
# What the examples cannot show: they have all fields, of which some are the same in objects that servers write.
UNREAL = re.compile(r"serviceAccount$|podIPs|stringData|template.generation$|current-metrics$")
failures = []


def check(what, condition, shown=""):
    if not condition:
        failures.append(what)
    print("ok  " if condition else "FAIL", what, "" if condition else str(shown)[:600], flush=True)


class Kube(Process):
    """A real kube-apiserver."""

    def __init__(self, program, urls, directory):
        port = free_port()
        self.url = "https://127.0.0.1:%d" % port
        key = os.path.join(directory, "sa.key")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, stderr=subprocess.DEVNULL)
        super().__init__([
            program, "--etcd-servers=" + urls, "--bind-address=127.0.0.1", "--secure-port=%d" % port,
            "--cert-dir=" + os.path.join(directory, "kube"), "--token-auth-file=" + os.path.join(directory, "tokens.csv"),
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key,
            "--service-account-signing-key-file=" + key, "--disable-admission-plugins=ServiceAccount",
            "--etcd-compaction-interval=%ds" % INTERVAL],
            stdout=open(os.path.join(directory, "kube.log"), "w"), stderr=subprocess.STDOUT)

    def call(self, method, path, body=None, kind=None):
        return call(self.url, method, path, body, kind)


class Watch(threading.Thread):
    """The types and names of the events of a watch."""

    def __init__(self, url, path):
        super().__init__(daemon=True)
        self.answer, self.events = open_url(url, "GET", path, limit=120), []
        self.start()

    def run(self):
        try:
            for line in self.answer:
                event = json.loads(line)
                if event["type"] != "BOOKMARK":
                    self.events.append((event["type"], event["object"]["metadata"].get("name"),
                                        event["object"]["metadata"].get("resourceVersion")))
        except (OSError, ValueError, AttributeError):
            pass


def definition():
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 3}, "name": {"type": "string"}}}}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced",
                     "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                     "versions": [{"name": "v1", "served": True, "storage": True,
                                   "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}]}}


OBJECTS = [
    ("/api/v1/namespaces", {"metadata": {"name": "%s-ns", "labels": {"a": "b"}}}),
    (CONFIG_MAPS, {"metadata": {"name": "%s-cm"}, "data": {"k": "v"}, "binaryData": {"b": "AAEC"}}),
    ("/api/v1/namespaces/default/secrets", {"metadata": {"name": "%s-se"}, "stringData": {"k": "v"}}),
    ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "%s-sa"}}),
    ("/api/v1/namespaces/default/pods", {"metadata": {"name": "%s-po"}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                        "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"path": "/", "port": "h"}}}]}}),
    ("/api/v1/namespaces/default/persistentvolumeclaims", {"metadata": {"name": "%s-pvc"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
    ("/api/v1/nodes", {"metadata": {"name": "%s-node"}, "spec": {"podCIDR": "10.1.0.0/24"}}),
    ("/api/v1/namespaces/default/endpoints", {"metadata": {"name": "%s-ep"}, "subsets": [
        {"addresses": [{"ip": "10.2.0.1"}], "ports": [{"port": 80}]}]}),
    ("/api/v1/namespaces/default/events", {"metadata": {"name": "%s-ev"}, "reason": "r", "message": "m",
                                           "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}),
    (SERVICES, {"metadata": {"name": "%s-svc"}, "spec": {"type": "NodePort", "selector": {"a": "b"},
                                                         "ports": [{"port": 80, "targetPort": "http"}]}}),
    ("/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "%s-d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "c", "image": "i"}]}}}}),
    ("/apis/batch/v1/namespaces/default/cronjobs", {"metadata": {"name": "%s-cj"}, "spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"metadata": {"name": "%s-l"}, "spec": {
        "holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.000001Z", "leaseDurationSeconds": 15}}),
    ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", {"metadata": {"name": "%s-i"}, "spec": {
        "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
    ("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", {"metadata": {"name": "%s-np"}, "spec": {
        "podSelector": {}, "policyTypes": ["Ingress"]}}),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "%s-cr"}, "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    ("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "%s-sc"}, "provisioner": "p"}),
    ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"metadata": {"name": "%s-pdb"}, "spec": {
        "maxUnavailable": "50%%", "selector": {"matchLabels": {"a": "b"}}}}),
    ("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", {"metadata": {"name": "%s-hpa"}, "spec": {
        "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "%s-pc"}, "value": 5}),
    ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", {"metadata": {"name": "%s-es"}, "addressType": "IPv4",
                                                                    "endpoints": [{"addresses": ["10.2.0.1"]}]}),
    (WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "%s-w"}, "spec": {"name": "n"}}),
]


def named(prefix, body):
    return json.loads(json.dumps(body) % prefix)


def both_ways(kube, ours):
    """Each server reads, updates and deletes what the other has created."""
    for writer, reader, prefix in [(kube, ours, "k"), (ours, kube, "o")]:
        who = "kube-apiserver" if writer is kube else "revstore-apiserver"
        for path, body in OBJECTS:
            body = named(prefix, body)
            status, created = writer.call("POST", path, body)
            one = path + "/" + body["metadata"]["name"]
            check("%s creates %s" % (who, one), status == 201, created)
            if status != 201:
                continue
            # What the writer reads itself: defaults of old versions are those of a read.
            status, expected = writer.call("GET", one)
            status, read = reader.call("GET", one)
            check("the other reads " + one, status == 200 and read == expected, difference(expected, read))
            change = {"metadata": {"labels": {"changed": "yes"}}}
            status, changed = reader.call("PATCH", one, change)
            check("the other changes " + one, status == 200, changed)
            status, read = writer.call("GET", one)
            check("it reads the change of " + one, read == changed, difference(changed, read))
            listed = writer.call("GET", path)[1].get("items", [])
            check("it lists " + one, body["metadata"]["name"] in [item["metadata"]["name"] for item in listed])
            status, changed = writer.call("PATCH", one, {"metadata": {"labels": {"changed": "again"}}})
            check("it changes %s again" % one, status == 200, changed)
            if "namespaces/" in path or "nodes" in path:
                status, gone = reader.call("DELETE", one + "?gracePeriodSeconds=0")
                check("the other deletes " + one, status in (200, 202), gone)


def difference(expected, found, path=""):
    """Returns the paths at which two values differ."""
    if type(expected) is not type(found):
        return [(path, expected, found)]
    if isinstance(expected, dict):
        keys = sorted(set(expected) | set(found))
        return [it for key in keys for it in difference(expected.get(key), found.get(key), path + "." + key)]
    if isinstance(expected, list) and len(expected) == len(found):
        return [it for index, pair in enumerate(zip(expected, found))
                for it in difference(*pair, path + "[%d]" % index)]
    return [] if expected == found else [(path, expected, found)]


def resources(server):
    """Returns the resources that can be read one by one, by group, version and kind."""
    found = {}
    groups = server.call("GET", "/apis")[1]["groups"]
    versions = [("", "v1")] + [(group["name"], one["version"]) for group in groups for one in group["versions"]]
    for group, one in versions:
        base = "/apis/%s/%s" % (group, one) if group else "/api/v1"
        for resource in server.call("GET", base)[1].get("resources", []):
            if "/" not in resource["name"] and "get" in resource["verbs"]:
                found[group, one, resource["kind"]] = (base, resource["name"], resource["namespaced"])
    return found


SPECIAL_KEYS = {("", "nodes"): "minions", ("", "services"): "services/specs", ("", "endpoints"): "services/endpoints",
                ("", "replicationcontrollers"): "controllers", ("networking.k8s.io", "ingresses"): "ingress",
                ("apiregistration.k8s.io", "apiservices"): "apiregistration.k8s.io/apiservices",
                ("apiextensions.k8s.io", "customresourcedefinitions"): "apiextensions.k8s.io/customresourcedefinitions"}


def examples(kube, ours, etcd, directory):
    """Both servers read the example of each kind, in protobuf and in JSON."""
    known = resources(ours)
    compared = {"pb": 0, "json": 0}
    for form in compared:
        for file in sorted(glob.glob(os.path.join(directory, "*." + form))):
            group, one, kind = os.path.basename(file)[:-len(form) - 1].rsplit(".", 2)
            group = "" if group == "core" else group
            resource = known.get((group, one, kind))
            # They take effect as soon as they are stored.
            if not resource or kind in ("CustomResourceDefinition", "APIService", "Node", "ServiceCIDR", "IPAddress",
                                                 "ComponentStatus") or \
                    group in ("flowcontrol.apiserver.k8s.io", "admissionregistration.k8s.io"):
                continue
            base, plural, namespaced = resource
            with open(file, "rb") as data:
                value = data.read()
            if form == "json":
                # As servers write it.
                value = json.dumps(json.loads(value), separators=(",", ":"))
            scope = "namespaceValue/" if namespaced else ""
            key = "/registry/%s/%snameValue" % (SPECIAL_KEYS.get((group, plural), plural), scope)
            path = base + ("/namespaces/namespaceValue" if namespaced else "") + "/" + plural + "/nameValue"
            etcd.put(key, value)
            expected, found = kube.call("GET", path), ours.call("GET", path)
            differences = [it for it in difference(expected[1], found[1]) if not UNREAL.search(it[0])]
            same = expected[0] == found[0] and not differences
            if not same:
                check("%s %s" % (form, path), False, (expected[0], found[0], differences[:4]))
            compared[form] += same
            etcd.delete(key)
    print("examples that both read alike:", compared, flush=True)
    check("examples were compared", min(compared.values()) > 40)


def at_rest(etcd):
    """Nothing is written for ever."""
    before = etcd.revision()
    time.sleep(REST)
    after = etcd.revision()
    changed = [key for key in etcd.keys("/registry/") if int((etcd.get(key) or {"mod_revision": 0})["mod_revision"]) > before]
    changed.sort()
    print("revisions in %d s at rest: %d, of keys: %s" % (REST, after - before, changed), flush=True)
    others = [key for key in changed if not key.startswith(LEASES)]
    check("at rest only leases are written", not others, others)


def one_compactor(etcd):
    """One of the servers compacts in each interval."""
    def turns():
        return int((etcd.get("compact_rev_key") or {"version": 0})["version"])
    first = wait_for("a compaction", lambda: turns() or None)
    begun = time.monotonic()
    time.sleep(4 * INTERVAL)
    intervals = (time.monotonic() - begun) / INTERVAL
    taken = turns() - first
    print("turns in %.1f intervals: %d" % (intervals, taken), flush=True)
    check("one compactor", intervals - 1.5 <= taken <= intervals + 1.5)


def services(kube, ours):
    """No address and no port is given twice."""
    given, lock = [], threading.Lock()

    def create(server, prefix):
        for number in range(SERVICES_EACH):
            body = {"metadata": {"name": "%s%d" % (prefix, number)},
                    "spec": {"type": "NodePort", "ports": [{"port": 80}, {"name": "b", "port": 81}] if number % 2 else
                             [{"port": 80}]}}
            if number % 2:
                body["spec"]["ports"][0]["name"] = "a"
            status, made = server.call("POST", SERVICES, body)
            with lock:
                if status == 201:
                    given.append(made)
                else:
                    failed.append((status, made.get("message")))
            if number % 3 == 2 and status == 201:
                server.call("DELETE", SERVICES + "/" + body["metadata"]["name"])
                with lock:
                    given.remove(made)
    failed = []
    threads = [threading.Thread(target=create, args=(server, prefix))
               for server, prefix in [(kube, "ka"), (ours, "oa"), (kube, "kb"), (ours, "ob")]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("services: %d kept, %d failed: %s" % (len(given), len(failed), failed[:3]), flush=True)
    items = ours.call("GET", SERVICES)[1]["items"]
    ips = [item["spec"]["clusterIP"] for item in items]
    ports = [port["nodePort"] for item in items for port in item["spec"]["ports"] if "nodePort" in port]
    check("no address is given twice", len(ips) == len(set(ips)) and len(ips) > SERVICES_EACH, sorted(ips))
    check("no port is given twice", len(ports) == len(set(ports)), sorted(ports))
    addresses = {item["metadata"]["name"] for item in ours.call("GET", "/apis/networking.k8s.io/v1/ipaddresses")[1]["items"]}
    check("each address has an object", set(ips) <= addresses, set(ips) - addresses)
    status, answer = kube.call("POST", SERVICES, {"metadata": {"name": "twice"}, "spec": {
        "clusterIP": items[-1]["spec"]["clusterIP"], "ports": [{"port": 1}]}})
    check("kube-apiserver refuses an address in use", status == 422, answer)


def main():
    binary, etcd_binary = sys.argv[1:3]
    program = os.environ.get("KUBE_APISERVER")
    if not program:
        print("NOT RUN with a real kube-apiserver: KUBE_APISERVER does not name one")
        return
    with tempfile.TemporaryDirectory() as directory:
        running = []
        try:
            etcd = Etcd(etcd_binary, directory)
            running.append(etcd)
            flags = ("--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
                     "--etcd-compaction-interval=%ds" % INTERVAL)
            first = os.environ.get("REVSTORE_FIRST", "kube")
            if first != "kube":
                ours = Front(binary, etcd.urls(), directory, *flags)
                running.append(ours)
            with open(os.path.join(directory, "tokens.csv"), "w") as file:
                file.write('testtoken,admin,1,"system:masters"\n')
            kube = Kube(program, etcd.urls(), directory)
            running.append(kube)
            wait_for("kube-apiserver", lambda: kube.call("GET", "/readyz")[0] == 200)
            if first == "kube":
                ours = Front(binary, etcd.urls(), directory, *flags)
                running.append(ours)
            watches = [Watch(server.url, CONFIG_MAPS + "?watch=1") for server in (kube, ours)]
            status, made = kube.call("POST", DEFINITIONS, definition())
            check("kube-apiserver creates a definition", status == 201, made)
            for server in (kube, ours):
                wait_for("the definition", lambda: server.call("GET", WIDGETS)[0] == 200)
            at_rest(etcd)
            both_ways(kube, ours)
            services(kube, ours)
            one_compactor(etcd)
            kube_events, our_events = [watch.events for watch in watches]
            wait_for("the same events", lambda: len(kube_events) == len(our_events), 10)
            check("both watches show the same", kube_events == our_events, (kube_events, our_events))
            check("a watch has events", len(our_events) >= 8, our_events)
            directory_of_examples = os.environ.get("REVSTORE_KINDS_EXAMPLES")
            if directory_of_examples:
                examples(kube, ours, etcd, directory_of_examples)
            status, made = ours.call("DELETE", DEFINITIONS + "/widgets.example.com")
            check("the definition is deleted", status == 200, made)
            wait_for("the end of the definition", lambda: all(
                server.call("GET", DEFINITIONS + "/widgets.example.com")[0] == 404 for server in (kube, ours)))
            check("its objects are gone", not etcd.keys("/registry/example.com/"))
            at_rest(etcd)
        finally:
            for process in reversed(running):
                process.stop()
    sys.exit("%d checks failed" % len(failures) if failures else 0)


if __name__ == "__main__":
    main()
