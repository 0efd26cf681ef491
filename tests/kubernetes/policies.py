#!/usr/bin/env python3
"""Makes requests that admission policies are about, and compares the answers with recorded ones.

usage: policies.py URL TOKEN           compares with policies.json
       policies.py URL TOKEN --record  writes it, from a real kube-apiserver

TOKEN is that of an administrator. Each scenario has a namespace of its own, to which its policies are bound. Values that
differ from run to run are left out.
"""
import concurrent.futures
import json
import os
import re
import sys
import time

import recorded

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "policies.json")
GROUP = "admissionregistration.k8s.io/v1"
# Seconds until the real server knows of new policies.
PATIENCE = 8
# The metadata that differs from run to run.
VOLATILE = ["uid", "resourceVersion", "creationTimestamp", "managedFields"]


def rule(resources, operations="CREATE UPDATE DELETE", groups="core", versions="*", **more):
    return {"apiGroups": ["" if group == "core" else group for group in groups.split()],
            "apiVersions": versions.split(), "operations": operations.split(), "resources": resources.split(), **more}


def post(kind, name, version="v1", **body):
    plural = {"NetworkPolicy": "networkpolicies"}.get(kind, kind.lower() + "s")
    prefix = "/api/" if "/" not in version else "/apis/"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **body.pop("metadata", {})}, **body}
    return ("POST", f"{prefix}{version}/namespaces/NS/{plural}", body)


def item(name, kind="configmaps", prefix="/api/v1"):
    return f"{prefix}/namespaces/NS/{kind}/{name}"


def validating(name, validations, requests, match=None, binding=None, **spec):
    """A scenario with a policy. Validations are expressions, or objects."""
    validations = [{"expression": v} if isinstance(v, str) else v for v in validations]
    match = match or {"resourceRules": [rule("configmaps")]}
    policy = {"validations": validations, "matchConstraints": match, **spec}
    return {"name": name, "policies": [("Validating", policy, binding or {})], "requests": requests}


def says(name, message, requests, **more):
    """A scenario with a policy that refuses everything with a message from an expression."""
    return validating(name, [{"expression": "false", "messageExpression": message}], requests, **more)


def patch(expression):
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def apply(expression):
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def mutating(name, mutations, requests, match=None, binding=None, **spec):
    match = match or {"resourceRules": [rule("configmaps", "CREATE UPDATE")]}
    policy = {"mutations": mutations, "matchConstraints": match, "reinvocationPolicy": "Never", **spec}
    return {"name": name, "policies": [("Mutating", policy, binding or {})], "requests": requests}


A = post("ConfigMap", "a", data={"k": "v"})
POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT = post("Deployment", "d", "apps/v1", spec={
    "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, **POD}})
PARAM = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
PARAMS = [post("ConfigMap", "p1", data={"limit": "1"}, metadata={"labels": {"param": "x"}}),
          post("ConfigMap", "p2", data={"limit": "2"}, metadata={"labels": {"param": "x"}})]
SECRET = {"resourceRules": [rule("secrets")]}
SECRETS = [post("Secret", "a"), post("Secret", "b")]
LABEL = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"


def param(action="Deny", **ref):
    return {"paramRef": {"parameterNotFoundAction": action, **ref}}


SCENARIOS = [
    validating("messages", [
        {"expression": "object.metadata.name != 'a'", "message": " name is a "},
        {"expression": "object.metadata.name != 'b'", "messageExpression": "'not ' + object.metadata.name"},
        {"expression": "object.metadata.name != 'c'", "messageExpression": "object.nope + 'a'", "reason": "Forbidden"},
        {"expression": "object.metadata.name != 'd'", "messageExpression": "'a\\nb'", "message": "plain",
         "reason": "RequestEntityTooLarge"},
        {"expression": " object.metadata.name != 'e' "},
        {"expression": "object.metadata.name != 'f'", "messageExpression": "' '"},
        "object.metadata.name != 'g' || object.nope", "object.nope.nope == 1 || object.metadata.name == 'h'",
    ], [post("ConfigMap", name) for name in "abcdefgh"]),
    validating("ignored", ["object.nope == 1", "object.metadata.name != 'b'"],
               [post("ConfigMap", "a"), post("ConfigMap", "b")], failurePolicy="Ignore"),
    validating("variables", ["variables.name != 'a'", "variables.list.all(n, n < variables.max)", "variables.wrong == 1"],
               [post("ConfigMap", name, data={"n": n}) for name, n in [("a", "1"), ("b", "9"), ("c", "1")]],
               variables=[{"name": "name", "expression": "object.metadata.name"},
                          {"name": "list", "expression": "[int(object.data.n)]"},
                          {"name": "max", "expression": "variables.list.size() + 4"},
                          {"name": "wrong", "expression": "object.nope.nope"}]),
    says("request", "[request.operation, request.name, request.namespace, request.kind.kind, request.kind.version, "
         "request.resource.resource, request.requestKind.kind, string(request.dryRun), request.userInfo.username, "
         "string(has(request.subResource)), string(has(request.options.fieldManager)), string(oldObject == null), "
         "string(object == null)].join(' ')",
         [A, ("POST", A[1] + "?dryRun=All&fieldManager=m", A[2]), ("DELETE", item("x"), None)]),
    says("generated", "object.metadata.generateName + string(has(request.name) ? size(request.name) : 0)",
         [post("ConfigMap", "", metadata={"generateName": "gen-", "name": ""})]),
    says("namespace", "namespaceObject.metadata.name.substring(0, 2) + string(namespaceObject.status.phase)", [A]),
    validating("user", ["authorizer.group('').resource('pods').namespace('default').check('get').allowed()",
                        "!authorizer.path('/healthz').check('get').allowed()"], [A]),
    validating("authorizer", ["!authorizer.requestResource.check('create').allowed()"], [A]),
    validating("accounts", ["authorizer.serviceAccount('default', 'x').group('').resource('secrets').check('get').allowed()"],
               [A]),
    validating("updates", ["oldObject == null || object == null || object.data.k == oldObject.data.k",
                           "object != null || oldObject.metadata.name != 'kept'"], [
        A, ("PUT", item("a"), {**A[2], "data": {"k": "w"}}), ("PATCH", item("a"), {"data": {"k": "x"}}),
        ("PATCH", item("a"), {"metadata": {"labels": {"l": "m"}}}),
        ("APPLY", item("a") + "?fieldManager=m&force=true", {**A[2], "data": {"k": "y"}}),
        ("APPLY", item("n") + "?fieldManager=m", post("ConfigMap", "n")[2]),
        post("ConfigMap", "kept", data={"k": "v"}), ("DELETE", item("kept"), None), ("DELETE", item("a"), None),
        ("DELETE", "/api/v1/namespaces/NS/configmaps?fieldSelector=metadata.name%3Dkept", None),
        ("PUT", item("missing"), post("ConfigMap", "missing")[2])]),
    validating("conditions", ["false"], [post("ConfigMap", name) for name in "abc"], matchConditions=[
        {"name": "one", "expression": "object.metadata.name != 'a'"},
        {"name": "two", "expression": "object.metadata.name != 'c' || object.nope == 1"}]),
    validating("ignored-conditions", ["false"], [A], failurePolicy="Ignore",
               matchConditions=[{"name": "one", "expression": "object.nope == 1"}]),
    validating("wrong-conditions", ["false"], [A], matchConditions=[
        {"name": "one", "expression": "object.nope == 1"}, {"name": "two", "expression": "object.other == 1"}]),
    validating("warn", [{"expression": "false", "message": "one"}, {"expression": "object.nope == 1"},
                        {"expression": "false", "message": "two"}], [A], binding={"validationActions": ["Warn", "Audit"]}),
    validating("audit", [{"expression": "false", "message": "one"}], [A], binding={"validationActions": ["Audit"]}),
    validating("annotations", [], [A], binding={"validationActions": ["Audit"]}, auditAnnotations=[
        {"key": "good", "valueExpression": "object.metadata.name + 'x'"},
        {"key": "bad", "valueExpression": "string(object.nope)"}]),
    validating("param", ["size(object.data) < int(params.data.limit)", "params.kind + params.apiVersion == 'ConfigMapv1'"],
               PARAMS + SECRETS, match=SECRET, binding=param(name="p1"), **PARAM),
    validating("param-selected", [{"expression": "false", "messageExpression": "'limit ' + string(int(params.data.limit) > 0)"}],
               PARAMS + SECRETS, match=SECRET, binding=param(selector={"matchLabels": {"param": "x"}}), **PARAM),
    validating("param-absent", ["false"], SECRETS, match=SECRET, binding=param(name="none"), **PARAM),
    validating("param-allowed", ["false"], SECRETS, match=SECRET, binding=param("Allow", name="none"), **PARAM),
    validating("param-unselected", ["false"], SECRETS, match=SECRET,
               binding=param(selector={"matchLabels": {"param": "none"}}), **PARAM),
    validating("param-unnamed", [{"expression": "params != null", "message": "null"}], SECRETS, match=SECRET, **PARAM),
    validating("param-unknown", ["true"], SECRETS, match=SECRET, binding=param(name="none"),
               paramKind={"apiVersion": "example.com/v1", "kind": "Nope"}),
    validating("param-unknown-ignored", ["false"], SECRETS, match=SECRET, binding=param(name="none"), failurePolicy="Ignore",
               paramKind={"apiVersion": "example.com/v1", "kind": "Nope"}),
    validating("param-cluster", ["params.metadata.name == 'kube-system'", "params.metadata.name == 'default'"], SECRETS,
               match=SECRET, binding=param(name="default"), paramKind={"apiVersion": "v1", "kind": "Namespace"}),
    validating("param-misplaced", ["true"], SECRETS, match=SECRET, binding=param(name="default", namespace="default"),
               paramKind={"apiVersion": "v1", "kind": "Namespace"}),
    says("status", "request.subResource + request.operation + object.status.reason", [
        post("Pod", "p", **POD), ("PATCH", item("p", "pods") + "/status", {"status": {"reason": "r"}}),
        ("PATCH", item("p", "pods"), {"metadata": {"labels": {"a": "b"}}})], match={"resourceRules": [rule("pods/status")]}),
    says("scale", "request.kind.group + request.kind.version + request.kind.kind + string(object.spec.replicas) + "
         "string(oldObject.spec.replicas)", [
             DEPLOYMENT, ("PATCH", item("d", "deployments", "/apis/apps/v1") + "/scale", {"spec": {"replicas": 3}}),
             ("PUT", item("d", "deployments", "/apis/apps/v1") + "/scale",
              {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 4}})],
         match={"resourceRules": [rule("deployments/scale", groups="apps")]}),
    says("evict", "request.kind.kind + request.operation + object.metadata.name + string(oldObject == null)", [
        post("Pod", "p", **POD), ("POST", item("p", "pods") + "/eviction",
                                  {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})],
         match={"resourceRules": [rule("pods/eviction")]}),
    says("bind", "request.kind.kind + request.operation + object.target.name + request.name", [
        post("Pod", "p", **POD), ("POST", item("p", "pods") + "/binding",
                                  {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
                                   "target": {"kind": "Node", "name": "n"}})],
         match={"resourceRules": [rule("pods/binding")]}),
    says("connect", "request.kind.kind + request.operation + object.command[0]", [
        post("Pod", "p", **POD), ("POST", item("p", "pods") + "/exec?command=ls", None)],
         match={"resourceRules": [rule("pods/exec", "CONNECT")]}),
    says("any", "request.resource.resource + (has(request.subResource) ? request.subResource : '')", [
        A, DEPLOYMENT, ("POST", item("default", "serviceaccounts") + "/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/NS/localsubjectaccessreviews", {
            "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
            "spec": {"user": "a", "resourceAttributes": {"namespace": "NS", "verb": "get", "resource": "pods"}}})],
         match={"resourceRules": [rule("*/*", "*", "*")]}),
    says("equivalent", "request.kind.version + request.requestKind.version + object.apiVersion + "
         "string(has(object.spec.metrics))", [
             post("HorizontalPodAutoscaler", "h", "autoscaling/v1", spec={
                 "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}})],
         match={"resourceRules": [rule("horizontalpodautoscalers", groups="autoscaling", versions="v2")]}),
    says("exact", "'no'", [
        post("HorizontalPodAutoscaler", "h", "autoscaling/v1", spec={
            "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}})],
         match={"matchPolicy": "Exact",
                "resourceRules": [rule("horizontalpodautoscalers", groups="autoscaling", versions="v2")]}),
    validating("excluded", ["false"], [post("ConfigMap", name, metadata={"labels": {"n": name}}) for name in "abcd"], match={
        "resourceRules": [rule("configmaps", resourceNames=["a", "b", "c"])],
        "excludeResourceRules": [rule("configmaps", resourceNames=["b"])],
        "objectSelector": {"matchExpressions": [{"key": "n", "operator": "NotIn", "values": ["c"]}]}}),
    validating("scope", ["false"], [A], match={"resourceRules": [rule("*", scope="Cluster")]}),
    validating("scope-namespaced", ["false"], [A], match={"resourceRules": [rule("*", scope="Namespaced")]}),
    validating("bound", ["false"], [A, post("Secret", "a")], match={"resourceRules": [rule("*")]}, binding={
        "matchResources": {"resourceRules": [rule("secrets")]}}),
    validating("costly", ["[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, "
                          "[0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3].all(f, object.data.k == 'v'))))))"],
               [A]),
    validating("costly-sum", ["[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, "
                              "[0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5].all(e, object.data.k == 'v')))))"] * 40, [A]),
    mutating("apply", [apply(LABEL)], [
        A, post("ConfigMap", "b", metadata={"labels": {"a": "c", "x": "y"}}), ("PUT", item("a"), A[2]),
        ("PATCH", item("b"), {"data": {"k": "v"}}),
        ("APPLY", item("c") + "?fieldManager=m", post("ConfigMap", "c")[2]), ("DELETE", item("a"), None)]),
    mutating("apply-deep", [apply(
        "Object{spec: Object.spec{replicas: object.spec.replicas + 1, template: Object.spec.template{"
        "spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'side', image: 's'}, "
        "Object.spec.template.spec.containers{name: 'c', env: [Object.spec.template.spec.containers.env{"
        "name: 'E', value: 'v'}]}]}}}}")], [DEPLOYMENT],
             match={"resourceRules": [rule("deployments", "CREATE", "apps")]}),
    mutating("apply-atomic", [apply("Object{spec: Object.spec{template: Object.spec.template{spec: "
                                    "Object.spec.template.spec{containers: "
                                    "[Object.spec.template.spec.containers{name: 'c', args: ['x']}]}}}}")], [DEPLOYMENT],
             match={"resourceRules": [rule("deployments", "CREATE", "apps")]}),
    mutating("apply-unknown", [apply("Object{nope: 1}")], [A]),
    mutating("apply-mismatch", [apply("Object{metadata: Object.spec{labels: {'a': 'b'}}}")], [A]),
    mutating("apply-type", [apply("Object{data: {'a': 1}}")], [A]),
    mutating("apply-error", [apply("Object{data: {'a': object.nope}}")], [A]),
    mutating("apply-ignored", [apply("Object{data: {'a': object.nope}}"), apply(LABEL)], [A], failurePolicy="Ignore"),
    mutating("patch", [
        patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"),
        patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x/y'), value: object.metadata.name}, "
              "JSONPatch{op: 'copy', from: '/metadata/labels/a', path: '/data/copied'}]")], [A, ("PUT", item("a"), A[2])]),
    mutating("patch-test", [patch("[JSONPatch{op: 'test', path: '/data/k', value: 'v'}, "
                                  "JSONPatch{op: 'replace', path: '/data/k', value: 'w'}]")],
             [A, post("ConfigMap", "b", data={"k": "x"})]),
    mutating("patch-missing", [patch("[JSONPatch{op: 'remove', path: '/data/nope'}]")], [A]),
    mutating("patch-empty", [patch("has(object.nope) ? [JSONPatch{op: 'remove', path: '/data'}] : []")], [A]),
    mutating("patch-unknown", [patch("[JSONPatch{op: 'add', path: '/nope', value: 1}]")], [A]),
    mutating("patch-type", [patch("[JSONPatch{op: 'add', path: '/data/k', value: 1}]")], [A]),
    mutating("patch-object", [patch("[JSONPatch{op: 'add', path: '/spec/template/spec/containers/-', value: "
                                    "Object.spec.template.spec.containers{name: 'x', image: 'y', tty: true}}, "
                                    "JSONPatch{op: 'replace', path: '/spec/replicas', value: 7}]")], [DEPLOYMENT],
             match={"resourceRules": [rule("deployments", "CREATE", "apps")]}),
    mutating("patch-scale", [patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: 7}]")], [
        DEPLOYMENT, ("PATCH", item("d", "deployments", "/apis/apps/v1") + "/scale", {"spec": {"replicas": 3}})],
             match={"resourceRules": [rule("deployments/scale", "UPDATE", "apps")]}),
    mutating("mutate-conditions", [apply(LABEL)], [A, post("ConfigMap", "b")],
             matchConditions=[{"name": "one", "expression": "object.metadata.name == 'b'"}]),
    mutating("mutate-wrong-conditions", [apply(LABEL)], [A],
             matchConditions=[{"name": "one", "expression": "object.nope == 1"}]),
    mutating("mutate-param", [apply("Object{metadata: Object.metadata{labels: {variables.key: params.data.limit}}}")],
             PARAMS + SECRETS, match={"resourceRules": [rule("secrets", "CREATE")]},
             variables=[{"name": "key", "expression": "params.metadata.name + 'x'"}],
             binding=param(selector={"matchLabels": {"param": "x"}}), **PARAM),
    mutating("mutate-param-absent", [apply(LABEL)], SECRETS, match={"resourceRules": [rule("secrets", "CREATE")]},
             binding=param(name="none"), **PARAM),
    mutating("mutate-costly", [apply("[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9]"
                                     ".all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3].all(f, "
                                     "object.data.k == 'v')))))) ? Object{} : Object{}")], [A]),
]

def counting(key):
    """A mutation that counts its calls."""
    return patch(f"[JSONPatch{{op: 'add', path: '/data/{key}', value: '{key}' in object.data ? object.data.{key} + 'x' "
                 ": 'x'}]")


SCENARIOS.append({"name": "again", "requests": [A], "policies": [
    ("Mutating", {"matchConstraints": {"resourceRules": [rule("configmaps", "CREATE")]},
                  "mutations": [counting(key)], "reinvocationPolicy": policy}, {})
    for key, policy in [("needed", "IfNeeded"), ("never", "Never")]]})
SCENARIOS.append({"name": "both", "requests": [A], "policies": [
    ("Mutating", {"matchConstraints": {"resourceRules": [rule("configmaps", "CREATE")]},
                  "mutations": [apply(LABEL)], "reinvocationPolicy": "Never"}, {}),
    ("Validating", {"matchConstraints": {"resourceRules": [rule("configmaps", "CREATE")]}, "validations": [
        {"expression": "false", "messageExpression": "'labels ' + object.metadata.labels.a"}]}, {})]})


def prepare(client, scenario):
    """Creates the namespace and the policies of a scenario."""
    name = "pol-" + scenario["name"]
    client.ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    client.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts",
               {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    for index, (kind, policy, binding) in enumerate(scenario["policies"]):
        own = f"{name}-{index}"
        prefix = f"/apis/{GROUP}/{kind.lower()}admissionpolic"
        client.ask("DELETE", f"{prefix}ybindings/{own}")
        client.ask("DELETE", f"{prefix}ies/{own}")
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
        policy = {**policy, "matchConstraints": {**policy["matchConstraints"], **here}}
        body = {"apiVersion": GROUP, "kind": kind + "AdmissionPolicy", "metadata": {"name": own}, "spec": policy}
        code, found, _ = client.ask("POST", prefix + "ies", body)
        if code != 201:
            sys.exit(f"{own}: {found}")
        binding = {"policyName": own, **binding}
        if kind == "Validating":
            binding.setdefault("validationActions", ["Deny"])
        binding["matchResources"] = {**binding.get("matchResources", {}), **here}
        body = {"apiVersion": GROUP, "kind": kind + "AdmissionPolicyBinding", "metadata": {"name": own}, "spec": binding}
        code, found, _ = client.ask("POST", prefix + "ybindings", body)
        if code != 201:
            sys.exit(f"{own}: {found}")


def comparable(code, found, warnings):
    """Returns what of an answer is the same in all runs."""
    found = json.loads(re.sub(r"gen-\w{5}", "gen-*", json.dumps(found)))
    if isinstance(found, dict) and "JSON Patch:" in found.get("message", ""):
        # The texts of errors of JSON patches are our own.
        return [code, found.get("reason"), found["message"].split("JSON Patch:")[0], warnings]
    if isinstance(found, dict) and found.get("kind") == "Status":
        details = found.get("details") or {}
        causes = details.get("causes")
        return [code, found.get("reason"), found.get("message"), causes and [cause.get("message") for cause in causes],
                warnings]
    if not isinstance(found, dict):
        return [code, found]
    if found.get("kind") in ["TokenRequest", "LocalSubjectAccessReview"]:
        return [code]
    if found.get("kind", "").endswith("List"):
        return [code, [item["metadata"]["name"] for item in found["items"]]]
    metadata = {name: value for name, value in found.get("metadata", {}).items() if name not in VOLATILE}
    # Other plugins complete pods.
    spec = None if found.get("kind") == "Pod" else found.get("spec")
    return [code, metadata, found.get("data"), spec, warnings]


def play(client, scenario):
    prepared = json.dumps(scenario["requests"]).replace("NS", "pol-" + scenario["name"])
    return [comparable(*client.ask(*request)) for request in json.loads(prepared)]


def clean(client, scenario):
    for index, (kind, _, _) in enumerate(scenario["policies"]):
        own = f"pol-{scenario['name']}-{index}"
        client.ask("DELETE", f"/apis/{GROUP}/{kind.lower()}admissionpolicybindings/{own}")
        client.ask("DELETE", f"/apis/{GROUP}/{kind.lower()}admissionpolicies/{own}")


def main():
    client = recorded.Client(sys.argv[1], sys.argv[2])
    records = sys.argv[3:] == ["--record"]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda scenario: prepare(client, scenario), SCENARIOS))
        if records:
            time.sleep(PATIENCE)
        answers = list(pool.map(lambda scenario: play(client, scenario), SCENARIOS))
        list(pool.map(lambda scenario: clean(client, scenario), SCENARIOS))
    found = {scenario["name"]: answer for scenario, answer in zip(SCENARIOS, answers)}
    if records:
        recorded.record(FILE, found)
        return
    requests = {scenario["name"]: scenario["requests"] for scenario in SCENARIOS}
    recorded.compare(FILE, found, requests, "policies")


if __name__ == "__main__":
    main()
