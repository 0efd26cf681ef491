//! Standing in line: what locks and elections are made of.
//!
//! Who wants a lock, or to lead, puts a key under the name of it and waits until no older key is
//! there. The key hangs on a lease, so nobody stands in line who is gone.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use revstore_engine::{
    Compare, CompareTarget, Filter, KeyRange, KeyValue, LeaseId, Op, OpResult, Put,
    RECORD_OVERHEAD_BYTES, Range, Relation, Revision, SortBy, SortOrder, Txn, WatchOptions,
};

use crate::auth::authorize::{self, Sender};
use crate::node::{Node, Proposal};
use crate::status::EtcdError;

/// How long the lease lives that a candidate without one gets; nobody renews it (EL-2).
const OWN_LEASE_TTL_SECONDS: i64 = 60;

/// The keys of all who stand in line under a name: those behind `name/` (EL-1).
///
/// An empty name is a name like any other (EL-10).
pub(crate) fn line(name: &[u8]) -> KeyRange {
    KeyRange::prefix(prefix(name, 0).freeze())
}

/// What it takes to stand in line under a name.
pub(crate) fn guard(name: &[u8], lease: i64, sender: &Sender<'_>) -> Result<(), EtcdError> {
    let key = LeaseId::new(lease).map(|lease| key(name, lease));
    authorize::stand_in_line(&line(name), key.as_deref(), lease, sender)
}

/// The one in front of a line, and the revision at which it was looked for.
pub(crate) fn front(
    node: &Node,
    line: &KeyRange,
) -> Result<(Revision, Option<KeyValue>), EtcdError> {
    front_of(node, Range::of(line.clone()))
}

/// As [`front`], at a revision of the past.
pub(crate) fn front_at(
    node: &Node,
    line: &KeyRange,
    revision: Revision,
) -> Result<(Revision, Option<KeyValue>), EtcdError> {
    front_of(node, Range::of(line.clone()).at(revision))
}

fn front_of(node: &Node, line: Range) -> Result<(Revision, Option<KeyValue>), EtcdError> {
    let oldest = line.sorted(SortBy::CreateRevision, SortOrder::Ascending);
    let mut found = node.engine.range(&oldest.limit(1))?;
    Ok((found.revision, found.kvs.pop()))
}

fn prefix(name: &[u8], more_bytes: usize) -> BytesMut {
    let mut prefix = BytesMut::with_capacity(name.len() + 1 + more_bytes);
    prefix.put_slice(name);
    prefix.put_u8(b'/');
    prefix
}

/// EL-1: the lease in hexadecimal, with a sign before it if it has one.
fn key(name: &[u8], lease: LeaseId) -> Bytes {
    let sign = if lease.get() < 0 { "-" } else { "" };
    let hex = format!("{sign}{:x}", lease.get().unsigned_abs());
    let mut key = prefix(name, hex.len());
    key.put_slice(hex.as_bytes());
    key.freeze()
}

/// A place in a line: a key, for as long as it has not been deleted since.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) key: Bytes,
    /// When the key was created; another key of that name is another place.
    pub(crate) created: Revision,
}

impl Place {
    /// Puts a value to the place, if it is still there; returns the revision at which it did.
    pub(crate) fn show(
        &self,
        node: &Node,
        value: Bytes,
        lease: Option<LeaseId>,
    ) -> Result<Option<Revision>, EtcdError> {
        node.propose(proposal(&self.key, &value))?;
        let put = Put::new(self.key.clone(), value);
        self.if_there(node, Op::Put(attach(put, lease)))
    }

    /// Gives the place up, if it is still there; returns the revision behind that.
    pub(crate) fn give_up(&self, node: &Node) -> Result<Revision, EtcdError> {
        node.propose(Proposal {
            request_bytes: self.key.len(),
            grows_bytes: None,
        })?;
        let done = self.if_there(node, Op::Delete(KeyRange::One(self.key.clone())))?;
        Ok(done.unwrap_or_else(|| node.engine.current_revision()))
    }

    fn if_there(&self, node: &Node, op: Op) -> Result<Option<Revision>, EtcdError> {
        let done = node.engine.txn(
            &Txn::new()
                .when([created_at(&self.key, self.created)])
                .and_then([op]),
        )?;
        Ok(done.succeeded.then_some(done.revision))
    }

    fn is_there(&self, node: &Node) -> bool {
        let found = node.engine.get(&self.key);
        found.is_some_and(|kv| kv.create_revision() == self.created)
    }
}

/// Why somebody does not stand in line any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// The place is gone: its lease has ended, or its key was deleted.
    Lost,
    /// The request cannot go on.
    Error(EtcdError),
}

impl From<EtcdError> for Out {
    fn from(error: EtcdError) -> Self {
        Self::Error(error)
    }
}

/// Somebody who stands in line, on behalf of a call that waits.
///
/// If the call ends before [`stay`](Self::stay), be it because the caller gave up, the place is
/// given up too (EL-4), and with it the lease, if it was granted for this.
#[derive(Debug)]
pub(crate) struct Candidate {
    node: Arc<Node>,
    line: KeyRange,
    place: Place,
    lease: LeaseId,
    owns_lease: bool,
    stays: bool,
}

/// How somebody came to stand in line.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) candidate: Candidate,
    pub(crate) revision: Revision,
    /// What the place showed, if the lease had it already.
    pub(crate) present: Option<KeyValue>,
}

impl Candidate {
    /// Takes the place of a lease under a name: the one that it has, or a new one at the end (EL-1).
    /// Without a lease, one is made (EL-2).
    pub(crate) fn enter(
        node: &Arc<Node>,
        name: &[u8],
        lease: Option<LeaseId>,
        value: Bytes,
    ) -> Result<Entered, EtcdError> {
        if let Some(lease) = lease {
            return Self::enter_with(node, name, lease, value);
        }
        node.propose(Proposal {
            request_bytes: 0,
            grows_bytes: Some(0),
        })?;
        let lease = node.engine.grant(None, OWN_LEASE_TTL_SECONDS)?.id;
        match Self::enter_with(node, name, lease, value) {
            Ok(mut entered) => {
                entered.candidate.owns_lease = true;
                Ok(entered)
            }
            Err(error) => {
                revoke(node, lease);
                Err(error)
            }
        }
    }

    fn enter_with(
        node: &Arc<Node>,
        name: &[u8],
        lease: LeaseId,
        value: Bytes,
    ) -> Result<Entered, EtcdError> {
        let key = key(name, lease);
        node.propose(proposal(&key, &value))?;
        let put = Put::new(key.clone(), value).attached_to(lease);
        let done = node.engine.txn(
            &Txn::new()
                .when([created_at(&key, Revision(0))])
                .and_then([Op::Put(put)])
                .or_else([Op::Range(Range::of(KeyRange::One(key.clone())))]),
        )?;
        let present = done.results.into_iter().find_map(|result| match result {
            OpResult::Range(mut found) => found.kvs.pop(),
            _ => None,
        });
        let created = present
            .as_ref()
            .map_or(done.revision, KeyValue::create_revision);
        let candidate = Self {
            node: node.clone(),
            line: line(name),
            place: Place { key, created },
            lease,
            owns_lease: false,
            stays: false,
        };
        Ok(Entered {
            candidate,
            revision: done.revision,
            present,
        })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Completes when nobody is in front, with the revision at which that was seen, or as soon as
    /// the place is lost (EL-5).
    pub(crate) async fn reach_front(&self) -> Result<Revision, Out> {
        let mut stopped = self.node.shutdown.begun();
        loop {
            let (revision, next) = self.next_in_front()?;
            // Looked at behind the line: who is there now was there then.
            if !self.place.is_there(&self.node) {
                return Err(Out::Lost);
            }
            let Some(next) = next else {
                return Ok(revision);
            };
            let mut watches = self.node.engine.watch_stream();
            for key in [next.key_bytes(), self.place.key.clone()] {
                let deletions = WatchOptions::of(KeyRange::One(key))
                    .from(Revision(revision.0 + 1))
                    .without_puts();
                watches.watch(deletions).map_err(|_| EtcdError::Internal)?;
            }
            poll_fn(|context| {
                if Pin::new(&mut stopped).poll(context).is_ready() {
                    return Poll::Ready(Err(EtcdError::Stopped));
                }
                // Whatever it tells, a compaction included, it is time to look again.
                watches.poll_response(context).map(|_told| Ok(()))
            })
            .await?;
        }
    }

    /// Whoever entered right before.
    fn next_in_front(&self) -> Result<(Revision, Option<KeyValue>), EtcdError> {
        let older = Filter::default().max_create_revision(Revision(self.place.created.0 - 1));
        let range = Range::of(self.line.clone())
            .sorted(SortBy::CreateRevision, SortOrder::Descending)
            .filtered(older)
            .limit(1);
        let mut found = self.node.engine.range(&range)?;
        Ok((found.revision, found.kvs.pop()))
    }

    /// Keeps the place beyond the call.
    pub(crate) fn stay(mut self) {
        self.stays = true;
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Refused where an alarm forbids every change; then the lease takes the key along.
        let _ = self.place.give_up(&self.node);
        if self.owns_lease {
            revoke(&self.node, self.lease);
        }
    }
}

/// Ends a lease that was made here; it may have ended by itself.
fn revoke(node: &Node, lease: LeaseId) {
    if node.propose(Proposal::default()).is_ok() {
        let _ = node.engine.revoke(lease);
    }
}

fn attach(put: Put, lease: Option<LeaseId>) -> Put {
    match lease {
        Some(lease) => put.attached_to(lease),
        None => put,
    }
}

fn created_at(key: &Bytes, revision: Revision) -> Compare {
    Compare::new(
        KeyRange::One(key.clone()),
        CompareTarget::CreateRevision(revision.0),
        Relation::Equal,
    )
}

fn proposal(key: &Bytes, value: &Bytes) -> Proposal {
    let request_bytes = key.len() + value.len();
    Proposal {
        request_bytes,
        grows_bytes: Some(request_bytes as u64 + RECORD_OVERHEAD_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn el_1_keys_end_in_the_lease_in_hexadecimal() {
        let check = |name: &str, lease, expected: &str| {
            let key = key(name.as_bytes(), LeaseId::new(lease).unwrap());
            assert_eq!(key, expected);
            assert!(line(name.as_bytes()).contains(&key));
        };
        check("l", 26, "l/1a");
        check("l", i64::MAX, "l/7fffffffffffffff");
        // As etcd 3.5.16 has them.
        check("n", -5, "n/-5");
        check("n", i64::MIN, "n/-8000000000000000");
        check("", 26, "/1a");
    }

    #[test]
    fn el_1_a_line_is_that_of_its_name_alone() {
        for other in ["l", "l0/1a", "k/1a", "ll/1a"] {
            assert!(!line(b"l").contains(other.as_bytes()), "{other}");
        }
    }
}
