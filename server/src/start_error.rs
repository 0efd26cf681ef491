//! Errors of the start of a server.

use std::{io, path::PathBuf};

use revstore_engine::StartRevisionError;
use revstore_host::{
    logging::LogOpenError,
    net::{BindError, TlsError},
};

/// An error of the start of a server with a valid configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be created.
    #[error("cannot create the data directory {}: {source}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file of `--log-outputs` cannot be opened.
    #[error(transparent)]
    Log(#[from] LogOpenError),
    /// A URL cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A certificate or a key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// `--auth-token=jwt,...` is set, but JWT tokens are not supported.
    #[error("auth: JWT tokens are not supported, only --auth-token=simple")]
    Jwt,
    /// The start revision is too high.
    #[error(transparent)]
    StartRevision(#[from] StartRevisionError),
    /// The threads or the event queue of the runtime cannot be created.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The handlers of the signals cannot be installed.
    #[error("cannot install the signal handlers: {0}")]
    Signals(io::Error),
}
