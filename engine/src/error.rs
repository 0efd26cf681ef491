//! Errors, one enum per operation.

use thiserror::Error;

use crate::history::LeaseId;
use crate::revision::Revision;
use crate::txn::{Branch, OpPath};

/// The error of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The revision is below the compacted one: its history is removed.
    #[error("revision {requested} is compacted, the oldest kept is {compacted}")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest revision that can be read.
        compacted: Revision,
    },
    /// The revision is above the current one.
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// The newest revision that can be read.
        current: Revision,
    },
}

/// The reason for which an engine refuses all writes. Reads, watches and compactions continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// An earlier write panicked after its first change. Its changes are not visible, and would
    /// become visible with the next revision, so there is none.
    #[error("an earlier write failed in the middle of its changes; the store refuses writes")]
    Damaged,
    /// The writes were ended by [`Engine::end_writes`](crate::Engine::end_writes), because another store replaces this one.
    #[error("another store replaces this one, which refuses writes")]
    Ended,
    /// The current revision is the last one that a store can have, [`Revision::LAST`].
    #[error("the store has reached its last revision")]
    RevisionsExhausted,
}

/// The error of a start revision above [`Revision::START_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the start revision {requested} is above {}", Revision::START_MAX)]
pub struct StartRevisionError {
    /// The requested revision.
    pub requested: Revision,
}

/// The error of a put, which has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PutError {
    /// The key is empty.
    #[error("the key is empty")]
    EmptyKey,
    /// The key or the value is longer than [`PUT_BYTES_MAX`](crate::PUT_BYTES_MAX).
    #[error("the key or the value is too large")]
    TooLarge,
    /// The put keeps the value or the lease of the key, but the key is not live.
    #[error("the key does not exist")]
    KeyNotFound,
    /// The lease does not exist.
    #[error("lease {lease} does not exist")]
    LeaseNotFound {
        /// The requested lease.
        lease: LeaseId,
    },
    /// The engine refuses all writes.
    #[error(transparent)]
    Refused(#[from] WriteError),
}

/// The error of a transaction, which has changed nothing.
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, Op, Put, PutError, Range, Txn, TxnError};
/// let engine = Engine::builder().build();
/// let inner = Txn::new().and_then([Op::Put(Put::keeping_value("b"))]);
/// let txn = Txn::new().and_then([Op::Put(Put::new("a", "1")), Op::Txn(inner)]);
/// let error = engine.txn(&txn).unwrap_err();
/// assert_eq!(error.to_string(), "operation success[1].success[0]: the key does not exist");
/// let TxnError::Put { op, error } = error else { panic!("{error}") };
/// assert_eq!(error, PutError::KeyNotFound);
/// assert_eq!(txn.op(&op), Some(&Op::Put(Put::keeping_value("b"))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TxnError {
    /// A put of the transaction failed.
    #[error("operation {op}: {error}")]
    Put {
        /// The place of the put.
        op: OpPath,
        /// The error of the put.
        error: PutError,
    },
    /// A range of the transaction failed.
    #[error("operation {op}: {error}")]
    Read {
        /// The place of the range.
        op: OpPath,
        /// The error of the range.
        error: ReadError,
    },
    /// The engine refuses all writes.
    #[error(transparent)]
    Refused(#[from] WriteError),
}

impl TxnError {
    /// The error of a put, whose place [`inside`](Self::inside) adds.
    pub(crate) fn put(error: PutError) -> Self {
        let op = OpPath::default();
        Self::Put { op, error }
    }

    /// The error of a range, whose place [`inside`](Self::inside) adds.
    pub(crate) fn read(error: ReadError) -> Self {
        let op = OpPath::default();
        Self::Read { op, error }
    }

    /// Adds the place of the operation that contains, or is, the one that failed.
    #[cold]
    pub(crate) fn inside(mut self, branch: Branch, index: usize) -> Self {
        match &mut self {
            Self::Put { op, .. } | Self::Read { op, .. } => op.prepend(branch, index),
            Self::Refused(_) => {}
        }
        self
    }
}

/// The error of opening or reading a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// Too many snapshots are open, or they hold back more than half of the bytes that they may
    /// hold back at most. No snapshot was opened.
    #[error(
        "too many snapshots: {open} of at most {open_max} are open and hold back {pinned_bytes} of \
         at most {pinned_bytes_max} bytes"
    )]
    TooMany {
        /// The number of open snapshots.
        open: usize,
        /// The maximum number, set by
        /// [`snapshots_max`](crate::EngineBuilder::snapshots_max).
        open_max: usize,
        /// The bytes that open snapshots hold back.
        pinned_bytes: u64,
        /// The maximum number of these bytes, set by
        /// [`snapshot_bytes_max`](crate::EngineBuilder::snapshot_bytes_max).
        pinned_bytes_max: u64,
    },
    /// The versions that compactions had kept for the snapshot were freed, because all snapshots
    /// together held back more bytes than they may.
    #[error(
        "the snapshot at revision {revision} is lost: snapshots held back more than \
         {pinned_bytes_max} bytes"
    )]
    Lost {
        /// The revision of the snapshot.
        revision: Revision,
        /// The maximum number of bytes that snapshots hold back.
        pinned_bytes_max: u64,
    },
}

/// The error of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CompactError {
    /// The revision is compacted already.
    #[error("revision {requested} is compacted, the oldest kept is {compacted}")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest revision that can be read.
        compacted: Revision,
    },
    /// The revision is above the current one.
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// The newest revision that can be read.
        current: Revision,
    },
}

/// The error of an operation on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// The lease does not exist, or has expired.
    #[error("the lease does not exist")]
    NotFound,
    /// The lease exists already.
    #[error("the lease exists already")]
    AlreadyExists,
    /// The time to live is above [`LEASE_TTL_MAX_SECONDS`](crate::LEASE_TTL_MAX_SECONDS).
    #[error("the time to live is too large")]
    TtlTooLarge,
    /// The engine refuses all writes, so no keys can be deleted.
    #[error(transparent)]
    Refused(#[from] WriteError),
}

/// The error of creating a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WatchError {
    /// The range contains no key.
    #[error("the range is empty")]
    EmptyRange,
    /// The stream has a watch with this id, or the id is -1, which is reserved.
    #[error("the id is in use on this stream")]
    DuplicateId,
    /// The start revision is negative.
    #[error("the start revision is negative")]
    Compacted,
}
