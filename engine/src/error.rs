//! What can go wrong, one enum per operation.

use thiserror::Error;

use crate::history::LeaseId;
use crate::revision::Revision;

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The revision lies below the compacted one: its history is gone (RG-12).
    #[error("revision {requested} is compacted, the oldest kept is {compacted}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that can be read.
        compacted: Revision,
    },
    /// The revision has not been written yet (RG-11).
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest revision that can be read.
        current: Revision,
    },
}

/// Why a put changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PutError {
    /// The empty key cannot be stored (DM-9).
    #[error("the key is empty")]
    EmptyKey,
    /// The key or the value is longer than [`PUT_BYTES_MAX`](crate::PUT_BYTES_MAX).
    #[error("the key or the value is too large")]
    TooLarge,
    /// The value or the lease was to be kept, but the key does not exist (PUT-4).
    #[error("the key does not exist")]
    KeyNotFound,
    /// There is no such lease (PUT-6).
    #[error("lease {lease} does not exist")]
    LeaseNotFound {
        /// The lease that was named.
        lease: LeaseId,
    },
}

/// Why a transaction changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TxnError {
    /// A put of the transaction cannot be done.
    #[error(transparent)]
    Put(#[from] PutError),
    /// A range of the transaction cannot be read (TXN-24, RG-14).
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a compaction was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CompactError {
    /// The revision is compacted already (CO-1).
    #[error("revision {requested} is compacted, the oldest kept is {compacted}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that can be read.
        compacted: Revision,
    },
    /// The revision has not been written yet (CO-1).
    #[error("revision {requested} is in the future, the current one is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest revision that can be read.
        current: Revision,
    },
}

/// Why a call about a lease did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// There is no such lease (LE-5).
    #[error("the lease does not exist")]
    NotFound,
    /// The lease exists already (LE-3).
    #[error("the lease exists already")]
    AlreadyExists,
    /// The time to live is above [`LEASE_TTL_MAX_SECONDS`](crate::LEASE_TTL_MAX_SECONDS) (LE-2).
    #[error("the time to live is too large")]
    TtlTooLarge,
}

/// Why a watch was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WatchError {
    /// No key can be in the range (WA-14).
    #[error("the range is empty")]
    EmptyRange,
    /// The stream has a watch of this id (WA-4), or the id is the reserved -1 (WA-5).
    #[error("the id is in use on this stream")]
    DuplicateId,
    /// The start revision is negative, which is before everything (WA-7).
    #[error("the start revision lies before every history")]
    Compacted,
}
