//! The history of a test: requests, responses, and their order in real time.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use revstore_engine::{
    CompactError, Engine, KeyRange, KeyValue, LeaseId, ManualClock, OpResult, Put, PutError, Range,
    ReadError, Revision, Snapshot, SnapshotError, Txn, TxnError, TxnResult, WriteError,
};
use revstore_verify::{sync, thread};

use crate::leases::{Deletions, LEASE_TTL_SECONDS};

/// The key that is written after all other operations.
pub(crate) const END: &str = "~end";

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Put(Put),
    Delete(KeyRange),
    Range(Range),
    Get(Bytes),
    Txn(Txn),
    Grant(LeaseId),
    KeepAlive(LeaseId),
    Revoke(LeaseId),
    /// Advances the time by a second. Only one thread of a test does that.
    Advance,
    /// The expiry of a lease with keys, at one revision. It takes place during an `Advance`;
    /// `leases.rs` adds it to the history.
    Expire {
        lease: LeaseId,
        keys: Vec<Bytes>,
    },
    Compact(i64),
    /// A read of the current revision, which the creation of a watch or a snapshot returns too.
    CurrentRevision,
    /// A read of a snapshot at a revision.
    ReadSnapshot {
        at: i64,
        keys: KeyRange,
    },
}

/// A response in plain values, so that it can be compared with the response of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Put {
        revision: i64,
        previous: Option<KeyVersion>,
    },
    Delete {
        revision: i64,
        deleted: Vec<KeyVersion>,
    },
    Range {
        revision: i64,
        kvs: Vec<KeyVersion>,
        more: bool,
        count: usize,
    },
    Get(Option<KeyVersion>),
    Txn {
        revision: i64,
        succeeded: bool,
        results: Vec<Response>,
    },
    /// Whether the lease was granted, with its id free.
    Granted(bool),
    /// Whether the lease existed.
    Renewed(bool),
    Revoked {
        revision: i64,
    },
    /// The lease to revoke did not exist.
    LeaseNotFound,
    /// The time after an `Advance`, in seconds.
    Advanced(i64),
    Expired {
        revision: i64,
    },
    Compacted,
    Revision(i64),
    Snapshot(Vec<KeyVersion>),
    /// The error of a put, a range or a transaction.
    Failed(Failure),
    CompactionFailed(CompactError),
}

/// The error of an operation, whatever its place in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Put(PutError),
    Read(ReadError),
    Refused(WriteError),
    Snapshot(SnapshotError),
}

impl From<PutError> for Failure {
    fn from(error: PutError) -> Self {
        Self::Put(error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Refused(error)
    }
}

impl From<TxnError> for Failure {
    fn from(error: TxnError) -> Self {
        match error {
            TxnError::Put { error, .. } => Self::Put(error),
            TxnError::Read { error, .. } => Self::Read(error),
            TxnError::Refused(error) => Self::Refused(error),
        }
    }
}

/// A version of a key, in plain values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyVersion {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) create: i64,
    pub(crate) modified: i64,
    pub(crate) version: i64,
    pub(crate) lease: Option<LeaseId>,
}

impl KeyVersion {
    pub(crate) fn of(kv: &KeyValue) -> Self {
        Self {
            key: kv.key_bytes(),
            value: kv.value_bytes(),
            create: kv.create_revision().0,
            modified: kv.mod_revision().0,
            version: kv.version(),
            lease: kv.lease(),
        }
    }
}

/// One operation. `called` and `returned` are numbers of a counter that all threads share: an
/// operation that returned at 3 ended before one that was called at 4 began.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) called: u64,
    pub(crate) returned: u64,
    /// The time at the call or an earlier one, in seconds.
    pub(crate) time: i64,
    pub(crate) request: Request,
    pub(crate) response: Response,
}

impl Response {
    /// Returns the revision that the response reports.
    pub(crate) fn revision(&self) -> Option<i64> {
        match self {
            Self::Put { revision, .. }
            | Self::Delete { revision, .. }
            | Self::Range { revision, .. }
            | Self::Txn { revision, .. }
            | Self::Revoked { revision }
            | Self::Expired { revision }
            | Self::Revision(revision) => Some(*revision),
            Self::Failed(Failure::Read(ReadError::Future { current, .. }))
            | Self::CompactionFailed(CompactError::Future { current, .. }) => Some(current.0),
            Self::Get(_)
            | Self::Granted(_)
            | Self::Renewed(_)
            | Self::LeaseNotFound
            | Self::Advanced(_)
            | Self::Compacted
            | Self::Snapshot(_)
            | Self::Failed(_)
            | Self::CompactionFailed(CompactError::Compacted { .. }) => None,
        }
    }

    /// Returns whether the operation changed something, or `None` for a revocation, whose response
    /// does not contain that.
    pub(crate) fn changed(&self) -> Option<bool> {
        match self {
            Self::Put { .. } | Self::Expired { .. } => Some(true),
            Self::Delete { deleted, .. } => Some(!deleted.is_empty()),
            Self::Txn { results, .. } => {
                Some(results.iter().any(|result| result.changed() == Some(true)))
            }
            Self::Revoked { .. } => None,
            _ => Some(false),
        }
    }

    fn of_txn(done: &TxnResult) -> Self {
        Self::Txn {
            revision: done.revision.0,
            succeeded: done.succeeded,
            results: done.results.iter().map(Self::of_op).collect(),
        }
    }

    fn of_op(done: &OpResult) -> Self {
        match done {
            OpResult::Put(put) => Self::Put {
                revision: put.revision.0,
                previous: put.previous.as_ref().map(KeyVersion::of),
            },
            OpResult::Delete(delete) => Self::Delete {
                revision: delete.revision.0,
                deleted: delete.deleted.iter().map(KeyVersion::of).collect(),
            },
            OpResult::Range(range) => Self::Range {
                revision: range.revision.0,
                kvs: range.kvs.iter().map(KeyVersion::of).collect(),
                more: range.more,
                count: range.count,
            },
            OpResult::Txn(txn) => Self::of_txn(txn),
        }
    }
}

/// Runs operations and records their history. All threads of a test share it.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) engine: Engine,
    /// The clock of the engine, if its time advances.
    clock: Option<ManualClock>,
    /// The time, or an earlier one while it is advanced.
    seconds: AtomicI64,
    /// The deletions that may be expiries. Locked while the store is compacted, so that none of
    /// them is missed.
    deletions: sync::Mutex<Deletions>,
    order: AtomicU64,
    operations: Mutex<Vec<Operation>>,
    /// Whether [`END`] is written, so that every synced watch has its event.
    ended: AtomicBool,
}

impl Recorder {
    /// Creates a recorder of an engine whose time stands still.
    pub(crate) fn new(engine: Engine) -> Self {
        Self::with_clock(engine, None)
    }

    /// Creates a recorder of an engine with a clock that only the recorder advances.
    pub(crate) fn with_clock(engine: Engine, clock: Option<ManualClock>) -> Self {
        Self {
            engine,
            clock,
            seconds: AtomicI64::new(0),
            deletions: sync::Mutex::new(Deletions::default()),
            order: AtomicU64::new(0),
            operations: Mutex::new(Vec::new()),
            ended: AtomicBool::new(false),
        }
    }

    fn next(&self) -> u64 {
        // SeqCst: one order that all threads observe. It is outside of every operation, so it does
        // not add an ordering to the engine.
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    /// Runs and records one operation.
    pub(crate) fn run(&self, request: Request) -> Response {
        self.record(request, |request| self.execute(request))
    }

    /// Writes the end of the history.
    pub(crate) fn end(&self) {
        self.run(Request::Put(Put::new(END, "")));
        // Release: pairs with the Acquire in `wait_for_end`.
        self.ended.store(true, Ordering::Release);
    }

    /// Waits until [`Recorder::end`] has returned.
    pub(crate) fn wait_for_end(&self) {
        while !self.ended.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    /// Runs and records an operation that returns the current revision, such as the creation of a
    /// watch.
    pub(crate) fn record_revision<T>(&self, operation: impl FnOnce() -> (Revision, T)) -> T {
        let mut value = None;
        self.record(Request::CurrentRevision, |_| {
            let (revision, found) = operation();
            value = Some(found);
            Response::Revision(revision.0)
        });
        value.expect("the operation ran")
    }

    /// Opens and records a snapshot.
    pub(crate) fn open_snapshot(&self) -> Snapshot {
        self.record_revision(|| {
            let snapshot = self.engine.snapshot().expect("few open snapshots");
            (snapshot.revision(), snapshot)
        })
    }

    /// Reads a snapshot and records that.
    pub(crate) fn read_snapshot(&self, snapshot: &Snapshot, keys: KeyRange) {
        let at = snapshot.revision().0;
        self.record(Request::ReadSnapshot { at, keys }, |request| {
            let found = match request {
                Request::ReadSnapshot {
                    keys: KeyRange::One(key),
                    ..
                } => snapshot.get(key).map(Vec::from_iter),
                Request::ReadSnapshot { keys, .. } => snapshot.iter(keys.clone()).collect(),
                _ => unreachable!("the request of this call"),
            };
            match found {
                Ok(found) => Response::Snapshot(found.iter().map(KeyVersion::of).collect()),
                Err(error) => Response::Failed(Failure::Snapshot(error)),
            }
        });
    }

    fn record(&self, request: Request, run: impl FnOnce(&Request) -> Response) -> Response {
        let time = self.seconds.load(Ordering::SeqCst);
        let called = self.next();
        let response = run(&request);
        let returned = self.next();
        let mut operations = self
            .operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        operations.push(Operation {
            called,
            returned,
            time,
            request,
            response: response.clone(),
        });
        response
    }

    /// Returns all operations so far, and the expiries among them.
    pub(crate) fn history(&self) -> Vec<Operation> {
        let mut operations = {
            let operations = self.operations.lock();
            operations.unwrap_or_else(PoisonError::into_inner).clone()
        };
        if self.clock.is_some() {
            let mut deletions = self.deletions();
            deletions.save(&self.engine, self.engine.current_revision());
            let expiries = deletions.expiries(&operations);
            operations.extend(expiries);
        }
        operations
    }

    fn deletions(&self) -> sync::MutexGuard<'_, Deletions> {
        let deletions = self.deletions.lock();
        deletions.unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(&self, request: &Request) -> Response {
        match (request, &self.clock) {
            (Request::Advance, Some(clock)) => {
                clock.advance(Duration::from_secs(1));
                Response::Advanced(self.seconds.fetch_add(1, Ordering::SeqCst) + 1)
            }
            // The history that is removed may contain an expiry.
            (Request::Compact(revision), Some(_)) => {
                let mut deletions = self.deletions();
                deletions.save(&self.engine, Revision(*revision));
                execute(&self.engine, request)
            }
            (request, _) => execute(&self.engine, request),
        }
    }
}

fn execute(engine: &Engine, request: &Request) -> Response {
    match request {
        Request::Put(put) => match engine.put_with(put) {
            Ok(done) => Response::of_op(&OpResult::Put(done)),
            Err(error) => Response::Failed(error.into()),
        },
        Request::Delete(keys) => match engine.delete(keys) {
            Ok(done) => Response::of_op(&OpResult::Delete(done)),
            Err(error) => Response::Failed(error.into()),
        },
        Request::Range(range) => match engine.range(range) {
            Ok(found) => Response::of_op(&OpResult::Range(found)),
            Err(error) => Response::Failed(error.into()),
        },
        Request::Get(key) => Response::Get(engine.get(key).as_ref().map(KeyVersion::of)),
        Request::Txn(txn) => match engine.txn(txn) {
            Ok(done) => Response::of_txn(&done),
            Err(error) => Response::Failed(error.into()),
        },
        Request::Grant(lease) => {
            let granted = engine.grant(Some(*lease), LEASE_TTL_SECONDS);
            Response::Granted(granted.is_ok())
        }
        Request::KeepAlive(lease) => Response::Renewed(engine.keep_alive(*lease).is_ok()),
        Request::Revoke(lease) => match engine.revoke(*lease) {
            Ok(revision) => Response::Revoked {
                revision: revision.0,
            },
            Err(_) => Response::LeaseNotFound,
        },
        Request::Advance | Request::Expire { .. } => unreachable!("needs the clock"),
        Request::ReadSnapshot { .. } => unreachable!("needs the snapshot"),
        Request::Compact(revision) => match engine.compact(Revision(*revision)) {
            Ok(compaction) => {
                compaction.run();
                Response::Compacted
            }
            Err(error) => Response::CompactionFailed(error),
        },
        Request::CurrentRevision => Response::Revision(engine.current_revision().0),
    }
}
