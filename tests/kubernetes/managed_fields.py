#!/usr/bin/env python3
"""Writes to objects whose managedFields have entries of other versions of the API, and compares the answers with recorded ones.

usage: managed_fields.py URL TOKEN           compares with managed_fields.json
       managed_fields.py URL TOKEN --record  writes it, from a real kube-apiserver

TOKEN is that of an administrator. Times and numbers that differ from run to run are left out.
"""
import json
import os
import re
import sys
import time

import recorded

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "managed_fields.json")
GROUP = "versions.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CORE = "/api/v1/namespaces/versions/"
AUTOSCALING = "/apis/autoscaling/{}/namespaces/versions/horizontalpodautoscalers"


def schema(more=None):
    size = {"type": "integer"}
    items = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
        "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}}
    return {"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"a": size, "b": size, "c": size, "items": items,
                                                  "replicas": {"type": "integer"}, **(more or {})}},
        "status": {"type": "object", "properties": {"state": {"type": "string"}, "replicas": {"type": "integer"}}}}}}


def definition(names="v1 v2 v3"):
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    # v2 does not have the field "b", and v3 is not served.
    versions = [{"name": name, "served": name != "v3", "storage": name == "v1", "schema": schema({"two": {"type": "string"}}),
                 "subresources": {"status": {}, "scale": scale}} for name in names.split()]
    for version in versions:
        if version["name"] == "v2":
            del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"]
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things." + GROUP},
            "spec": {"group": GROUP, "scope": "Namespaced", "versions": versions,
                     "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}}}


def things(version="v1"):
    return f"/apis/{GROUP}/{version}/namespaces/versions/things"


def thing(name, version="v1", entries=None, metadata=None, **spec):
    meta = {"name": name, **({"managedFields": entries} if entries is not None else {}), **(metadata or {})}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Thing", "metadata": meta, **({"spec": spec} if spec else {})}


def entry(version, fields, manager="other", operation="Update", **more):
    if isinstance(fields, str):
        fields = {"f:spec": {"f:" + name: {} for name in fields.split()}}
    return {"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": "2020-01-01T00:00:00Z", **more}


def on_thing(name, *entries, **spec):
    """Returns requests for an object that is created with entries."""
    return [("POST", things(), thing(name, **(spec or {"a": 1, "b": 1, "c": 1})), "creator"),
            ("JSON", things() + "/" + name, add(entries), "creator")]


def add(entries):
    """Returns a patch that adds entries to those of an object."""
    return [{"op": "add", "path": "/metadata/managedFields/-", "value": it} for it in entries]


OTHERS = {"served": f"{GROUP}/v2", "unserved": f"{GROUP}/v3", "absent": f"{GROUP}/v4", "group": "apps/v1", "core": "v1",
          "malformed": "a/b/c", "unknown": "nothing.example.com/v1"}


def scenarios():
    """Returns lists of requests by their names."""
    found = {}
    for name, version in OTHERS.items():
        one = things() + "/" + name
        other = [entry(version, "a b")]
        found["create-" + name] = [("POST", things(), thing(name, entries=[entry(version, "a d")], a=1), "creator")]
        found["update-" + name] = [*on_thing(name, *other), ("UPDATE", one, thing(name, a=1, b=2, c=1), "m")]
        found["same-" + name] = [*on_thing(name, *other), ("UPDATE", one, thing(name, a=1, b=1, c=1), "m")]
        found["patch-" + name] = [*on_thing(name, *other), ("PATCH", one, {"spec": {"a": 2}}, "m")]
        found["label-" + name] = [*on_thing(name, *other), ("PATCH", one, {"metadata": {"labels": {"l": "m"}}}, "m"),
                                  ("PATCH", one, {"spec": {"a": 2}}, "m")]
        found["status-" + name] = [*on_thing(name, *other), ("PATCH", one + "/status", {"status": {"state": "x"}}, "m")]
        found["scale-" + name] = [*on_thing(name, *other, entry(version, "replicas", "scaler"), a=1, replicas=1),
                                  ("PATCH", one + "/scale", {"spec": {"replicas": 2}}, "m"), ("GET", one, None, "")]
        found["apply-" + name] = [*on_thing(name, *other), ("APPLY", one, thing(name, c=1), "n"),
                                  ("APPLY", one, thing(name, c=1), "n"), ("APPLY", one, thing(name, a=3), "n")]
        found["force-" + name] = [*on_thing(name, *other), ("APPLY", one + "?force=true", thing(name, a=3), "n")]
        found["applied-" + name] = [*on_thing(name, entry(version, "a b", "n", "Apply")), ("APPLY", one, thing(name, a=1), "n"),
                                    ("APPLY", one, thing(name, a=2), "n")]
        found["applied-more-" + name] = [
            *on_thing(name, entry(version, "a b c", "n", "Apply"), entry(version, "c"), entry(GROUP + "/v1", "b", "p", "Apply")),
            ("APPLY", one, thing(name, a=1), "n")]
        found["applied-status-" + name] = [
            *on_thing(name, *other), ("APPLY", one + "/status", {**thing(name), "status": {"state": "x"}}, "n")]
        found["own-" + name] = [*on_thing(name, entry(version, "a b", "m")), ("PATCH", one, {"spec": {"a": 2}}, "m")]
        found["config-" + name] = config_map(name, version)
        found["scaler-" + name] = autoscaler(name, version)
    for name, version in {"beta": "apps/v1beta1", "extensions": "extensions/v1beta1", "v2": "autoscaling/v2", "v1": "autoscaling/v1",
                          "v2beta2": "autoscaling/v2beta2", "list": "v1"}.items():
        found["scaler-" + name] = autoscaler(name, version)
    found["deployment-beta"] = deployment("beta", "apps/v1beta1")
    found["deployment-extensions"] = deployment("extensions", "extensions/v1beta1")
    found["lists"] = lists("lists")
    found["other-version"] = other_version("other-version")
    found["removed"] = removed("removed")
    return found


def config_map(name, version):
    one, other = CORE + "configmaps/" + name, [entry(version, {"f:data": {"f:a": {}, "f:b": {}}})]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"a": "1", "b": "1", "c": "1"}}
    return [("POST", CORE + "configmaps", body, "creator"), ("JSON", one, add(other), "creator"), ("PATCH", one, {"data": {"a": "2"}}, "m"),
            ("APPLY", one, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}}, "n"),
            ("APPLY", one, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "3"}}, "n"), ("DELETE", one, None, "m")]


def deployment(name, version):
    one, other = "/apis/apps/v1/namespaces/versions/deployments/" + name, [entry(version, {"f:spec": {"f:replicas": {}}})]
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}}
    return [("POST", "/apis/apps/v1/namespaces/versions/deployments", body, "creator"), ("JSON", one, add(other), "creator"),
            ("PATCH", one, {"spec": {"replicas": 2}}, "m"), ("DELETE", one, None, "m")]


def autoscaler(name, version):
    path, one = AUTOSCALING.format("v2"), AUTOSCALING.format("v2") + "/" + name
    other = [entry(version, {"f:spec": {"f:maxReplicas": {}, "f:minReplicas": {}, "f:targetCPUUtilizationPercentage": {}}})]
    cpu = lambda value: [{"type": "Resource", "resource": {"name": "cpu", "target": {
        "type": "Utilization", "averageUtilization": value}}}]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
            "spec": {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": target, "metrics": cpu(50)}}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return [("POST", path, body, "creator"), ("JSON", one, add(other), "creator"), ("PATCH", one, {"spec": {"metrics": cpu(60)}}, "m"),
            ("APPLY", one, {**kind, "spec": {"maxReplicas": 4, "scaleTargetRef": target}}, "n"),
            ("PATCH", AUTOSCALING.format("v1") + "/" + name, {"spec": {"targetCPUUtilizationPercentage": 70}}, "m"),
            ("APPLY", one + "?force=true", {**kind, "spec": {"maxReplicas": 4, "scaleTargetRef": target, "metrics": cpu(80)}}, "n"),
            ("APPLY", AUTOSCALING.format("v1") + "/" + name + "?force=true",
             {**kind, "apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 5, "scaleTargetRef": target}}, "n"),
            ("DELETE", one, None, "m")]


def lists(name):
    """An entry of another version for a list with an item twice."""
    one, items = things() + "/" + name, [{"k": "x", "v": "1"}, {"k": "y"}]
    fields = {"f:spec": {"f:items": {'k:{"k":"x"}': {".": {}, "f:k": {}, "f:v": {}}}}}
    return [*on_thing(name, entry(GROUP + "/v2", fields), items=items), ("PATCH", one, {"spec": {"a": 1}}, "m"),
            ("APPLY", one, thing(name, items=[{"k": "x", "v": "2"}]), "n"),
            ("PATCH", one, {"spec": {"items": [{"k": "y"}]}}, "m")]


def other_version(name):
    """Writes in several versions."""
    one, two = things() + "/" + name, things("v2") + "/" + name
    return [("APPLY", two, thing(name, "v2", a=1, c=1), "n"), ("APPLY", one, thing(name, a=1, b=1), "n"),
            ("PATCH", two, {"spec": {"a": 2}}, "m"), ("PATCH", one, {"spec": {"b": 2}}, "m"),
            ("APPLY", two, thing(name, "v2", a=3, c=1), "n"), ("APPLY", two + "?force=true", thing(name, "v2", a=3), "n"),
            ("APPLY", two, thing(name, "v2"), "n"), ("GET", one, None, "")]


def removed(name):
    """A version that leaves the definition after it was written."""
    one = things() + "/" + name
    path = f"{DEFINITIONS}/things.{GROUP}"
    return [("APPLY", things("v2") + "/" + name, thing(name, "v2", a=1), "n"), ("PATCH", one, {"spec": {"c": 1}}, "m"),
            ("VERSIONS", path, "v1 v3", ""), ("APPLY", one, thing(name, a=1, c=1), "o"), ("APPLY", one, thing(name, a=1), "n"),
            ("PATCH", one, {"metadata": {"labels": {"x": "y"}}}, "p"), ("APPLY", one, thing(name, a=1), "o"),
            ("VERSIONS", path, "v1 v2 v3", "")]


def steady(found):
    """Returns what is compared of an answer: the error, or the entries and what is in the object."""
    if not isinstance(found, dict) or found.get("kind") == "Status":
        # kube-apiserver names the managers in no order.
        causes = found.get("details", {}).get("causes") if isinstance(found, dict) else None
        causes = causes and sorted(causes, key=lambda it: (it["field"], it["message"]))
        return found if isinstance(found, str) else [found.get("message"), found.get("reason"), causes]
    entries = [{name: value for name, value in it.items() if name not in ["time", "fieldsType"]}
               for it in found["metadata"].get("managedFields", [])]
    content = {name: value for name, value in found.items() if name not in ["metadata", "kind"]}
    if found["kind"] in ["HorizontalPodAutoscaler", "Deployment"]:
        content = {name: found["spec"].get(name) for name in ["maxReplicas", "metrics", "replicas", "targetCPUUtilizationPercentage"]}
    return [content, sorted(entries, key=lambda it: json.dumps(it, sort_keys=True))]


def change_versions(client, path, names):
    """Changes the versions of the definition, and waits until the server knows them."""
    code, found, _ = client.ask("GET", path)
    if code == 404:
        client.ask("POST", DEFINITIONS, definition(names))
    else:
        found["spec"]["versions"] = definition(names)["spec"]["versions"]
        client.ask("PUT", path, found)
    wanted = sorted(name for name in names.split() if name != "v3")
    while True:
        versions = client.ask("GET", f"/apis/{GROUP}")[1]
        if isinstance(versions, dict) and sorted(it["version"] for it in versions.get("versions", [])) == wanted:
            break
        time.sleep(0.05)
    while client.ask("GET", things())[0] != 200:
        time.sleep(0.05)
    time.sleep(PATIENCE)
    return names


def play(client, requests):
    found = []
    for method, path, body, manager in requests:
        if method == "VERSIONS":
            found.append(change_versions(client, path, body))
            continue
        if method == "UPDATE":
            method, body["metadata"]["resourceVersion"] = "PUT", client.ask("GET", path)[1]["metadata"]["resourceVersion"]
        query = f"{'&' if '?' in path else '?'}fieldManager={manager}" if manager and method != "DELETE" else ""
        code, answer, _ = client.ask(method, path + query, body)
        text = steady(answer) if method != "DELETE" else None
        found.append([code, text])
    for name in {path.split("?")[0].removesuffix("/scale").removesuffix("/status") for _, path, _, _ in requests}:
        if re.search(r"/things/[^/]+$", name):
            client.ask("DELETE", name)
    if requests[0][0] == "POST" and "/things" in requests[0][1]:
        client.ask("DELETE", things() + "/" + requests[0][2]["metadata"]["name"])
    return found


# Seconds until the real server uses a changed definition.
PATIENCE = 2


def main():
    global PATIENCE
    client = recorded.Client(sys.argv[1], sys.argv[2])
    records = sys.argv[3:] == ["--record"]
    PATIENCE = PATIENCE if records else 0
    client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "versions"}})
    change_versions(client, f"{DEFINITIONS}/things.{GROUP}", "v1 v2 v3")
    all_requests = scenarios()
    found = {name: play(client, requests) for name, requests in all_requests.items()}
    if records:
        recorded.record(FILE, found)
        return
    found = json.loads(json.dumps(found))
    recorded.compare(FILE, found, all_requests, "entries of other versions")


if __name__ == "__main__":
    main()
