//! A store in an etcd cluster.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use revstore_engine::SystemClock;
use revstore_watch_cache::source::{EtcdOptions, EtcdOptionsError, EtcdSource, EtcdTls};
use thiserror::Error;

use crate::config::EtcdServers;

/// The error of an etcd cluster that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// A URL or a certificate is not valid.
    #[error("--etcd-servers: {0}")]
    Options(#[from] EtcdOptionsError),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The cluster could not be used for the time in which a start waits for it.
    #[error("--etcd-servers: the cluster is not available: {0}")]
    NotAvailable(String),
}

/// Returns the source over a cluster. Time limits always use the clock of the system, as those of all connections.
pub(super) fn source(servers: &EtcdServers) -> Result<EtcdSource, EtcdError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|source| EtcdError::File {
            path: path.to_owned(),
            source,
        })
    };
    let mut options = EtcdOptions::new(servers.urls.iter().cloned());
    if let Some(authorities) = &servers.ca_file {
        let mut tls = EtcdTls::new(read(authorities)?);
        if let Some((certificate, key)) = &servers.client_files {
            tls = tls.identity(read(certificate)?, read(key)?);
        }
        options = options.tls(tls);
    }
    Ok(EtcdSource::new(&options, Arc::new(SystemClock::new()))?)
}
