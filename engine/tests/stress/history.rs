//! What threads asked, what they were told, and in which order of real time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use bytes::Bytes;
use revstore_engine::{
    CompactError, Engine, KeyRange, KeyValue, LeaseId, OpResult, Put, Range, ReadError, Revision,
    Txn, TxnError, TxnResult,
};

/// The key that is written when all else is done.
pub(crate) const END: &str = "~end";

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Put(Put),
    Delete(KeyRange),
    Range(Range),
    Get(Bytes),
    Txn(Txn),
    Revoke(LeaseId),
    Compact(i64),
    /// Where the store stands; the creation of a watch answers it too.
    Look,
}

/// What was answered, in plain values, so that a model can answer the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Put {
        revision: i64,
        previous: Option<Seen>,
    },
    Delete {
        revision: i64,
        deleted: Vec<Seen>,
    },
    Range {
        revision: i64,
        kvs: Vec<Seen>,
        more: bool,
        count: usize,
    },
    Got(Option<Seen>),
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
    /// A put, a range or a transaction that could not run.
    Refused(TxnError),
    CompactionRefused(CompactError),
}

/// A version of a key as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) create: i64,
    pub(crate) modified: i64,
    pub(crate) version: i64,
    pub(crate) lease: Option<LeaseId>,
}

impl Seen {
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

/// One operation: `called` and `returned` are places in the order of everything that the threads did,
/// so an operation that returned at 3 was over before one that was called at 4 began.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) called: u64,
    pub(crate) returned: u64,
    pub(crate) request: Request,
    pub(crate) response: Response,
}

impl Response {
    /// The revision at which the operation claims to have happened.
    pub(crate) fn revision(&self) -> Option<i64> {
        match self {
            Self::Put { revision, .. }
            | Self::Delete { revision, .. }
            | Self::Range { revision, .. }
            | Self::Txn { revision, .. }
            | Self::Revoked { revision }
            | Self::Revision(revision) => Some(*revision),
            Self::Refused(TxnError::Read(ReadError::Future { current, .. }))
            | Self::CompactionRefused(CompactError::Future { current, .. }) => Some(current.0),
            Self::Got(_)
            | Self::Compacted
            | Self::Refused(_)
            | Self::CompactionRefused(CompactError::Compacted { .. }) => None,
        }
    }

    /// Whether something changed, as far as the answer says: that of a revocation does not.
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
                previous: put.previous.as_ref().map(Seen::of),
            },
            OpResult::Delete(delete) => Self::Delete {
                revision: delete.revision.0,
                deleted: delete.deleted.iter().map(Seen::of).collect(),
            },
            OpResult::Range(range) => Self::Range {
                revision: range.revision.0,
                kvs: range.kvs.iter().map(Seen::of).collect(),
                more: range.more,
                count: range.count,
            },
            OpResult::Txn(txn) => Self::of_txn(txn),
        }
    }
}

/// Runs operations and keeps their history. Shared by all threads of a test.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) engine: Engine,
    order: AtomicU64,
    operations: Mutex<Vec<Operation>>,
    /// The end is written, and every watch that keeps up has it.
    over: AtomicBool,
}

impl Recorder {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            order: AtomicU64::new(0),
            operations: Mutex::new(Vec::new()),
            over: AtomicBool::new(false),
        }
    }

    fn next(&self) -> u64 {
        // SeqCst: real time, as far as threads can tell. Nothing of the engine may lean on it, and
        // nothing does: it stands outside of every operation.
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    /// Runs one operation and notes it.
    pub(crate) fn run(&self, request: Request) -> Response {
        self.note(request, |request| execute(&self.engine, request))
    }

    /// Writes the end of the history.
    pub(crate) fn end(&self) {
        self.run(Request::Put(Put::new(END, "")));
        // Release: pairs with the Acquire in `wait_for_end`.
        self.over.store(true, Ordering::Release);
    }

    /// Waits for [`Recorder::end`] to be done, and not just told to the first watch.
    pub(crate) fn wait_for_end(&self) {
        while !self.over.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    /// Notes something that tells where the store stands.
    pub(crate) fn look<T>(&self, look: impl FnOnce() -> (Revision, T)) -> T {
        let mut value = None;
        self.note(Request::Look, |_| {
            let (revision, found) = look();
            value = Some(found);
            Response::Revision(revision.0)
        });
        value.expect("just looked")
    }

    fn note(&self, request: Request, run: impl FnOnce(&Request) -> Response) -> Response {
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

    /// All operations so far.
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
            Err(error) => Response::Refused(error.into()),
        },
        Request::Delete(keys) => Response::of_op(&OpResult::Delete(engine.delete(keys))),
        Request::Range(range) => match engine.range(range) {
            Ok(found) => Response::of_op(&OpResult::Range(found)),
            Err(error) => Response::Refused(error.into()),
        },
        Request::Get(key) => Response::Got(engine.get(key).as_ref().map(Seen::of)),
        Request::Txn(txn) => match engine.txn(txn) {
            Ok(done) => Response::of_txn(&done),
            Err(error) => Response::Refused(error),
        },
        Request::Revoke(lease) => Response::Revoked {
            revision: engine.revoke(*lease).expect("revoked only once").0,
        },
        Request::Compact(mark) => match engine.compact(Revision(*mark)) {
            Ok(compaction) => {
                compaction.run();
                Response::Compacted
            }
            Err(error) => Response::CompactionRefused(error),
        },
        Request::Look => Response::Revision(engine.current_revision().0),
    }
}
