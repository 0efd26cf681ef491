//! The sequential model: what one thread alone would be told.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use bytes::Bytes;
use revstore_engine::{
    Compare, CompareTarget, KeyRange, LeaseId, Op, Put, PutError, PutLease, Range, Relation, Txn,
    TxnError,
};

use crate::history::{Request, Response, Seen};

/// All living keys.
pub(crate) type Keys = BTreeMap<Bytes, Seen>;

/// What a key became at a position: a version, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) main: i64,
    pub(crate) sub: u32,
    pub(crate) key: Bytes,
    pub(crate) now: Option<Seen>,
}

impl Change {
    pub(crate) fn position(&self) -> (i64, u32) {
        (self.main, self.sub)
    }
}

/// A store in which everything happens one after the other.
///
/// It knows nothing of compaction: what that allows and forbids depends on real time, not on
/// revisions, and is judged in `order.rs`.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The living keys at revision 1, 2, and so on up to the current one.
    states: Vec<Rc<Keys>>,
    revoked: HashSet<LeaseId>,
    pub(crate) changes: Vec<Change>,
}

/// The changes that one transaction has made so far.
struct Work {
    main: i64,
    keys: Keys,
    changes: Vec<Change>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            states: vec![Rc::default()],
            revoked: HashSet::new(),
            changes: Vec::new(),
        }
    }

    pub(crate) fn revision(&self) -> i64 {
        i64::try_from(self.states.len()).expect("few states")
    }

    /// The living keys at a revision, if there is such a revision yet.
    pub(crate) fn at(&self, revision: i64) -> Option<&Rc<Keys>> {
        self.states.get(usize::try_from(revision - 1).ok()?)
    }

    pub(crate) fn now(&self) -> &Keys {
        self.states.last().expect("there is a first state")
    }

    /// The keys that a lease would take with it.
    pub(crate) fn attached(&self, lease: LeaseId) -> Vec<Bytes> {
        let attached = self.now().values().filter(|kv| kv.lease == Some(lease));
        attached.map(|kv| kv.key.clone()).collect()
    }

    /// Runs a request and says what must be answered.
    pub(crate) fn apply(&mut self, request: &Request) -> Response {
        let mut work = Work {
            main: self.revision() + 1,
            keys: self.now().clone(),
            changes: Vec::new(),
        };
        let response = match request {
            Request::Put(put) => self.put(&mut work, put),
            Request::Delete(keys) => Ok(work.delete(keys)),
            Request::Range(range) => Ok(self.range(&work, range)),
            Request::Get(key) => Ok(Response::Got(work.keys.get(key).cloned())),
            Request::Txn(txn) => self.txn(&mut work, txn),
            Request::Revoke(lease) => {
                self.revoked.insert(*lease);
                for key in self.attached(*lease) {
                    work.delete(&KeyRange::One(key));
                }
                let revision = work.revision();
                Ok(Response::Revoked { revision })
            }
            Request::Compact(_) => Ok(Response::Compacted),
            Request::Look => Ok(Response::Revision(self.revision())),
        };
        if response.is_ok() && !work.changes.is_empty() {
            self.states.push(Rc::new(work.keys));
            self.changes.append(&mut work.changes);
        }
        response.unwrap_or_else(Response::Refused)
    }

    fn put(&self, work: &mut Work, put: &Put) -> Result<Response, TxnError> {
        let previous = work.keys.get(&put.key).cloned();
        let lease = match put.lease {
            PutLease::Detach => None,
            PutLease::Attach(lease) if self.revoked.contains(&lease) => {
                return Err(PutError::LeaseNotFound { lease }.into());
            }
            PutLease::Attach(lease) => Some(lease),
            PutLease::Keep => previous.as_ref().ok_or(PutError::KeyNotFound)?.lease,
        };
        let value = match (&put.value, &previous) {
            (Some(value), _) => value.clone(),
            (None, Some(previous)) => previous.value.clone(),
            (None, None) => return Err(PutError::KeyNotFound.into()),
        };
        let main = work.main;
        let now = Seen {
            key: put.key.clone(),
            value,
            create: previous.as_ref().map_or(main, |previous| previous.create),
            modified: main,
            version: previous.as_ref().map_or(1, |previous| previous.version + 1),
            lease,
        };
        work.change(&put.key, Some(now));
        let revision = main;
        Ok(Response::Put { revision, previous })
    }

    fn txn(&self, work: &mut Work, txn: &Txn) -> Result<Response, TxnError> {
        // TXN-20: compares see the store as it was.
        let succeeded = txn.compares.iter().all(|one| holds(self.now(), one));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        let mut results = Vec::new();
        for op in ops {
            results.push(match op {
                Op::Put(put) => self.put(work, put)?,
                Op::Delete(keys) => work.delete(keys),
                Op::Range(range) => self.range(work, range),
                Op::Txn(txn) => self.txn(work, txn)?,
            });
        }
        let revision = work.revision();
        Ok(Response::Txn {
            revision,
            succeeded,
            results,
        })
    }

    /// A read of a revision that there is not is answered with what there is; such a request is
    /// judged by its refusal and never comes here.
    fn range(&self, work: &Work, range: &Range) -> Response {
        let keys = match range.at {
            Some(at) => self.at(at.0).map_or(&work.keys, |keys| keys),
            None => &work.keys,
        };
        let found = keys.values().filter(|kv| range.keys.contains(&kv.key));
        let mut kvs: Vec<Seen> = found.cloned().collect();
        let count = kvs.len();
        let limit = range.limit.unwrap_or(usize::MAX);
        let more = !range.count_only && count > limit;
        kvs.truncate(if range.count_only { 0 } else { limit });
        Response::Range {
            revision: work.revision(),
            kvs,
            more,
            count,
        }
    }
}

impl Work {
    fn change(&mut self, key: &Bytes, now: Option<Seen>) {
        match &now {
            Some(now) => self.keys.insert(key.clone(), now.clone()),
            None => self.keys.remove(key),
        };
        self.changes.push(Change {
            main: self.main,
            sub: u32::try_from(self.changes.len()).expect("few changes"),
            key: key.clone(),
            now,
        });
    }

    fn delete(&mut self, keys: &KeyRange) -> Response {
        let doomed = self.keys.values().filter(|kv| keys.contains(&kv.key));
        let deleted: Vec<Seen> = doomed.cloned().collect();
        for kv in &deleted {
            self.change(&kv.key, None);
        }
        let revision = self.revision();
        Response::Delete { revision, deleted }
    }

    /// DM-23: the old revision before the first change, the new one after it.
    fn revision(&self) -> i64 {
        self.main - i64::from(self.changes.is_empty())
    }
}

fn holds(keys: &Keys, compare: &Compare) -> bool {
    let holds_for = |kv: Option<&Seen>| {
        let number = |of: fn(&Seen) -> i64| kv.map_or(0, of);
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
