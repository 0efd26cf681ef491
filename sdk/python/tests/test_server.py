"""What a client sees of a server whose time and faults the test controls."""

import io
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import etcd3
import grpc
import pytest
from pytest_revstore import ControlError, Server


@pytest.fixture
def client(revstore):
    with etcd3.client(host=revstore.host, port=revstore.port) as client:
        yield client


@pytest.mark.revstore(clock="manual")
def test_a_lease_expires_when_the_test_advances_the_time(revstore, client):
    client.put("session", "mine", lease=client.lease(3600))
    assert revstore.control.pending()[0].due <= timedelta(hours=1)
    clock = revstore.control.advance(timedelta(hours=1))
    assert clock.now == timedelta(hours=1)
    assert clock.mode == "manual"
    assert client.get("session") == (None, None)


def test_a_lost_answer_is_followed_by_a_correct_retry(revstore, client):
    fault = revstore.control.add_fault("Txn", next=1, error_after="DATA_LOSS:the answer is lost")
    # The write says under which conditions it may be repeated.
    with pytest.raises(grpc.RpcError, match="the answer is lost"):
        client.put_if_not_exists("order", "one")
    assert not client.put_if_not_exists("order", "one"), "the first request was executed"
    assert client.get("order")[0] == b"one"
    (status,) = revstore.control.faults()
    assert (status.id, status.fired) == (fault, 1)
    assert revstore.control.clear_faults() == 1


def test_a_watch_that_is_canceled_as_compacted_recovers(revstore, client):
    events, _ = client.watch("key")
    revstore.control.wait_watchers(1, timeout=60)
    assert revstore.control.cancel_watches_compacted() == 1
    with pytest.raises(etcd3.exceptions.RevisionCompactedError):
        next(events)
    # As after a real compaction: read, and watch from the revision of the read.
    revision = client.put("other", "1").header.revision
    events, cancel = client.watch("key", start_revision=revision + 1)
    client.put("key", "after")
    assert next(events).value == b"after"
    cancel()


def test_fifty_tests_have_a_fork_each(revstore, client):
    client.put("fixture", "shared")
    start = threading.Barrier(50)

    def run(number):
        start.wait()
        with revstore.fork() as fork, etcd3.client(host=fork.host, port=fork.port) as own:
            own.put("own", str(number))
            return own.get("fixture")[0], own.get("own")[0]

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(run, range(50))) == [(b"shared", str(number).encode()) for number in range(50)]
    assert client.get("own") == (None, None)
    assert revstore.control.forks() == []


@pytest.mark.parametrize("number", range(3))
def test_forks_of_the_session_do_not_see_each_other(revstore_fork, number):
    with etcd3.client(host=revstore_fork.host, port=revstore_fork.port) as client:
        assert client.get("own") == (None, None)
        client.put("own", str(number))


def test_the_journal_has_the_requests(revstore, client):
    client.put("key", "value")
    (record,) = revstore.control.journal("Put")
    assert (record.revision, record.keys[0].key, record.code) == (2, b"key", "OK")


def test_the_journal_is_followed(revstore, client):
    followed = revstore.control.journal("Put", follow=True)
    for value in ("one", "two"):
        client.put("key", value)
        assert next(followed).keys[0].key == b"key"
    followed.close()


def test_terms_begin(revstore):
    term = revstore.control.new_term().term
    assert revstore.control.new_term().term == term + 1


def test_a_dump_replaces_the_store_of_another_server(revstore, client):
    client.put("key", "value")
    dump = io.BytesIO()
    revstore.control.dump(dump)
    with Server() as other, etcd3.client(host=other.host, port=other.port) as of_other:
        assert other.control.load(dump.getvalue()).revision == 2
        assert of_other.get("key")[0] == b"value"
        with pytest.raises(ControlError) as refused:
            other.control.import_snapshot(io.BytesIO(b"no snapshot"))
        assert refused.value.code == ControlError.INVALID_ARGUMENT


def test_refused_requests_are_errors_with_code_and_text(revstore):
    with pytest.raises(ControlError) as refused:
        revstore.control.restore("none")
    assert refused.value.code == ControlError.NOT_FOUND
    with pytest.raises(ControlError, match="unknown preset"):
        revstore.control.add_fault(preset="nonsense")
    with pytest.raises(ControlError) as refused:
        revstore.control.wait_revision(100, timeout=0.001)
    assert refused.value.code == ControlError.DEADLINE_EXCEEDED


@pytest.mark.revstore(control=False)
def test_a_server_without_control_has_none(revstore, client):
    client.put("key", "value")
    with pytest.raises(RuntimeError, match="without control"):
        revstore.control.advance(1)


def test_the_api_server_answers(revstore_apiserver):
    with urllib.request.urlopen(revstore_apiserver.url + "/version") as answer:
        assert b"gitVersion" in answer.read()
    with open(revstore_apiserver.kubeconfig) as file:
        assert "apiVersion" in file.read()
    assert revstore_apiserver.control.advance("1h").now >= timedelta(hours=1)
