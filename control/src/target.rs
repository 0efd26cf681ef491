//! What a server does for control.

use std::fmt;

use revstore_engine::Engine;

/// A server that control acts on.
///
/// The methods may block for as long as their work takes, and are called on threads on which that is permitted.
/// Each is called by several threads at the same time.
pub trait Target: fmt::Debug + Send + Sync {
    /// Returns the engine that the server serves at this moment. Another one replaces it when a store is
    /// restored, reset or loaded.
    fn engine(&self) -> Engine;
}
