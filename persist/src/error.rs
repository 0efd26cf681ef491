//! Errors.

use std::io;
use std::path::PathBuf;

use revstore_engine::{FollowError, RestoreError};
use thiserror::Error;

/// The reason for which a directory cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the directory.
    #[error("{path}: another process uses this directory", path = path.display())]
    Locked {
        /// The file that is locked.
        path: PathBuf,
    },
    /// A real etcd has written the directory.
    #[error(
        "{path}: this is the data of a real etcd, which cannot be opened in place: take a snapshot of it with \
         \"etcdctl snapshot save\", and import the keys into an empty data directory",
        path = path.display()
    )]
    EtcdData {
        /// The directory of etcd.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A part of a file that was complete is damaged.
    #[error("{path}: damaged at offset {offset}: {reason}", path = path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset of the damaged part, in bytes.
        offset: u64,
        /// What is wrong with it.
        reason: Corruption,
    },
    /// A file between others is missing.
    #[error("{path}: the file is missing", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The restored state is not one that a store can have.
    #[error("{path}: {source}", path = path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// The error of the engine.
        source: RestoreError,
    },
    /// The engine cannot be followed.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl OpenError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// What is wrong with a damaged part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Corruption {
    /// The first bytes are not those of such a file.
    #[error("this is no such file of revstore")]
    Magic,
    /// A later version has written the file.
    #[error("the file has format version {0}, which this version does not read")]
    Version(u16),
    /// A frame is incomplete, or its checksum is wrong.
    #[error("the checksum of a frame is wrong")]
    Checksum,
    /// A frame does not contain what its type requires, or is at the wrong place.
    #[error("a frame has invalid contents")]
    Contents,
    /// The parts of a snapshot are not those that its end counts, or the end is missing.
    #[error("the snapshot is not complete")]
    Incomplete,
    /// A lease or a pair of the metadata is in a snapshot twice.
    #[error("a lease or a pair of the metadata is there already")]
    Repeated,
    /// A file does not continue the one before it.
    #[error(
        "the file starts after revision {found}, and the one before it ends with revision {expected}"
    )]
    Gap {
        /// The revision in the file.
        found: i64,
        /// The last revision before it.
        expected: i64,
    },
    /// The engine does not accept a part.
    #[error(transparent)]
    State(#[from] RestoreError),
}

/// The reason for which changes are not durable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PersistError {
    /// The file system has no space left, or a quota is exhausted.
    #[error("cannot persist: {0}")]
    NoSpace(String),
    /// The file system returned another error.
    #[error("cannot persist: {0}")]
    Io(String),
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

impl From<io::Error> for PersistError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
        let text = error.to_string();
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge | WriteZero => Self::NoSpace(text),
            _ => Self::Io(text),
        }
    }
}
