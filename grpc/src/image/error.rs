//! What may be wrong with a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use revstore_engine::RestoreError;
use revstore_persist::{Corruption, DumpError};
use thiserror::Error;

use crate::snapshot::bolt_reader::BoltError;

/// The reason for which a file cannot be loaded or imported.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A part of a binary file is damaged.
    #[error("{path}: offset {offset}: {damage}", path = path.display())]
    Offset {
        /// The file.
        path: PathBuf,
        /// The offset of the part, or of the page that contains it, in bytes.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// A line of a text is damaged.
    #[error("{path}: line {line}: {damage}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// The file as a whole is damaged, or another one.
    #[error("{path}: {damage}", path = path.display())]
    Whole {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The file is not complete, or not what `etcdctl snapshot save` writes.
    #[error("there is no hash at the end: this is no complete file of \"etcdctl snapshot save\"")]
    NoHash,
    /// The hash at the end is not that of the file.
    #[error("the hash at the end is not that of the file")]
    Hash,
    /// A page of a database file is damaged.
    #[error("{0}")]
    Page(&'static str),
    /// A bucket of etcd is missing.
    #[error("there is no bucket \"{0}\": this is no database of etcd")]
    NoBucket(&'static str),
    /// A pair in a bucket of etcd is invalid.
    #[error("bucket \"{bucket}\", key \"{key}\": {reason}")]
    Pair {
        /// The bucket.
        bucket: String,
        /// The key of the pair, as text.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A later version has written the file.
    #[error("version {0} is not supported")]
    Version(String),
    /// A binary dump is damaged.
    #[error(transparent)]
    Dump(#[from] Corruption),
    /// The parts belong to no store.
    #[error(transparent)]
    State(#[from] RestoreError),
    /// A line is not what the format has at its place.
    #[error("{0}")]
    Text(String),
    /// The end is missing, or does not count the lines before it.
    #[error("the dump is not complete: {0}")]
    Incomplete(&'static str),
}

impl Damage {
    /// Returns the damage of a pair of a bucket.
    pub(super) fn pair(bucket: &str, key: &[u8], reason: impl fmt::Display) -> Self {
        Self::Pair {
            bucket: bucket.to_owned(),
            key: key.escape_ascii().to_string(),
            reason: reason.to_string(),
        }
    }
}

/// An error whose file is not known yet.
#[derive(Debug)]
pub(super) enum Found {
    Io(io::Error),
    Offset(u64, Damage),
    Line(u64, Damage),
    Whole(Damage),
}

impl Found {
    pub(super) fn at(self, path: &Path) -> ImageError {
        let path = path.to_owned();
        match self {
            Self::Io(source) => ImageError::Io { path, source },
            Self::Offset(offset, damage) => ImageError::Offset {
                path,
                offset,
                damage,
            },
            Self::Line(line, damage) => ImageError::Line { path, line, damage },
            Self::Whole(damage) => ImageError::Whole { path, damage },
        }
    }
}

impl From<io::Error> for Found {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<BoltError> for Found {
    fn from(error: BoltError) -> Self {
        match error {
            BoltError::Io(error) => Self::Io(error),
            BoltError::Damaged { offset, reason } => Self::Offset(offset, Damage::Page(reason)),
        }
    }
}

impl ImageError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    pub(super) fn of_dump(path: &Path, error: DumpError) -> Self {
        let found = match error {
            DumpError::Io(error) => Found::Io(error),
            DumpError::Corrupt { offset, reason } => Found::Offset(offset, reason.into()),
        };
        found.at(path)
    }
}
