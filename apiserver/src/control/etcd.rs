//! The store of a server over etcd's API.

use std::sync::Arc;

use revstore_engine::Engine;
use revstore_host::net::{BindError, ListenUrl, Listener};

use crate::server::StartError;

/// The store of a server over etcd's API.
///
/// The ports stay open when another store is served, so that no other program gets them, and clients that connect
/// meanwhile are served by the next store.
#[derive(Debug)]
pub(crate) struct EtcdApi {
    listeners: Arc<[Listener]>,
    /// `None` if it could not be started after a replacement.
    server: Option<Box<revstore::Server>>,
}

impl EtcdApi {
    /// Opens the ports, of which there is at least one, and serves a store on them.
    pub(crate) fn start(urls: &[ListenUrl], engine: &Engine) -> Result<Self, StartError> {
        let listeners = urls.iter().map(Listener::bind);
        let listeners: Vec<_> = listeners.collect::<Result<_, BindError>>()?;
        let mut api = Self {
            listeners: listeners.into(),
            server: None,
        };
        api.replace(engine)?;
        Ok(api)
    }

    /// Serves another store. The streams and connections of the one before end.
    pub(super) fn replace(&mut self, engine: &Engine) -> Result<(), revstore::StartError> {
        // Waits until it accepts no connections.
        drop(self.server.take());
        let server = revstore::Server::builder().listen_on(self.listeners.clone());
        self.server = Some(Box::new(server.store(engine.clone()).start()?));
        Ok(())
    }

    /// Returns the URLs, with the ports that the system chose.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.listeners.iter().map(Listener::endpoint).collect()
    }
}
