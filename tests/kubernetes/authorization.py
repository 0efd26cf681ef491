#!/usr/bin/env python3
"""Asks a server for decisions about many requests of users with few rights, and compares them with recorded ones.

usage: authorization.py URL TOKEN           compares with authorization.json
       authorization.py URL TOKEN --record  writes it, from a real kube-apiserver with --authorization-mode=RBAC

TOKEN is that of an administrator, in whose name the users and their rights are created. Each user has one role, in a
binding of the cluster or of one namespace; each makes all requests. A decision is the letter F for 403 with the reason
Forbidden, and otherwise "."; the answers of attempts to grant rights and of reviews are compared as a whole.
"""
import concurrent.futures
import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "authorization.json")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACE = "authz"
# Seconds until a server knows of new rights.
PATIENCE = 20


def rule(verbs, groups, resources, names=()):
    found = {"verbs": verbs.split(), "apiGroups": ["" if g == "core" else g for g in groups.split()],
             "resources": resources.split()}
    return {**found, "resourceNames": list(names)} if names else found


def path_rule(verbs, *paths):
    return {"verbs": verbs.split(), "nonResourceURLs": list(paths)}


# The rights of the users: a name, whether the binding is of the cluster, and the rules.
RIGHTS = [
    ("nothing", True, []),
    ("everything", True, [rule("*", "*", "*"), path_rule("*", "*")]),
    ("everything-here", False, [rule("*", "*", "*")]),
    ("read-all", True, [rule("get list watch", "*", "*")]),
    ("read-here", False, [rule("get list watch", "*", "*")]),
    ("get-pods", True, [rule("get", "core", "pods")]),
    ("get-pods-here", False, [rule("get", "core", "pods")]),
    ("list-pods-here", False, [rule("list", "core", "pods")]),
    ("watch-pods-here", False, [rule("watch", "core", "pods")]),
    ("one-pod", False, [rule("*", "core", "pods", ["a"])]),
    ("one-pod-all", True, [rule("*", "core", "pods", ["a"])]),
    ("pods-status", False, [rule("*", "core", "pods/status")]),
    ("pods-log", False, [rule("get", "core", "pods/log")]),
    ("pods-exec", False, [rule("create", "core", "pods/exec")]),
    ("pods-exec-get", False, [rule("get", "core", "pods/exec")]),
    ("pods-proxy", False, [rule("*", "core", "pods/proxy")]),
    ("pods-star-sub", False, [rule("*", "core", "pods/*")]),
    ("star-status", False, [rule("*", "*", "*/status")]),
    ("star-scale", True, [rule("get update patch", "*", "*/scale")]),
    ("evict", False, [rule("create", "core", "pods/eviction")]),
    ("bind", False, [rule("create", "core", "pods/binding bindings")]),
    ("ephemeral", False, [rule("patch update", "core", "pods/ephemeralcontainers")]),
    ("create-maps", False, [rule("create", "core", "configmaps")]),
    ("update-maps", False, [rule("update", "core", "configmaps")]),
    ("patch-maps", False, [rule("patch", "core", "configmaps")]),
    ("delete-maps", False, [rule("delete", "core", "configmaps")]),
    ("delete-all-maps", False, [rule("deletecollection", "core", "configmaps")]),
    ("update-leases", False, [rule("update", "coordination.k8s.io", "leases")]),
    ("put-leases", False, [rule("update create", "coordination.k8s.io", "leases")]),
    ("wrong-group", True, [rule("*", "apps", "pods configmaps nodes secrets")]),
    ("apps", True, [rule("*", "apps", "*")]),
    ("core-all", False, [rule("*", "core", "*")]),
    ("deployments", False, [rule("get list watch update patch", "apps", "deployments")]),
    ("scale", False, [rule("update", "apps", "deployments/scale")]),
    ("namespaces", True, [rule("get list", "core", "namespaces")]),
    ("namespace-here", False, [rule("*", "core", "namespaces")]),
    ("namespaces-finalize", True, [rule("update", "core", "namespaces/finalize")]),
    ("nodes", True, [rule("get", "core", "nodes")]),
    ("nodes-here", False, [rule("get list", "core", "nodes")]),
    ("tokens", False, [rule("create", "core", "serviceaccounts/token")]),
    ("reviews", True, [rule("create", "authorization.k8s.io authentication.k8s.io", "*")]),
    ("metrics", True, [path_rule("get", "/metrics")]),
    ("healthz", True, [path_rule("get", "/healthz/*")]),
    ("post-paths", True, [path_rule("post", "*")]),
    ("slash", True, [path_rule("get", "/", "/api*")]),
    ("crds", True, [rule("*", "apiextensions.k8s.io", "customresourcedefinitions")]),
    ("crd-status", True, [rule("update patch", "apiextensions.k8s.io", "customresourcedefinitions/status")]),
    ("upper", True, [rule("GET LIST", "core", "Pods pods")]),
]

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
       "spec": {"containers": [{"name": "c", "image": "i"}]}}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}}
MERGE = "application/merge-patch+json"
HERE_PATH = f"/api/v1/namespaces/{NAMESPACE}"
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DRY = "?dryRun=All"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
ACCESS = {"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": NAMESPACE}}}

# The requests: method, path, body, and a content type that is not JSON. Nothing that they name exists, or they are dry
# runs.
REQUESTS = [
    ("GET", f"{HERE_PATH}/pods"),
    ("GET", f"{HERE_PATH}/pods/"),
    ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/namespaces/other/pods"),
    ("GET", f"{HERE_PATH}/pods?fieldSelector=metadata.name%3Da"),
    ("GET", f"{HERE_PATH}/pods?fieldSelector=metadata.name%3Db"),
    ("GET", f"{HERE_PATH}/pods?fieldSelector=metadata.name!%3Da"),
    ("GET", f"{HERE_PATH}/pods?fieldSelector=metadata.name%3Da,metadata.name%3Db"),
    ("GET", f"{HERE_PATH}/pods?watch=1&timeoutSeconds=1"),
    ("GET", f"{HERE_PATH}/pods?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Da"),
    ("GET", f"{HERE_PATH}/pods?watch=false"),
    ("GET", f"{HERE_PATH}/pods?watch=0&watch=1&timeoutSeconds=1"),
    ("GET", f"/api/v1/watch/namespaces/{NAMESPACE}/pods?timeoutSeconds=1"),
    ("GET", f"/api/v1/watch/namespaces/{NAMESPACE}/pods/a?timeoutSeconds=1"),
    ("GET", "/api/v1/watch/pods?timeoutSeconds=1"),
    ("GET", f"{HERE_PATH}/pods/a"),
    ("GET", f"{HERE_PATH}/pods/b"),
    ("GET", f"{HERE_PATH}/pods/%61"),
    ("GET", f"{HERE_PATH}/pods/a?watch=1&timeoutSeconds=1"),
    ("HEAD", f"{HERE_PATH}/pods/a"),
    ("HEAD", f"{HERE_PATH}/pods"),
    ("OPTIONS", f"{HERE_PATH}/pods"),
    ("GET", f"{HERE_PATH}/pods%2Fa"),
    ("GET", f"{HERE_PATH}/pods/a%2Fstatus"),
    ("GET", f"{HERE_PATH}/Pods/a"),
    ("GET", f"/api/v1//namespaces/{NAMESPACE}/pods/a"),
    ("GET", f"//api/v1/namespaces/{NAMESPACE}/pods/a"),
    ("GET", f"/api/v1/namespaces/other/../{NAMESPACE}/pods/a"),
    ("GET", f"{HERE_PATH}/pods/a/status"),
    ("PUT", f"{HERE_PATH}/pods/a/status", POD),
    ("PATCH", f"{HERE_PATH}/pods/a/status", {}, MERGE),
    ("GET", f"{HERE_PATH}/pods/a/log"),
    ("GET", f"{HERE_PATH}/pods/a/exec?command=x"),
    ("POST", f"{HERE_PATH}/pods/a/exec?command=x"),
    ("GET", f"{HERE_PATH}/pods/a/attach"),
    ("POST", f"{HERE_PATH}/pods/a/portforward"),
    ("GET", f"{HERE_PATH}/pods/a/proxy"),
    ("GET", f"{HERE_PATH}/pods/a/proxy/x/y"),
    ("POST", f"{HERE_PATH}/pods/a/proxy/x"),
    ("DELETE", f"{HERE_PATH}/pods/a/proxy/x"),
    ("POST", f"{HERE_PATH}/pods/a/binding{DRY}", {"target": {"name": "n"}}),
    ("POST", f"{HERE_PATH}/bindings{DRY}", {"metadata": {"name": "a"}, "target": {"name": "n"}}),
    ("POST", f"{HERE_PATH}/pods/a/eviction{DRY}", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}),
    ("PATCH", f"{HERE_PATH}/pods/a/ephemeralcontainers", {}, MERGE),
    ("PATCH", f"{HERE_PATH}/pods/a/resize", {}, MERGE),
    ("POST", f"{HERE_PATH}/pods{DRY}", POD),
    ("POST", f"{HERE_PATH}/pods/a{DRY}", POD),
    ("PUT", f"{HERE_PATH}/pods/a{DRY}", POD),
    ("PATCH", f"{HERE_PATH}/pods/a{DRY}", {}, MERGE),
    ("DELETE", f"{HERE_PATH}/pods/a{DRY}"),
    ("DELETE", f"{HERE_PATH}/pods{DRY}"),
    ("GET", f"{HERE_PATH}/configmaps/a"),
    ("POST", f"{HERE_PATH}/configmaps{DRY}", MAP),
    ("PUT", f"{HERE_PATH}/configmaps/a{DRY}", MAP),
    ("PATCH", f"{HERE_PATH}/configmaps/a{DRY}", {}, MERGE),
    ("DELETE", f"{HERE_PATH}/configmaps/a{DRY}"),
    ("DELETE", f"{HERE_PATH}/configmaps{DRY}"),
    ("GET", f"{HERE_PATH}/secrets"),
    ("GET", "/api/v1/secrets"),
    ("PUT", f"{LEASES}/new{DRY}", LEASE),
    ("POST", f"{LEASES}{DRY}", LEASE),
    ("PATCH", f"{LEASES}/new{DRY}", {}, MERGE),
    ("GET", APPS),
    ("GET", f"{APPS}/d"),
    ("GET", f"{APPS}/d/scale"),
    ("PUT", f"{APPS}/d/scale{DRY}", {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}}),
    ("PATCH", f"{APPS}/d/scale{DRY}", {"spec": {"replicas": 1}}, MERGE),
    ("PATCH", f"{APPS}/d{DRY}", {"spec": {"replicas": 1}}, MERGE),
    ("GET", "/apis/apps/v1/deployments"),
    ("GET", "/api/v1/namespaces"),
    ("GET", f"/api/v1/namespaces/{NAMESPACE}"),
    ("GET", "/api/v1/namespaces/none"),
    ("PUT", "/api/v1/namespaces/none/finalize", {"metadata": {"name": "none"}}),
    ("DELETE", "/api/v1/namespaces/none"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/nodes/n"),
    ("GET", "/api/v1/nodes/n/proxy/x"),
    ("POST", f"{HERE_PATH}/serviceaccounts/s/token", {"spec": {}}),
    ("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
    ("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": NAMESPACE}}),
    ("POST", f"{AUTHORIZATION}/subjectaccessreviews", ACCESS),
    ("POST", f"{AUTHORIZATION}/namespaces/{NAMESPACE}/localsubjectaccessreviews", ACCESS),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
    ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
    ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    ("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/none/status", {}, MERGE),
    ("GET", f"{RBAC}/clusterroles"),
    ("GET", f"{RBAC}/namespaces/{NAMESPACE}/roles"),
    ("GET", "/"),
    ("GET", "/api"),
    ("GET", "/api/v1"),
    ("GET", "/apis"),
    ("GET", "/apis/apps/v1"),
    ("GET", "/apis/none/v1/things"),
    ("GET", "/apis/none/v1/namespaces/x/things/a"),
    ("GET", "/version"),
    ("GET", "/version/"),
    ("POST", "/version"),
    ("GET", "/healthz"),
    ("GET", "/healthz/ping"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/readyz/ping"),
    ("GET", "/metrics"),
    ("GET", "/logs"),
    ("GET", "/openapi/v2"),
    ("GET", "/openapi/v3"),
    ("GET", "/none"),
    ("POST", "/none"),
    ("DELETE", "/healthz"),
    ("GET", "/debug/pprof"),
]


def role(kind, rules, name="granted", **more):
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules, **more}


def binding(kind, role_kind, name):
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "granted"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
            "subjects": [{"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}]}


WRITE = rule("create update patch", "rbac.authorization.k8s.io", "roles clusterroles rolebindings clusterrolebindings")
PODS = rule("get list", "core", "pods")
ROLES, CLUSTER_ROLES = f"{RBAC}/namespaces/{NAMESPACE}/roles", f"{RBAC}/clusterroles"
BINDINGS, CLUSTER_BINDINGS = f"{RBAC}/namespaces/{NAMESPACE}/rolebindings", f"{RBAC}/clusterrolebindings"

# Attempts to grant rights: the rights of the user, whether they are those of the cluster, and a request.
GRANTS = [
    ("writes", True, [WRITE, PODS], "POST", ROLES, role("Role", [PODS])),
    ("writes", True, [WRITE, PODS], "POST", ROLES, role("Role", [rule("get", "core", "pods", ["p"])])),
    ("writes", True, [WRITE, PODS], "POST", ROLES, role("Role", [rule("get watch delete", "core", "pods secrets")])),
    ("writes", True, [WRITE, PODS], "POST", ROLES, role("Role", [rule("*", "*", "*")])),
    ("writes", True, [WRITE, PODS], "POST", ROLES, role("Role", [rule("get", "core", "pods/log", ["a", "b"])])),
    ("writes", True, [WRITE, PODS], "POST", CLUSTER_ROLES, role("ClusterRole", [PODS])),
    ("writes", True, [WRITE, PODS], "POST", CLUSTER_ROLES, role("ClusterRole", [path_rule("get", "/metrics")])),
    ("writes", True, [WRITE, PODS], "POST", CLUSTER_ROLES, role(
        "ClusterRole", [], aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})),
    ("writes", True, [WRITE, PODS], "POST", BINDINGS, binding("RoleBinding", "ClusterRole", "cluster-admin")),
    ("writes", True, [WRITE, PODS], "POST", BINDINGS, binding("RoleBinding", "ClusterRole", "none")),
    ("writes", True, [WRITE, PODS], "POST", BINDINGS, binding("RoleBinding", "Role", "none")),
    ("writes", True, [WRITE, PODS], "POST", CLUSTER_BINDINGS,
     binding("ClusterRoleBinding", "ClusterRole", "cluster-admin")),
    ("writes", True, [WRITE, PODS], "PUT", f"{ROLES}/granted", role("Role", [rule("*", "core", "pods")])),
    ("writes", True, [WRITE, PODS], "PATCH", f"{CLUSTER_ROLES}/writes", {"rules": [rule("*", "*", "*")]}),
    ("writes", True, [WRITE, PODS], "PATCH", f"{CLUSTER_ROLES}/writes", {"metadata": {"labels": {"a": "b"}}}),
    ("writes-here", False, [WRITE, PODS], "POST", ROLES, role("Role", [PODS])),
    ("writes-here", False, [WRITE, PODS], "POST", ROLES, role("Role", [rule("list", "core", "pods configmaps")])),
    ("writes-here", False, [WRITE, PODS], "POST", CLUSTER_ROLES, role("ClusterRole", [PODS])),
    ("writes-here", False, [WRITE, PODS], "POST", BINDINGS, binding("RoleBinding", "Role", "writes-here")),
    ("writes-here", False, [WRITE, PODS], "POST", BINDINGS, binding("RoleBinding", "ClusterRole", "view")),
    ("escalates", True, [WRITE, rule("escalate", "rbac.authorization.k8s.io", "roles")], "POST", ROLES,
     role("Role", [rule("*", "*", "*")])),
    ("escalates", True, [WRITE, rule("escalate", "rbac.authorization.k8s.io", "roles")], "POST", CLUSTER_ROLES,
     role("ClusterRole", [rule("*", "*", "*")])),
    ("binds", True, [WRITE, rule("bind", "rbac.authorization.k8s.io", "clusterroles", ["cluster-admin"])], "POST",
     BINDINGS, binding("RoleBinding", "ClusterRole", "cluster-admin")),
    ("binds", True, [WRITE, rule("bind", "rbac.authorization.k8s.io", "clusterroles", ["cluster-admin"])], "POST",
     BINDINGS, binding("RoleBinding", "ClusterRole", "system:node")),
    ("bound-to-none", True, [], "GET", f"{HERE_PATH}/pods", None),
]

# Reviews: who asks, and the question.
SUBJECT = "system:serviceaccount:authz:reader"


def asked(user, verb, resource, **more):
    return (None, "subjectaccessreviews", {"user": user, "resourceAttributes": {
        "verb": verb, "resource": resource, "namespace": NAMESPACE, **more}})


REVIEWS = [
    asked("get-pods", "get", "pods"),
    asked("get-pods-here", "get", "pods"),
    asked("get-pods-here", "get", "pods", namespace=""),
    asked("get-pods-here", "list", "pods"),
    asked("one-pod", "delete", "pods", name="a"),
    asked("pods-log", "get", "pods", subresource="log"),
    asked("bound-to-none", "get", "pods"),
    asked(SUBJECT, "get", "secrets"),
    asked("nobody", "get", "pods"),
    (None, "subjectaccessreviews", {"groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods"}}),
    (None, "subjectaccessreviews", {"user": "metrics", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}),
    (None, "subjectaccessreviews", {"user": "metrics", "nonResourceAttributes": {"verb": "get", "path": "/other"}}),
    ("writes", "selfsubjectaccessreviews", {"resourceAttributes": {"verb": "list", "resource": "pods"}}),
    ("deployments", "selfsubjectrulesreviews", {"namespace": NAMESPACE}),
    ("deployments", "selfsubjectrulesreviews", {"namespace": "other"}),
    ("bound-to-none", "selfsubjectrulesreviews", {"namespace": NAMESPACE}),
    ("metrics", "selfsubjectrulesreviews", {}),
]


class Client:
    def __init__(self, url, token):
        self.url, self.token = url, token
        parts = urllib.parse.urlsplit(url)
        context = ssl._create_unverified_context()
        self.connect = lambda: (http.client.HTTPSConnection(parts.netloc, context=context, timeout=30)
                                if parts.scheme == "https" else http.client.HTTPConnection(parts.netloc, timeout=30))
        self.connection = self.connect()

    def request(self, method, path, body=None, content_type=None, user=None):
        """Returns the status and the body of the answer. `user` is the user in whose name the request is made."""
        headers = {"Authorization": "Bearer " + self.token}
        if user:
            headers["Impersonate-User"] = user
        data = None
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
            data = json.dumps(body)
        for attempt in range(2):
            try:
                self.connection.request(method, path, data, headers)
                response = self.connection.getresponse()
                return response.status, response.read()
            except (http.client.HTTPException, ConnectionError):
                if attempt:
                    raise
                self.connection = self.connect()


def create(client, path, body):
    status, answer = client.request("POST", path, body)
    if status not in (201, 409):
        sys.exit(f"POST {path}: {status} {answer[:300]}")


def create_user(client, name, cluster, rules):
    """Creates a role and its binding to the user of that name."""
    kind, roles = ("ClusterRole", CLUSTER_ROLES) if cluster else ("Role", ROLES)
    create(client, roles, role(kind, rules, name))
    bindings, binding_kind = (CLUSTER_BINDINGS, "ClusterRoleBinding") if cluster else (BINDINGS, "RoleBinding")
    body = binding(binding_kind, kind, name)
    body["metadata"]["name"] = name
    body["subjects"][0]["name"] = name
    create(client, bindings, body)


def is_forbidden(status, body):
    if status != 403:
        return False
    # The answer to HEAD has no body.
    return not body or json.loads(body).get("reason") == "Forbidden"


def decide(client, name):
    """Returns the decisions about all requests of a user."""
    answers = (client.request(*request, *[None] * (4 - len(request)), user=name) for request in REQUESTS)
    return "".join("F" if is_forbidden(*answer) else "." for answer in answers)


def wait_for_rights(client):
    """Waits until the server knows of all rights: those of the last user."""
    create_user(client, "last", True, [rule("get", "core", "nodes")])
    deadline = time.monotonic() + PATIENCE
    while client.request("GET", "/api/v1/nodes/x", user="last")[0] == 403:
        if time.monotonic() > deadline:
            sys.exit("the server does not know of the rights")


def ask(client):
    create(client, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name, cluster, rules in RIGHTS:
        create_user(client, name, cluster, rules)
    for name, cluster, rules, *_ in GRANTS:
        create_user(client, name, cluster, rules)
    # A binding whose role does not exist.
    body = binding("RoleBinding", "Role", "no-such-role")
    body["metadata"]["name"], body["subjects"][0]["name"] = "dangling", "bound-to-none"
    create(client, BINDINGS, body)
    create(client, ROLES, role("Role", []))
    # A service account of the namespace of the binding.
    create(client, ROLES, role("Role", [rule("get", "core", "secrets")], "reader"))
    body = binding("RoleBinding", "Role", "reader")
    body["metadata"]["name"], body["subjects"] = "reader", [{"kind": "ServiceAccount", "name": "reader",
                                                             "namespace": NAMESPACE}]
    create(client, BINDINGS, body)
    wait_for_rights(client)
    # Users at the same time: watches take their second.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        names = [name for name, *_ in RIGHTS]
        decisions = dict(zip(names, pool.map(lambda name: decide(Client(client.url, client.token), name), names)))
    grants = []
    for name, _, _, method, path, body in GRANTS:
        content_type = MERGE if method == "PATCH" else None
        status, answer = client.request(method, path + DRY, body, content_type, user=name)
        answer = json.loads(answer)
        grants.append([status, answer.get("message"), answer.get("details")])
    reviews = []
    for user, resource, spec in REVIEWS:
        status, answer = client.request("POST", f"{AUTHORIZATION}/{resource}", {"spec": spec}, user=user)
        answer = json.loads(answer)
        found = answer.get("status")
        for field in ("resourceRules", "nonResourceRules"):
            if isinstance(found, dict) and found.get(field):
                # A rule of OpenShift: the real server was built from its copy of Kubernetes.
                found[field] = sorted((rule for rule in found[field]
                                       if "/.well-known" not in rule.get("nonResourceURLs", [])),
                                      key=lambda rule: json.dumps(rule, sort_keys=True))
        reviews.append([status, found, answer.get("message")])
    return {"requests": [" ".join(request[:2]) for request in REQUESTS], "decisions": decisions, "grants": grants,
            "reviews": reviews}


def main():
    client = Client(sys.argv[1], sys.argv[2])
    found = ask(client)
    if sys.argv[3:] == ["--record"]:
        with open(FILE, "w") as file:
            file.write(json.dumps(found, indent=1) + "\n")
        return
    with open(FILE) as file:
        expected = json.load(file)
    if found["requests"] != expected["requests"]:
        sys.exit("the requests have changed: record again")
    different = 0
    for name, letters in expected["decisions"].items():
        for request, letter, other in zip(found["requests"], letters, found["decisions"][name]):
            if letter != other:
                different += 1
                print(f"{name}: {request}: {'allowed' if letter == 'F' else 'forbidden'}, unlike the real server")
    for grant, one, other in zip(GRANTS, expected["grants"], found["grants"]):
        if one != other:
            different += 1
            print(f"{grant[0]} {grant[3]} {grant[4]}:\n  expected {one}\n  found    {other}")
    for review, one, other in zip(REVIEWS, expected["reviews"], found["reviews"]):
        if one != other:
            different += 1
            print(f"{review}:\n  expected {one}\n  found    {other}")
    count = len(REVIEWS) + len(REQUESTS) * len(RIGHTS) + len(GRANTS)
    print(f"{count} decisions, {different} differ")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
