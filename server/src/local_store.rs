//! The store of a server, for what else runs in the same process.

use std::net::SocketAddr;

use revstore_engine::Engine;
use revstore_grpc::{Limits, Services};

use crate::config::Config;

/// The store of the server of [`run_with`](fn@crate::run_with), for what else runs in the same process.
///
/// What writes to the engine directly is not subject to the server's users, alarms and limits.
#[derive(Clone, Debug)]
pub struct LocalStore {
    services: Services,
    addresses: Vec<SocketAddr>,
}

impl LocalStore {
    /// Returns the store, unless the options of the server concern each write: a journal, or limits.
    pub(crate) fn new(
        config: &Config,
        services: &Services,
        addresses: Vec<SocketAddr>,
    ) -> Option<Self> {
        let (limits, default) = (&config.limits, Limits::default());
        let has_limits = limits.quota_bytes != default.quota_bytes
            || limits.request_bytes_max != default.request_bytes_max
            || limits.txn_ops_max != default.txn_ops_max;
        (config.persist.is_none() && !has_limits).then(|| Self {
            services: services.clone(),
            addresses,
        })
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        self.services.engine()
    }

    /// Returns the addresses of the client ports without TLS, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns whether all clients of the server may read and write everything now: authentication is off, and there is no
    /// alarm.
    pub fn is_open(&self) -> bool {
        !self.services.is_auth_enabled() && self.services.alarms().list(None).is_empty()
    }
}
