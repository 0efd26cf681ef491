//! The errors of control.

use revstore_engine::{CompactError, JumpError, LeaseError, LeaseId, WriteError};
use tonic::{Code, Status};

use crate::clock::AdvanceError;
use crate::fault::RuleError;
use crate::open::OpenError;
use crate::store::{CHECKPOINTS_MAX, DUMPS_MAX, FORKS_MAX};
use crate::wait::WAITS_MAX;

/// The reason why control has refused a request. Nothing was changed, unless a variant says otherwise.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// An argument has no sense.
    #[error("{0}")]
    Invalid(String),
    /// The clock has not advanced, or not as far as it should.
    #[error(transparent)]
    Advance(#[from] AdvanceError),
    /// There is no such lease.
    #[error("lease {:016x} does not exist", .0.get())]
    NoSuchLease(LeaseId),
    /// The store cannot be compacted at this revision.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// The rule was not added, or not found.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// Nothing open has this number.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot continue at this revision.
    #[error(transparent)]
    Jump(#[from] JumpError),
    /// There is no such checkpoint.
    #[error("checkpoint {0:?} does not exist")]
    NoSuchCheckpoint(String),
    /// There is neither a fork nor a checkpoint with this id.
    #[error("there is no fork and no checkpoint {0:?}")]
    NoSuchCopy(String),
    /// There are [`CHECKPOINTS_MAX`] checkpoints already.
    #[error("too many checkpoints: there are {CHECKPOINTS_MAX}")]
    TooManyCheckpoints,
    /// The checkpoints would take too much memory.
    #[error("the checkpoints would hold {needed} bytes, and --control-memory-limit is {limit}")]
    CheckpointMemory {
        /// What they would hold.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// A dump or a snapshot is not valid.
    #[error("{0}")]
    Damaged(String),
    /// A dump or a snapshot is larger than the memory limit.
    #[error("the file has more bytes than --control-memory-limit, which is {limit}")]
    FileTooLarge {
        /// The limit.
        limit: u64,
    },
    /// The file and what is kept already would take too much memory.
    #[error(
        "the file and the checkpoints would hold {needed} bytes, and --control-memory-limit is {limit}"
    )]
    FileMemory {
        /// What they would hold.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// [`DUMPS_MAX`] dumps are being written already.
    #[error("too many dumps: {DUMPS_MAX} are being written")]
    TooManyDumps,
    /// A dump cannot be written to its output.
    #[error("the dump cannot be written: {0}")]
    Output(String),
    /// There are [`FORKS_MAX`] forks already.
    #[error("too many forks: {FORKS_MAX} are running")]
    TooManyForks,
    /// The store refuses writes.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A condition did not hold in time.
    #[error("the condition did not hold within the timeout")]
    TimedOut,
    /// There are [`WAITS_MAX`] waits already.
    #[error("too many waits: {WAITS_MAX} are open")]
    TooManyWaits,
    /// The target cannot do this, for a reason that it states.
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// Returns the code that clients get.
    pub fn code(&self) -> Code {
        match self {
            Self::Rule(RuleError::NotFound(_)) | Self::Open(_) => Code::NotFound,
            Self::Rule(RuleError::TooMany(_))
            | Self::Advance(AdvanceError::TooManyInstants { .. })
            | Self::TooManyWaits
            | Self::TooManyCheckpoints
            | Self::CheckpointMemory { .. }
            | Self::FileTooLarge { .. }
            | Self::FileMemory { .. }
            | Self::TooManyDumps
            | Self::TooManyForks => Code::ResourceExhausted,
            Self::Invalid(_) | Self::Rule(_) | Self::Damaged(_) => Code::InvalidArgument,
            Self::Advance(_) | Self::Refused(_) => Code::FailedPrecondition,
            Self::NoSuchLease(_) | Self::NoSuchCheckpoint(_) | Self::NoSuchCopy(_) => {
                Code::NotFound
            }
            Self::Compact(_) | Self::Jump(_) => Code::OutOfRange,
            Self::Write(_) | Self::Output(_) => Code::Unavailable,
            Self::TimedOut => Code::DeadlineExceeded,
        }
    }

    pub(crate) fn of_lease(lease: LeaseId, error: LeaseError) -> Self {
        match error {
            LeaseError::NotFound => Self::NoSuchLease(lease),
            LeaseError::Refused(error) => Self::Write(error),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<ControlError> for Status {
    fn from(error: ControlError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
