"""The Python client `kubernetes` with a server of its own."""

import unittest

from kubernetes import client, config, utils, watch
from kubernetes.client.rest import ApiException

from server import LIMIT_SECONDS, Server
from manifests import DEFINITION, DEPLOYMENT, POD


class Client(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.api = config.new_client_from_config(self.server.kubeconfig)
        self.addCleanup(self.api.close)
        self.core = client.CoreV1Api(self.api)

    def config_map(self, name, **data):
        metadata = client.V1ObjectMeta(name=name)
        return self.core.create_namespaced_config_map(
            "default", client.V1ConfigMap(metadata=metadata, data=data)
        )

    def test_core(self):
        created = self.config_map("a", color="blue")
        self.assertTrue(created.metadata.uid)
        read = self.core.read_namespaced_config_map("a", "default")
        self.assertEqual(read.data, {"color": "blue"})
        patched = self.core.patch_namespaced_config_map("a", "default", {"data": {"size": "large"}})
        self.assertEqual(patched.data, {"color": "blue", "size": "large"})
        read.data = {"color": "red"}
        with self.assertRaises(ApiException) as conflict:
            self.core.replace_namespaced_config_map("a", "default", read)
        self.assertEqual(conflict.exception.status, 409)
        with self.assertRaises(ApiException) as absent:
            self.core.read_namespaced_config_map("b", "default")
        self.assertEqual(absent.exception.status, 404)
        self.core.delete_namespaced_config_map("a", "default")
        self.config_map("c")
        self.config_map("d")
        self.core.delete_collection_namespaced_config_map("default")
        self.assertEqual(self.core.list_namespaced_config_map("default").items, [])

    def test_pages(self):
        for number in range(7):
            self.config_map(f"cm-{number}")
        names, versions, token = [], set(), None
        while True:
            page = self.core.list_namespaced_config_map("default", limit=3, _continue=token)
            names += [item.metadata.name for item in page.items]
            versions.add(page.metadata.resource_version)
            token = page.metadata._continue
            if not token:
                break
        self.assertEqual(names, [f"cm-{number}" for number in range(7)])
        self.assertEqual(len(versions), 1)

    def test_watch_and_resume(self):
        self.config_map("a")
        first = watch.Watch()
        for event in first.stream(
            self.core.list_namespaced_config_map, "default", _request_timeout=LIMIT_SECONDS
        ):
            self.assertEqual((event["type"], event["object"].metadata.name), ("ADDED", "a"))
            version = event["object"].metadata.resource_version
            first.stop()
        self.config_map("b")
        self.core.delete_namespaced_config_map("a", "default")
        second = watch.Watch()
        seen = []
        for event in second.stream(
            self.core.list_namespaced_config_map, "default",
            resource_version=version, _request_timeout=LIMIT_SECONDS,
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 2:
                second.stop()
        self.assertEqual(seen, [("ADDED", "b"), ("DELETED", "a")])

    def test_watch_with_a_time_limit(self):
        """The client opens the watch again at the version that it has seen, until it is stopped."""
        self.config_map("a")
        events = watch.Watch().stream(
            self.core.list_namespaced_config_map, "default", timeout_seconds=1, _request_timeout=LIMIT_SECONDS
        )
        self.assertEqual([event["object"].metadata.name for event in events], ["a"])

    def test_create_from_yaml(self):
        path = self.server.path / "manifests.yaml"
        path.write_text(POD + "---" + DEPLOYMENT)
        utils.create_from_yaml(self.api, str(path))
        self.assertEqual(self.core.read_namespaced_pod("web", "default").status.phase, "Pending")
        apps = client.AppsV1Api(self.api)
        scale = apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 5}})
        self.assertEqual(scale.spec.replicas, 5)
        self.assertEqual(apps.read_namespaced_deployment("web", "default").spec.replicas, 5)
        with self.assertRaises(utils.FailToCreateError):
            utils.create_from_yaml(self.api, str(path))

    def test_custom_objects(self):
        path = self.server.path / "definition.yaml"
        path.write_text(DEFINITION)
        utils.create_from_yaml(self.api, str(path))
        definitions = client.ApiextensionsV1Api(self.api)
        for event in watch.Watch().stream(
            definitions.list_custom_resource_definition, _request_timeout=LIMIT_SECONDS
        ):
            conditions = event["object"].status.conditions or []
            if any(c.type == "Established" and c.status == "True" for c in conditions):
                break
        gadgets = client.CustomObjectsApi(self.api)
        where = ("shop.example.com", "v1", "default", "gadgets")
        body = {
            "apiVersion": "shop.example.com/v1",
            "kind": "Gadget",
            "metadata": {"name": "first"},
            "spec": {"color": "red"},
        }
        self.assertEqual(gadgets.create_namespaced_custom_object(*where, body)["spec"]["count"], 1)
        patched = gadgets.patch_namespaced_custom_object(*where, "first", {"spec": {"color": "green"}})
        self.assertEqual(patched["spec"]["color"], "green")
        status = gadgets.patch_namespaced_custom_object_status(*where, "first", {"status": {"count": 2}})
        self.assertEqual(status["status"], {"count": 2})
        body["spec"]["color"] = "pink"
        body["metadata"]["name"] = "second"
        with self.assertRaises(ApiException) as invalid:
            gadgets.create_namespaced_custom_object(*where, body)
        self.assertEqual(invalid.exception.status, 422)
        self.assertEqual(len(gadgets.list_namespaced_custom_object(*where)["items"]), 1)
        gadgets.delete_namespaced_custom_object(*where, "first")

    def test_plain_http(self):
        plain = client.ApiClient(client.Configuration(host=self.server.url))
        self.addCleanup(plain.close)
        self.assertEqual(client.VersionApi(plain).get_code().major, "1")


if __name__ == "__main__":
    unittest.main()
