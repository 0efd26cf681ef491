#!/usr/bin/env python3
"""Makes requests that built-in admission plugins complete or refuse, and compares the answers with recorded ones.

usage: plugins.py URL TOKEN USERTOKEN           compares with plugins.json
       plugins.py URL TOKEN USERTOKEN --record  writes it, from a real kube-apiserver

TOKEN is that of an administrator, USERTOKEN that of the user "dev" without rights. The plugin ServiceAccount is on.
Values that differ from run to run are left out.
"""
import base64
import copy
import json
import os
import re
import sys
import time

import recorded

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "plugins.json")
# Seconds until the real server knows of new objects: roles, classes and nodes.
PATIENCE = 1
# The fields of a pod that are compared.
FIELDS = ["serviceAccount", "serviceAccountName", "automountServiceAccountToken", "imagePullSecrets", "volumes",
          "tolerations", "nodeSelector", "overhead", "runtimeClassName", "nodeName"]
PODS = "/api/v1/namespaces/plugins/pods"
ACCOUNTS = "/api/v1/namespaces/plugins/serviceaccounts"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
# Certificate requests by openssl, one line each.
with open(os.path.join(HERE, "certificate_requests.json")) as file:
    PEM = json.load(file)


def admin(method, path, body=None):
    return ("admin", method, path, body)


def dev(method, path, body=None):
    return ("dev", method, path, body)


def metadata(name, **more):
    return {"name": name, **more}


def pod(name, annotations=None, container=None, **spec):
    containers = spec.pop("containers", None) or [{"name": "c", "image": "i:1", **(container or {})}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(name, annotations=annotations or {}),
            "spec": {"containers": containers, **spec}}
    return admin("POST", PODS, body)


def account(name, **more):
    annotations = more.pop("annotations", {})
    return admin("POST", ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount",
                                    "metadata": metadata(name, annotations=annotations), **more})


def node(name, **labels):
    labels = {f"topology.kubernetes.io/{key}": value for key, value in labels.items()}
    return admin("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata(name, labels={
        **labels, "other": "x"})})


def bind(name, to):
    return admin("POST", f"{PODS}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata(name),
                                                    "target": to})


def runtime_class(name, **more):
    return admin("POST", "/apis/node.k8s.io/v1/runtimeclasses", {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata(name), "handler": "h", **more})


def certificate_request(name, body, signer=CLIENT_SIGNER, **more):
    body = base64.b64encode(body.encode()).decode()
    return admin("POST", REQUESTS, {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                                    "metadata": metadata(name), "spec": {
                                        "request": body, "signerName": signer, "usages": ["client auth"], **more}})


def role(name, *rules):
    return [admin("POST", ROLES, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                                  "metadata": metadata(name), "rules": rules}),
            admin("POST", BINDINGS, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                                     "metadata": metadata(name), "subjects": [
                                         {"kind": "User", "name": "dev", "apiGroup": "rbac.authorization.k8s.io"}],
                                     "roleRef": {"kind": "ClusterRole", "name": name,
                                                 "apiGroup": "rbac.authorization.k8s.io"}})]


def signers(name, verb, signer):
    return role(name, {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": [verb],
                       "resourceNames": [signer]})


def condition(kind, status="True", **more):
    return {"type": kind, "status": status, "reason": "R", "message": "m", **more}


def conditions(*found):
    return {"status": {"conditions": list(found)}}


def certificate(text):
    return {"status": {"certificate": base64.b64encode(text.encode()).decode()}}


def mount(path):
    return {"volumeMounts": [{"name": "v", "mountPath": path}]}


def variable(secret):
    return {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]}


def source(secret):
    return {"envFrom": [{"secretRef": {"name": secret}}]}


MIRROR = {"kubernetes.io/config.mirror": "x"}
ENFORCE = "kubernetes.io/enforce-mountable-secrets"
TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
EPHEMERAL = {"name": "e", "image": "i", "terminationMessagePolicy": "File"}

SERVICE_ACCOUNTS = [
    pod("none", serviceAccountName="missing"), account("plain"), account("default", imagePullSecrets=[{"name": "pull"}]),
    account("quiet", automountServiceAccountToken=False), account("loud", automountServiceAccountToken=True),
    pod("default"), pod("old-name", serviceAccount="plain"), pod("named", serviceAccountName="plain"),
    pod("both", serviceAccountName="plain", serviceAccount="quiet"),
    pod("empty", serviceAccountName="", serviceAccount=""),
    pod("quiet", serviceAccountName="quiet"), pod("wants", serviceAccountName="quiet", automountServiceAccountToken=True),
    pod("refuses", serviceAccountName="loud", automountServiceAccountToken=False),
    pod("pulls", imagePullSecrets=[{"name": "own"}]), pod("pulls-none", imagePullSecrets=[]),
    pod("mounts", container=mount(TOKEN_PATH), volumes=[{"name": "v", "emptyDir": {}}]),
    pod("mounts-else", container=mount("/x"), volumes=[{"name": "v", "emptyDir": {}}]),
    pod("has-volume", volumes=[{"name": "kube-api-access-x", "emptyDir": {}}]),
    pod("two", containers=[{"name": "c", "image": "i"}, {"name": "d", "image": "i", **mount(TOKEN_PATH)}],
        volumes=[{"name": "v", "emptyDir": {}}], initContainers=[{"name": "i", "image": "i"}]),
    ("admin", "POST", PODS + "?dryRun=All", pod("dry")[3]),
    ("admin", "POST", PODS, {**pod("x")[3], "metadata": {"generateName": "g-"}, "spec": {
        "serviceAccountName": "missing", "containers": [{"name": "c", "image": "i"}]}}),
    # Mirror pods.
    pod("mirror", MIRROR), pod("mirror-account", MIRROR, serviceAccountName="plain"),
    pod("mirror-secret", MIRROR, volumes=[{"name": "v", "secret": {"secretName": "s"}}]),
    pod("mirror-env", MIRROR, container=variable("s")), pod("mirror-source", MIRROR, container=source("s")),
    pod("mirror-pull", MIRROR, imagePullSecrets=[{"name": "s"}]),
    pod("mirror-csi", MIRROR, volumes=[{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}}]),
    pod("mirror-token", MIRROR, volumes=[{"name": "v", **TOKEN}]),
    pod("mirror-projected", MIRROR, volumes=[{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]),
    # Mountable secrets.
    account("strict", annotations={ENFORCE: "true"}, secrets=[{"name": "ok"}], imagePullSecrets=[{"name": "pull"}]),
    account("lenient", annotations={ENFORCE: "no"}), account("one", annotations={ENFORCE: "1"}),
    *[pod(f"strict-{index}", serviceAccountName="strict", **more) for index, more in enumerate([
        {}, {"container": variable("ok")}, {"container": variable("bad")}, {"container": source("ok")},
        {"container": source("bad")}, {"container": {**source("bad"), **variable("worse")}},
        {"volumes": [{"name": "v", "secret": {"secretName": "ok"}}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "bad"}}]},
        {"imagePullSecrets": [{"name": "pull"}, {"name": "bad"}]},
        {"initContainers": [{"name": "i", "image": "i", **variable("bad")}]},
        {"initContainers": [{"name": "i", "image": "i", **source("bad")}]},
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "bad"}}]}}]}])],
    pod("lenient", serviceAccountName="lenient", container=variable("bad")),
    pod("one", serviceAccountName="one", container=variable("bad")),
    *[admin("PATCH", PODS + "/strict-0/ephemeralcontainers", {"spec": {"ephemeralContainers": [{**EPHEMERAL, **more}]}})
      for more in [variable("bad"), source("bad"), variable("ok")]],
    admin("DELETE", ACCOUNTS + "/plain"), admin("PATCH", PODS + "/named", {"metadata": {"labels": {"a": "b"}}}),
    admin("PATCH", PODS + "/named/ephemeralcontainers", {"spec": {"ephemeralContainers": [EPHEMERAL]}}),
    pod("gone", serviceAccountName="plain"),
]
TOLERATION = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
RUNTIME_CLASSES = [
    pod("no-class", runtimeClassName="missing"), pod("empty-class", runtimeClassName=""),
    pod("overhead", overhead={"cpu": "1"}),
    runtime_class("bare"), runtime_class("heavy", overhead={"podFixed": {"cpu": "100m", "memory": "1Gi"}}),
    runtime_class("light", overhead={}),
    runtime_class("placed", scheduling={"nodeSelector": {"a": "b"}, "tolerations": [
        TOLERATION, {"key": "z", "value": "v", "effect": "NoExecute", "tolerationSeconds": 9}]}),
    pod("bare", runtimeClassName="bare"), pod("bare-overhead", runtimeClassName="bare", overhead={"cpu": "1"}),
    pod("heavy", runtimeClassName="heavy"),
    pod("heavy-same", runtimeClassName="heavy", overhead={"cpu": "0.1", "memory": "1024Mi"}),
    pod("heavy-other", runtimeClassName="heavy", overhead={"cpu": "0.2", "memory": "1Gi"}),
    pod("heavy-less", runtimeClassName="heavy", overhead={"cpu": "0.1"}),
    pod("light", runtimeClassName="light"), pod("light-overhead", runtimeClassName="light", overhead={"cpu": "1"}),
    pod("placed", runtimeClassName="placed"),
    pod("placed-same", runtimeClassName="placed", nodeSelector={"a": "b", "c": "d"}, tolerations=[TOLERATION]),
    pod("placed-other", runtimeClassName="placed", nodeSelector={"a": "c"}),
    pod("placed-all", runtimeClassName="placed", tolerations=[{"operator": "Exists"}]),
    pod("placed-longer", runtimeClassName="placed", tolerations=[
        {"key": "z", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]),
]
TOPOLOGY = [
    node("zoned", zone="z1", region="r1"), node("bare-node"),
    admin("POST", PODS, {**pod("on-node")[3], "spec": {"nodeName": "zoned", "containers": [{"name": "c", "image": "i"}]}}),
    admin("POST", PODS, {**pod("on-node-2")[3], "metadata": {"name": "on-node-2", "labels": {
        "topology.kubernetes.io/zone": "mine"}}, "spec": {"nodeName": "zoned", "containers": [{"name": "c", "image": "i"}]}}),
    pod("unknown-node", nodeName="nope"), pod("bound"), pod("bound-bare"), pod("bound-none"), pod("bound-kind"),
    bind("bound", {"kind": "Node", "name": "zoned"}), admin("GET", PODS + "/bound"),
    bind("bound-bare", {"kind": "Node", "name": "bare-node"}), admin("GET", PODS + "/bound-bare"),
    bind("bound-none", {"kind": "Node", "name": "nope"}), admin("GET", PODS + "/bound-none"),
    bind("bound-kind", {"name": "zoned"}), admin("GET", PODS + "/bound-kind"),
]
CERTIFICATES = [
    *[certificate_request("c-" + name, body) for name, body in PEM.items() if name not in ["certificate"]],
    *[certificate_request("o-" + name, PEM[name], "example.com/other") for name in ["masters", "bmp-masters", "good"]],
    *[certificate_request(f"s-{index}", PEM["good"], signer) for index, signer in enumerate([
        "", "x", "a/b", "example.com/", "example.com/a/b", "example.com/a b", "EXAMPLE.com/a", "kubernetes.io/legacy-unknown",
        "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving", "example.com/" + "a" * 254,
        "a" * 64 + ".com/a", "example.com/a..b", "-a.com/b", "example.com/A_b-c.d"])],
    *[certificate_request(f"u-{index}", PEM["good"], **more) for index, more in enumerate([
        {"usages": []}, {"usages": ["x"]}, {"usages": ["client auth", "client auth"]},
        {"usages": ["x", "client auth", "x", "server auth"]}, {"expirationSeconds": 599}, {"expirationSeconds": 600},
        {"expirationSeconds": -1}, {"expirationSeconds": 0}, {"username": "root", "groups": ["system:masters"]}])],
    admin("GET", REQUESTS + "/u-8"),
    admin("PATCH", REQUESTS + "/c-good", {"spec": {"signerName": "example.com/z", "expirationSeconds": 1000}}),
    admin("PATCH", REQUESTS + "/c-good", conditions(condition("Approved"))),
    *role("csr", {"apiGroups": ["certificates.k8s.io"], "verbs": ["*"], "resources": [
        "certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]}),
    ("wait",),
    dev("PATCH", REQUESTS + "/c-good/approval", conditions(condition("Approved"))),
    dev("PATCH", REQUESTS + "/c-good/status", conditions(condition("Failed"))),
    dev("PATCH", REQUESTS + "/c-good/status", certificate(PEM["certificate"])),
    dev("PATCH", REQUESTS + "/c-good/status", {"metadata": {"labels": {"a": "b"}}}),
    dev("PATCH", REQUESTS + "/c-good/approval", {"metadata": {"labels": {"a": "b"}}}),
    *signers("one", "approve", CLIENT_SIGNER), *signers("all", "sign", "kubernetes.io/*"),
    *signers("others", "approve", "example.org/*"), ("wait",),
    dev("PATCH", REQUESTS + "/o-good/approval", conditions(condition("Approved"))),
    dev("PATCH", REQUESTS + "/o-good/approval", {"spec": {"signerName": CLIENT_SIGNER}, **conditions(condition("Approved"))}),
    dev("PATCH", REQUESTS + "/o-good/status", conditions(condition("Failed"))),
    *[dev("PATCH", REQUESTS + "/c-good/approval", body) for body in [
        conditions(condition("Approved", "False")), conditions(condition("Approved", "Unknown")),
        conditions(condition("Approved", "")), conditions(condition("", "True")),
        conditions(condition("Approved"), condition("Denied")), conditions(condition("Approved"), condition("Approved")),
        conditions(condition("Denied", "False"), condition("Approved")), conditions(condition("Other", "Maybe")),
        certificate(PEM["certificate"]), conditions(condition("Approved")), conditions(),
        conditions(condition("Denied")), conditions(condition("Approved"), condition("Failed")),
        conditions(condition("Approved"), condition("Other", "False"))]],
    *[dev("PATCH", REQUESTS + "/c-good/status", body) for body in [
        conditions(condition("Denied")), conditions(), conditions(condition("Approved"), condition("Failed", "False")),
        certificate("x"), certificate(""), certificate(PEM["certificate"].replace("CERTIFICATE", "FOO")),
        certificate(PEM["certificate"] + PEM["good"]), certificate("text\n" + PEM["certificate"]),
        certificate(PEM["certificate"]), certificate(PEM["certificate"] * 2), certificate(""),
        conditions(condition("Approved"), condition("Failed"))]],
    admin("GET", REQUESTS + "/c-good"),
    *[admin("PATCH", REQUESTS + "/c-ec/status", certificate(text)) for text in [
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", PEM["certificate"].replace(
            "-----\n", "-----\nA: b\n\n", 1)]],
    admin("PATCH", REQUESTS + "/c-ec/approval", conditions(condition("Denied"))),
    admin("PATCH", REQUESTS + "/c-ec/approval", conditions(condition("Denied"), condition("Approved"))),
    admin("PATCH", REQUESTS + "/c-ec/status", certificate(PEM["certificate"])),
]
SCENARIOS = {"service-accounts": SERVICE_ACCOUNTS, "runtime-classes": RUNTIME_CLASSES, "topology": TOPOLOGY,
             "certificates": CERTIFICATES}


def comparable(code, found, warnings):
    """Returns what of an answer is the same in all runs."""
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access-*", json.dumps(found))
    # What Go says of malformed structures names its own types.
    text = re.sub(r"asn1: structure error: [^\"]*", "asn1: structure error", text)
    text = re.sub(r"x509: [a-z ]*(malformed|invalid)[^\"\\]*", "x509: malformed", text)
    found = json.loads(re.sub(r"g-\w{5}\b", "g-*", text))
    if not isinstance(found, dict):
        return [code, found]
    if found.get("kind") == "Status":
        details = found.get("details") or {}
        causes = [[cause.get(name) for name in ["reason", "field", "message"]] for cause in details.get("causes") or []]
        # The differences that upstream shows of conditions are Go values.
        message, causes = (re.sub(r'("\w+"\\n)(?:.|\n)*', r"\1", json.dumps(it)) for it in (found.get("message"), causes))
        return [code, found.get("reason"), message, causes, details.get("name"), warnings]
    spec = found.get("spec") or {}
    if found.get("kind") == "Pod":
        lists = [spec.get(name) or [] for name in ["containers", "initContainers"]]
        mounts = [[container.get("volumeMounts") for container in containers] for containers in lists]
        spec = [{name: spec[name] for name in FIELDS if name in spec}, mounts]
    elif found.get("kind") == "CertificateSigningRequest":
        found = copy.deepcopy(found)
        for name in ["request", "extra", "uid"]:
            spec.pop(name, None)
        for condition in found.get("status", {}).get("conditions", []):
            condition.pop("lastUpdateTime", None)
            condition.pop("lastTransitionTime", None)
        spec = [spec, found.get("status")]
    else:
        spec = None
    metadata = {name: value for name, value in found.get("metadata", {}).items()
                if name in ["name", "labels", "annotations"]}
    return [code, metadata, spec, warnings]


def play(clients, requests):
    answers = []
    for user, *request in requests:
        if user == "wait":
            time.sleep(PATIENCE)
        else:
            answers.append(comparable(*clients[user].ask(*request)))
    return answers


def main():
    url, token, user_token = sys.argv[1:4]
    clients = {"admin": recorded.Client(url, token), "dev": recorded.Client(url, user_token)}
    clients["admin"].ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                                        "metadata": {"name": "plugins"}})
    found = {name: play(clients, requests) for name, requests in SCENARIOS.items()}
    if sys.argv[4:] == ["--record"]:
        recorded.record(FILE, found)
        return
    requests = {name: [request for request in requests if request[0] != "wait"] for name, requests in SCENARIOS.items()}
    recorded.compare(FILE, found, requests, "plugins")


if __name__ == "__main__":
    main()
