//! The sequential model: the responses that a store with one thread would give.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use revstore_engine::{
    Compare, CompareTarget, KeyRange, LeaseId, Op, Put, PutError, PutLease, Range, Relation, Txn,
};

use crate::history::{Failure, KeyVersion, Request, Response};

/// The live keys.
pub(crate) type Keys = BTreeMap<Bytes, KeyVersion>;

/// A change of a key: its new version, or `None` for a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) revision: i64,
    pub(crate) sub: u32,
    pub(crate) key: Bytes,
    pub(crate) version: Option<KeyVersion>,
}

impl Change {
    pub(crate) fn position(&self) -> (i64, u32) {
        (self.revision, self.sub)
    }
}

/// A store that runs one operation after the other.
///
/// It does not model compaction: the responses that a compaction allows depend on real time, not on
/// revisions, and `order.rs` checks them.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The live keys at each revision, from 1 to the current one.
    states: Vec<Rc<Keys>>,
    pub(crate) changes: Vec<Change>,
}

/// The changes of one transaction so far.
struct ModelTxn {
    revision: i64,
    keys: Keys,
    changes: Vec<Change>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            states: vec![Rc::default()],
            changes: Vec::new(),
        }
    }

    pub(crate) fn revision(&self) -> i64 {
        i64::try_from(self.states.len()).expect("few states")
    }

    /// Returns the live keys at a revision, or `None` above the current one.
    pub(crate) fn at(&self, revision: i64) -> Option<&Rc<Keys>> {
        self.states.get(usize::try_from(revision - 1).ok()?)
    }

    pub(crate) fn live_keys(&self) -> &Keys {
        self.states.last().expect("there is a first state")
    }

    /// Returns the keys attached to a lease.
    pub(crate) fn attached(&self, lease: LeaseId) -> Vec<Bytes> {
        let attached = self
            .live_keys()
            .values()
            .filter(|kv| kv.lease == Some(lease));
        attached.map(|kv| kv.key.clone()).collect()
    }

    /// Runs a request and returns the expected response.
    pub(crate) fn apply(&mut self, request: &Request) -> Response {
        let mut work = ModelTxn {
            revision: self.revision() + 1,
            keys: self.live_keys().clone(),
            changes: Vec::new(),
        };
        let response = match request {
            Request::Put(put) => Self::put(&mut work, put),
            Request::Delete(keys) => Ok(work.delete(keys)),
            Request::Range(range) => Ok(self.range(&work, range)),
            Request::Get(key) => Ok(Response::Get(work.keys.get(key).cloned())),
            Request::Txn(txn) => self.txn(&mut work, txn),
            Request::Revoke(lease) => {
                for key in self.attached(*lease) {
                    work.delete(&KeyRange::One(key));
                }
                let revision = work.reported_revision();
                Ok(Response::Revoked { revision })
            }
            Request::Expire { lease, keys } if self.attached(*lease) == *keys => {
                for key in keys {
                    work.delete(&KeyRange::One(key.clone()));
                }
                let revision = work.reported_revision();
                Ok(Response::Expired { revision })
            }
            // An expiry deletes all keys of its lease, and no others (LE-7).
            Request::Expire { .. } => Ok(Response::LeaseNotFound),
            Request::Grant(_) | Request::KeepAlive(_) | Request::Advance => {
                unreachable!("responses without a revision are not replayed")
            }
            Request::ReadSnapshot { at, keys } => {
                let live = self.at(*at).map_or(&work.keys, |keys| keys);
                let found = live.values().filter(|kv| keys.contains(&kv.key));
                Ok(Response::Snapshot(found.cloned().collect()))
            }
            Request::Compact(_) => Ok(Response::Compacted),
            Request::CurrentRevision => Ok(Response::Revision(self.revision())),
        };
        if response.is_ok() && !work.changes.is_empty() {
            self.states.push(Rc::new(work.keys));
            self.changes.append(&mut work.changes);
        }
        response.unwrap_or_else(Response::Failed)
    }

    fn put(work: &mut ModelTxn, put: &Put) -> Result<Response, Failure> {
        let previous = work.keys.get(&put.key).cloned();
        let lease = match put.lease {
            PutLease::Detach => None,
            PutLease::Attach(lease) => Some(lease),
            PutLease::Keep => previous.as_ref().ok_or(PutError::KeyNotFound)?.lease,
        };
        let value = match (&put.value, &previous) {
            (Some(value), _) => value.clone(),
            (None, Some(previous)) => previous.value.clone(),
            (None, None) => return Err(PutError::KeyNotFound.into()),
        };
        let revision = work.revision;
        let version = KeyVersion {
            key: put.key.clone(),
            value,
            create: previous
                .as_ref()
                .map_or(revision, |previous| previous.create),
            modified: revision,
            version: previous.as_ref().map_or(1, |previous| previous.version + 1),
            lease,
        };
        work.change(&put.key, Some(version));
        Ok(Response::Put { revision, previous })
    }

    fn txn(&self, work: &mut ModelTxn, txn: &Txn) -> Result<Response, Failure> {
        // TXN-20: compares are evaluated against the store before the transaction.
        let current = self.live_keys();
        let succeeded = txn.compares.iter().all(|compare| holds(current, compare));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        let mut results = Vec::new();
        for op in ops {
            results.push(match op {
                Op::Put(put) => Self::put(work, put)?,
                Op::Delete(keys) => work.delete(keys),
                Op::Range(range) => self.range(work, range),
                Op::Txn(txn) => self.txn(work, txn)?,
            });
        }
        let revision = work.reported_revision();
        Ok(Response::Txn {
            revision,
            succeeded,
            results,
        })
    }

    /// A request above the current revision is not modelled: it fails, and `order.rs` checks the
    /// error.
    fn range(&self, work: &ModelTxn, range: &Range) -> Response {
        let keys = match range.at {
            Some(at) => self.at(at.0).map_or(&work.keys, |keys| keys),
            None => &work.keys,
        };
        let found = keys.values().filter(|kv| range.keys.contains(&kv.key));
        let mut kvs: Vec<KeyVersion> = found.cloned().collect();
        let count = kvs.len();
        let limit = range.limit.unwrap_or(usize::MAX);
        let more = !range.count_only && count > limit;
        kvs.truncate(if range.count_only { 0 } else { limit });
        Response::Range {
            revision: work.reported_revision(),
            kvs,
            more,
            count,
        }
    }
}

impl ModelTxn {
    fn change(&mut self, key: &Bytes, version: Option<KeyVersion>) {
        match &version {
            Some(version) => self.keys.insert(key.clone(), version.clone()),
            None => self.keys.remove(key),
        };
        self.changes.push(Change {
            revision: self.revision,
            sub: u32::try_from(self.changes.len()).expect("few changes"),
            key: key.clone(),
            version,
        });
    }

    fn delete(&mut self, keys: &KeyRange) -> Response {
        let in_range = self.keys.values().filter(|kv| keys.contains(&kv.key));
        let deleted: Vec<KeyVersion> = in_range.cloned().collect();
        for kv in &deleted {
            self.change(&kv.key, None);
        }
        let revision = self.reported_revision();
        Response::Delete { revision, deleted }
    }

    /// DM-23: the previous revision before the first change, the new one after it.
    fn reported_revision(&self) -> i64 {
        self.revision - i64::from(self.changes.is_empty())
    }
}

fn holds(keys: &Keys, compare: &Compare) -> bool {
    let holds_for = |kv: Option<&KeyVersion>| {
        let number = |of: fn(&KeyVersion) -> i64| kv.map_or(0, of);
        let ordering = match &compare.target {
            CompareTarget::Version(right) => number(|kv| kv.version).cmp(right),
            CompareTarget::CreateRevision(right) => number(|kv| kv.create).cmp(right),
            CompareTarget::ModRevision(right) => number(|kv| kv.modified).cmp(right),
            CompareTarget::Lease(right) => number(|kv| kv.lease.map_or(0, LeaseId::get)).cmp(right),
            CompareTarget::Value(right) => match kv {
                Some(kv) => kv.value.cmp(right),
                None => return false,
            },
            CompareTarget::Nothing => Ordering::Equal,
        };
        match compare.relation {
            Relation::Equal => ordering.is_eq(),
            Relation::NotEqual => ordering.is_ne(),
            Relation::Greater => ordering.is_gt(),
            Relation::Less => ordering.is_lt(),
            Relation::Any => true,
        }
    };
    let mut found = keys
        .values()
        .filter(|kv| compare.keys.contains(&kv.key))
        .peekable();
    if found.peek().is_none() {
        return holds_for(None);
    }
    found.all(|kv| holds_for(Some(kv)))
}
