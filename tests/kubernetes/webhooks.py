#!/usr/bin/env python3
"""Makes requests for which webhooks are called, and compares the answers, and what the webhooks get, with recordings.

usage: webhooks.py URL TOKEN           compares with webhooks.json
       webhooks.py URL TOKEN --record  writes it, from a real kube-apiserver
       webhooks.py URL TOKEN NAME...   shows both of the scenarios with some names

TOKEN is that of an administrator. Each scenario has a namespace of its own, to which its webhooks are bound. Values that
differ from run to run are left out. The webhooks are those of hook_server.py, the scenarios in webhook_scenarios.py.
"""
import base64
import concurrent.futures
import json
import os
import re
import shutil
import sys
import tempfile
import time

import hook_server
import recorded
import webhook_scenarios

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "webhooks.json")
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/"
# How the metrics begin that are compared.
METRICS = "apiserver_admission_webhook_"
# Seconds until the real server knows of new webhooks.
PATIENCE = 5


def definition(kind, plural, scope):
    size = {"type": "integer", "maximum": 100}
    schema = {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": size, "replicas": {"type": "integer", "default": 1}}},
        "status": {"type": "object", "properties": {"state": {"type": "string"}, "replicas": {"type": "integer"}}}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
                 "subresources": {"status": {}, "scale": scale}} for name in ["v1", "v1beta1"]]
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": plural + ".hooks.example.com"}, "spec": {
                "group": "hooks.example.com", "scope": scope, "versions": versions,
                "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": kind + "List"}}}


def define(client):
    """Creates the custom resources of the scenarios, and waits for them."""
    for kind, plural, scope in [("Thing", "things", "Namespaced"), ("Globe", "globes", "Cluster")]:
        client.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind, plural, scope))
        while client.ask("GET", "/apis/hooks.example.com/v1/" + plural)[0] != 200:
            time.sleep(0.05)


def client_config(hooks, hook, path):
    bundle = {None: hooks.bundle, "other": hooks.other_bundle, "": ""}[hook.pop("bundle", None)]
    place = {"caBundle": base64.b64encode(bundle.encode()).decode()}
    if "service" in hook:
        return {**place, "service": hook.pop("service")}
    url = hooks.url(path + hook.pop("end", ""), hook.pop("listener", "right"), hook.pop("host", "127.0.0.1"))
    return {**place, "url": hook.pop("url", url)}


def prepare(client, hooks, scenario):
    """Creates the namespace and the webhooks of a scenario."""
    name = "hook-" + scenario["name"]
    client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    client.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    for index, hook in enumerate(json.loads(json.dumps(scenario["hooks"]).replace("NS", name))):
        kind, answer = hook.pop("kind"), hook.pop("answer")
        path = f"/{name}/{index}"
        hooks.answers[path] = answer
        config = client_config(hooks, hook, path)
        hook = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "name": hook_name(scenario, index), "clientConfig": config, **hook}
        body = {"metadata": {"name": f"{name}-{index}"}, "webhooks": [hook]}
        code, found, _ = client.ask("POST", f"{CONFIGURATIONS}{kind.lower()}webhookconfigurations", body)
        if code != 201:
            sys.exit(f"{name}: {found}")


def hook_name(scenario, index):
    return f"h{index}.{scenario['name']}.example.com"


def measured(page, scenario):
    """Returns the lines of the metrics about the webhooks of a scenario, without times."""
    names = [f'name="{hook_name(scenario, index)}"' for index in range(len(scenario["hooks"]))]
    return sorted(line for line in page if any(name in line for name in names) and line.startswith(METRICS)
                  and "_bucket{" not in line and "_sum{" not in line)


def described(page):
    """Returns the types of the metrics about webhooks, and their buckets."""
    types = sorted(line for line in page if line.startswith("# TYPE " + METRICS))
    buckets = [re.search(r'le="([^"]*)"', line) for line in page if line.startswith(METRICS) and "_bucket{" in line]
    return [types, sorted({found.group(1) for found in buckets})]


def clean(client, scenario):
    for index, hook in enumerate(scenario["hooks"]):
        client.ask("DELETE", f"{CONFIGURATIONS}{hook['kind'].lower()}webhookconfigurations/hook-{scenario['name']}-{index}")


def steady(value, ports):
    """Returns a JSON value without what differs from run to run."""
    text = json.dumps(value)
    for port, name in ports.items():
        text = text.replace(f":{port}", ":" + name)
    text = re.sub(r"gen-\w{5}", "gen-*", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME", text)
    text = re.sub(r"127.0.0.1:\d+->", "127.0.0.1:*->", text)
    text = re.sub(r"on [\d.]+:53", "on DNS", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "UID", text)
    return json.loads(re.sub(r'"resourceVersion": "\d+"', '"resourceVersion": "N"', text))


def reduced(found):
    """Returns an object without defaults of its kind, which have tests of their own."""
    if not isinstance(found, dict):
        return found
    found = json.loads(json.dumps(found))
    found.get("metadata", {}).pop("managedFields", None)
    if found.get("kind") in ["Pod", "Deployment", "Service"]:
        spec = found.pop("spec", {})
        containers = spec.get("containers") or []
        found["spec"] = [[container.get("name"), container.get("resources")] for container in containers]
        found.pop("status", None)
    return found


def shown(code, found, warnings, names):
    """Returns what is compared of an answer."""
    if not isinstance(found, dict):
        return [code, found]
    if found.get("kind") == "Status":
        return [code, {name: value for name, value in found.items() if name not in ["kind", "apiVersion", "metadata"]}, warnings]
    if found.get("kind") == "TokenRequest":
        return [code]
    if found.get("kind", "").endswith("List"):
        return [code, [item["metadata"]["name"] for item in found["items"]]]
    more = [found.get("spec", {}).get(name) or found["metadata"].get(name) for name in names]
    return [code, reduced(found), warnings, *more]


def asked(path, query, headers, review):
    """Returns what is compared of a request to a webhook."""
    request = review and {name: reduced(value) if name in ["object", "oldObject"] else value
                          for name, value in review["request"].items()}
    if request:
        request["userInfo"].get("extra", {}).pop("authentication.kubernetes.io/credential-id", None)
        if "/hook-who/" not in path:
            request["userInfo"] = request["userInfo"]["username"]
    kinds = review and [review["apiVersion"], review["kind"]]
    # Compressed answers are not asked for.
    names = sorted(name.lower() for name in headers.keys() if name.lower() != "accept-encoding")
    return [path, query, names, headers.get("Accept"), headers.get("Content-Type"), kinds, request]


def play(client, hooks, scenario):
    name = "hook-" + scenario["name"]
    ports = {listener.server_address[1]: name.upper() for name, listener in hooks.listeners.items()}
    found = []
    for method, path, *more in json.loads(json.dumps(scenario["requests"]).replace("NS", name)):
        options = more[1] if len(more) > 1 else {}
        headers = {"User-Agent": "recorder"}
        if "as" in options:
            headers.update({"Impersonate-User": options["as"], "Impersonate-Group": "system:masters",
                            "Impersonate-Extra-scope": "x", "Impersonate-Uid": "7"})
        answer = client.ask(method, path, more[0] if more else None, headers)
        taken = sorted((asked(*request) for request in hooks.taken(f"/{name}/")), key=lambda it: it[0])
        if "retry" in name:
            # How many there are depends on the time.
            taken = taken[:2]
        found.append(steady([shown(*answer, options.get("shows", [])), taken], ports))
    return list(map(without_texts, found)) if scenario["name"] in webhook_scenarios.OWN_TEXTS else found


def without_texts(answer):
    """Returns an answer without the texts of errors."""
    (code, found, *rest), *more = answer
    return [[code, {name: value for name, value in found.items() if name not in ["message", "details"]}, *rest], *more]


def configure(client):
    """Returns the answers to configurations, most of which are refused."""
    found = {}
    right = {"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
             "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [webhook_scenarios.rule("pods")]}
    for kind in ["validating", "mutating"]:
        for index, changes in enumerate(webhook_scenarios.CONFIGURATIONS):
            body = {"metadata": {"name": "hook-configured"}, "webhooks": [{**right, **changes}]}
            answer = client.ask("POST", f"{CONFIGURATIONS}{kind}webhookconfigurations?dryRun=All", body)
            found[f"{kind} {index}"] = [steady(shown(*answer, []), {})]
    return found


def main():
    if not shutil.which("openssl"):
        print("NOT RUN: openssl is not installed")
        return
    client = recorded.Client(sys.argv[1], sys.argv[2])
    records, names = sys.argv[3:] == ["--record"], sys.argv[3:]
    scenarios = [it for it in webhook_scenarios.SCENARIOS if records or not names or it["name"] in names]
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(4) as pool:
        hooks = hook_server.Hooks(directory)
        define(client)
        list(pool.map(lambda scenario: prepare(client, hooks, scenario), scenarios))
        if records:
            time.sleep(PATIENCE)
        answers = list(pool.map(lambda scenario: play(client, hooks, scenario), scenarios))
        page = client.ask("GET", "/metrics")[1].splitlines()
        list(pool.map(lambda scenario: clean(client, scenario), scenarios))
        hooks.close()
    found = {scenario["name"]: [*answer, measured(page, scenario)] for scenario, answer in zip(scenarios, answers)}
    if records or not names:
        found.update(configure(client))
        found["metrics"] = [described(page)]
    if records:
        recorded.record(FILE, found)
        return
    if names:
        with open(FILE) as file:
            expected = json.load(file)
        for name in names:
            for one, other in zip(expected[name], found[name], strict=True):
                print(f"{name} {one == other}:\n  expected {json.dumps(one)}\n  found    {json.dumps(other)}")
        return
    requests = {scenario["name"]: [*scenario["requests"], "metrics"] for scenario in scenarios}
    requests = {name: requests.get(name, [name]) for name in found}
    recorded.compare(FILE, found, requests, "webhooks", webhook_scenarios.DIFFERENT)


if __name__ == "__main__":
    main()
