"""The scenarios of webhooks.py: webhooks with their answers, and requests for which they are called.

In all texts, NS is the namespace of the scenario. A request is [method, path, body, options]. The methods PATCH, JSON,
STRATEGIC and APPLY are patches of these types; the option `as` names the user to impersonate, `shows` lists more fields
of the answer that are compared.
"""
CORE = "/api/v1/namespaces/NS/"
MAPS, PODS = CORE + "configmaps", CORE + "pods"
APPS = "/apis/apps/v1/namespaces/NS/"
THINGS = "/apis/hooks.example.com/v1/namespaces/NS/things"
OLD_THINGS = "/apis/hooks.example.com/v1beta1/namespaces/NS/things"
GLOBES = "/apis/hooks.example.com/v1/globes"
ALL = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
# The webhooks themselves are not about what the controllers of a server do.
MANAGER = "?fieldManager=m"


def rule(resources, operations="CREATE UPDATE DELETE CONNECT", group="", version="*", **more):
    return {"apiGroups": [group], "apiVersions": [version], "operations": operations.split(),
            "resources": resources.split(), **more}


def hook(kind, answer, rules=None, **more):
    """A webhook. Answers are described in hook_server.py."""
    rules = rules if rules is not None else [rule("configmaps")]
    return {"kind": kind, "answer": answer, "rules": [rules] if isinstance(rules, dict) else rules, **more}


def validating(answer=None, rules=None, **more):
    return hook("Validating", answer or {}, rules, **more)


def mutating(answer=None, rules=None, **more):
    return hook("Mutating", answer or {}, rules, **more)


def changes(*operations, **more):
    return {"patch": list(operations), **more}


def add(path, value):
    return {"op": "add", "path": path, "value": value}


def config_map(name="a", data=None, **metadata):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {"k": "v"}}


def create(name="a", query="", **metadata):
    return ["POST", MAPS + query, config_map(name, **metadata)]


def pod(name="a", **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}], **spec}}


def deployment(name="a"):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}}


def thing(name="a", version="v1", kind="Thing", **more):
    return {"apiVersion": "hooks.example.com/" + version, "kind": kind, "metadata": {"name": name},
            "spec": {"size": 1}, **more}


def scenario(name, hooks, *requests, **more):
    return {"name": name, "hooks": hooks, "requests": list(requests), **more}


def here(name):
    """Selects objects of a scenario that have no namespace."""
    return {"objectSelector": {"matchLabels": {"scenario": name}}, "namespaceSelector": {}}


LABELS = {"labels": {"scenario": "NS"}}
SCENARIOS = [
    scenario("verbs", [validating(), mutating()],
             create(query=MANAGER), ["GET", MAPS + "/a"], ["PUT", MAPS + "/a", config_map(data={"k": "w"})],
             ["PATCH", MAPS + "/a" + MANAGER, {"data": {"k": "x"}}],
             ["JSON", MAPS + "/a", [{"op": "replace", "path": "/data/k", "value": "y"}]],
             ["STRATEGIC", MAPS + "/a", {"data": {"l": "z"}}], ["PATCH", MAPS + "/a", {}],
             ["APPLY", MAPS + "/a" + MANAGER + "&force=true", config_map(data={"k": "applied"})],
             ["APPLY", MAPS + "/new" + MANAGER, config_map("new")],
             ["POST", MAPS, {"metadata": {"generateName": "gen-"}}],
             ["POST", MAPS + "?dryRun=All&fieldValidation=Strict&pretty=true", config_map("dry")],
             ["PATCH", MAPS + "/missing", {"data": {"k": "x"}}], ["PUT", MAPS + "/made", config_map("made")],
             ["DELETE", MAPS + "/a?gracePeriodSeconds=0&propagationPolicy=Orphan"],
             ["DELETE", MAPS + "/new", {"preconditions": {"uid": "x"}}],
             ["DELETE", MAPS + "/new", {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}],
             ["DELETE", MAPS + "/missing"], ["DELETE", MAPS], ["GET", MAPS]),
    scenario("who", [validating()], create() + [{"as": "eve"}], create("b")),
    scenario("pods", [validating(rules={**ALL, "apiGroups": [""]}), mutating(rules={**ALL, "apiGroups": [""]})],
             ["POST", PODS, pod()], ["PATCH", PODS + "/a/status", {"status": {"phase": "Running"}}],
             ["STRATEGIC", PODS + "/a/ephemeralcontainers", {"spec": {"ephemeralContainers": [
                 {"name": "e", "image": "i", "terminationMessagePolicy": "File"}]}}],
             ["STRATEGIC", PODS + "/a/resize", {"spec": {"containers": [
                 {"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}],
             ["GET", PODS + "/a/log?container=c"], ["GET", PODS + "/a/exec?command=x&stdin=true&tty=true&container=c"],
             ["POST", PODS + "/a/attach?stdout=true"], ["POST", PODS + "/a/portforward?ports=80"],
             ["GET", PODS + "/a/proxy/x/y"], ["GET", PODS + "/missing/exec?command=x"],
             ["POST", PODS + "/a/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
                                            "target": {"kind": "Node", "name": "n"}}],
             ["POST", PODS + "/a/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
                                             "deleteOptions": {"dryRun": ["All"]}}],
             ["POST", PODS, pod("b")], ["POST", PODS + "/b/eviction", {
                 "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}}],
             ["DELETE", PODS + "/a"], ["POST", CORE + "serviceaccounts/default/token", {
                 "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"]}}],
             ["POST", CORE + "services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "clusterIP": "None"}}], ["DELETE", CORE + "services/s"]),
    scenario("scale", [validating(rules={**ALL, "apiGroups": ["apps", "hooks.example.com"]})],
             ["POST", APPS + "deployments", deployment()], ["PATCH", APPS + "deployments/a/scale", {"spec": {"replicas": 2}}],
             ["PATCH", APPS + "deployments/a/status", {"status": {"replicas": 1}}],
             ["POST", THINGS, thing()], ["PATCH", THINGS + "/a/scale", {"spec": {"replicas": 2}}],
             ["PATCH", THINGS + "/a/status", {"status": {"state": "x"}}], ["DELETE", THINGS + "/a"]),
    scenario("mutate-scale", [mutating(changes(add("/spec/replicas", 7)), rule("*/scale", "UPDATE", "*"))],
             ["POST", APPS + "deployments", deployment()], ["PATCH", APPS + "deployments/a/scale", {"spec": {"replicas": 2}}],
             ["POST", THINGS, thing()], ["PATCH", THINGS + "/a/scale", {"spec": {"replicas": 2}}], ["GET", THINGS + "/a"]),
    scenario("mutate-status", [mutating(changes(add("/metadata/labels", {"x": "y"}), add("/spec/size", 9),
                                                add("/status", {"state": "hooked"})), rule("things/status", "UPDATE", "*"))],
             ["POST", THINGS, thing()], ["PATCH", THINGS + "/a/status", {"status": {"state": "x"}}], ["GET", THINGS + "/a"]),
    scenario("namespaces", [validating(rules=rule("namespaces namespaces/*"), **here("NS")),
                            mutating(rules=rule("namespaces", scope="Cluster"), **here("NS"))],
             ["POST", "/api/v1/namespaces", {"metadata": {"name": "NS-x", **LABELS}}],
             ["PATCH", "/api/v1/namespaces/NS-x", {"metadata": {"annotations": {"a": "b"}}}],
             ["PATCH", "/api/v1/namespaces/NS-x", {"metadata": {"labels": {"scenario": "other"}}}],
             ["PATCH", "/api/v1/namespaces/NS-x", {"metadata": {"labels": {"z": "y"}}}]),
    scenario("cluster", [validating(rules=rule("globes", group="hooks.example.com", scope="Cluster"), **here("NS")),
                         validating(rules=rule("globes", group="hooks.example.com", scope="Namespaced"), **here("NS"))],
             ["POST", GLOBES, {**thing("NS", kind="Globe"), "metadata": {"name": "NS", **LABELS}}],
             ["DELETE", GLOBES + "/NS"]),
    # Other versions of the resource.
    *[scenario("policy-" + policy.lower(), [
        validating(rules=rule("horizontalpodautoscalers", group="autoscaling", version="v1"), matchPolicy=policy),
        mutating(changes(add("/metadata/annotations", {"x": "y"})), rule("horizontalpodautoscalers", group="autoscaling",
                                                                         version="v1"), matchPolicy=policy),
        mutating(changes(add("/spec/size", 5)), rule("things things/*", group="hooks.example.com", version="v1beta1"),
                 matchPolicy=policy),
        validating(rules=rule("events", group="events.k8s.io", version="v1"), matchPolicy=policy)],
        ["POST", "/apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers", {
            "metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {
                        "type": "Utilization", "averageUtilization": 50}}}]}}],
        ["PATCH", "/apis/autoscaling/v1/namespaces/NS/horizontalpodautoscalers/a", {"spec": {"maxReplicas": 4}}],
        ["POST", THINGS, thing()], ["POST", OLD_THINGS, thing("b", "v1beta1")],
        ["PATCH", THINGS + "/a/scale", {"spec": {"replicas": 2}}], ["PATCH", THINGS + "/a/status", {"status": {"state": "x"}}],
        ["POST", CORE + "events", {"metadata": {"name": "e"}, "reason": "R", "type": "Normal", "involvedObject": {
            "kind": "Pod", "name": "p", "namespace": "NS"}}],
        ["DELETE", THINGS + "/a"]) for policy in ["Exact", "Equivalent"]],
    # What is selected.
    scenario("objects", [validating(objectSelector={"matchLabels": {"hook": "yes"}})],
             create("a", labels={"hook": "yes"}), create("b"), ["PATCH", MAPS + "/b", {"metadata": {"labels": {"hook": "yes"}}}],
             ["PATCH", MAPS + "/b", {"metadata": {"labels": {"hook": "no"}}}],
             ["PATCH", MAPS + "/b", {"metadata": {"labels": {"x": "no"}}}], ["DELETE", MAPS + "/a"], ["DELETE", MAPS + "/b"]),
    scenario("expressions", [validating(objectSelector={"matchExpressions": [
        {"key": "a", "operator": "NotIn", "values": ["x", "y"]}, {"key": "b", "operator": "Exists"}]})],
             create("a", labels={"b": ""}), create("b", labels={"a": "x", "b": ""}), create("c", labels={"a": "z", "b": "1"})),
    scenario("other-namespace", [validating(namespaceSelector={"matchLabels": {"hook": "never"}})], create()),
    scenario("rules", [validating(rules=[rule("pods"), rule("configmaps/*"), rule("configmaps", "UPDATE")]),
                       validating(rules=rule("*", "CREATE", scope="Namespaced")), validating(rules=rule("configmaps", scope="Cluster")),
                       validating(rules=rule("*/*", "UPDATE", version="v2"))],
             create(), ["PATCH", MAPS + "/a", {"data": {"k": "w"}}]),
    scenario("conditions", [
        validating(matchConditions=[{"name": "a", "expression": "object.metadata.name.startsWith('a')"},
                                    {"name": "b", "expression": "request.operation == 'CREATE'"}]),
        validating(matchConditions=[{"name": "a", "expression": "request.userInfo.username == 'admin' && !request.dryRun"}]),
        validating(matchConditions=[{"name": "who", "expression": "authorizer.group('').resource('pods').namespace('NS')"
                                                                  ".check('create').allowed()"}]),
        mutating(failurePolicy="Ignore", matchConditions=[{"name": "bad", "expression": "object.data.missing == 'x'"}])],
             create("a"), create("b"), create("a2", "?dryRun=All"), ["PATCH", MAPS + "/a", {"data": {"k": "w"}}],
             ["DELETE", MAPS + "/a"]),
    scenario("conditions-fail", [validating(matchConditions=[
        {"name": "bad", "expression": "object.data.missing == 'x'"}, {"name": "worse", "expression": "object.data.x == '1'"}])],
             create("a"), create("b", data={"missing": "x"}), create("c", data={"missing": "y"})),
    scenario("conditions-some", [validating(matchConditions=[
        {"name": "bad", "expression": "object.data.missing == 'x'"}, {"name": "no", "expression": "false"}])], create("a")),
    # Reinvocation.
    scenario("again", [
        mutating([changes(add("/data/one", "1")), changes(add("/data/three", "3")), changes(add("/data/never", "x"))],
                 reinvocationPolicy="IfNeeded"),
        mutating(changes(add("/data/two", "2"))), mutating(reinvocationPolicy="IfNeeded")], create()),
    scenario("not-again", [mutating(changes(add("/data/one", "1")), reinvocationPolicy="IfNeeded"), mutating()], create()),
    scenario("order", [mutating([changes(add("/data/x", str(index)))], reinvocationPolicy=policy)
                       for index, policy in enumerate(["Never", "IfNeeded", "Never", "IfNeeded"])], create()),
    scenario("same", [mutating(changes(add("/data/k", "v")), reinvocationPolicy="IfNeeded"), mutating()], create()),
    scenario("managers", [mutating(changes(add("/data/hooked", "x"), add("/metadata/labels", {"l": "m"})))],
             create(query=MANAGER) + [{"shows": ["managedFields"]}],
             ["APPLY", MAPS + "/a?fieldManager=n", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": "1"}},
              {"shows": ["managedFields"]}],
             ["APPLY", MAPS + "/b?fieldManager=n", config_map("b"), {"shows": ["managedFields"]}],
             ["APPLY", MAPS + "/b?fieldManager=n", config_map("b"), {"shows": ["managedFields"]}],
             ["PATCH", MAPS + "/b?fieldManager=o", {"data": {"z": "1"}}, {"shows": ["managedFields"]}]),
    # Dry runs.
    *[scenario("effects-" + effects.lower(), [validating(sideEffects=effects), mutating(sideEffects=effects)],
               create("a", "?dryRun=All"), create("a"), ["DELETE", MAPS + "/a?dryRun=All"])
      for effects in ["None", "NoneOnDryRun"]],
    # Warnings and annotations.
    scenario("warnings", [validating({"warnings": ["one", "two", "one", "", "x" * 300, "a\nb", "quote \" and \\", "\u00e4\u2713", " s "],
                                      "auditAnnotations": {"a": "b", "": "c"}}),
                          mutating({"warnings": ["mutating", "one"]})], create()),
    scenario("many-warnings", [validating({"warnings": [f"{index} " + "y" * 200 for index in range(40)]})], create()),
    scenario("refused-warns", [validating({"allowed": False, "warnings": ["careful"]})], create()),
]

# Denials.
DENIALS = [
    {}, {"status": {}}, {"status": {"message": "no"}}, {"status": {"reason": "Because"}},
    {"status": {"message": "no", "reason": "Forbidden", "code": 403}}, {"status": {"message": "no", "code": 404}},
    {"status": {"code": 200, "message": "fine"}}, {"status": {"code": 302}}, {"status": {"code": 399}}, {"status": {"code": 999}},
    {"status": {"code": -1}}, {"status": {"status": "Success", "message": "no"}},
    {"status": {"status": "Failure", "reason": "Invalid", "code": 422, "message": "bad", "details": {
        "name": "n", "kind": "K", "group": "g", "uid": "u", "retryAfterSeconds": 3, "causes": [
            {"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}]}}},
    {"status": {"reason": "NotFound"}}, {"status": {"code": 429, "reason": "TooManyRequests", "details": {
        "retryAfterSeconds": 2}}}, {"status": {"metadata": {"resourceVersion": "1", "continue": "c"}, "message": "m"}},
    {"status": {"message": "a\nb \"c\" \u00e4"}}, {"status": {"code": "403"}}, {"status": "text"}, {"status": None},
    {"allowed": "no"}, {"allowed": 0}, {"allowed": None, "status": {"code": 410, "reason": "Gone"}},
    {"patch": [add("/data/x", "y")]}, {"status": {"message": "x" * 5000}}, {"status": {"code": 500}}, {"status": {"code": 503}},
]
SCENARIOS += [scenario(f"deny-{index}", [(mutating if index % 3 == 1 else validating)({"allowed": False, **denial})], create())
              for index, denial in enumerate(DENIALS)]

# Patches that change what may not be changed, or cannot be applied.
META = "/metadata/"
PATCHES = [
    [], [add("/data/x", "y")], [add("/nothing/x", "y")], [{"op": "remove", "path": "/data/x"}],
    [{"op": "test", "path": "/data/k", "value": "other"}], [{"op": "jump", "path": "/data/k"}], [{"path": "/data/k"}],
    [add("", {})], [add("", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "NS"}})],
    [{"op": "remove", "path": ""}], [add("/data", [])], [add("/data", "x")], [add("/data/n", 1)], [add("/data/n", None)],
    [add("/data/bad key", "x")], [add("/unknown", "x")], [add("/kind", "Secret")], [add("/kind", "Nothing")],
    [add("/apiVersion", "v2")], [{"op": "remove", "path": "/kind"}], [add(META + "name", "b")], [add(META + "namespace", "default")],
    [add(META + "uid", "x")], [add(META + "resourceVersion", "5")], [add(META + "generation", 7)],
    [add(META + "creationTimestamp", "2001-01-01T00:00:00Z")], [add(META + "creationTimestamp", "yesterday")],
    [add(META + "deletionTimestamp", "2001-01-01T00:00:00Z")], [add(META + "deletionGracePeriodSeconds", 5)],
    [add(META + "finalizers", ["x"])], [add(META + "finalizers", ["example.com/x"])], [add(META + "labels", {"a b": "c"})],
    [add(META + "labels", {"a": 1})], [add(META + "ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "p"}])],
    [add(META + "managedFields", [])], [add(META + "managedFields", [{"manager": "x"}])],
    [add(META + "managedFields", [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                                   "fieldsV1": {"f:data": {}}}])],
    [add(META + "managedFields", "x")], [add(META + "selfLink", "x")], [add(META + "generateName", "g-")], [add("/metadata", None)],
    [{"op": "remove", "path": "/metadata"}], [add("/immutable", True)], [{"op": "copy", "from": "/data/k", "path": "/data/l"}],
    [{"op": "move", "from": "/data/k", "path": "/data/l"}], [{"op": "copy", "from": "/nothing", "path": "/data/l"}],
    [add("/data/a~1b", "x")], [add("/data/-", "x")], [add("data/x", "y")],
]
RAW_PATCHES = [
    {"patch": "bm9uc2Vuc2U=", "patchType": "JSONPatch"}, {"patch": "not base64", "patchType": "JSONPatch"},
    {"patch": "e30=", "patchType": "JSONPatch"}, {"patch": "bnVsbA==", "patchType": "JSONPatch"}, {"patch": "W10="},
    {"patch": "W10=", "patchType": "MergePatch"}, {"patch": "W10=", "patchType": ""}, {"patchType": "JSONPatch"},
    {"patch": "", "patchType": "JSONPatch"}, {"patch": "", "patchType": ""}, {"patch": None, "patchType": None}, {"patchType": ""},
    {"patch": 5, "patchType": "JSONPatch"}, {"patch": {"a": 1}, "patchType": "JSONPatch"},
    {"patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEveCIsInZhbHVlIjoieSJ9XQ==", "patchType": "StrategicMergePatch"},
]
SCENARIOS += [scenario(f"patch-{index}", [mutating({"patch": patch})], create()) for index, patch in enumerate(PATCHES)]
SCENARIOS += [scenario(f"raw-patch-{index}", [mutating(answer), ], create()) for index, answer in enumerate(RAW_PATCHES)]
SCENARIOS += [scenario(f"validating-patch-{index}", [validating(answer)], create())
              for index, answer in enumerate([{"patch": []}, *RAW_PATCHES[4:12]])]
SCENARIOS += [scenario(f"update-patch-{index}", [mutating({"patch": patch}, rule("configmaps", "UPDATE"))], create(),
                       ["PATCH", MAPS + "/a", {"data": {"z": "1"}}],
                       ["APPLY", MAPS + "/a" + MANAGER, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"y": "1"}}])
              for index, patch in enumerate(it for it in PATCHES if it and it[0].get("path", "").startswith(META[:-1]))]
SCENARIOS += [scenario(f"thing-patch-{index}", [mutating({"patch": patch}, rule("things", group="hooks.example.com"))],
                       ["POST", THINGS, thing()])
              for index, patch in enumerate([[add("/spec/size", 5)], [add("/spec/size", "x")], [add("/spec/size", 500)],
                                             [add("/spec/unknown", "x")], [add("/top", "x")], [add("/status", {"state": "s"})],
                                             [add("/kind", "Other")], [add("/apiVersion", "hooks.example.com/v1beta1")],
                                             [add("/metadata/name", "b")], [add("/metadata/generation", 8)],
                                             [add("/metadata/unknown", "x")], [add("/metadata/labels", {"a": 1})],
                                             [{"op": "remove", "path": "/spec"}], [add("/spec", None)]])]
SCENARIOS += [
    scenario("patch-delete", [mutating(changes(add("/metadata/labels", {})), rule("configmaps", "DELETE"))], create(),
             ["DELETE", MAPS + "/a"]),
    scenario("patch-exec", [mutating(changes(add("/command", ["other"])), rule("pods/exec", "CONNECT"))],
             ["POST", PODS, pod()], ["GET", PODS + "/a/exec?command=x"]),
    scenario("patch-binding", [mutating(changes(add("/target/name", "other")), rule("pods/binding", "CREATE"))],
             ["POST", PODS, pod()],
             ["POST", PODS + "/a/binding", {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}],
             ["GET", PODS + "/a", None, {"shows": ["nodeName"]}]),
    scenario("patch-eviction", [mutating(changes(add("/deleteOptions", {"dryRun": ["All"]})), rule("pods/eviction", "CREATE"))],
             ["POST", PODS, pod()], ["POST", PODS + "/a/eviction", {"metadata": {"name": "a"}}], ["GET", PODS + "/a"]),
    scenario("patch-pod", [mutating(changes(add("/spec/containers/-", {"name": "side", "image": "s"}),
                                            add("/spec/priority", 5)), rule("pods", "CREATE"))], ["POST", PODS, pod()]),
    scenario("patch-pod-defaults", [mutating(changes(add("/spec/containers/-", {"name": "side", "image": "s"})),
                                             rule("pods", "CREATE")), mutating(rules=rule("pods", "CREATE"))],
             ["POST", PODS, pod()]),
    scenario("patch-pod-immutable", [mutating(changes(add("/spec/nodeName", "other")), rule("pods", "UPDATE"))],
             ["POST", PODS, pod()], ["PATCH", PODS + "/a", {"metadata": {"labels": {"a": "b"}}}]),
    scenario("patch-refused", [mutating(changes(add("/data/x", "y"))), validating({"allowed": False, "status": {"message": "no"}})],
             create(), ["GET", MAPS + "/a"]),
]

# Answers that cannot be used, with both policies.
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
JSON = {"Content-Type": "application/json"}
STATUS = '{"kind":"Status","apiVersion":"v1","status":"Failure","message":"own message","reason":"Conflict","code":409}'
BROKEN = {
    "uid": {"uid": "other"}, "no-uid": {"uid": ""}, "number-uid": {"uid": 5}, "version": {"review": {"apiVersion": "admission.k8s.io/v1beta1"}},
    "unknown-version": {"review": {"apiVersion": "admission.k8s.io/v9"}}, "no-version": {"review": {"apiVersion": None}},
    "kind": {"review": {"kind": "Other"}}, "no-kind": {"review": {"kind": ""}}, "none": {"review": {"response": None}},
    "list": {"review": {"response": []}}, "extra": {"extra": {"a": "b"}}, "warnings": {"warnings": "text"},
    "annotations": {"auditAnnotations": {"a": 5}},
    **{"body-" + name: {"raw": [200, JSON, body]} for name, body in {
        "empty": "", "garbage": "garbage", "list": "[]", "text": "\"x\"", "null": "null", "object": "{}", "cut": '{"kind": "Admi',
        "yaml": "kind: AdmissionReview\napiVersion: admission.k8s.io/v1\n", "twice": '{"kind":"AdmissionReview"}{}',
        "status": STATUS, "html": "<html>", "number": "5", "kind-number": '{"kind": 5}'}.items()},
    **{f"code-{code}": {"raw": [code, JSON, "text of the answer"]} for code in [
        201, 202, 204, 206, 207, 300, 301, 304, 400, 401, 402, 403, 404, 405, 406, 409, 410, 413, 415, 418, 422, 429, 500, 501, 502, 503,
        504, 599]},
    **{f"empty-{code}": {"raw": [code, {}, ""]} for code in [200, 403, 404, 415, 500]},
    **{f"status-{code}": {"raw": [code, JSON, STATUS]} for code in [200, 201, 404, 409, 500]},
    "success-status-500": {"raw": [500, JSON, '{"kind":"Status","apiVersion":"v1","status":"Success"}']},
    "plain-500": {"raw": [500, {"Content-Type": "text/plain"}, "plain text"]},
    "long-500": {"raw": [500, {"Content-Type": "text/plain"}, "z" * 5000]},
    "quoted-500": {"raw": [500, {"Content-Type": "text/plain"}, "a\"b\nc\t\u00e4"]},
    "retry-429": {"raw": [429, {**JSON, "Retry-After": "1"}, "later"]}, "retry-503": {"raw": [503, {"Retry-After": "1"}, "later"]},
    "retry-500": {"raw": [500, {"Retry-After": "x"}, "later"]},
    "redirect": {"raw": [302, {"Location": "/elsewhere"}, ""]}, "redirect-307": {"raw": [307, {"Location": "/NS/0"}, ""]},
    "redirect-308": {"raw": [308, {"Location": "https://127.0.0.1:1/"}, ""]}, "redirect-nowhere": {"raw": [302, {}, ""]},
    **{how: {"how": how} for how in ["hang", "reset", "garbage", "half", "endless", "slow", "close"]},
    "protobuf": {"raw": [200, {"Content-Type": "application/vnd.kubernetes.protobuf"}, "k8s\0"]},
    "typed-yaml": {"raw": [200, {"Content-Type": "application/yaml"}, "kind: AdmissionReview\n"]},
    "typed-html": {"raw": [500, {"Content-Type": "text/html; charset=utf-8"}, "<h1>x</h1>"]},
    "typed-bad": {"raw": [200, {"Content-Type": "///"}, "{}"]},
    "blanks": {"blanks": 8 << 20},
}
LISTENERS = {"named": {"listener": "named"}, "numbered": {"listener": "numbered"}, "plain": {"listener": "plain"},
             "localhost": {"host": "localhost"}, "closed": {"url": "https://127.0.0.1:1/x"}, "other-ca": {"bundle": "other"},
             "no-ca": {"bundle": ""}, "no-host": {"url": "https://nothing.invalid/x"}, "path": {"end": "//a//b/"}}
for name, answer in BROKEN.items():
    limit = 3 if "retry" in name else 1 if answer.get("how") in ["hang", "endless", "slow"] else 20
    SCENARIOS.append(scenario("fails-" + name, [validating(answer, timeoutSeconds=limit)], create()))
    if name in ["uid", "body-garbage", "code-500", "hang", "close", "none", "code-204"]:
        ignored = [kind(answer, timeoutSeconds=limit, failurePolicy="Ignore") for kind in [mutating, validating]]
        SCENARIOS.append(scenario("ignored-" + name, ignored, create()))
        SCENARIOS.append(scenario("mutating-" + name, [mutating(answer, timeoutSeconds=limit)], create()))
SCENARIOS += [scenario("at-" + name, [validating(timeoutSeconds=20, **more)], create()) for name, more in LISTENERS.items()]
SCENARIOS += [
    scenario("service-absent", [validating(service={"namespace": "NS", "name": "absent", "path": "/p"}, timeoutSeconds=20)], create()),
    scenario("ignored-closed", [mutating(url="https://127.0.0.1:1/x", failurePolicy="Ignore")], create()),
    scenario("hang-limit", [validating({"how": "hang"}, timeoutSeconds=10)], create(query="?timeout=1s")),
    scenario("beta", [validating(admissionReviewVersions=["v1beta1"]), mutating({"patch": [add("/data/x", "y")], "patchType": None},
                                                                               admissionReviewVersions=["v2", "v1beta1", "v1"])], create()),
    scenario("beta-uid", [validating({"uid": "x"}, admissionReviewVersions=["v1beta1"])], create()),
    scenario("beta-refuses", [validating({"allowed": False, "status": {"code": 401}}, admissionReviewVersions=["v1beta1"])], create()),
    scenario("beta-answers-v1", [validating({"review": REVIEW}, admissionReviewVersions=["v1beta1"])], create()),
    scenario("beta-garbage", [validating({"review": {"apiVersion": "x", "kind": "y"}}, admissionReviewVersions=["v1beta1"])], create()),
    scenario("beta-none", [validating({"review": {"response": None}}, admissionReviewVersions=["v1beta1"])], create()),
]

# Configurations that are refused: what they change of a right one.
CONFIGURATIONS = [
    {}, {"name": ""}, {"name": "short"}, {"name": "Not.A.name"}, {"sideEffects": None}, {"sideEffects": "Some"}, {"sideEffects": "x"},
    {"timeoutSeconds": 0}, {"timeoutSeconds": 31}, {"timeoutSeconds": -1}, {"timeoutSeconds": 30}, {"failurePolicy": "x"},
    {"failurePolicy": ""}, {"matchPolicy": "x"}, {"reinvocationPolicy": "x"}, {"admissionReviewVersions": []},
    {"admissionReviewVersions": ["v2"]}, {"admissionReviewVersions": ["v1", "v1"]}, {"admissionReviewVersions": ["V1"]},
    {"admissionReviewVersions": ["v1", "x y"]}, {"rules": []}, {"rules": None}, {"rules": [{}]},
    {"rules": [rule("pods", operations="CREATE *")]}, {"rules": [rule("pods", operations="GET")]}, {"rules": [rule("pods", operations="")]},
    {"rules": [rule("* pods")]}, {"rules": [rule("pods pods/*")]}, {"rules": [rule("*/* pods/x")]}, {"rules": [rule("pods/status pods/*")]},
    {"rules": [rule("*/x y/*")]}, {"rules": [rule("pods", group="*")]}, {"rules": [{**rule("pods"), "apiGroups": ["*", "a"]}]},
    {"rules": [{**rule("pods"), "apiVersions": []}]}, {"rules": [{**rule("pods"), "apiVersions": ["*", "v1"]}]},
    {"rules": [{**rule("pods"), "apiVersions": [""]}]}, {"rules": [{**rule("pods"), "resources": ["", "pods"]}]},
    {"rules": [rule("pods", scope="x")]}, {"rules": [rule("pods", scope="")]}, {"rules": [{**rule("pods"), "apiGroups": []}]},
    {"objectSelector": {"matchLabels": {"a b": "c"}}}, {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}},
    {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
    {"matchConditions": [{"name": "", "expression": "true"}]}, {"matchConditions": [{"name": "a", "expression": ""}]},
    {"matchConditions": [{"name": "a", "expression": "1"}]}, {"matchConditions": [{"name": "a", "expression": "x +"}]},
    {"matchConditions": [{"name": "a", "expression": "nothing"}]}, {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
    {"matchConditions": [{"name": f"n{index}", "expression": "true"} for index in range(65)]},
    {"matchConditions": [{"name": "a", "expression": "params.x"}]}, {"matchConditions": [{"name": "a b", "expression": "true"}]},
    {"matchConditions": [{"name": "a", "expression": "namespaceObject.metadata.name == 'x'"}]},
    {"clientConfig": {}}, {"clientConfig": {"url": "http://a/b"}}, {"clientConfig": {"url": "https://"}},
    {"clientConfig": {"url": "https://a?b=c"}}, {"clientConfig": {"url": "https://a#b"}}, {"clientConfig": {"url": "https://u:p@a"}},
    {"clientConfig": {"url": "::"}}, {"clientConfig": {"url": "https://a/b", "caBundle": "eA=="}},
    {"clientConfig": {"url": "https://a", "service": {"name": "a", "namespace": "b"}}},
    {"clientConfig": {"service": {"name": "", "namespace": "b"}}}, {"clientConfig": {"service": {"name": "a", "namespace": ""}}},
    {"clientConfig": {"service": {"name": "a", "namespace": "b", "port": 0}}},
    {"clientConfig": {"service": {"name": "a", "namespace": "b", "port": 70000}}},
    {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x"}}},
    {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "/a//b"}}},
    {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "/a?b"}}},
]

# Answers that are others than those of kube-apiserver, with the reason.
DIFFERENT = {
    **dict.fromkeys(["policy-equivalent 6"], "events of another group have two more fields, which are empty"),
    **dict.fromkeys(["deny-3 0"], "reasons are those of Kubernetes"),
    **dict.fromkeys(["patch-27 0", "patch-28 0"], "an object is not created as one that is deleted"),
    **dict.fromkeys([f"update-patch-{index} {request}" for index in [9, 11, 13] for request in [1, 2]],
                    "each cause is shown once"),
    **dict.fromkeys(["thing-patch-6 0", "thing-patch-6 1", "thing-patch-11 0", "thing-patch-11 1"], "the result has the kind and the types of the resource"),
    **dict.fromkeys(["thing-patch-13 0"], "null is as no value"),
    **dict.fromkeys(["hang-limit 0"], "the status of a request that took too long has its kind"),
}
# Scenarios whose error messages are in words of our own, or tell of a connection.
OWN_TEXTS = [*(f"patch-{index}" for index in [2, 3, 4, 5, 6, 7, 8, 9, 16]), "patch-pod-immutable", "fails-reset", "fails-garbage",
             "at-no-host"]
