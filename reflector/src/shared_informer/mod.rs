//! The shared informer: the collection of a reflector in memory, for all who need it.
//!
//! `informer.rs` runs it, `informer_handle.rs` has what programs hold of it. An event passes through
//! `delta_queue.rs` into `store.rs` and then to `subscription.rs`, whose notifications a handler
//! (`handler.rs`) is called with. `factory.rs` has one informer for each collection, `lister.rs` typed
//! reads of a store.

pub mod delta_queue;
pub(crate) mod factory;
pub(crate) mod handler;
pub mod informer;
mod informer_handle;
pub(crate) mod lister;
pub mod store;
pub(crate) mod subscription;
