//! Errors of the start of a server.

use std::{io, path::PathBuf};

use revstore_engine::StartRevisionError;
use revstore_grpc::{ImageError, JwtKeyError};
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
    /// A file of `--auth-token=jwt,...` cannot be read.
    #[error("auth: cannot read the {option} {}: {source}", path.display())]
    JwtFile {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The keys of `--auth-token=jwt,...` cannot be used.
    #[error(transparent)]
    JwtKey(#[from] JwtKeyError),
    /// The store in the data directory cannot be opened.
    #[error("cannot open the data directory: {0}")]
    Persist(#[from] revstore_persist::OpenError),
    /// A store of the program was given together with [`Config::persist`](crate::Config::persist).
    #[error("a store of the program cannot be journaled: build the server without `persist`")]
    PersistOfStore,
    /// The snapshot of [`Config::import`](crate::Config::import) cannot be imported.
    #[error("cannot import the snapshot: {0}")]
    Import(#[from] ImageError),
    /// The options of control do not protect its port.
    #[error("{0}")]
    Control(String),
    /// The file with the token of control cannot be used.
    #[error(transparent)]
    ControlToken(#[from] revstore_control::service::TokenFileError),
    /// A store or a clock of the program was given together with control.
    #[error("a server with control has a clock of its own: build it without `store` and `clock`")]
    ControlOfStore,
    /// The start revision is too high.
    #[error(transparent)]
    StartRevision(#[from] StartRevisionError),
    /// The threads or the event queue of the runtime cannot be created.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// A server without ports was started outside of a tokio runtime.
    #[error("a server without ports needs a tokio runtime")]
    NoRuntime,
    /// An option was set that a server without ports does not have.
    #[error("a server without ports has no `{option}`")]
    InProcess {
        /// The option of the builder.
        option: &'static str,
    },
    /// The handlers of the signals cannot be installed.
    #[error("cannot install the signal handlers: {0}")]
    Signals(io::Error),
}
