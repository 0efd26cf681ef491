//! Locks: EL-1 to EL-5 and EL-10.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use revstore_engine::{KeyRange, LeaseId, Range};
use revstore_proto::v3lockpb::lock_client::LockClient;
use revstore_proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest};
use tonic::{Code, Status};

use crate::support::{Node, STOPPED, check_refused, header};

const UNKNOWN_LEASE: (Code, &str) = (Code::Unknown, "etcdserver: requested lease not found");
const SESSION_EXPIRED: (Code, &str) = (Code::Unknown, "mutex: session is expired");

async fn lock(node: Node, name: &'static str, lease: i64) -> Result<LockResponse, Status> {
    let request = LockRequest {
        name: name.into(),
        lease,
    };
    let mut client = LockClient::new(node.services.clone());
    Ok(client.lock(request).await?.into_inner())
}

async fn unlock(node: &Node, key: &'static str) -> Result<i64, Status> {
    let request = UnlockRequest { key: key.into() };
    let mut client = LockClient::new(node.services.clone());
    let done = client.unlock(request).await?.into_inner();
    Ok(done.header.unwrap().revision)
}

/// A call that somebody waits for, asked once whether it is done.
type Waiting = Pin<Box<dyn Future<Output = Result<LockResponse, Status>> + Send>>;

fn wait_for_lock(node: &Node, name: &'static str, lease: i64) -> Waiting {
    let mut waiting: Waiting = Box::pin(lock(node.clone(), name, lease));
    assert!((&mut waiting).now_or_never().is_none(), "it should wait");
    waiting
}

fn grant(node: &Node, ids: impl IntoIterator<Item = i64>) {
    for id in ids {
        node.engine.grant(LeaseId::new(id), 60).unwrap();
    }
}

fn keys(node: &Node) -> Vec<String> {
    let found = node.engine.range(&Range::of(KeyRange::all())).unwrap();
    let keys = found.kvs.iter().map(|kv| kv.key().to_vec());
    keys.map(|key| String::from_utf8(key).unwrap()).collect()
}

#[tokio::test]
async fn el_1_a_lock_is_a_key_of_its_lease() {
    let node = Node::new();
    grant(&node, [26, -5]);
    let held = lock(node.clone(), "l", 26).await.unwrap();
    assert_eq!((&*held.key, held.header), (&b"l/1a"[..], header(2)));
    let kv = node.engine.get("l/1a").unwrap();
    assert_eq!((kv.value(), kv.lease()), (&b""[..], LeaseId::new(26)));
    node.fill(["elsewhere"]);
    let again = lock(node.clone(), "l", 26).await.unwrap();
    assert_eq!((&*again.key, again.header), (&b"l/1a"[..], header(3)));
    let negative = lock(node, "n", -5).await.unwrap();
    assert_eq!(&*negative.key, b"n/-5");
}

#[tokio::test]
async fn el_1_who_entered_first_gets_the_lock_first() {
    let node = Node::new();
    grant(&node, [1, 2, 3]);
    lock(node.clone(), "l", 3).await.unwrap();
    let second = wait_for_lock(&node, "l", 2);
    let mut third = wait_for_lock(&node, "l", 1);
    assert_eq!(unlock(&node, "l/3").await.unwrap(), 5);
    let held = second.await.unwrap();
    assert_eq!((&*held.key, held.header), (&b"l/2"[..], header(5)));
    assert!((&mut third).now_or_never().is_none());
    assert_eq!(unlock(&node, "l/2").await.unwrap(), 6);
    assert_eq!(&*third.await.unwrap().key, b"l/1");
}

#[tokio::test]
async fn el_1_who_leaves_the_middle_of_the_line_frees_nothing() {
    let node = Node::new();
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
async fn el_2_without_a_lease_one_of_a_minute_is_made() {
    let node = Node::new();
    let held = lock(node.clone(), "l", 0).await.unwrap();
    let [lease] = node.engine.leases()[..] else {
        panic!("there should be one lease");
    };
    assert_eq!(held.key, format!("l/{:x}", lease.get()));
    let status = node.engine.lease(lease, true).unwrap();
    assert_eq!(status.granted_ttl, Duration::from_secs(60));
    node.clock.advance(Duration::from_secs(60));
    assert!(keys(&node).is_empty(), "nobody renews it");
}

#[tokio::test]
async fn el_3_unlocking_deletes_the_key() {
    let node = Node::new();
    grant(&node, [1]);
    lock(node.clone(), "l", 1).await.unwrap();
    assert_eq!(unlock(&node, "l/1").await.unwrap(), 3);
    assert_eq!(unlock(&node, "l/1").await.unwrap(), 3, "absent already");
    let empty = (Code::Unknown, "etcdserver: key is not provided");
    check_refused(unlock(&node, "").await, empty);
}

#[tokio::test]
async fn el_4_a_lease_must_be_known() {
    let node = Node::new();
    check_refused(lock(node.clone(), "l", 99).await, UNKNOWN_LEASE);
    assert_eq!(node.revision(), 1);
}

#[tokio::test]
async fn el_4_who_gives_up_takes_the_key_back() {
    let node = Node::new();
    grant(&node, [1, 2]);
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 2);
    assert_eq!(keys(&node), ["l/1", "l/2"]);
    drop(waiting);
    assert_eq!(keys(&node), ["l/1"]);
    let waiting = wait_for_lock(&node, "l", 0);
    assert_eq!(node.engine.leases().len(), 3);
    drop(waiting);
    assert_eq!((keys(&node).len(), node.engine.leases().len()), (1, 2));
}

#[tokio::test]
async fn el_5_who_loses_the_lease_is_told_at_once() {
    let node = Node::new();
    grant(&node, [1, 2, 3]);
    lock(node.clone(), "l", 1).await.unwrap();
    let revoked = wait_for_lock(&node, "l", 2);
    node.engine.revoke(LeaseId::new(2).unwrap()).unwrap();
    check_refused(revoked.await, SESSION_EXPIRED);
    let deleted = wait_for_lock(&node, "l", 3);
    node.engine.delete(&KeyRange::one("l/3"));
    check_refused(deleted.await, SESSION_EXPIRED);
    assert_eq!(keys(&node), ["l/1"], "the holder holds on");
}

#[tokio::test]
async fn el_5_a_lease_that_expires_is_lost_too() {
    let node = Node::new();
    node.engine.grant(LeaseId::new(1), 100).unwrap();
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 0);
    node.clock.advance(Duration::from_secs(60));
    check_refused(waiting.await, SESSION_EXPIRED);
}

#[tokio::test]
async fn el_1_a_holder_whose_lease_ends_makes_room() {
    let node = Node::new();
    node.engine.grant(LeaseId::new(1), 10).unwrap();
    node.engine.grant(LeaseId::new(2), 100).unwrap();
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 2);
    node.clock.advance(Duration::from_secs(10));
    assert_eq!(&*waiting.await.unwrap().key, b"l/2");
}

#[tokio::test]
async fn el_1_a_compaction_does_not_disturb_who_waits() {
    let node = Node::new();
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
async fn el_10_an_empty_name_is_a_name() {
    let node = Node::new();
    grant(&node, [26]);
    assert_eq!(&*lock(node, "", 26).await.unwrap().key, b"/1a");
}

#[tokio::test]
async fn fl_15_a_shutdown_ends_who_waits() {
    let node = Node::new();
    grant(&node, [1, 2]);
    lock(node.clone(), "l", 1).await.unwrap();
    let waiting = wait_for_lock(&node, "l", 2);
    node.shutdown.begin();
    check_refused(waiting.await, STOPPED);
}

/// As etcd 3.5.16 has it, except that the lease made for a lock goes again.
#[tokio::test]
async fn li_1_names_and_keys_are_part_of_proposals() {
    let too_large = (Code::Unknown, "etcdserver: request is too large");
    let node = Node::new();
    grant(&node, [26]);
    let mut client = LockClient::new(node.services.clone());
    let long = Bytes::from(vec![b'l'; 1_600_000]);
    for lease in [0, 26] {
        let name = long.clone();
        let locked = client.lock(LockRequest { name, lease }).await;
        check_refused(locked, too_large);
    }
    let unlocked = client.unlock(UnlockRequest { key: long }).await;
    check_refused(unlocked, too_large);
    assert_eq!((node.revision(), node.engine.leases().len()), (1, 1));
}
