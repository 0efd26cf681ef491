//! Leases under a time that advances, with ids that are used again.
//!
//! No response contains an expiry. But an expiry deletes all keys of a lease at one revision, so it
//! is found among the deletions that no operation of the history made, and becomes an operation of
//! its own, during an operation that advanced the time. `order.rs` then checks it like any other.

use bytes::Bytes;
use revstore_engine::{Engine, LeaseId, Op, Put, PutError, PutLease, Revision};

use crate::history::{Failure, Operation, Request, Response};

/// The time to live of all leases, in seconds.
pub(crate) const LEASE_TTL_SECONDS: i64 = 2;

/// A revision that only deleted keys, all of one lease.
#[derive(Clone, Debug)]
struct Deletion {
    revision: i64,
    lease: LeaseId,
    keys: Vec<Bytes>,
}

/// The deletions of a store that may be expiries. They are saved before history is compacted.
#[derive(Debug, Default)]
pub(crate) struct Deletions {
    /// The revision up to which they are saved.
    saved: i64,
    all: Vec<Deletion>,
}

impl Deletions {
    /// Saves the deletions up to a revision, or to the current one if that is lower.
    pub(crate) fn save(&mut self, engine: &Engine, through: Revision) {
        let through = through.0.min(engine.current_revision().0);
        let from = self.saved.max(1) + 1;
        if through < from {
            return;
        }
        let changes = engine.changes(Revision(from)..=Revision(through));
        // The revision, its keys, and whether it is a deletion so far.
        let mut last: Option<(i64, Vec<Bytes>, bool)> = None;
        for event in changes.expect("history that is not compacted") {
            let kv = event.expect("history that is not compacted").kv;
            let revision = kv.mod_revision().0;
            if last.as_ref().is_none_or(|(last, ..)| *last != revision) {
                self.add(engine, last.take());
                last = Some((revision, Vec::new(), true));
            }
            if let Some((_, keys, deletes)) = &mut last {
                keys.push(kv.key_bytes());
                *deletes &= kv.is_tombstone();
            }
        }
        self.add(engine, last);
        self.saved = through;
    }

    fn add(&mut self, engine: &Engine, changes: Option<(i64, Vec<Bytes>, bool)>) {
        let Some((revision, mut keys, true)) = changes else {
            return;
        };
        let lease = |key: &Bytes| {
            let before = engine.get_at(key, Revision(revision - 1));
            let before = before.expect("a revision that is not compacted");
            before.and_then(|kv| kv.lease())
        };
        if let Some(first) = lease(&keys[0])
            && keys.iter().all(|key| lease(key) == Some(first))
        {
            keys.sort();
            self.all.push(Deletion {
                revision,
                lease: first,
                keys,
            });
        }
    }

    /// Returns the expiries of a history as operations.
    pub(crate) fn expiries(&self, history: &[Operation]) -> Vec<Operation> {
        let expiry = |deletion: &Deletion| {
            let revision = deletion.revision;
            // From then on the deletion was visible.
            let visible = history
                .iter()
                .filter(|operation| operation.response.revision() >= Some(revision))
                .map(|operation| operation.returned)
                .min();
            let wrote = |operation: &Operation| match (&operation.request, &operation.response) {
                (Request::Revoke(lease), _) => {
                    *lease == deletion.lease && visible.is_none_or(|at| operation.called < at)
                }
                (_, response) => response.changed() == Some(true),
            };
            let mut at_revision = history
                .iter()
                .filter(|operation| operation.response.revision() == Some(revision));
            if at_revision.any(wrote) {
                return None;
            }
            // It took place after these calls, in one of the advances from the first to the last one
            // that fit. Without one, `order.rs` reports the revision.
            let before = |operation: &&Operation| {
                let reported = operation.response.revision();
                reported.is_some_and(|reported| reported < revision)
            };
            let before = history.iter().filter(before).map(|other| other.called);
            let before = before.max().unwrap_or(0);
            let possible = || {
                history.iter().filter(|operation| {
                    matches!(operation.request, Request::Advance)
                        && operation.returned > before
                        && visible.is_none_or(|at| operation.called < at)
                })
            };
            let first = possible().min_by_key(|operation| operation.called)?;
            let last = possible().max_by_key(|operation| operation.called)?;
            Some(Operation {
                called: first.called,
                returned: last.returned,
                time: first.time,
                request: Request::Expire {
                    lease: deletion.lease,
                    keys: deletion.keys.clone(),
                },
                response: Response::Expired { revision },
            })
        };
        self.all.iter().filter_map(expiry).collect()
    }
}

/// Checks the operations on leases and the puts that attach keys to them.
pub(crate) fn check(history: &[Operation]) -> Result<(), String> {
    for operation in history {
        match (&operation.request, &operation.response) {
            (_, Response::Failed(Failure::Put(PutError::LeaseNotFound { lease }))) => {
                check_absent(history, operation, *lease)?;
            }
            (Request::Put(put), Response::Put { .. }) => check_present(history, operation, put)?,
            (Request::Txn(txn), Response::Txn { succeeded, .. }) => {
                let branch = if *succeeded {
                    &txn.success
                } else {
                    &txn.failure
                };
                for op in branch {
                    if let Op::Put(put) = op {
                        check_present(history, operation, put)?;
                    }
                }
            }
            (Request::KeepAlive(lease), Response::Renewed(renewed)) => {
                if *renewed {
                    check_exists(history, operation, *lease)?;
                } else {
                    check_absent(history, operation, *lease)?;
                }
            }
            (Request::Expire { lease, .. }, _) => check_expired(history, operation, *lease)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_present(history: &[Operation], operation: &Operation, put: &Put) -> Result<(), String> {
    match put.lease {
        PutLease::Attach(lease) => check_exists(history, operation, lease),
        PutLease::Detach | PutLease::Keep => Ok(()),
    }
}

fn grants(history: &[Operation], lease: LeaseId) -> impl Iterator<Item = &Operation> {
    history.iter().filter(move |operation| {
        matches!(operation.request, Request::Grant(granted) if granted == lease)
            && operation.response == Response::Granted(true)
    })
}

/// Checks that a lease may exist during an operation: it was granted after each revocation that had
/// ended before.
fn check_exists(
    history: &[Operation],
    operation: &Operation,
    lease: LeaseId,
) -> Result<(), String> {
    let revoked = history.iter().filter(|other| {
        matches!(other.request, Request::Revoke(revoked) if revoked == lease)
            && matches!(other.response, Response::Revoked { .. })
            && other.returned < operation.called
    });
    let last = revoked.max_by_key(|revoked| revoked.called);
    let granted = grants(history, lease).any(|grant| {
        grant.called < operation.returned && last.is_none_or(|last| last.called < grant.returned)
    });
    if granted {
        Ok(())
    } else {
        Err(format!("the lease does not exist: {operation:?}"))
    }
}

/// Checks PUT-6 and LE-9: a lease may be absent during an operation. After each grant that had ended
/// before, a revocation or an advance of the time has begun.
fn check_absent(
    history: &[Operation],
    operation: &Operation,
    lease: LeaseId,
) -> Result<(), String> {
    let ends = |other: &Operation| match other.request {
        Request::Revoke(revoked) => {
            revoked == lease && matches!(other.response, Response::Revoked { .. })
        }
        Request::Advance => true,
        _ => false,
    };
    let mut granted = grants(history, lease).filter(|grant| grant.returned < operation.called);
    let exists = granted.any(|grant| {
        !history.iter().any(|other| {
            ends(other) && other.called < operation.returned && grant.called < other.returned
        })
    });
    if exists {
        Err(format!("the lease exists: {operation:?}"))
    } else {
        Ok(())
    }
}

/// Checks LE-9: a lease that was granted or renewed does not expire before its time to live.
fn check_expired(history: &[Operation], expiry: &Operation, lease: LeaseId) -> Result<(), String> {
    let expired_at = history
        .iter()
        .find_map(|operation| match operation.response {
            Response::Advanced(time) if operation.returned == expiry.returned => Some(time),
            _ => None,
        });
    let Some(expired_at) = expired_at else {
        return Err(format!("the time did not advance: {expiry:?}"));
    };
    let early = history.iter().find(|operation| {
        if operation.time + LEASE_TTL_SECONDS <= expired_at {
            return false;
        }
        match (&operation.request, &operation.response) {
            (Request::Grant(granted), Response::Granted(true)) => {
                *granted == lease && operation.returned < expiry.called
            }
            // After the expiry, it can only have renewed a lease that was granted since.
            (Request::KeepAlive(renewed), Response::Renewed(true)) => {
                *renewed == lease
                    && !grants(history, lease).any(|grant| {
                        grant.called < operation.returned && expiry.called < grant.returned
                    })
            }
            _ => false,
        }
    });
    match early {
        Some(other) => Err(format!(
            "LE-9: at {expired_at} s {expiry:?} came too early for {other:?}"
        )),
        None => Ok(()),
    }
}
