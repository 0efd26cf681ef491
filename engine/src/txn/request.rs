//! Requests that write, and their results.

use bytes::Bytes;

use crate::history::{KeyValue, LeaseId};
use crate::key::KeyRange;
use crate::read::{Range, RangeResult};
use crate::revision::Revision;

/// A write of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key; must not be empty.
    pub key: Bytes,
    /// The value, or nothing to keep the present one (PUT-5).
    pub value: Option<Bytes>,
    /// The lease to attach the key to.
    pub lease: PutLease,
}

/// What a put does with the key's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutLease {
    /// Detaches the key (PUT-7).
    Detach,
    /// Attaches the key to this lease, which must exist (PUT-6).
    Attach(LeaseId),
    /// Keeps the present one (PUT-5); the key must exist.
    Keep,
}

/// What a put did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutResult {
    /// The revision of the write.
    pub revision: Revision,
    /// The version that the write replaced, if the key was alive (PUT-2).
    pub previous: Option<KeyValue>,
}

/// What a deletion did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteResult {
    /// The new revision if anything was deleted, else the current one (DM-21).
    pub revision: Revision,
    /// The last versions of the deleted keys, in key order.
    pub deleted: Vec<KeyValue>,
}

/// A condition on the keys of a range: it holds if every key there satisfies it (CMP-3).
///
/// An absent key, and a range without keys, reads as 0 in every number and never satisfies a
/// condition on its value (CMP-1, CMP-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The keys.
    pub keys: KeyRange,
    /// What to compare, and with what.
    pub target: CompareTarget,
    /// How it must compare.
    pub relation: Relation,
}

/// What a [`Compare`] looks at, and the operand on the right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    /// The number of writes since creation.
    Version(i64),
    /// The create revision.
    CreateRevision(i64),
    /// The mod revision.
    ModRevision(i64),
    /// The value, bytewise (CMP-6).
    Value(Bytes),
    /// The lease; 0 is none.
    Lease(i64),
    /// Nothing: equal to everything, also on absent keys. What etcd makes of targets that it does
    /// not know (CMP-5).
    Nothing,
}

/// How the left side of a [`Compare`] must stand to the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
    /// Left is larger.
    Greater,
    /// Left is smaller.
    Less,
    /// Anyhow. What etcd makes of relations that it does not know (CMP-5).
    Any,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read, which sees the writes before it (TXN-21).
    Range(Range),
    /// A write.
    Put(Put),
    /// A deletion of all living keys of a range.
    Delete(KeyRange),
    /// A transaction inside; its compares see the store as it was before everything (TXN-20).
    Txn(Txn),
}

/// A transaction: if all compares hold, the operations of `success` run, else those of `failure`, all
/// at one revision and alone.
///
/// The engine accepts two writes of one key; they become two events in order. That etcd refuses most
/// of those is a rule for requests (TXN-5), and is checked where requests are.
///
/// ```
/// use revstore_engine::{Compare, CompareTarget, Engine, KeyRange, Op, Put, Range, Relation, Txn};
/// let engine = Engine::builder().build();
/// // Create the key if it is not there, else read it.
/// let create = Txn {
///     compares: vec![Compare {
///         keys: KeyRange::one("leader"),
///         target: CompareTarget::CreateRevision(0),
///         relation: Relation::Equal,
///     }],
///     success: vec![Op::Put(Put::new("leader", "me"))],
///     failure: vec![Op::Range(Range::of(KeyRange::one("leader")))],
/// };
/// assert!(engine.txn(&create)?.succeeded);
/// assert!(!engine.txn(&create)?.succeeded);
/// # Ok::<(), revstore_engine::TxnError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold; none at all do (TXN-27).
    pub compares: Vec<Compare>,
    /// What runs if they hold.
    pub success: Vec<Op>,
    /// What runs otherwise.
    pub failure: Vec<Op>,
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResult {
    /// The new revision if anything changed, else the current one (DM-22).
    pub revision: Revision,
    /// Whether the compares held.
    pub succeeded: bool,
    /// One result for each operation that ran, in order (TXN-26).
    pub results: Vec<OpResult>,
}

/// What one operation of a transaction did. The revisions inside are those that etcd reports there:
/// the old one before the first change of the transaction, the new one after it (DM-23).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// What a read found.
    Range(RangeResult),
    /// What a write did.
    Put(PutResult),
    /// What a deletion did.
    Delete(DeleteResult),
    /// What the transaction inside did.
    Txn(TxnResult),
}

impl Put {
    /// Writes `value` and detaches the key from any lease.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
            lease: PutLease::Detach,
        }
    }

    /// Attaches the key to `lease`.
    #[must_use]
    pub fn attached_to(self, lease: LeaseId) -> Self {
        Self {
            lease: PutLease::Attach(lease),
            ..self
        }
    }

    /// Returns whether the put keeps the value or the lease of the key, which must then be live.
    pub(super) fn keeps_something(&self) -> bool {
        self.value.is_none() || self.lease == PutLease::Keep
    }
}
