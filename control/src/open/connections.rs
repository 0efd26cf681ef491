//! The open connections.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Open, OpenError};
use crate::fault::Removal;

/// What a server can do to a connection. Commands to a connection that has ended have no effect.
pub trait ConnectionCommands: fmt::Debug + Send + Sync {
    /// Ends the connection after the requests in flight.
    fn go_away(&self);
    /// Stops reading and writing until the end of a rule, or of the client, and ends the requests in flight.
    fn black_hole(&self, rule: Removal);
    /// Closes the connection at once.
    fn close(&self);
    /// Closes the connection with a TCP reset.
    fn reset(&self);
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    address: Option<String>,
    since: Duration,
    commands: Box<dyn ConnectionCommands>,
    /// Relaxed: the count orders nothing.
    requests: AtomicU64,
    /// The name of the client in its last request. A leaf lock, held for a look or a change.
    client: Mutex<Option<Arc<str>>>,
}

/// An open connection, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// The number of the connection.
    pub id: u64,
    /// The address of the client; `None` on a Unix socket.
    pub address: Option<String>,
    /// The name of the client in its last request.
    pub client: Option<String>,
    /// The time of the clock at which it was accepted.
    pub since: Duration,
    /// The number of its requests.
    pub requests: u64,
}

#[derive(Debug, Default)]
pub(super) struct Connections {
    /// A leaf lock: held for a look, a change or a copy of the list.
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    last_id: AtomicU64,
}

impl Connection {
    /// Returns the number of the connection.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the commands to the connection.
    pub fn commands(&self) -> &dyn ConnectionCommands {
        &*self.commands
    }

    /// Counts a request of a client with this name.
    pub fn count_request(&self, client: Option<&Arc<str>>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(client) = client {
            let mut current = self.client.lock();
            if current.as_ref() != Some(client) {
                *current = Some(client.clone());
            }
        }
    }

    fn status(&self) -> ConnectionStatus {
        ConnectionStatus {
            id: self.id,
            address: self.address.clone(),
            client: self.client.lock().as_deref().map(str::to_owned),
            since: self.since,
            requests: self.requests.load(Ordering::Relaxed),
        }
    }
}

impl Open {
    /// Adds a connection that was accepted at this time, and returns its number.
    pub fn connected(
        &self,
        address: Option<String>,
        since: Duration,
        commands: Box<dyn ConnectionCommands>,
    ) -> u64 {
        let connections = &self.inner.connections;
        let id = connections.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Arc::new(Connection {
            id,
            address,
            since,
            commands,
            requests: AtomicU64::new(0),
            client: Mutex::default(),
        });
        connections.open.lock().insert(id, connection);
        id
    }

    /// Removes a connection that has ended.
    pub fn disconnected(&self, id: u64) {
        let removed = self.inner.connections.open.lock().remove(&id);
        drop(removed);
    }

    /// Returns an open connection.
    ///
    /// # Errors
    /// There is none with this number.
    pub fn connection(&self, id: u64) -> Result<Arc<Connection>, OpenError> {
        let open = self.inner.connections.open.lock();
        let connection = open.get(&id).cloned();
        connection.ok_or(OpenError::NoSuchConnection(id))
    }

    /// Returns all open connections.
    pub fn all_connections(&self) -> Vec<Arc<Connection>> {
        let open = self.inner.connections.open.lock();
        open.values().cloned().collect()
    }

    /// Lists the open connections, ordered by number.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let connections = self.all_connections();
        connections.iter().map(|it| it.status()).collect()
    }
}
