"""Sessions of the kubectl at $KUBECTL with a server of their own."""

import json
import os
import pathlib
import re
import signal
import subprocess
import unittest
import urllib.request

from manifests import CONFIG_MAP, DEFINITION, DEPLOYMENT, GADGET, POD
from server import LIMIT_SECONDS, Server

KUBECTL = os.environ.get("KUBECTL", "kubectl")

def client_minor():
    output = subprocess.run(
        [KUBECTL, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True
    ).stdout
    return int(re.match(r"\d+", json.loads(output)["clientVersion"]["gitVersion"].split(".")[1])[0])


MINOR = client_minor()


class Result:
    """The end of a command."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)


class Session(unittest.TestCase):
    """Each test has a server, and a home directory with caches of its own."""

    maxDiff = None

    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        home = self.server.path / "home"
        home.mkdir()
        self.environment = {
            "HOME": str(home),
            "KUBECONFIG": self.server.kubeconfig,
            "PATH": os.environ["PATH"],
            "TERM": "dumb",
        }

    def start(self, *arguments, **options):
        process = subprocess.Popen(
            [KUBECTL, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            **options,
        )

        def end():
            process.kill()
            process.wait(LIMIT_SECONDS)
            process.stdout.close()

        self.addCleanup(end)
        return process

    def kubectl(self, *arguments, stdin=None, code=0, **environment):
        """Runs kubectl, and checks its exit status."""
        done = subprocess.run(
            [KUBECTL, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            env=self.environment | environment,
        )
        self.assertEqual(
            done.returncode, code, f"kubectl {arguments}\nout: {done.stdout}\nerr: {done.stderr}"
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def fails(self, *arguments, stdin=None, text):
        result = self.kubectl(*arguments, stdin=stdin, code=1)
        self.assertIn(text, result.err)

    def apply(self, manifest, *arguments):
        return self.kubectl("apply", "-f", "-", *arguments, stdin=manifest).out

    def create(self, manifest, *arguments):
        return self.kubectl("create", "-f", "-", *arguments, stdin=manifest).out

    def path(self, name, path):
        """One field of an object, by its JSON path."""
        return self.kubectl("get", *name.split(), "-o", "jsonpath={" + path + "}").out

    def edit(self, name, script):
        """`kubectl edit` with a program in the place of an editor."""
        editor = self.server.path / "editor.sh"
        editor.write_text(f'#!/bin/sh\nset -e\nsed -i {script} "$1"\n')
        editor.chmod(0o755)
        return self.kubectl("edit", *name.split(), KUBE_EDITOR=str(editor)).out


class Reading(Session):
    def test_version_and_health(self):
        version = self.kubectl("version", "-o", "json").json()
        self.assertEqual(version["serverVersion"]["major"], "1")
        self.assertTrue(version["serverVersion"]["gitVersion"].startswith("v1.36."))
        self.assertEqual(self.kubectl("get", "--raw", "/readyz").out, "ok")
        self.assertIn("[+]ping ok", self.kubectl("get", "--raw", "/livez?verbose").out)
        self.assertIn(f"https://127.0.0.1:{self.server.port}", self.kubectl("cluster-info").out)

    def test_get_in_all_formats(self):
        self.create(POD)
        table = self.kubectl("get", "pods").out.splitlines()
        self.assertEqual(table[0].split(), ["NAME", "READY", "STATUS", "RESTARTS", "AGE"])
        self.assertEqual(table[1].split()[:4], ["web", "0/1", "Pending", "0"])
        wide = self.kubectl("get", "pods", "-A", "-o", "wide", "--show-labels").out.splitlines()
        self.assertTrue(wide[0].startswith("NAMESPACE"))
        for column in ["NODE", "IP", "NOMINATED NODE", "READINESS GATES", "LABELS"]:
            self.assertIn(column, wide[0])
        self.assertIn("app=web", wide[1])
        self.assertEqual(self.kubectl("get", "pods", "-o", "json").json()["items"][0]["kind"], "Pod")
        self.assertIn("kind: Pod\n", self.kubectl("get", "pod", "web", "-o", "yaml").out)
        columns = "N:.metadata.name,I:.spec.containers[0].image"
        self.assertEqual(
            self.kubectl("get", "pods", "-o", f"custom-columns={columns}").out.split(),
            ["N", "I", "web", "nginx:1.27"],
        )
        self.assertEqual(self.kubectl("get", "pods", "-o", "name").out, "pod/web\n")
        self.assertEqual(
            self.kubectl("get", "pods", "-o", "go-template={{range .items}}{{.metadata.name}}{{end}}").out,
            "web",
        )
        self.assertIn("web", self.kubectl("get", "po", "-l", "app in (web,api)", "--sort-by=.metadata.name").out)
        self.assertIn("web", self.kubectl("get", "po", "--field-selector", "status.phase=Pending").out)
        self.assertIn("No resources found", self.kubectl("get", "po", "-l", "app=api").err)
        self.assertIn("web", self.kubectl("get", "pods", "--chunk-size=1", "-L", "app").out)
        self.fails("get", "pod", "absent", text='Error from server (NotFound): pods "absent" not found')
        self.fails("get", "nothing", text='the server doesn\'t have a resource type "nothing"')
        self.assertEqual(self.kubectl("get", "pod", "absent", "--ignore-not-found").out, "")

    def test_get_of_all_kinds(self):
        """Each kind that can be listed has a table."""
        kinds = self.kubectl("api-resources", "--verbs=list", "-o", "name").out.split()
        self.assertGreater(len(kinds), 50)
        self.kubectl("get", "-A", ",".join(sorted(kinds)))
        self.create(POD)
        self.assertIn("pod/web", self.kubectl("get", "all").out)

    def test_watch(self):
        watch = self.start("get", "pods", "--watch")
        self.create(POD)
        self.assertEqual(watch.stdout.readline().split()[:2], ["NAME", "READY"])
        self.assertEqual(watch.stdout.readline().split()[:3], ["web", "0/1", "Pending"])
        self.kubectl("label", "pod", "web", "tier=front")
        self.assertEqual(watch.stdout.readline().split()[:3], ["web", "0/1", "Pending"])
        one = self.start("get", "pod", "web", "--watch", "-o", "jsonpath={.metadata.labels.tier};")
        self.assertEqual(one.stdout.read(len("front;")), "front;")
        self.kubectl("label", "pod", "web", "tier=back", "--overwrite")
        self.assertEqual(one.stdout.read(len("back;")), "back;")
        events = self.start("get", "pods", "--watch", "--output-watch-events")
        self.assertEqual(events.stdout.readline().split()[:2], ["EVENT", "NAME"])
        self.assertEqual(events.stdout.readline().split()[:2], ["ADDED", "web"])
        self.kubectl("delete", "pod", "web")
        self.assertEqual(events.stdout.readline().split()[:2], ["DELETED", "web"])

    def test_describe(self):
        self.create(POD)
        self.create(DEPLOYMENT)
        self.create(CONFIG_MAP)
        pod = self.kubectl("describe", "pod", "web").out
        self.assertRegex(pod, r"Image: +nginx:1\.27")
        self.assertRegex(pod, r"Status: +Pending")
        deployment = self.kubectl("describe", "deployment", "web").out
        self.assertRegex(deployment, r"Replicas: +2 desired")
        self.assertRegex(deployment, r"StrategyType: +RollingUpdate")
        self.assertIn("blue", self.kubectl("describe", "configmap", "settings").out)
        self.assertIn("Active", self.kubectl("describe", "namespace", "default").out)
        self.kubectl("create", "service", "clusterip", "svc", "--tcp=80:8080")
        self.assertRegex(self.kubectl("describe", "service", "svc").out, r"TargetPort: +8080/TCP")

    def test_discovery(self):
        versions = self.kubectl("api-versions").out.split()
        for version in ["v1", "apps/v1", "batch/v1", "apiextensions.k8s.io/v1", "coordination.k8s.io/v1"]:
            self.assertIn(version, versions)
        resources = self.kubectl("api-resources").out
        self.assertRegex(resources, r"pods +po +v1 +true +Pod")
        self.assertRegex(resources, r"namespaces +ns +v1 +false +Namespace")
        apps = self.kubectl("api-resources", "--api-group=apps", "-o", "name").out
        self.assertIn("deployments.apps\n", apps)
        self.assertNotIn("pods", apps)

    def test_explain(self):
        pod = self.kubectl("explain", "pod.spec").out
        self.assertRegex(pod, r"KIND: +Pod")
        self.assertIn("containers", pod)
        self.assertIn("restartPolicy", self.kubectl("explain", "pods", "--recursive").out)
        self.assertIn("maxSurge", self.kubectl("explain", "deployment.spec.strategy.rollingUpdate").out)
        self.fails("explain", "pod.spec.nothing", text="nothing")

    def test_events(self):
        self.create(POD)
        self.create(
            """
apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: v1, kind: Pod, name: web, namespace: default}
reason: Checked
message: all is well
type: Normal
count: 1
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:00:00Z"
"""
        )
        events = self.kubectl("get", "events", "--field-selector", "involvedObject.name=web").out
        self.assertRegex(events, r"Normal +Checked +pod/web +all is well")
        self.assertIn("No resources found", self.kubectl("get", "events", "--field-selector=reason=Other").err)
        if MINOR >= 26:
            self.assertIn("Checked", self.kubectl("events", "--for", "pod/web").out)
            self.assertIn("Checked", self.kubectl("events", "--types=Normal").out)

    def test_without_a_kubelet(self):
        self.create(POD)
        # The pod is on no node.
        self.assertEqual(self.kubectl("logs", "web").out, "")
        self.fails("exec", "web", "--", "ls", text="pod web does not have a host assigned")
        self.fails("top", "pod", text="Metrics API not available")

    def test_authorization(self):
        self.assertEqual(self.kubectl("auth", "can-i", "create", "pods").out, "yes\n")
        self.assertIn("*.*", self.kubectl("auth", "can-i", "--list").out)
        if MINOR >= 28:
            self.assertIn("system:masters", self.kubectl("auth", "whoami").out)


class Writing(Session):
    def test_generators(self):
        self.kubectl("create", "namespace", "team")
        for command in [
            "configmap cm --from-literal=a=b",
            "secret generic s --from-literal=password=x",
            "deployment d --image=nginx",
            "job j --image=busybox -- true",
            "serviceaccount sa",
            "service clusterip svc --tcp=80:8080",
            "role r --verb=get --resource=pods",
            "rolebinding rb --role=r --serviceaccount=team:sa",
            "quota q --hard=pods=10",
            "priorityclass pc --value=10",
            "poddisruptionbudget pdb --selector=app=d --min-available=1",
            "ingress i --rule=host.example.com/*=svc:80",
        ]:
            if MINOR < 21 and command.startswith("poddisruptionbudget"):
                # In policy/v1beta1, which servers since 1.25 do not have.
                continue
            with self.subTest(command):
                self.assertIn(" created", self.kubectl("-n", "team", "create", *command.split()).out.replace("\n", " "))
        if MINOR >= 24:
            token = self.kubectl("-n", "team", "create", "token", "sa").out
            self.assertEqual(token.count("."), 2)
        self.kubectl("-n", "team", "run", "box", "--image=busybox", "--restart=Never")
        self.kubectl("-n", "team", "expose", "deployment", "d", "--port=80")
        self.assertIn("service/d", self.kubectl("-n", "team", "get", "all").out)
        self.fails("-n", "team", "create", "configmap", "cm", text="already exists")
        self.fails("-n", "nowhere", "create", "configmap", "cm", text='namespaces "nowhere" not found')

    def test_apply_and_diff(self):
        self.assertEqual(self.apply(DEPLOYMENT), "deployment.apps/web created\n")
        self.assertEqual(self.apply(DEPLOYMENT), "deployment.apps/web unchanged\n")
        self.kubectl("diff", "-f", "-", stdin=DEPLOYMENT)
        changed = DEPLOYMENT.replace("1.27", "1.28").replace("replicas: 2", "replicas: 3")
        diff = self.kubectl("diff", "-f", "-", stdin=changed, code=1).out
        self.assertIn("-  replicas: 2\n+  replicas: 3\n", diff)
        dry = self.apply(changed, "--dry-run=server")
        self.assertEqual(dry, "deployment.apps/web configured (server dry run)\n")
        self.assertEqual(self.path("deployment web", ".spec.replicas"), "2")
        self.assertEqual(self.apply(changed), "deployment.apps/web configured\n")
        self.assertEqual(self.path("deployment web", ".spec.template.spec.containers[0].image"), "nginx:1.28")
        # A container that another writer added stays; one that the manifest no longer has goes.
        more = changed + '      - {name: helper, image: "busybox:1"}\n'
        self.apply(more)
        names = ".spec.template.spec.containers[*].name"
        self.assertEqual(self.path("deployment web", names), "main helper")
        self.kubectl(
            "patch", "deployment", "web", "-p",
            '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}',
        )
        self.apply(changed)
        self.assertEqual(sorted(self.path("deployment web", names).split()), ["main", "side"])
        self.assertIn("replicas", self.kubectl("apply", "view-last-applied", "deployment/web").out)

    def test_apply_with_prune(self):
        both = CONFIG_MAP + "---" + CONFIG_MAP.replace("settings", "others")
        self.apply(both)
        self.kubectl("label", "configmap", "settings", "others", "set=one")
        self.kubectl(
            "apply", "-f", "-", "--prune", "-l", "set=one",
            "--prune-whitelist=core/v1/ConfigMap" if MINOR < 26 else "--prune-allowlist=core/v1/ConfigMap",
            stdin=CONFIG_MAP.replace("settings}", "settings, labels: {set: one}}"),
        )
        self.assertNotIn("others", self.kubectl("get", "configmaps").out)

    def test_validation_of_manifests(self):
        unknown = POD.replace("spec:", "spec:\n  nothing: 1")
        result = self.kubectl("create", "-f", "-", stdin=unknown, code=1)
        self.assertIn("nothing", result.err)
        invalid = POD.replace("name: web", "name: Not_A_Name")
        self.fails("create", "-f", "-", stdin=invalid, text="is invalid: metadata.name")
        self.fails("create", "-f", "-", stdin=POD.replace("kind: Pod", "kind: Nothing"), text="Nothing")

    def test_patches(self):
        self.create(DEPLOYMENT)
        self.create(CONFIG_MAP)
        self.kubectl("patch", "deployment", "web", "-p", '{"spec":{"replicas":4}}')
        self.assertEqual(self.path("deployment web", ".spec.replicas"), "4")
        self.kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"data":{"size":null,"a":"b"}}')
        self.assertEqual(json.loads(self.path("configmap settings", ".data")), {"color": "blue", "a": "b"})
        self.kubectl(
            "patch", "configmap", "settings", "--type=json",
            "-p", '[{"op":"test","path":"/data/a","value":"b"},{"op":"replace","path":"/data/a","value":"c"}]',
        )
        self.assertEqual(self.path("configmap settings", ".data.a"), "c")
        # A test that fails, and a field that cannot be changed.
        self.kubectl(
            "patch", "configmap", "settings", "--type=json",
            "-p", '[{"op":"test","path":"/data/a","value":"other"}]', code=1,
        )
        self.fails(
            "patch", "deployment", "web", "-p", '{"spec":{"selector":{"matchLabels":{"app":"x"}}}}',
            text="field is immutable",
        )
        same = self.kubectl("patch", "deployment", "web", "-p", '{"spec":{"replicas":4}}').out
        self.assertEqual(same, "deployment.apps/web patched (no change)\n")
        if MINOR >= 24:
            self.kubectl(
                "patch", "deployment", "web", "--subresource=status", "--type=merge",
                "-p", '{"status":{"replicas":4,"observedGeneration":1}}',
            )
            self.assertEqual(self.path("deployment web", ".status.replicas"), "4")

    def test_edit_and_replace(self):
        self.create(DEPLOYMENT)
        self.assertEqual(self.edit("deployment web", "s/nginx:1.27/nginx:2/"), "deployment.apps/web edited\n")
        self.assertEqual(self.path("deployment web", ".spec.template.spec.containers[0].image"), "nginx:2")
        self.assertIn("no changes made", self.kubectl("edit", "deployment", "web", KUBE_EDITOR="true").err)
        self.create(CONFIG_MAP)
        self.kubectl("replace", "-f", "-", stdin=CONFIG_MAP.replace("blue", "red"))
        self.assertEqual(self.path("configmap settings", ".data.color"), "red")
        old = self.kubectl("get", "configmap", "settings", "-o", "json").out
        self.kubectl("replace", "-f", "-", stdin=CONFIG_MAP)
        self.fails("replace", "-f", "-", stdin=old, text="the object has been modified")
        self.kubectl("replace", "--force", "-f", "-", stdin=CONFIG_MAP)

    def test_scale_and_rollout(self):
        self.create(DEPLOYMENT)
        self.kubectl("scale", "deployment", "web", "--replicas=5")
        self.assertEqual(self.path("deployment web", ".spec.replicas"), "5")
        self.fails("scale", "deployment", "web", "--current-replicas=1", "--replicas=2", text="Expected replicas to be 1")
        self.kubectl("autoscale", "deployment", "web", "--min=1", "--max=4")
        self.assertEqual(self.path("hpa web", ".spec.maxReplicas"), "4")
        self.kubectl("set", "image", "deployment/web", "main=nginx:9")
        self.assertEqual(self.path("deployment web", ".spec.template.spec.containers[0].image"), "nginx:9")
        self.kubectl("set", "env", "deployment/web", "LEVEL=debug")
        self.kubectl("set", "resources", "deployment", "web", "--limits=cpu=200m,memory=512Mi")
        self.kubectl("rollout", "restart", "deployment", "web")
        self.assertIn("restartedAt", self.path("deployment web", ".spec.template.metadata.annotations"))
        self.kubectl("rollout", "pause", "deployment", "web")
        self.assertEqual(self.path("deployment web", ".spec.paused"), "true")
        self.kubectl("rollout", "resume", "deployment", "web")
        self.assertIn("No rollout history found", self.kubectl("rollout", "history", "deployment", "web").out)
        # There are no controllers: the test reports the status in their place.
        status = self.start("rollout", "status", "deployment", "web")
        self.assertIn("Waiting for deployment", status.stdout.readline())
        self.patch_status(
            "/apis/apps/v1/namespaces/default/deployments/web",
            {"observedGeneration": int(self.path("deployment web", ".metadata.generation")),
             "replicas": 5, "updatedReplicas": 5, "readyReplicas": 5, "availableReplicas": 5},
        )
        self.assertIn("successfully rolled out", status.communicate(timeout=LIMIT_SECONDS)[0])
        self.assertEqual(status.returncode, 0)

    def patch_status(self, path, status):
        """What a controller does; kubectl 1.20 cannot write the status."""
        request = urllib.request.Request(
            self.server.url + path + "/status",
            method="PATCH",
            data=json.dumps({"status": status}).encode(),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
            self.assertEqual(response.status, 200)

    def test_label_and_annotate(self):
        self.create(POD)
        self.kubectl("label", "pod", "web", "tier=front")
        self.fails("label", "pod", "web", "tier=back", text="already has a value")
        self.kubectl("label", "pods", "--all", "tier=back", "--overwrite")
        self.assertIn("web", self.kubectl("get", "pods", "-l", "tier=back,tier!=front").out)
        self.kubectl("label", "pod", "web", "tier-")
        self.assertEqual(self.path("pod web", ".metadata.labels"), '{"app":"web"}')
        self.kubectl("annotate", "pod", "web", "note=two words")
        self.assertEqual(self.path("pod web", ".metadata.annotations.note"), "two words")
        self.kubectl("annotate", "pod", "web", "note-")
        self.fails("label", "pod", "web", "bad key=x", text="bad key")

    def test_wait(self):
        self.create(POD)
        late = self.start("wait", "--for=condition=Ready", "pod/web", f"--timeout={LIMIT_SECONDS}s")
        self.patch_status(
            "/api/v1/namespaces/default/pods/web",
            {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        )
        self.assertEqual(late.communicate(timeout=LIMIT_SECONDS)[0], "pod/web condition met\n")
        self.fails("wait", "--for=condition=Nothing", "pod/web", "--timeout=1s", text="timed out waiting")
        if MINOR >= 23:
            self.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/web", "--timeout=60s")
        gone = self.start("wait", "--for=delete", "pod/web", f"--timeout={LIMIT_SECONDS}s")
        self.kubectl("delete", "pod", "web")
        gone.communicate(timeout=LIMIT_SECONDS)
        if MINOR >= 31:
            self.create(CONFIG_MAP)
            self.kubectl("wait", "--for=create", "configmap/settings", "--timeout=60s")

    def test_delete(self):
        self.create(POD)
        self.create(POD.replace("name: web,", "name: other,"))
        # On a node, a pod stays until a kubelet removes it.
        self.kubectl(
            "create", "--raw", "/api/v1/namespaces/default/pods/web/binding", "-f", "-",
            stdin='{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Node","name":"n"}}',
        )
        self.kubectl("delete", "pod", "web", "--wait=false", "--grace-period=20")
        self.assertEqual(self.path("pod web", ".metadata.deletionGracePeriodSeconds"), "20")
        self.assertIn("Terminating", self.kubectl("get", "pod", "web").out)
        self.kubectl("delete", "pod", "web", "--force", "--grace-period=0")
        self.fails("get", "pod", "web", text="NotFound")
        self.kubectl("delete", "pods", "-l", "app=web")
        self.assertIn("No resources found", self.kubectl("get", "pods").err)
        self.kubectl("delete", "pod", "web", "--ignore-not-found")
        self.fails("delete", "pod", "web", text="NotFound")
        for cascade in ["orphan", "background"]:
            self.create(DEPLOYMENT)
            self.kubectl("delete", "deployment", "web", f"--cascade={cascade}", "--wait=false")
            if cascade == "orphan":
                self.assertEqual(self.path("deployment web", ".metadata.finalizers"), '["orphan"]')
                self.kubectl("patch", "deployment", "web", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        self.create(CONFIG_MAP)
        self.assertIn('deleted', self.kubectl("delete", "-f", "-", stdin=CONFIG_MAP).out)
        self.create(CONFIG_MAP)
        held = '{"metadata":{"finalizers":["example.com/hold"]}}'
        self.kubectl("patch", "configmap", "settings", "--type=merge", "-p", held)
        deletion = self.start("delete", "configmap", "settings")
        self.assertIn("settings", deletion.stdout.readline())
        self.kubectl("patch", "configmap", "settings", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
        deletion.communicate(timeout=LIMIT_SECONDS)
        self.assertEqual(deletion.returncode, 0)

    def test_delete_of_a_namespace(self):
        self.kubectl("create", "namespace", "team")
        self.kubectl("-n", "team", "create", "configmap", "cm")
        # There is no controller of namespaces: the test finalizes in its place.
        deletion = self.start("delete", "namespace", "team")
        self.assertIn("team", deletion.stdout.readline())
        self.assertIn("Terminating", self.kubectl("get", "namespace", "team").out)
        self.fails("-n", "team", "create", "configmap", "other", text="is being terminated")
        finalized = self.kubectl("get", "namespace", "team", "-o", "json").json()
        finalized["spec"]["finalizers"] = []
        self.kubectl("replace", "--raw", "/api/v1/namespaces/team/finalize", "-f", "-", stdin=json.dumps(finalized))
        deletion.communicate(timeout=LIMIT_SECONDS)
        self.assertEqual(deletion.returncode, 0)
        self.fails("get", "namespace", "team", text="NotFound")

    def test_custom_resources(self):
        self.assertEqual(
            self.apply(DEFINITION), "customresourcedefinition.apiextensions.k8s.io/gadgets.shop.example.com created\n"
        )
        self.kubectl("wait", "--for=condition=Established", "crd/gadgets.shop.example.com", "--timeout=60s")
        self.assertEqual(self.apply(GADGET), "gadget.shop.example.com/first created\n")
        self.assertEqual(self.apply(GADGET), "gadget.shop.example.com/first unchanged\n")
        self.apply(GADGET.replace("red", "green"))
        table = self.kubectl("get", "gd").out.splitlines()
        self.assertEqual(table[0].split(), ["NAME", "COLOR"])
        self.assertEqual(table[1].split(), ["first", "green"])
        self.assertIn("gadget.shop.example.com/first", self.kubectl("get", "all").out)
        self.assertEqual(self.path("gadget first", ".spec.count"), "1")
        self.kubectl("scale", "gadget", "first", "--replicas=3")
        self.assertEqual(self.path("gadget first", ".spec.count"), "3")
        self.kubectl("patch", "gd", "first", "--type=merge", "-p", '{"spec":{"color":"red"}}')
        self.edit("gadget first", "s/color:.red/color:\\ green/")
        self.assertEqual(self.path("gadget first", ".spec.color"), "green")
        self.kubectl("label", "gadget", "first", "a=b")
        self.assertIn("Color", self.kubectl("describe", "gadget", "first").out)
        self.fails("create", "-f", "-", stdin=GADGET.replace("first", "second").replace("red", "pink"), text="Unsupported value")
        self.assertIn("gadgets", self.kubectl("api-resources", "--api-group=shop.example.com").out)
        self.kubectl("delete", "gadget", "first")
        self.apply(GADGET)
        self.kubectl("delete", "crd", "gadgets.shop.example.com")
        # kubectl may have cached that the kind exists.
        gone = self.kubectl("get", "gadgets", code=1).err
        self.assertRegex(gone, "doesn't have a resource type|could not find the requested resource")


class Configuration(Session):
    def test_kubeconfig(self):
        self.assertEqual(self.kubectl("config", "current-context").out, "revstore\n")
        view = self.kubectl("config", "view", "--minify", "-o", "json").json()
        self.assertEqual(view["clusters"][0]["cluster"]["server"], f"https://127.0.0.1:{self.server.port}")
        self.kubectl("config", "set-context", "--current", "--namespace=kube-system")
        self.create(CONFIG_MAP)
        self.assertIn("settings", self.kubectl("get", "configmaps", "-n", "kube-system").out)
        mode = pathlib.Path(self.server.kubeconfig).stat().st_mode
        self.assertEqual(mode & 0o077, 0, "the file has credentials")

    def test_plain_http(self):
        arguments = ["--server", self.server.url, "--kubeconfig", "/dev/null"]
        self.kubectl(*arguments, "create", "-f", "-", stdin=POD)
        self.assertIn("web", self.kubectl(*arguments, "get", "pods").out)

    def test_proxy(self):
        self.create(DEPLOYMENT)
        proxy = self.start("proxy", "--port=0")
        address = re.search(r"127\.0\.0\.1:\d+", proxy.stdout.readline())[0]
        base = f"http://{address}/apis/apps/v1/namespaces/default/deployments"
        with urllib.request.urlopen(base, timeout=LIMIT_SECONDS) as response:
            self.assertEqual(json.load(response)["kind"], "DeploymentList")
        with urllib.request.urlopen(base + "?watch=true", timeout=LIMIT_SECONDS) as response:
            self.assertEqual(response.headers["Transfer-Encoding"], "chunked")
            self.assertEqual(json.loads(response.readline())["type"], "ADDED")
            self.kubectl("scale", "deployment", "web", "--replicas=1")
            self.assertEqual(json.loads(response.readline())["type"], "MODIFIED")
        proxy.send_signal(signal.SIGTERM)
        proxy.wait(LIMIT_SECONDS)


if __name__ == "__main__":
    unittest.main()
