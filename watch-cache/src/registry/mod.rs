//! Registries: an [`ObjectStore`] creates, updates and deletes the objects of one resource by the rules
//! that Kubernetes has for all of them. A [`Strategy`] adds the rules of one resource: defaults,
//! validation, generations. [`TypedStrategy`] is a strategy for a Rust type.
//!
//! An [`Allocator`] adds writes of other keys to those of an object. A [`Change`] computes the new version in an update,
//! and an [`Admit`] is asked before a version is written; both may wait for something else.
//!
//! Gets, lists and watches need no registry: they go to the [`Storage`](crate::api::Storage) below.

mod allocator;
mod change;
mod deletion;
mod managed_fields;
mod metadata;
mod object_store;
mod origin;
mod strategy;
mod typed_strategy;
mod update;

pub use allocator::Allocator;
pub use change::{Admit, AdmitAll, Change, ChangeFn};
pub use deletion::{DeleteRequest, Deleted, Propagation};
pub use object_store::{ObjectStore, WriteRequest, Written, encode};
pub use strategy::{JsonObject, Strategy};
pub use typed_strategy::TypedStrategy;
