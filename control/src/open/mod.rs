//! What is open now: connections and watches, and the commands to them; and what the server does, for automatic time.

mod activity;
mod connections;
mod watches;

use std::sync::Arc;

pub use activity::{Activity, Work};
pub use connections::{Connection, ConnectionCommands, ConnectionStatus};
pub use watches::{Watch, WatchCommand, WatchInfo, WatchState, WatchStatus, WatchStream};

use connections::Connections;
use watches::Watches;

/// What is open at a server. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Open {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    connections: Connections,
    watches: Watches,
    activity: Activity,
}

/// Nothing open has this number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such watch.
    #[error("there is no open watch {0}")]
    NoSuchWatch(u64),
    /// There is no such connection.
    #[error("there is no open connection {0}")]
    NoSuchConnection(u64),
}

impl Open {
    /// Creates the lists of a server at which nothing is open.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of requests under way, for automatic time.
    pub fn activity(&self) -> &Activity {
        &self.inner.activity
    }
}
