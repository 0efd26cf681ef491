"""Tests of etcd3gw, a client over the JSON gateway."""

import threading
import unittest

import etcd3gw

from server import LIMIT_SECONDS, Server


class Gateway(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.client = etcd3gw.client("127.0.0.1", self.server.port, timeout=LIMIT_SECONDS)
        self.addCleanup(self.client.session.close)

    def test_put_get_delete(self):
        self.assertEqual(self.client.get("k"), [])
        self.assertTrue(self.client.put("k", "1"))
        self.assertTrue(self.client.put("k", "2"))
        ((value, meta),) = self.client.get("k", metadata=True)
        self.assertEqual(value, b"2")
        self.assertEqual(
            {name: str(meta[name]) for name in ("create_revision", "mod_revision", "version")},
            {"create_revision": "2", "mod_revision": "3", "version": "2"},
        )
        self.assertTrue(self.client.delete("k"))
        self.assertFalse(self.client.delete("k"))

    def test_ranges(self):
        for key in ("k/a", "k/b", "l"):
            self.client.put(key, key)
        found = [value for value, _ in self.client.get_prefix("k/", sort_order="descend")]
        self.assertEqual(found, [b"k/b", b"k/a"])
        self.assertEqual(len(self.client.get_all()), 3)
        self.assertTrue(self.client.delete_prefix("k/"))
        self.assertEqual(len(self.client.get_all()), 1)

    def test_create_and_replace(self):
        self.assertTrue(self.client.create("k", "1"))
        self.assertFalse(self.client.create("k", "2"))
        self.assertTrue(self.client.replace("k", "1", "2"))
        self.assertFalse(self.client.replace("k", "1", "3"))
        self.assertEqual(self.client.get("k"), [b"2"])

    def test_lease(self):
        lease = self.client.lease(60)
        self.client.put("k", "v", lease=lease)
        self.assertEqual(lease.keys(), [b"k"])
        self.assertLessEqual(lease.ttl(), 60)
        self.assertEqual(lease.refresh(), 60)
        self.assertTrue(lease.revoke())
        self.assertEqual(self.client.get("k"), [])

    def test_lock(self):
        with self.client.lock("lock", ttl=60) as held:
            self.assertTrue(held.is_acquired())
            self.assertFalse(self.client.lock("lock", ttl=60).acquire())
        self.assertTrue(self.client.lock("lock", ttl=60).acquire())

    def test_watch(self):
        self.client.put("k/a", "1")
        events, cancel = self.client.watch_prefix("k/", start_revision=2)
        self.assertEqual(next(events)["kv"]["value"], b"1")
        self.client.put("k/a", "2")
        self.assertEqual(next(events)["kv"]["value"], b"2")
        self.client.delete("k/a")
        self.assertEqual(next(events)["type"], "DELETE")
        # `cancel` returns after the client has received one more event.
        ending = threading.Thread(target=cancel)
        ending.start()
        self.client.put("k/a", "3")
        ending.join(LIMIT_SECONDS)
        self.assertFalse(ending.is_alive())

    def test_status_and_members(self):
        self.assertTrue(self.client.status()["version"].startswith("3."))
        (member,) = self.client.members()
        self.assertEqual(member["name"], "default")


if __name__ == "__main__":
    unittest.main()
