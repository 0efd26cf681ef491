//! Errors that keep a server with a valid configuration from starting.

use std::{io, path::PathBuf};

use revstore_host::{
    logging::LogOpenError,
    net::{BindError, TlsError},
};

/// The server could not start, although its configuration is valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be created.
    #[error("cannot create the data directory {}: {source}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
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
    /// The system refused the threads of the runtime, or its event queue.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The handlers of the signals cannot be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
}
