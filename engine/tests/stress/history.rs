//! The history of a test: requests, responses, and their order in real time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use revstore_engine::{
    CompactError, Engine, KeyRange, KeyValue, LeaseId, OpResult, Put, PutError, Range, ReadError,
    Revision, Txn, TxnError, TxnResult, WriteError,
};
use revstore_verify::thread;

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
    Revoke(LeaseId),
    Compact(i64),
    /// A read of the current revision, which the creation of a watch returns too.
    CurrentRevision,
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
    Revoked {
        revision: i64,
    },
    Compacted,
    Revision(i64),
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
            | Self::Revision(revision) => Some(*revision),
            Self::Failed(Failure::Read(ReadError::Future { current, .. }))
            | Self::CompactionFailed(CompactError::Future { current, .. }) => Some(current.0),
            Self::Get(_)
            | Self::Compacted
            | Self::Failed(_)
            | Self::CompactionFailed(CompactError::Compacted { .. }) => None,
        }
    }

    /// Returns whether the operation changed something, or `None` for a revocation, whose response
    /// does not contain that.
    pub(crate) fn changed(&self) -> Option<bool> {
        match self {
            Self::Put { .. } => Some(true),
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
    order: AtomicU64,
    operations: Mutex<Vec<Operation>>,
    /// Whether [`END`] is written, so that every synced watch has its event.
    ended: AtomicBool,
}

impl Recorder {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
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
        self.record(request, |request| execute(&self.engine, request))
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

    fn record(&self, request: Request, run: impl FnOnce(&Request) -> Response) -> Response {
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
            request,
            response: response.clone(),
        });
        response
    }

    /// Returns all operations so far.
    pub(crate) fn history(&self) -> Vec<Operation> {
        let operations = self
            .operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        operations.clone()
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
        Request::Revoke(lease) => Response::Revoked {
            revision: engine.revoke(*lease).expect("revoked only once").0,
        },
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
