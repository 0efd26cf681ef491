//! The Lock service: EL-1 to EL-5 and EL-10.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use revstore_engine::{KeyRange, LeaseId, Range};
use revstore_proto::v3lockpb::lock_client::LockClient;
use revstore_proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest};
use tonic::{Code, Status};

use crate::support::{STOPPED, TestNode, assert_error, header};

const UNKNOWN_LEASE: (Code, &str) = (Code::Unknown, "etcdserver: requested lease not found");
const SESSION_EXPIRED: (Code, &str) = (Code::Unknown, "mutex: session is expired");

async fn lock(node: TestNode, name: &'static str, lease: i64) -> Result<LockResponse, Status> {
    let request = LockRequest {
        name: name.into(),
        lease,
    };
    let mut client = LockClient::new(node.services.clone());
    Ok(client.lock(request).await?.into_inner())
}

async fn unlock(node: &TestNode, key: &'static str) -> Result<i64, Status> {
    let request = UnlockRequest { key: key.into() };
    let mut client = LockClient::new(node.services.clone());
    let response = client.unlock(request).await?.into_inner();
    Ok(response.header.unwrap().revision)
}

/// A lock call that waits for the lock. It has been polled once.
type WaitingLock = Pin<Box<dyn Future<Output = Result<LockResponse, Status>> + Send>>;

fn wait_for_lock(node: &TestNode, name: &'static str, lease: i64) -> WaitingLock {
    let mut waiting: WaitingLock = Box::pin(lock(node.clone(), name, lease));
    assert!(
        (&mut waiting).now_or_never().is_none(),
        "the call should wait"
    );
    waiting
}

fn grant(node: &TestNode, ids: impl IntoIterator<Item = i64>) {
    for id in ids {
        node.engine.grant(LeaseId::new(id), 60).unwrap();
    }
}

fn keys(node: &TestNode) -> Vec<String> {
    let found = node.engine.range(&Range::of(KeyRange::all())).unwrap();
    let keys = found.kvs.iter().map(|kv| kv.key().to_vec());
    keys.map(|key| String::from_utf8(key).unwrap()).collect()
}

#[tokio::test]
async fn el_1_a_lock_is_a_key_attached_to_its_lease() {
    let node = TestNode::new();
    grant(&node, [26, -5]);
    let response = lock(node.clone(), "l", 26).await.unwrap();
    assert_eq!((&*response.key, response.header), (&b"l/1a"[..], header(2)));
    let kv = node.engine.get("l/1a").unwrap();
    assert_eq!((kv.value(), kv.lease()), (&b""[..], LeaseId::new(26)));
    node.fill(["elsewhere"]);
    let again = lock(node.clone(), "l", 26).await.unwrap();
    assert_eq!((&*again.key, again.header), (&b"l/1a"[..], header(3)));
    let negative = lock(node, "n", -5).await.unwrap();
    assert_eq!(&*negative.key, b"n/-5");
}

#[tokio::test]
async fn el_1_waiters_acquire_the_lock_in_order_of_arrival() {
    let node = TestNode::new();
    grant(&node, [1, 2, 3]);
    lock(node.clone(), "l", 3).await.unwrap();
    let second = wait_for_lock(&node, "l", 2);
    let mut third = wait_for_lock(&node, "l", 1);
    assert_eq!(unlock(&node, "l/3").await.unwrap(), 5);
    let response = second.await.unwrap();
    assert_eq!((&*response.key, response.header), (&b"l/2"[..], header(5)));
    assert!((&mut third).now_or_never().is_none());
    assert_eq!(unlock(&node, "l/2").await.unwrap(), 6);
    assert_eq!(&*third.await.unwrap().key, b"l/1");
}

#[tokio::test]
async fn el_1_cancelling_a_waiter_does_not_release_the_lock() {
    let node = TestNode::new();
    grant(&node, [1, 2, 3]);
    lock(node.clone(), "l", 1).await.unwrap();
    let second = wait_for_lock(&node, "l", 2);
    let mut third = wait_for_lock(&node, "l", 3);
    drop(second);
    assert!((&mut third).now_or_never().is_none());
    unlock(&node, "l/1").await.unwrap();
    assert_eq!(&*third.await.unwrap().key, b"l/3");
}

#[tokio::test]
async fn el_2_lock_without_a_lease_grants_a_lease_of_60_seconds() {
    let node = TestNode::new();
    let response = lock(node.clone(), "l", 0).await.unwrap();
    let [lease] = node.engine.leases()[..] else {
        panic!("expected one lease, got {:?}", node.engine.leases());
    };
    assert_eq!(response.key, format!("l/{:x}", lease.get()));
    let status = node.engine.lease(lease, true).unwrap();
    assert_eq!(status.granted_ttl, Duration::from_secs(60));
    node.clock.advance(Duration::from_secs(60));
    assert!(
        keys(&node).is_empty(),
        "the lock is released when its lease expires"
    );
}

#[tokio::test]
async fn el_3_unlock_deletes_the_key() {
    let node = TestNode::new();
    grant(&node, [1]);
    lock(node.clone(), "l", 1).await.unwrap();
    assert_eq!(unlock(&node, "l/1").await.unwrap(), 3);
    assert_eq!(
        unlock(&node, "l/1").await.unwrap(),
        3,
        "the key is already absent"
    );
    let empty = (Code::Unknown, "etcdserver: key is not provided");
    assert_error(unlock(&node, "").await, empty);
}

#[tokio::test]
async fn el_4_lock_needs_an_existing_lease() {
    let node = TestNode::new();
    assert_error(lock(node.clone(), "l", 99).await, UNKNOWN_LEASE);
    assert_eq!(node.revision(), 1);
}

#[tokio::test]
async fn el_4_a_cancelled_lock_call_deletes_its_key_and_not_its_lease() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 2);
    assert_eq!(keys(&node), ["l/1", "l/2"]);
    drop(waiting);
    assert_eq!(keys(&node), ["l/1"]);
    let waiting = wait_for_lock(&node, "l", 0);
    assert_eq!(node.engine.leases().len(), 3);
    drop(waiting);
    assert_eq!((keys(&node).len(), node.engine.leases().len()), (1, 3));
}

#[tokio::test]
async fn el_5_a_waiter_that_loses_its_lease_or_key_fails_at_once() {
    let node = TestNode::new();
    grant(&node, [1, 2, 3]);
    lock(node.clone(), "l", 1).await.unwrap();
    let revoked = wait_for_lock(&node, "l", 2);
    node.engine.revoke(LeaseId::new(2).unwrap()).unwrap();
    assert_error(revoked.await, SESSION_EXPIRED);
    let deleted = wait_for_lock(&node, "l", 3);
    node.engine.delete(&KeyRange::one("l/3")).unwrap();
    assert_error(deleted.await, SESSION_EXPIRED);
    assert_eq!(keys(&node), ["l/1"], "the holder keeps the lock");
}

#[tokio::test]
async fn el_5_a_waiter_whose_lease_expires_fails() {
    let node = TestNode::new();
    node.engine.grant(LeaseId::new(1), 100).unwrap();
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 0);
    node.clock.advance(Duration::from_secs(60));
    assert_error(waiting.await, SESSION_EXPIRED);
}

#[tokio::test]
async fn el_1_expiry_of_the_lease_releases_the_lock() {
    let node = TestNode::new();
    node.engine.grant(LeaseId::new(1), 10).unwrap();
    node.engine.grant(LeaseId::new(2), 100).unwrap();
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 2);
    node.clock.advance(Duration::from_secs(10));
    assert_eq!(&*waiting.await.unwrap().key, b"l/2");
}

#[tokio::test]
async fn el_1_a_compaction_does_not_affect_waiters() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    lock(node.clone(), "l", 1).await.unwrap();
    let mut waiting = wait_for_lock(&node, "l", 2);
    node.fill(["a", "b"]);
    let current = node.engine.current_revision();
    node.engine.compact(current).unwrap().run();
    assert!((&mut waiting).now_or_never().is_none());
    unlock(&node, "l/1").await.unwrap();
    assert_eq!(&*waiting.await.unwrap().key, b"l/2");
}

#[tokio::test]
async fn el_10_an_empty_name_is_valid() {
    let node = TestNode::new();
    grant(&node, [26]);
    assert_eq!(&*lock(node, "", 26).await.unwrap().key, b"/1a");
}

#[tokio::test]
async fn fl_15_a_shutdown_ends_waiting_lock_calls() {
    let node = TestNode::new();
    grant(&node, [1, 2]);
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 2);
    node.shutdown.begin();
    assert_error(waiting.await, STOPPED);
}

/// As in etcd 3.5.16, also the lease that a failed call leaves.
#[tokio::test]
async fn li_1_names_and_keys_count_towards_the_size_limit() {
    let too_large = (Code::Unknown, "etcdserver: request is too large");
    let node = TestNode::new();
    grant(&node, [26]);
    let mut client = LockClient::new(node.services.clone());
    let long = Bytes::from(vec![b'l'; 1_600_000]);
    for lease in [0, 26] {
        let name = long.clone();
        let locked = client.lock(LockRequest { name, lease }).await;
        assert_error(locked, too_large);
    }
    let unlocked = client.unlock(UnlockRequest { key: long }).await;
    assert_error(unlocked, too_large);
    assert_eq!((node.revision(), node.engine.leases().len()), (1, 2));
}
