//! The wait queue of locks and elections.
//!
//! A waiter puts a key under the queue's name and waits until the queue contains no older key. The key is
//! attached to a lease, so the waiter leaves the queue when the lease ends. This corresponds to etcd's
//! package `concurrency`: a waiter is a `Mutex` or `Election` with a `Session`, and [`Waiter::reach_front`]
//! is `waitDeletes`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use revstore_engine::{
    Compare, Filter, KeyRange, KeyValue, LeaseId, Op, OpResult, Put, RECORD_OVERHEAD_BYTES, Range,
    Revision, SortBy, SortOrder, Txn, WatchOptions,
};

use crate::node::Node;
use crate::node::admission::Proposal;
use crate::status::EtcdError;

/// The TTL of the lease that is granted to a waiter without a lease. The lease is not renewed (EL-2).
const OWN_LEASE_TTL_SECONDS: i64 = 60;

/// Returns the range of the keys in the queue `name`: those that begin with `name/` (EL-1). The name may be
/// empty (EL-10).
pub(crate) fn range(name: &[u8]) -> KeyRange {
    KeyRange::prefix(prefix(name, 0).freeze())
}

/// Returns the oldest key in a queue, and the revision of the read.
pub(super) fn front(
    node: &Node,
    queue: &KeyRange,
) -> Result<(Revision, Option<KeyValue>), EtcdError> {
    front_of(node, Range::of(queue.clone()))
}

/// Returns the oldest key in a queue at a past revision.
pub(super) fn front_at(
    node: &Node,
    queue: &KeyRange,
    revision: Revision,
) -> Result<(Revision, Option<KeyValue>), EtcdError> {
    front_of(node, Range::of(queue.clone()).at(revision))
}

fn front_of(node: &Node, queue: Range) -> Result<(Revision, Option<KeyValue>), EtcdError> {
    let oldest = queue.sorted(SortBy::CreateRevision, SortOrder::Ascending);
    let mut result = node.engine.range(&oldest.limit(1))?;
    Ok((result.revision, result.kvs.pop()))
}

fn prefix(name: &[u8], additional_bytes: usize) -> BytesMut {
    let mut prefix = BytesMut::with_capacity(name.len() + 1 + additional_bytes);
    prefix.put_slice(name);
    prefix.put_u8(b'/');
    prefix
}

/// Returns the key of the waiter with this lease: the id in hexadecimal, with a sign if it is
/// negative (EL-1).
pub(crate) fn key(name: &[u8], lease: LeaseId) -> Bytes {
    let sign = if lease.get() < 0 { "-" } else { "" };
    let hex = format!("{sign}{:x}", lease.get().unsigned_abs());
    let mut key = prefix(name, hex.len());
    key.put_slice(hex.as_bytes());
    key.freeze()
}

/// The key of a waiter, from its creation to its deletion.
#[derive(Clone, Debug)]
pub(super) struct WaiterKey {
    pub(super) key: Bytes,
    /// The create revision. A key with the same name and another create revision belongs to another waiter.
    pub(super) created: Revision,
}

impl WaiterKey {
    /// Replaces the value of the key if it still exists, and returns the revision of the change.
    pub(super) fn set_value(
        &self,
        node: &Node,
        value: Bytes,
        lease: Option<LeaseId>,
    ) -> Result<Option<Revision>, EtcdError> {
        node.admit(proposal(&self.key, &value))?;
        let put = Put::new(self.key.clone(), value);
        self.if_exists(node, Op::Put(attach(put, lease)))
    }

    /// Deletes the key if it still exists, and returns the revision after that.
    pub(super) fn delete(&self, node: &Node) -> Result<Revision, EtcdError> {
        node.admit(Proposal {
            request_bytes: self.key.len(),
            growth_bytes: None,
        })?;
        let deleted = self.if_exists(node, Op::Delete(KeyRange::One(self.key.clone())))?;
        Ok(deleted.unwrap_or_else(|| node.engine.current_revision()))
    }

    fn if_exists(&self, node: &Node, op: Op) -> Result<Option<Revision>, EtcdError> {
        let txn = Txn::new()
            .when([Compare::create_revision(self.key.clone(), self.created)])
            .and_then([op]);
        let result = node.engine.txn(&txn)?;
        Ok(result.succeeded.then_some(result.revision))
    }

    fn exists(&self, node: &Node) -> bool {
        let kv = node.engine.get(&self.key);
        kv.is_some_and(|kv| kv.create_revision() == self.created)
    }
}

/// The error of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitError {
    /// The key no longer exists: its lease has ended, or a client deleted it.
    KeyLost,
    /// The request failed.
    Failed(EtcdError),
}

impl From<EtcdError> for WaitError {
    fn from(error: EtcdError) -> Self {
        Self::Failed(error)
    }
}

/// A waiter during a call.
///
/// If the waiter is dropped before [`keep`](Self::keep), for example because the client cancelled the
/// call or its deadline has passed, its key is deleted (EL-4). A lease that was granted for this call ends
/// by itself.
#[derive(Debug)]
pub(super) struct Waiter {
    node: Arc<Node>,
    queue: KeyRange,
    key: WaiterKey,
    lease: LeaseId,
    is_kept: bool,
}

/// The result of adding a waiter to a queue.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) waiter: Waiter,
    pub(super) revision: Revision,
    /// The key-value of the waiter, if the lease already had a key in the queue.
    pub(super) existing: Option<KeyValue>,
}

impl Waiter {
    /// Adds a waiter at the end of the queue `name`, or returns the existing waiter of the lease (EL-1).
    /// Without a lease, grants one (EL-2).
    pub(super) fn join(
        node: &Arc<Node>,
        name: &[u8],
        lease: Option<LeaseId>,
        value: Bytes,
    ) -> Result<Joined, EtcdError> {
        if let Some(lease) = lease {
            return Self::join_with(node, name, lease, value);
        }
        node.admit(Proposal {
            request_bytes: 0,
            growth_bytes: Some(0),
        })?;
        let lease = node.engine.grant(None, OWN_LEASE_TTL_SECONDS)?.id;
        Self::join_with(node, name, lease, value)
    }

    fn join_with(
        node: &Arc<Node>,
        name: &[u8],
        lease: LeaseId,
        value: Bytes,
    ) -> Result<Joined, EtcdError> {
        let key = key(name, lease);
        node.admit(proposal(&key, &value))?;
        let put = Put::new(key.clone(), value).attached_to(lease);
        let txn = Txn::new()
            .when([Compare::absent(key.clone())])
            .and_then([Op::Put(put)])
            .or_else([Op::Range(Range::of(KeyRange::One(key.clone())))]);
        let result = node.engine.txn(&txn)?;
        let existing = result.results.into_iter().find_map(|result| match result {
            OpResult::Range(mut range) => range.kvs.pop(),
            _ => None,
        });
        let created = existing
            .as_ref()
            .map_or(result.revision, KeyValue::create_revision);
        let waiter = Self {
            node: node.clone(),
            queue: range(name),
            key: WaiterKey { key, created },
            lease,
            is_kept: false,
        };
        Ok(Joined {
            waiter,
            revision: result.revision,
            existing,
        })
    }

    pub(super) fn key(&self) -> &WaiterKey {
        &self.key
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Waits until no older key is in the queue, and returns the revision of that read. Fails as soon as the
    /// key of the waiter no longer exists (EL-5).
    pub(super) async fn reach_front(&self) -> Result<Revision, WaitError> {
        let mut shutdown = self.node.shutdown.begun();
        loop {
            let (revision, predecessor) = self.predecessor()?;
            // Read after the queue: a key that exists now existed then.
            if !self.key.exists(&self.node) {
                return Err(WaitError::KeyLost);
            }
            let Some(predecessor) = predecessor else {
                return Ok(revision);
            };
            let mut watches = self.node.engine.watch_stream();
            for key in [predecessor.key_bytes(), self.key.key.clone()] {
                let deletions = WatchOptions::of(KeyRange::One(key))
                    .from(Revision(revision.0 + 1))
                    .without_puts();
                watches.watch(deletions).map_err(|_| EtcdError::Internal)?;
            }
            poll_fn(|context| {
                if Pin::new(&mut shutdown).poll(context).is_ready() {
                    return Poll::Ready(Err(EtcdError::Stopped));
                }
                // After any response, also that of a compaction, the queue is read again.
                watches.poll_response(context).map(|_response| Ok(()))
            })
            .await?;
        }
    }

    /// Returns the newest key that is older than the key of the waiter.
    fn predecessor(&self) -> Result<(Revision, Option<KeyValue>), EtcdError> {
        let older = Filter::default().max_create_revision(Revision(self.key.created.0 - 1));
        let range = Range::of(self.queue.clone())
            .sorted(SortBy::CreateRevision, SortOrder::Descending)
            .filtered(older)
            .limit(1);
        let mut result = self.node.engine.range(&range)?;
        Ok((result.revision, result.kvs.pop()))
    }

    /// Keeps the key after the end of the call.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // This fails while an alarm forbids all writes. The key is then deleted when its lease ends.
        let _ = self.key.delete(&self.node);
    }
}

fn attach(put: Put, lease: Option<LeaseId>) -> Put {
    match lease {
        Some(lease) => put.attached_to(lease),
        None => put,
    }
}

fn proposal(key: &Bytes, value: &Bytes) -> Proposal {
    let request_bytes = key.len() + value.len();
    Proposal {
        request_bytes,
        growth_bytes: Some(request_bytes as u64 + RECORD_OVERHEAD_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn el_1_a_key_ends_in_the_lease_id_in_hexadecimal() {
        let check = |name: &str, lease, expected: &str| {
            let key = key(name.as_bytes(), LeaseId::new(lease).unwrap());
            assert_eq!(key, expected);
            assert!(range(name.as_bytes()).contains(&key));
        };
        check("l", 26, "l/1a");
        check("l", i64::MAX, "l/7fffffffffffffff");
        // The keys of etcd 3.5.16.
        check("n", -5, "n/-5");
        check("n", i64::MIN, "n/-8000000000000000");
        check("", 26, "/1a");
    }

    #[test]
    fn el_1_a_queue_contains_the_keys_of_its_name_only() {
        for other in ["l", "l0/1a", "k/1a", "ll/1a"] {
            assert!(!range(b"l").contains(other.as_bytes()), "{other}");
        }
    }
}
