//! Why a server with a sound configuration does not start.

use std::{io, path::PathBuf};

use revstore_host::{
    logging::LogOpenError,
    net::{BindError, TlsError},
};

/// Something the server needs from the system is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be created.
    #[error("cannot create the data directory {}: {source}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file of `--log-outputs` cannot be opened.
    #[error(transparent)]
    Log(#[from] LogOpenError),
    /// A URL cannot be listened on (FL-9).
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// `--auth-token=jwt,...`: only simple tokens are handed out (AU-13).
    #[error("auth: JWT tokens are not supported, only --auth-token=simple")]
    Jwt,
    /// The system gives no threads, or nothing to wait with.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The system takes no handlers for signals.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
}
