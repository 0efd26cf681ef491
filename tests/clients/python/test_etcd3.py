"""Tests of etcd3 (python-etcd3), a client over gRPC."""

import io
import queue
import threading
import unittest

import etcd3
import grpc

from server import LIMIT_SECONDS, Server


def setUpModule():
    """Suppresses the ValueError that the client's watch thread raises when its channel is closed."""
    report = threading.excepthook

    def hook(failure):
        ended = failure.thread.name.startswith("etcd3_watch_")
        if not (ended and isinstance(failure.exc_value, ValueError)):
            report(failure)

    threading.excepthook = hook
    unittest.addModuleCleanup(setattr, threading, "excepthook", report)


class WithServer(unittest.TestCase):
    FLAGS = ()

    def setUp(self):
        self.server = Server(*self.FLAGS)
        self.addCleanup(self.server.close)
        self.client = self.connect()

    def connect(self, **options):
        client = etcd3.client("127.0.0.1", self.server.port, timeout=LIMIT_SECONDS, **options)
        self.addCleanup(client.close)
        return client

    def check_fails(self, code, text, call, *arguments, **options):
        with self.assertRaises(grpc.RpcError) as failed:
            call(*arguments, **options)
        self.assertEqual((failed.exception.code(), failed.exception.details()), (code, text))


class Kv(WithServer):
    def test_put_get_delete(self):
        self.assertEqual(self.client.get("a"), (None, None))
        self.assertEqual(self.client.put("a", "1").header.revision, 2)
        self.assertEqual(self.client.put("a", "2", prev_kv=True).prev_kv.value, b"1")
        value, meta = self.client.get("a")
        self.assertEqual(value, b"2")
        self.assertEqual((meta.create_revision, meta.mod_revision, meta.version), (2, 3, 2))
        self.assertTrue(self.client.delete("a"))
        self.assertFalse(self.client.delete("a"))

    def test_ranges(self):
        for key, value in (("k/a", "3"), ("k/b", "1"), ("k/c", "2"), ("l", "4")):
            self.client.put(key, value)

        def values(found):
            return [value for value, _ in found]

        self.assertEqual(values(self.client.get_prefix("k/")), [b"3", b"1", b"2"])
        self.assertEqual(values(self.client.get_range("k/b", "l")), [b"1", b"2"])
        self.assertEqual(values(self.client.get_all()), [b"3", b"1", b"2", b"4"])
        by_value = self.client.get_prefix("k/", sort_order="descend", sort_target="value")
        self.assertEqual(values(by_value), [b"3", b"2", b"1"])
        self.assertEqual(self.client.delete_prefix("k/").deleted, 3)

    def test_create_and_replace(self):
        self.assertTrue(self.client.put_if_not_exists("k", "1"))
        self.assertFalse(self.client.put_if_not_exists("k", "2"))
        self.assertTrue(self.client.replace("k", "1", "2"))
        self.assertFalse(self.client.replace("k", "1", "3"))
        self.assertEqual(self.client.get("k")[0], b"2")

    def test_transactions(self):
        transactions = self.client.transactions
        self.client.put("k", "1")
        succeeded, responses = self.client.transaction(
            compare=[transactions.value("k") == "1", transactions.version("k") > 0],
            success=[transactions.put("k", "2"), transactions.get("k")],
            failure=[transactions.delete("k")],
        )
        self.assertTrue(succeeded)
        self.assertEqual(responses[1][0][0], b"2")
        succeeded, responses = self.client.transaction(
            compare=[transactions.create("k") == 9],
            success=[],
            failure=[
                transactions.txn(
                    compare=[transactions.mod("k") == 3],
                    success=[transactions.put("in", "then")],
                    failure=[transactions.put("in", "else")],
                )
            ],
        )
        self.assertFalse(succeeded)
        self.assertEqual(self.client.get("in")[0], b"then")

    def test_compaction_and_errors(self):
        self.client.put("k", "1")
        self.client.put("k", "2")
        self.client.compact(3, physical=True)
        self.check_fails(
            grpc.StatusCode.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
            self.client.compact,
            2,
        )
        self.check_fails(
            grpc.StatusCode.INVALID_ARGUMENT,
            "etcdserver: key is not provided",
            self.client.put,
            "",
            "v",
        )


class Watch(WithServer):
    def test_events(self):
        self.client.put("k/a", "0")
        events, cancel = self.client.watch_prefix("k/", prev_kv=True)
        self.client.put("k/a", "1")
        self.client.put("other", "1")
        self.client.delete("k/a")
        put, delete = next(events), next(events)
        self.assertIsInstance(put, etcd3.events.PutEvent)
        self.assertEqual((put.key, put.value, put.mod_revision), (b"k/a", b"1", 3))
        self.assertEqual(put.prev_value, b"0")
        self.assertIsInstance(delete, etcd3.events.DeleteEvent)
        self.assertEqual((delete.mod_revision, delete.prev_value), (5, b"1"))
        cancel()
        self.assertEqual(list(events), [])

    def test_past_events(self):
        for number in range(50):
            self.client.put("k", str(number))
        events, cancel = self.client.watch("k", start_revision=2)
        self.assertEqual([next(events).value for _ in range(50)], [b"%d" % n for n in range(50)])
        self.client.put("k", "new")
        self.assertEqual(next(events).value, b"new")
        cancel()

    def test_many_watches_on_the_stream_of_a_client(self):
        seen = queue.SimpleQueue()
        ids = [
            self.client.add_watch_callback(
                f"k{number}",
                lambda response, number=number: seen.put((number, response.events[0].value)),
            )
            for number in range(20)
        ]
        self.assertEqual(len(set(ids)), 20)
        for number in range(20):
            self.client.put(f"k{number}", "v")
        received = sorted(seen.get(timeout=LIMIT_SECONDS) for _ in range(20))
        self.assertEqual(received, [(number, b"v") for number in range(20)])
        for watch_id in ids:
            self.client.cancel_watch(watch_id)

    def test_compacted_revision(self):
        for _ in range(3):
            self.client.put("k", "v")
        self.client.compact(4)
        events, _ = self.client.watch("k", start_revision=2)
        with self.assertRaises(etcd3.exceptions.RevisionCompactedError) as ended:
            next(events)
        self.assertEqual(ended.exception.compacted_revision, 4)


class Lease(WithServer):
    def test_refresh_and_revoke(self):
        lease = self.client.lease(60)
        self.client.put("k", "v", lease=lease)
        self.assertEqual(lease.granted_ttl, 60)
        self.assertEqual(lease.keys, [b"k"])
        self.assertEqual(lease.refresh()[0].TTL, 60)
        lease.revoke()
        self.assertEqual(self.client.get("k"), (None, None))
        self.assertEqual(lease.remaining_ttl, -1)

    def test_expiry(self):
        events, cancel = self.client.watch("k")
        self.client.put("k", "v", lease=self.client.lease(1))
        self.assertIsInstance(next(events), etcd3.events.PutEvent)
        self.assertIsInstance(next(events), etcd3.events.DeleteEvent)
        cancel()


class Lock(WithServer):
    def test_released_lock_can_be_acquired(self):
        # This client implements locks with transactions and leases. Waiting for a held lock is not
        # tested: the client's code does not work with current versions of tenacity.
        one = self.client.lock("lock", ttl=60)
        two = self.connect().lock("lock", ttl=60)
        self.assertTrue(one.acquire())
        self.assertTrue(one.is_acquired())
        self.assertFalse(two.is_acquired())
        self.assertTrue(one.release())
        self.assertTrue(two.acquire())
        self.assertFalse(one.release())
        self.assertTrue(two.release())


class Maintenance(WithServer):
    def test_status_and_members(self):
        status = self.client.status()
        self.assertTrue(status.version.startswith("3."), status.version)
        self.assertEqual(status.leader.name, "default")
        (member,) = self.client.members
        self.assertEqual(list(member.client_urls), [f"http://127.0.0.1:{self.server.port}"])

    def test_hash_and_defragment(self):
        self.assertIsInstance(self.client.hash(), int)
        self.client.defragment()

    def test_alarms(self):
        (raised,) = self.client.create_alarm()
        self.assertEqual(raised.alarm_type, etcd3.etcdrpc.NOSPACE)
        self.check_fails(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "etcdserver: mvcc: database space exceeded",
            self.client.put,
            "k",
            "v",
        )
        self.assertEqual(len(list(self.client.list_alarms())), 1)
        self.assertEqual(len(list(self.client.disarm_alarm())), 1)
        self.client.put("k", "v")

    def test_snapshot(self):
        file = io.BytesIO()
        self.client.snapshot(file)
        self.assertEqual(len(file.getvalue()) % 512, 32)


if __name__ == "__main__":
    unittest.main()
