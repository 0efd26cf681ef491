//! Requests that write, and their results.

use std::fmt;

use bytes::Bytes;

use crate::history::{KeyValue, LeaseId};
use crate::key::KeyRange;
use crate::read::{Range, RangeResult};
use crate::revision::Revision;

/// A write of one key.
///
/// ```
/// # use revstore_engine::{Engine, LeaseId, Put};
/// let engine = Engine::builder().build();
/// let lease = engine.grant(None, 60)?.id;
/// engine.put_with(&Put::new("key", "value").attached_to(lease))?;
/// // Write the key again, with a new value and the lease that it has.
/// engine.put_with(&Put::new("key", "other").keeping_lease())?;
/// assert_eq!(engine.get("key").unwrap().lease(), Some(lease));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Put {
    /// The key; must not be empty.
    pub key: Bytes,
    /// The value, or `None` to keep the current one: the key must then be live.
    pub value: Option<Bytes>,
    /// The lease that the key is attached to afterwards. Default: none.
    pub lease: PutLease,
}

/// The effect of a put on the lease of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutLease {
    /// Detaches the key from any lease.
    Detach,
    /// Attaches the key to this lease, which must exist.
    Attach(LeaseId),
    /// Keeps the current lease, if any. The key must be live.
    Keep,
}

impl Put {
    /// Writes `value` and detaches the key from any lease.
    #[inline]
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
            lease: PutLease::Detach,
        }
    }

    /// Writes the current value of the key again, and detaches the key from any lease. The key must
    /// be live.
    pub fn keeping_value(key: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            value: None,
            lease: PutLease::Detach,
        }
    }

    /// Attaches the key to `lease`, which must exist.
    #[must_use]
    pub fn attached_to(self, lease: LeaseId) -> Self {
        self.with_lease(PutLease::Attach(lease))
    }

    /// Keeps the current lease of the key, if any. The key must be live.
    #[must_use]
    pub fn keeping_lease(self) -> Self {
        self.with_lease(PutLease::Keep)
    }

    /// Sets the effect on the lease of the key.
    #[must_use]
    pub fn with_lease(mut self, lease: PutLease) -> Self {
        self.lease = lease;
        self
    }

    /// Returns whether the put keeps the value or the lease of the key, which must then be live.
    pub(super) fn keeps_something(&self) -> bool {
        self.value.is_none() || self.lease == PutLease::Keep
    }
}

/// The result of a [`Put`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutResult {
    /// The revision of the write.
    pub revision: Revision,
    /// The version that the write replaced, if the key was live.
    pub previous: Option<KeyValue>,
}

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteResult {
    /// The new revision if a key was deleted, otherwise the current one.
    pub revision: Revision,
    /// The last versions of the deleted keys, in key order.
    pub deleted: Vec<KeyValue>,
}

/// A condition on the keys of a range. It holds if it holds for every live key of the range.
///
/// For an absent key, and for a range without live keys, every number is 0, and no condition on the
/// value holds.
///
/// The cost for one key is that of a read. For a range it is that of a read of all its keys, up to
/// the first one for which the condition does not hold; other writers wait only while the keys are
/// examined that changed in the meantime.
///
/// ```
/// use revstore_engine::{Compare, Engine, Op, Put, Relation, Txn};
/// let engine = Engine::builder().build();
/// let read = engine.put("config", "1")?;
/// // Write only if nobody has written since, and if there is no lock.
/// let txn = Txn::new()
///     .when([
///         Compare::mod_revision("config", read.revision),
///         Compare::absent("lock"),
///         Compare::version("config", 100).with_relation(Relation::Less),
///     ])
///     .and_then([Op::Put(Put::new("config", "2"))]);
/// assert!(engine.txn(&txn)?.succeeded);
/// assert!(!engine.txn(&txn)?.succeeded);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compare {
    /// The keys.
    pub keys: KeyRange,
    /// The property to compare, and the value to compare it with.
    pub target: CompareTarget,
    /// The required relation.
    pub relation: Relation,
}

impl Compare {
    /// Requires that `target` of all `keys` has this relation to the value in `target`.
    #[inline]
    pub fn new(keys: KeyRange, target: CompareTarget, relation: Relation) -> Self {
        Self {
            keys,
            target,
            relation,
        }
    }

    /// Requires that a key is not live.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self::equal(key, CompareTarget::CreateRevision(0))
    }

    /// Requires that a key is live.
    pub fn exists(key: impl Into<Bytes>) -> Self {
        Self::absent(key).with_relation(Relation::Greater)
    }

    /// Requires that a key was written last at this revision. With revision 0, requires that it is
    /// not live.
    pub fn mod_revision(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self::equal(key, CompareTarget::ModRevision(revision.0))
    }

    /// Requires that a key was created at this revision, and not deleted since. With revision 0,
    /// requires that it is not live.
    pub fn create_revision(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self::equal(key, CompareTarget::CreateRevision(revision.0))
    }

    /// Requires that a key was written this number of times since its creation. With 0, requires
    /// that it is not live.
    pub fn version(key: impl Into<Bytes>, version: i64) -> Self {
        Self::equal(key, CompareTarget::Version(version))
    }

    /// Requires that a key is live and has this value. Also with another relation, the key must be
    /// live.
    pub fn value(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::equal(key, CompareTarget::Value(value.into()))
    }

    /// Requires that a key is attached to this lease, or with `None` that it is not live or not
    /// attached to a lease.
    pub fn lease(key: impl Into<Bytes>, lease: impl Into<Option<LeaseId>>) -> Self {
        let lease = lease.into().map_or(0, LeaseId::get);
        Self::equal(key, CompareTarget::Lease(lease))
    }

    /// Requires another relation of the property to the value.
    #[must_use]
    pub fn with_relation(mut self, relation: Relation) -> Self {
        self.relation = relation;
        self
    }

    fn equal(key: impl Into<Bytes>, target: CompareTarget) -> Self {
        Self::new(KeyRange::one(key), target, Relation::Equal)
    }
}

/// The left side of a [`Compare`], a property of the key, with the right side of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    /// The number of writes since the creation.
    Version(i64),
    /// The create revision.
    CreateRevision(i64),
    /// The mod revision.
    ModRevision(i64),
    /// The value, compared bytewise.
    Value(Bytes),
    /// The lease; 0 is none.
    Lease(i64),
    /// Nothing: equal for every key, absent ones included. etcd treats unknown targets like this.
    Nothing,
}

/// The relation that a [`Compare`] requires of its left side to its right side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The two are equal.
    Equal,
    /// The two are not equal.
    NotEqual,
    /// The left side is greater.
    Greater,
    /// The left side is less.
    Less,
    /// Any relation. etcd treats unknown relations like this.
    Any,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read, which includes the writes before it.
    Range(Range),
    /// A write.
    Put(Put),
    /// A deletion of all live keys of a range.
    Delete(KeyRange),
    /// A nested transaction. Its compares are evaluated against the store before the outermost
    /// transaction.
    Txn(Txn),
}

/// A transaction: if all compares hold, the operations of `success` run, otherwise those of
/// `failure`. They run at one revision, and no other write comes between them.
///
/// Two writes of the same key are accepted and become two events, in order. (etcd rejects most of
/// these; `revstore-grpc` checks that rule.)
///
/// ```
/// use revstore_engine::{Compare, Engine, KeyRange, Op, Put, Range, Txn};
/// let engine = Engine::builder().build();
/// // Create the key if it is absent, otherwise read it.
/// let create = Txn::new()
///     .when([Compare::absent("leader")])
///     .and_then([Op::Put(Put::new("leader", "me"))])
///     .or_else([Op::Range(Range::of(KeyRange::one("leader")))]);
/// assert!(engine.txn(&create)?.succeeded);
/// assert!(!engine.txn(&create)?.succeeded);
/// # Ok::<(), revstore_engine::TxnError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Txn {
    /// The compares. Without any, `success` runs.
    pub compares: Vec<Compare>,
    /// The operations that run if all compares hold.
    pub success: Vec<Op>,
    /// The operations that run otherwise.
    pub failure: Vec<Op>,
}

impl Txn {
    /// Creates a transaction without compares and operations.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds compares.
    #[must_use]
    #[inline]
    pub fn when(mut self, compares: impl IntoIterator<Item = Compare>) -> Self {
        add(&mut self.compares, compares);
        self
    }

    /// Adds operations that run if all compares hold.
    #[must_use]
    #[inline]
    pub fn and_then(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        add(&mut self.success, ops);
        self
    }

    /// Adds operations that run if a compare does not hold.
    #[must_use]
    #[inline]
    pub fn or_else(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        add(&mut self.failure, ops);
        self
    }

    /// Returns the operation at a place, such as that of a [`TxnError`](crate::TxnError), or `None`
    /// if there is none.
    pub fn op(&self, path: &OpPath) -> Option<&Op> {
        let (last, outer) = path.levels().split_last()?;
        let mut txn = self;
        for level in outer {
            let Op::Txn(nested) = txn.op_of_level(*level)? else {
                return None;
            };
            txn = nested;
        }
        txn.op_of_level(*last)
    }

    fn op_of_level(&self, (branch, index): (Branch, usize)) -> Option<&Op> {
        let ops = match branch {
            Branch::Success => &self.success,
            Branch::Failure => &self.failure,
        };
        ops.get(index)
    }
}

/// The two lists of operations of a [`Txn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Branch {
    /// The operations that run if all compares hold.
    Success,
    /// The operations that run otherwise.
    Failure,
}

/// The place of an operation in a transaction: a branch and an index from 0 on, and for an operation
/// of a nested transaction the place of that transaction before it.
///
/// It is displayed as `success[1].failure[0]`: the first operation of the branch `failure` of the
/// nested transaction that is the second operation of the branch `success`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpPath(Vec<(Branch, usize)>);

impl OpPath {
    /// Returns the branch and the index for each level, the outermost transaction first.
    pub fn levels(&self) -> &[(Branch, usize)] {
        &self.0
    }

    /// Adds the place of the transaction that contains the operation.
    pub(crate) fn prepend(&mut self, branch: Branch, index: usize) {
        self.0.insert(0, (branch, index));
    }
}

impl fmt::Display for OpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, (branch, index)) in self.0.iter().enumerate() {
            let dot = if level > 0 { "." } else { "" };
            let branch = match branch {
                Branch::Success => "success",
                Branch::Failure => "failure",
            };
            write!(f, "{dot}{branch}[{index}]")?;
        }
        Ok(())
    }
}

/// Appends items. If `to` is empty and the items are from a vector, its allocation is used.
#[inline]
fn add<T>(to: &mut Vec<T>, items: impl IntoIterator<Item = T>) {
    if to.is_empty() {
        *to = items.into_iter().collect();
    } else {
        to.extend(items);
    }
}

/// The result of a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnResult {
    /// The new revision if the transaction changed something, otherwise the current one.
    pub revision: Revision,
    /// Whether all compares held.
    pub succeeded: bool,
    /// The results of the operations that ran, in order.
    pub results: Vec<OpResult>,
}

/// The result of one [`Op`].
///
/// The revisions in it are those that etcd reports there: the one before the transaction, up to the
/// first change, and the new one after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// The result of a read.
    Range(RangeResult),
    /// The result of a write.
    Put(PutResult),
    /// The result of a deletion.
    Delete(DeleteResult),
    /// The result of a nested transaction.
    Txn(TxnResult),
}
