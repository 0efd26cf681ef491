//! The revstore server: an etcd-compatible node in memory, as a binary and as a library.
//!
//! This crate alone knows flags, ports, TLS and signals. It is read in the order in which a process
//! runs: [`parse`] turns the arguments and the environment into an [`Invocation`], which is a text
//! to print or a [`Config`] to [`run`].
//!
//! | module | noun |
//! |---|---|
//! | `invocation` | what a process is asked to do; the order of the sources |
//! | `arguments`, `environment`, `config_file` | the three sources |
//! | `flags` | the table of flags, shared by the three and by `help` |
//! | `draft` | what the sources say, before it is checked as a whole |
//! | `config` | what comes out: typed and checked |
//! | `url`, `listen_url`, `duration`, `byte_size`, `go_value`, `auth_token`, `auto_compaction` | values of flags |
//! | `identity` | member and cluster ids |
//! | `error`, `warning` | what is wrong, and what is odd |
//!
//! # Differences from etcd
//! - A flag beats its variable, with a warning, where etcd refuses to start (FL-3).
//! - A data directory is created only if one is given, and nothing is stored in it.
//! - In revision mode a duration as retention is refused; etcd then never compacts (AC-3).
//! - `--auto-compaction-mode=size`, `--auto-compaction-interval` and `--start-revision` are ours.
//! - Without `--initial-cluster` the cluster is this member with its advertised URLs. etcd has
//!   `default=http://localhost:2380` and refuses to start if the URLs are others.
//! - Hosts are not resolved, nor is `0.0.0.0` replaced by an address of the machine, so that ids
//!   depend on the configuration alone.

mod arguments;
mod auth_token;
mod auto_compaction;
mod byte_size;
mod config;
mod config_file;
mod data_dir;
mod draft;
mod duration;
mod environment;
mod error;
mod flags;
mod go_value;
mod help;
pub mod identity;
mod invocation;
mod listen_url;
mod url;
mod version;
mod warning;

pub use auth_token::{AuthToken, AuthTokenError, JwtOptions};
pub use auto_compaction::{AutoCompaction, AutoCompactionError, DEFAULT_COMPACTION_INTERVAL};
pub use byte_size::ByteSizeError;
pub use config::{
    Auth, Certificate, ClientAuth, Cluster, Config, Keepalive, Limits, Log, LogLevel, LogOutput,
    Member, Tls, TlsVersion,
};
pub use duration::DurationError;
pub use error::{ConfigError, ValueError};
pub use invocation::{Invocation, parse};
pub use listen_url::{ListenAddress, ListenUrl, ListenUrlError};
pub use url::{EndpointUrl, HostPortError, Scheme, UrlError};
pub use version::{ETCD_CLUSTER_VERSION, ETCD_VERSION, REVSTORE_VERSION};
pub use warning::Warning;

use std::{
    io::{self, Write},
    path::PathBuf,
};

/// Why a server with a sound configuration did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The data directory cannot be created.
    #[error("cannot create the data directory {}: {source}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Runs a server until it is told to stop, beginning with what is odd about its configuration.
///
/// # Errors
/// Something the server needs from the system is not to be had.
pub fn run(config: &Config, warnings: &[Warning]) -> Result<(), RunError> {
    for warning in warnings {
        // Whoever closed standard error does not want to know.
        let _ = writeln!(io::stderr().lock(), "{warning}");
    }
    if let Some(path) = &config.data_dir {
        data_dir::create(path).map_err(|source| RunError::DataDir {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}
