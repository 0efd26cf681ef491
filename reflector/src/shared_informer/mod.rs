//! The shared informer: the collection of a reflector in memory, for all who need it.
//!
//! `informer.rs` runs it, `informer_handle.rs` has what programs hold of it. An event passes through
//! `delta_queue.rs` into `store.rs`, which contains `indexed_objects.rs`, and then to `subscription.rs`, whose notifications a handler
//! (`handler.rs`) is called with. `factory.rs` has one informer for each collection, `lister.rs` typed
//! reads of a store.

pub mod delta_queue;
pub(crate) mod factory;
pub(crate) mod handler;
mod indexed_objects;
pub mod informer;
mod informer_handle;
pub(crate) mod lister;
mod object_key;
pub mod store;
pub(crate) mod subscription;
