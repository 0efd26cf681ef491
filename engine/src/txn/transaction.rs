//! Transactions: compares decide between two lists of operations.

use bytes::Bytes;

use super::commit::{PreparedPut, Writer};
use crate::compaction::Pin;
use crate::error::{PutError, ReadError, TxnError};
use crate::history::{KeyValue, LeaseId, PUT_BYTES_MAX};
use crate::key::KeyRange;
use crate::read::{Range, RangeResult};
use crate::revision::{Position, Revision};
use crate::store::Store;

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

    /// Whether the put needs a version to keep something of.
    fn keeps(&self) -> bool {
        self.value.is_none() || self.lease == PutLease::Keep
    }
}

impl Compare {
    fn holds(&self, store: &Store, at: Position) -> bool {
        let range = Range::of(self.keys.clone());
        let found = store.range_at(&range, at, at.revision);
        if found.kvs.is_empty() {
            return self.holds_for(None);
        }
        found.kvs.iter().all(|kv| self.holds_for(Some(kv)))
    }

    fn holds_for(&self, kv: Option<&KeyValue>) -> bool {
        use std::cmp::Ordering;
        let number = |of: fn(&KeyValue) -> i64| kv.map_or(0, of);
        let ordering = match &self.target {
            CompareTarget::Version(right) => number(KeyValue::version).cmp(right),
            CompareTarget::CreateRevision(right) => number(|kv| kv.create_revision().0).cmp(right),
            CompareTarget::ModRevision(right) => number(|kv| kv.mod_revision().0).cmp(right),
            CompareTarget::Lease(right) => {
                number(|kv| kv.lease().map_or(0, LeaseId::get)).cmp(right)
            }
            CompareTarget::Value(right) => match kv {
                Some(kv) => kv.value().cmp(right),
                // CMP-2: nothing can be said of the value of an absent key.
                None => return false,
            },
            CompareTarget::Nothing => Ordering::Equal,
        };
        match self.relation {
            Relation::Equal => ordering.is_eq(),
            Relation::NotEqual => ordering.is_ne(),
            Relation::Greater => ordering.is_gt(),
            Relation::Less => ordering.is_lt(),
            Relation::Any => true,
        }
    }
}

/// An operation with everything done that needs no lock.
#[derive(Debug)]
enum Prepared<'a> {
    Range(&'a Range),
    Put {
        put: &'a Put,
        prepared: Option<PreparedPut>,
    },
    Delete(&'a KeyRange),
    Txn(PreparedTxn<'a>),
}

#[derive(Debug)]
struct PreparedTxn<'a> {
    compares: &'a [Compare],
    success: Vec<Prepared<'a>>,
    failure: Vec<Prepared<'a>>,
}

/// A transaction whose compares are decided: only the operations that will run are left.
#[derive(Debug)]
struct Decided<'a> {
    succeeded: bool,
    ops: Vec<DecidedOp<'a>>,
}

#[derive(Debug)]
enum DecidedOp<'a> {
    Range(&'a Range),
    Put {
        put: &'a Put,
        prepared: Option<PreparedPut>,
    },
    Delete(&'a KeyRange),
    Txn(Decided<'a>),
}

/// A write of a transaction that a later put of the same transaction may depend on.
#[derive(Clone, Copy, Debug)]
enum Write<'a> {
    Put(&'a Bytes),
    Delete(&'a KeyRange),
}

/// A range that is read after the sequencer is released, at the position it saw.
#[derive(Debug)]
struct Deferred<'a> {
    range: &'a Range,
    at: Position,
    revision: Revision,
}

/// What an operation left behind under the sequencer.
#[derive(Debug)]
enum Applied<'a> {
    Done(OpResult),
    Deferred(Deferred<'a>),
    Txn {
        revision: Revision,
        succeeded: bool,
        ops: Vec<Applied<'a>>,
    },
}

impl Store {
    pub(crate) fn put(&self, put: &Put) -> Result<PutResult, PutError> {
        let mut prepared = self.prepare(put)?;
        let committed = self.commit(|writer| {
            // PUT-6 comes before PUT-4.
            check_lease(writer, put)?;
            check_kept(writer, put)?;
            Ok(apply_put(writer, put, prepared.take()))
        })?;
        Ok(PutResult {
            revision: committed.revision,
            previous: committed.value,
        })
    }

    pub(crate) fn delete(&self, keys: &KeyRange) -> DeleteResult {
        let Ok(committed) =
            self.commit(|writer| Ok::<_, std::convert::Infallible>(writer.delete(keys)));
        DeleteResult {
            revision: committed.revision,
            deleted: committed.value,
        }
    }

    pub(crate) fn txn(&self, txn: &Txn) -> Result<TxnResult, TxnError> {
        let prepared = prepare_txn(self, txn)?;
        let mut pin: Option<Pin<'_>> = None;
        let committed = self.commit(|writer| {
            let decided = decide(self, prepared, writer.position());
            check(writer, &decided)?;
            let mut deferred = None;
            let applied = apply(writer, decided, &mut deferred);
            // The history that the deferred ranges need stays until they are done.
            pin = deferred.map(|oldest| self.pins.pin(oldest));
            Ok::<_, TxnError>(applied)
        })?;
        let results = finish(self, committed.value.ops);
        drop(pin);
        let succeeded = committed.value.succeeded;
        Ok(TxnResult {
            revision: committed.revision,
            succeeded,
            results,
        })
    }

    fn prepare(&self, put: &Put) -> Result<Option<PreparedPut>, PutError> {
        if put.key.is_empty() {
            return Err(PutError::EmptyKey);
        }
        let value_len = put.value.as_ref().map_or(0, Bytes::len);
        if put.key.len().max(value_len) > PUT_BYTES_MAX {
            return Err(PutError::TooLarge);
        }
        let with_lease = put.lease != PutLease::Detach;
        Ok(put
            .value
            .as_ref()
            .map(|value| self.prepare_put(&put.key, value, with_lease)))
    }
}

fn prepare_txn<'a>(store: &Store, txn: &'a Txn) -> Result<PreparedTxn<'a>, TxnError> {
    let prepare = |ops: &'a [Op]| -> Result<Vec<_>, TxnError> {
        ops.iter().map(|op| prepare_op(store, op)).collect()
    };
    Ok(PreparedTxn {
        compares: &txn.compares,
        success: prepare(&txn.success)?,
        failure: prepare(&txn.failure)?,
    })
}

fn prepare_op<'a>(store: &Store, op: &'a Op) -> Result<Prepared<'a>, TxnError> {
    Ok(match op {
        Op::Range(range) => Prepared::Range(range),
        Op::Put(put) => Prepared::Put {
            put,
            prepared: store.prepare(put)?,
        },
        Op::Delete(keys) => Prepared::Delete(keys),
        Op::Txn(txn) => Prepared::Txn(prepare_txn(store, txn)?),
    })
}

/// Decides every compare on the way, all against the store before the transaction (TXN-20).
fn decide<'a>(store: &Store, txn: PreparedTxn<'a>, before: Position) -> Decided<'a> {
    let succeeded = txn
        .compares
        .iter()
        .all(|compare| compare.holds(store, before));
    let branch = if succeeded { txn.success } else { txn.failure };
    let ops = branch.into_iter().map(|op| match op {
        Prepared::Range(range) => DecidedOp::Range(range),
        Prepared::Put { put, prepared } => DecidedOp::Put { put, prepared },
        Prepared::Delete(keys) => DecidedOp::Delete(keys),
        Prepared::Txn(txn) => DecidedOp::Txn(decide(store, txn, before)),
    });
    Decided {
        succeeded,
        ops: ops.collect(),
    }
}

/// TXN-22: whether all that will run can run, before any of it does. All writes come first, nested
/// ones included, so that a put that cannot be done is told before a range that cannot be read.
fn check(writer: &Writer<'_>, txn: &Decided<'_>) -> Result<(), TxnError> {
    check_writes(writer, txn, &mut Vec::new())?;
    check_ranges(writer, txn)
}

fn check_writes<'a>(
    writer: &Writer<'_>,
    txn: &Decided<'a>,
    earlier: &mut Vec<Write<'a>>,
) -> Result<(), TxnError> {
    for op in &txn.ops {
        match op {
            DecidedOp::Range(_) => {}
            DecidedOp::Put { put, .. } => {
                check_kept(writer, put)?;
                check_not_deleted(put, earlier)?;
                check_lease(writer, put)?;
                earlier.push(Write::Put(&put.key));
            }
            DecidedOp::Delete(keys) => earlier.push(Write::Delete(keys)),
            DecidedOp::Txn(txn) => check_writes(writer, txn, earlier)?,
        }
    }
    Ok(())
}

fn check_ranges(writer: &Writer<'_>, txn: &Decided<'_>) -> Result<(), TxnError> {
    txn.ops.iter().try_for_each(|op| match op {
        DecidedOp::Range(range) => check_range(writer, range).map_err(TxnError::from),
        DecidedOp::Txn(txn) => check_ranges(writer, txn),
        DecidedOp::Put { .. } | DecidedOp::Delete(_) => Ok(()),
    })
}

fn check_range(writer: &Writer<'_>, range: &Range) -> Result<(), ReadError> {
    // TXN-24: also after a write, the newest revision to ask for is the one before the transaction.
    match range.at {
        Some(requested) => writer.store().check_readable(requested, writer.revision()),
        None => Ok(()),
    }
}

fn check_lease(writer: &Writer<'_>, put: &Put) -> Result<(), PutError> {
    match put.lease {
        PutLease::Attach(lease) if !writer.store().lessor.exists(lease) => {
            Err(PutError::LeaseNotFound { lease })
        }
        _ => Ok(()),
    }
}

/// PUT-4, TXN-23: what a put keeps must exist before the transaction.
fn check_kept(writer: &Writer<'_>, put: &Put) -> Result<(), PutError> {
    if put.keeps() && writer.get(&put.key).is_none() {
        return Err(PutError::KeyNotFound);
    }
    Ok(())
}

/// TXN-10: ... and must not be deleted by an earlier operation of it.
fn check_not_deleted(put: &Put, earlier: &[Write<'_>]) -> Result<(), PutError> {
    if !put.keeps() {
        return Ok(());
    }
    let last = earlier.iter().rev().find(|write| match write {
        Write::Put(key) => **key == put.key,
        Write::Delete(keys) => keys.contains(&put.key),
    });
    match last {
        Some(Write::Delete(_)) => Err(PutError::KeyNotFound),
        Some(Write::Put(_)) | None => Ok(()),
    }
}

/// Writes what was decided; `deferred` becomes the oldest position that a range is yet to be read at.
fn apply<'a>(
    writer: &mut Writer<'_>,
    txn: Decided<'a>,
    deferred: &mut Option<Position>,
) -> AppliedTxn<'a> {
    let ops = txn.ops.into_iter().map(|op| match op {
        DecidedOp::Range(range) => apply_range(writer, range, deferred),
        DecidedOp::Put { put, prepared } => {
            let previous = apply_put(writer, put, prepared);
            Applied::Done(OpResult::Put(PutResult {
                revision: writer.revision(),
                previous,
            }))
        }
        DecidedOp::Delete(keys) => {
            let deleted = writer.delete(keys);
            Applied::Done(OpResult::Delete(DeleteResult {
                revision: writer.revision(),
                deleted,
            }))
        }
        DecidedOp::Txn(txn) => {
            let AppliedTxn { succeeded, ops } = apply(writer, txn, deferred);
            Applied::Txn {
                revision: writer.revision(),
                succeeded,
                ops,
            }
        }
    });
    AppliedTxn {
        ops: ops.collect(),
        succeeded: txn.succeeded,
    }
}

#[derive(Debug)]
struct AppliedTxn<'a> {
    succeeded: bool,
    ops: Vec<Applied<'a>>,
}

/// One key is read on the spot; a range only notes what it sees, and is read with no lock held.
fn apply_range<'a>(
    writer: &Writer<'_>,
    range: &'a Range,
    deferred: &mut Option<Position>,
) -> Applied<'a> {
    let at = range.at.map_or_else(|| writer.position(), Revision::end);
    let revision = writer.revision();
    if matches!(range.keys, KeyRange::One(_)) {
        return Applied::Done(OpResult::Range(
            writer.store().range_at(range, at, revision),
        ));
    }
    *deferred = Some(deferred.map_or(at, |oldest| oldest.min(at)));
    Applied::Deferred(Deferred {
        range,
        at,
        revision,
    })
}

fn apply_put(
    writer: &mut Writer<'_>,
    put: &Put,
    prepared: Option<PreparedPut>,
) -> Option<KeyValue> {
    let kept = if put.keeps() {
        writer.get(&put.key)
    } else {
        None
    };
    let prepared = prepared.unwrap_or_else(|| {
        let value = kept.as_ref().map_or(&[][..], KeyValue::value);
        writer
            .store()
            .prepare_put(&put.key, value, put.lease != PutLease::Detach)
    });
    let lease = match put.lease {
        PutLease::Detach => None,
        PutLease::Attach(lease) => Some(lease),
        PutLease::Keep => kept.as_ref().and_then(KeyValue::lease),
    };
    writer.put(prepared, lease)
}

/// Reads what was deferred.
fn finish(store: &Store, ops: Vec<Applied<'_>>) -> Vec<OpResult> {
    let finish_op = |op| match op {
        Applied::Done(result) => result,
        Applied::Deferred(Deferred {
            range,
            at,
            revision,
        }) => OpResult::Range(store.range_at(range, at, revision)),
        Applied::Txn {
            revision,
            succeeded,
            ops,
        } => OpResult::Txn(TxnResult {
            revision,
            succeeded,
            results: finish(store, ops),
        }),
    };
    ops.into_iter().map(finish_op).collect()
}
