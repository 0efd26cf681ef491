//! Transactions: the decision which operations run, the checks, and the results.
//!
//! | step | sequencer | does |
//! |---|---|---|
//! | `prepare` | free | checks sizes, looks keys up, copies values into pending records |
//! | [`compare::begin`] | free, then held | evaluates the compares of ranges |
//! | `decide` | held | evaluates the compares of single keys, keeps the operations that will run |
//! | `check` | held | returns an error if one of these cannot run |
//! | `apply` | held | writes, and reads single keys |
//! | [`Writer::commit`] | released | publishes and notifies |
//! | `finish` | free | reads the ranges, each at the position of its operation |

use bytes::Bytes;

use super::commit::Writer;
use super::compare::{self, Compares};
use super::request::{
    Branch, Compare, DeleteResult, Op, OpResult, Put, PutLease, PutResult, Txn, TxnResult,
};
use crate::error::{PutError, ReadError, TxnError, WriteError};
use crate::history::{KeyValue, PUT_BYTES_MAX, PendingRecord};
use crate::key::KeyRange;
use crate::read::Range;
use crate::revision::{Position, Revision};
use crate::store::Store;

/// Writes one key.
pub(crate) fn put(store: &Store, put: &Put) -> Result<PutResult, PutError> {
    let pending = prepare_put(store, put)?;
    let mut writer = Writer::begin(store)?;
    // PUT-6 comes before PUT-4.
    check_lease(&writer, put)?;
    check_kept(&writer, put)?;
    let previous = apply_put(&mut writer, put, pending);
    Ok(PutResult {
        revision: writer.commit(),
        previous,
    })
}

/// Deletes the live keys of a range.
pub(crate) fn delete(store: &Store, keys: &KeyRange) -> Result<DeleteResult, WriteError> {
    let mut writer = Writer::begin(store)?;
    let deleted = writer.delete(keys);
    Ok(DeleteResult {
        revision: writer.commit(),
        deleted,
    })
}

/// Runs a transaction.
pub(crate) fn txn(store: &Store, txn: &Txn) -> Result<TxnResult, TxnError> {
    let prepared = prepare(store, txn)?;
    let mut compares = Compares::default();
    let mut writer = compare::begin(store, txn, &mut compares)?;
    let decided = decide(store, prepared, &compares, writer.position());
    check(&writer, &decided)?;
    let mut oldest_deferred = None;
    let applied = apply(&mut writer, decided, &mut oldest_deferred);
    // Taken under the sequencer: keeps the history that the deferred ranges need.
    let _pin = oldest_deferred.map(|oldest| store.pins.pin(oldest));
    Ok(TxnResult {
        revision: writer.commit(),
        succeeded: applied.succeeded,
        results: finish(store, applied.ops),
    })
}

/// A transaction after its values were copied and its keys looked up.
#[derive(Debug)]
struct PreparedTxn<'a> {
    compares: &'a [Compare],
    success: Vec<PreparedOp<'a>>,
    failure: Vec<PreparedOp<'a>>,
}

#[derive(Debug)]
enum PreparedOp<'a> {
    Range(&'a Range),
    Put {
        put: &'a Put,
        pending: Option<PendingRecord>,
    },
    Delete(&'a KeyRange),
    Txn(PreparedTxn<'a>),
}

/// A transaction after its compares were evaluated: contains only the operations that will run.
#[derive(Debug)]
struct DecidedTxn<'a> {
    succeeded: bool,
    ops: Vec<DecidedOp<'a>>,
}

impl<'a> DecidedTxn<'a> {
    /// Calls `check` with each operation until one fails, and adds the place of that one.
    fn check_ops(
        &self,
        mut check: impl FnMut(&DecidedOp<'a>) -> Result<(), TxnError>,
    ) -> Result<(), TxnError> {
        let branch = if self.succeeded {
            Branch::Success
        } else {
            Branch::Failure
        };
        for (index, op) in self.ops.iter().enumerate() {
            check(op).map_err(|error| error.inside(branch, index))?;
        }
        Ok(())
    }
}

#[derive(Debug)]
enum DecidedOp<'a> {
    Range(&'a Range),
    Put {
        put: &'a Put,
        pending: Option<PendingRecord>,
    },
    Delete(&'a KeyRange),
    Txn(DecidedTxn<'a>),
}

/// A transaction after its writes were stored. Its ranges are read later.
#[derive(Debug)]
struct AppliedTxn<'a> {
    succeeded: bool,
    ops: Vec<AppliedOp<'a>>,
}

#[derive(Debug)]
enum AppliedOp<'a> {
    Done(OpResult),
    Deferred(DeferredRange<'a>),
    Txn {
        revision: Revision,
        txn: AppliedTxn<'a>,
    },
}

/// A range that is read after the sequencer is released, at the position of its operation.
#[derive(Debug)]
struct DeferredRange<'a> {
    range: &'a Range,
    at: Position,
    revision: Revision,
}

fn prepare<'a>(store: &Store, txn: &'a Txn) -> Result<PreparedTxn<'a>, TxnError> {
    let prepare_ops = |branch, ops: &'a [Op]| -> Result<Vec<_>, TxnError> {
        let prepare = |(index, op)| {
            prepare_op(store, op).map_err(|error: TxnError| error.inside(branch, index))
        };
        ops.iter().enumerate().map(prepare).collect()
    };
    Ok(PreparedTxn {
        compares: &txn.compares,
        success: prepare_ops(Branch::Success, &txn.success)?,
        failure: prepare_ops(Branch::Failure, &txn.failure)?,
    })
}

fn prepare_op<'a>(store: &Store, op: &'a Op) -> Result<PreparedOp<'a>, TxnError> {
    Ok(match op {
        Op::Range(range) => PreparedOp::Range(range),
        Op::Put(put) => PreparedOp::Put {
            put,
            pending: prepare_put(store, put).map_err(TxnError::put)?,
        },
        Op::Delete(keys) => PreparedOp::Delete(keys),
        Op::Txn(txn) => PreparedOp::Txn(prepare(store, txn)?),
    })
}

/// Copies the value of a put into a record. Returns `None` if the put keeps the value of the key,
/// which is known only under the sequencer.
fn prepare_put(store: &Store, put: &Put) -> Result<Option<PendingRecord>, PutError> {
    if put.key.is_empty() {
        return Err(PutError::EmptyKey);
    }
    let value_len = put.value.as_ref().map_or(0, Bytes::len);
    if put.key.len().max(value_len) > PUT_BYTES_MAX {
        return Err(PutError::TooLarge);
    }
    let value = put.value.as_ref();
    Ok(value.map(|value| pending_record(store, put, value)))
}

fn pending_record(store: &Store, put: &Put, value: &[u8]) -> PendingRecord {
    let with_lease = put.lease != PutLease::Detach;
    match store.index.get(&put.key) {
        Some(entry) => PendingRecord::for_entry(entry, value, with_lease),
        None => PendingRecord::for_new_key(&put.key, value, with_lease),
    }
}

/// Evaluates the compares of the transaction and of those nested in it, all against the store
/// before the transaction (TXN-20).
fn decide<'a>(
    store: &Store,
    txn: PreparedTxn<'a>,
    compares: &Compares,
    before: Position,
) -> DecidedTxn<'a> {
    let succeeded = txn
        .compares
        .iter()
        .all(|compare| compares.hold(compare, store, before));
    let branch = if succeeded { txn.success } else { txn.failure };
    let ops = branch.into_iter().map(|op| match op {
        PreparedOp::Range(range) => DecidedOp::Range(range),
        PreparedOp::Put { put, pending } => DecidedOp::Put { put, pending },
        PreparedOp::Delete(keys) => DecidedOp::Delete(keys),
        PreparedOp::Txn(txn) => DecidedOp::Txn(decide(store, txn, compares, before)),
    });
    DecidedTxn {
        succeeded,
        ops: ops.collect(),
    }
}

/// A write of a transaction, for the checks of later puts of the same transaction.
#[derive(Clone, Copy, Debug)]
enum EarlierWrite<'a> {
    Put(&'a Bytes),
    Delete(&'a KeyRange),
}

/// Checks that all operations can run, before any of them does (TXN-22). All writes are checked
/// first, nested ones included, so the error of a put takes precedence over the error of a range.
fn check(writer: &Writer<'_>, txn: &DecidedTxn<'_>) -> Result<(), TxnError> {
    check_writes(writer, txn, &mut Vec::new())?;
    check_ranges(writer, txn)
}

fn check_writes<'a>(
    writer: &Writer<'_>,
    txn: &DecidedTxn<'a>,
    earlier: &mut Vec<EarlierWrite<'a>>,
) -> Result<(), TxnError> {
    txn.check_ops(|op| {
        match op {
            DecidedOp::Range(_) => {}
            DecidedOp::Put { put, .. } => {
                check_put(writer, put, earlier).map_err(TxnError::put)?;
                earlier.push(EarlierWrite::Put(&put.key));
            }
            DecidedOp::Delete(keys) => earlier.push(EarlierWrite::Delete(keys)),
            DecidedOp::Txn(txn) => check_writes(writer, txn, earlier)?,
        }
        Ok(())
    })
}

fn check_put(writer: &Writer<'_>, put: &Put, earlier: &[EarlierWrite<'_>]) -> Result<(), PutError> {
    check_kept(writer, put)?;
    check_not_deleted(put, earlier)?;
    check_lease(writer, put)
}

fn check_ranges(writer: &Writer<'_>, txn: &DecidedTxn<'_>) -> Result<(), TxnError> {
    txn.check_ops(|op| match op {
        DecidedOp::Range(range) => check_range(writer, range).map_err(TxnError::read),
        DecidedOp::Txn(txn) => check_ranges(writer, txn),
        DecidedOp::Put { .. } | DecidedOp::Delete(_) => Ok(()),
    })
}

fn check_range(writer: &Writer<'_>, range: &Range) -> Result<(), ReadError> {
    // TXN-24: the newest readable revision is the one before the transaction, also after a write.
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

/// Checks that the key of a put that keeps the value or lease is live before the transaction
/// (PUT-4, TXN-23).
fn check_kept(writer: &Writer<'_>, put: &Put) -> Result<(), PutError> {
    if put.keeps_something() && writer.get(&put.key).is_none() {
        return Err(PutError::KeyNotFound);
    }
    Ok(())
}

/// Checks that no earlier operation of the transaction deletes the key of such a put (TXN-10).
fn check_not_deleted(put: &Put, earlier: &[EarlierWrite<'_>]) -> Result<(), PutError> {
    if !put.keeps_something() {
        return Ok(());
    }
    let last = earlier.iter().rev().find(|write| match write {
        EarlierWrite::Put(key) => **key == put.key,
        EarlierWrite::Delete(keys) => keys.contains(&put.key),
    });
    match last {
        Some(EarlierWrite::Delete(_)) => Err(PutError::KeyNotFound),
        Some(EarlierWrite::Put(_)) | None => Ok(()),
    }
}

/// Runs the operations. Sets `oldest_deferred` to the lowest position of a deferred range.
fn apply<'a>(
    writer: &mut Writer<'_>,
    txn: DecidedTxn<'a>,
    oldest_deferred: &mut Option<Position>,
) -> AppliedTxn<'a> {
    let ops = txn.ops.into_iter().map(|op| match op {
        DecidedOp::Range(range) => apply_range(writer, range, oldest_deferred),
        DecidedOp::Put { put, pending } => {
            let previous = apply_put(writer, put, pending);
            AppliedOp::Done(OpResult::Put(PutResult {
                revision: writer.revision(),
                previous,
            }))
        }
        DecidedOp::Delete(keys) => {
            let deleted = writer.delete(keys);
            AppliedOp::Done(OpResult::Delete(DeleteResult {
                revision: writer.revision(),
                deleted,
            }))
        }
        DecidedOp::Txn(txn) => {
            let txn = apply(writer, txn, oldest_deferred);
            AppliedOp::Txn {
                revision: writer.revision(),
                txn,
            }
        }
    });
    AppliedTxn {
        ops: ops.collect(),
        succeeded: txn.succeeded,
    }
}

/// Reads a single key at once. A range is deferred: only its position is determined, so that the
/// sequencer is not held while it is read.
fn apply_range<'a>(
    writer: &Writer<'_>,
    range: &'a Range,
    oldest_deferred: &mut Option<Position>,
) -> AppliedOp<'a> {
    let at = range.at.map_or_else(|| writer.position(), Revision::end);
    let revision = writer.revision();
    if matches!(range.keys, KeyRange::One(_)) {
        let found = writer.store().range_at(range, at, revision);
        return AppliedOp::Done(OpResult::Range(found));
    }
    *oldest_deferred = Some(oldest_deferred.map_or(at, |oldest| oldest.min(at)));
    AppliedOp::Deferred(DeferredRange {
        range,
        at,
        revision,
    })
}

fn apply_put(
    writer: &mut Writer<'_>,
    put: &Put,
    pending: Option<PendingRecord>,
) -> Option<KeyValue> {
    let kept = if put.keeps_something() {
        writer.get(&put.key)
    } else {
        None
    };
    let pending = pending.unwrap_or_else(|| {
        let value = kept.as_ref().map_or(&[][..], KeyValue::value);
        pending_record(writer.store(), put, value)
    });
    let lease = match put.lease {
        PutLease::Detach => None,
        PutLease::Attach(lease) => Some(lease),
        PutLease::Keep => kept.as_ref().and_then(KeyValue::lease),
    };
    writer.put(pending, lease)
}

/// Reads the deferred ranges.
fn finish(store: &Store, ops: Vec<AppliedOp<'_>>) -> Vec<OpResult> {
    let finish_op = |op| match op {
        AppliedOp::Done(result) => result,
        AppliedOp::Deferred(deferred) => {
            OpResult::Range(store.range_at(deferred.range, deferred.at, deferred.revision))
        }
        AppliedOp::Txn { revision, txn } => OpResult::Txn(TxnResult {
            revision,
            succeeded: txn.succeeded,
            results: finish(store, txn.ops),
        }),
    };
    ops.into_iter().map(finish_op).collect()
}
