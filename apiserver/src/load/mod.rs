//! Manifests that are in the store before the server is ready (`--load`): read from the files of a directory, and
//! created as by a client.

mod apply;
mod document;
mod read;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub(crate) use apply::apply;
pub(crate) use read::Manifests;

/// The error of manifests that cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The directory or a file cannot be read.
    #[error("cannot load {}: {source}", path.display())]
    Read {
        /// The directory or the file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The manifests are more than the server loads.
    #[error("cannot load {}: {reason}", path.display())]
    TooMuch {
        /// The directory or the file.
        path: PathBuf,
        /// The limit.
        reason: String,
    },
    /// A document is malformed, or the server has refused its object.
    #[error("cannot load {}, document {number} (from line {line}): {reason}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// The number of the document in the file, from 1.
        number: usize,
        /// The line in which it begins, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}
