//! What a server does for control.

use std::any::Any;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use revstore_engine::{Engine, EngineBuilder, Revision};
use tokio::sync::watch;

use crate::clock::ControlClock;
use crate::error::ControlError;
use crate::store::{DumpForm, Fork, Frozen, StoreFile};

/// A node of a server. It stays the same when the server replaces its node by another one.
pub trait ServedNode: fmt::Debug + Send + Sync {
    /// Returns the engine.
    fn engine(&self) -> Engine;

    /// Copies the state that the node has besides its engine, in a type of the server.
    fn state(&self) -> Option<Arc<dyn Any + Send + Sync>>;
}

/// A server that control acts on.
///
/// The methods may block for as long as their work takes, and are called on threads on which that is permitted.
/// Each is called by several threads at the same time.
pub trait Target: fmt::Debug + Send + Sync {
    /// Returns the node that the server serves at this moment. Another one replaces it when a store is restored, reset or
    /// loaded.
    fn node(&self) -> Arc<dyn ServedNode>;

    /// Returns the engine of the current node. What needs its state, too, takes both from one [`node`](Self::node).
    fn engine(&self) -> Engine {
        self.node().engine()
    }

    /// Returns the current revision of the store.
    fn revision(&self) -> Revision {
        self.engine().current_revision()
    }

    /// Checks whether the store is one of this process. If it is not, [`engine`](Self::engine) returns an empty one that
    /// nobody uses.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the store is another program.
    fn check_store(&self) -> Result<(), ControlError> {
        Ok(())
    }

    /// Returns a channel with the number of engines that were replaced. [`engine`](Self::engine) returns the new one
    /// before the number changes.
    fn replacements(&self) -> watch::Receiver<u64>;

    /// Checks whether [`replace`](Self::replace) is possible, before a store is made for it.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if it is not.
    fn check_replaceable(&self) -> Result<(), ControlError>;

    /// Replaces the store and the state of the node, and ends all streams and connections of the old one. When the call
    /// returns, [`engine`](Self::engine) returns the new one, and new calls are served by it.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the store of this server cannot be replaced, for example because it has a journal.
    fn replace(&self, frozen: Frozen) -> Result<(), ControlError>;

    /// Writes a store as a dump. The output is written in many small parts.
    ///
    /// # Errors
    /// Those of `to`.
    fn write_dump(
        &self,
        frozen: &Frozen,
        form: DumpForm,
        to: &mut (dyn Write + Send),
    ) -> io::Result<()>;

    /// Reads a file into a new store, whose engine `builder` has the clock and the options of. No other store is changed.
    ///
    /// # Errors
    /// [`ControlError::Damaged`] if the file is not valid.
    fn read_store(
        &self,
        bytes: &[u8],
        file: StoreFile,
        builder: EngineBuilder,
    ) -> Result<Frozen, ControlError>;

    /// Starts an independent server over a store with a clock of its own, on ports of the loopback interface.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if it cannot be started.
    fn fork(&self, frozen: Frozen, clock: ControlClock) -> Result<Box<dyn Fork>, ControlError>;

    /// Raises or clears an alarm; returns the raised ones.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the server has no alarms.
    fn alarm(&self, name: AlarmName, raise: bool) -> Result<Vec<AlarmName>, ControlError>;

    /// Begins the next Raft term; returns it.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the server has none.
    fn new_term(&self) -> Result<u64, ControlError>;
}

/// An alarm of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmName {
    /// The quota is exceeded: writes fail.
    NoSpace,
    /// The data is damaged: all requests fail.
    Corrupt,
}

impl fmt::Display for AlarmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSpace => "nospace",
            Self::Corrupt => "corrupt",
        })
    }
}

impl FromStr for AlarmName {
    type Err = ControlError;

    fn from_str(text: &str) -> Result<Self, ControlError> {
        match text.to_ascii_lowercase().as_str() {
            "nospace" => Ok(Self::NoSpace),
            "corrupt" => Ok(Self::Corrupt),
            _ => {
                let message = format!("unknown alarm {text:?}: must be nospace or corrupt");
                Err(ControlError::Invalid(message))
            }
        }
    }
}
