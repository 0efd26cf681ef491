//! Writes of other keys together with an object, such as an address that it gets.

use std::fmt;

use futures_core::future::BoxFuture;

use crate::api::status::RequestError;
use crate::registry::JsonObject;
use crate::source::ConditionalWrite;

/// The number of times that a write of an object is attempted, before it fails with
/// [`Conflict::Modified`](crate::api::Conflict::Modified).
pub(super) const ATTEMPTS_MAX: usize = 128;

/// What is allocated to objects in other keys of the store. Each write of an object is one transaction with the
/// writes of these keys: if it fails, nothing was allocated or released.
///
/// The methods are called again if another client was faster, with the versions of that moment, so they read the
/// store and keep no state of their own.
pub trait Allocator: fmt::Debug + Send + Sync + 'static {
    /// Allocates what a new version of an object needs beyond `old`, completes the object by it, and returns the
    /// writes. What only `old` has is released. Called before the strategy prepares and validates the object. A
    /// dry run writes nothing.
    ///
    /// # Errors
    /// Any error rejects the object.
    fn allocate<'a>(
        &'a self,
        new: &'a mut JsonObject,
        old: Option<&'a JsonObject>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Vec<ConditionalWrite>, RequestError>>;

    /// Returns the writes that release all that was allocated to an object that is removed.
    ///
    /// # Errors
    /// The store cannot be read.
    fn release<'a>(
        &'a self,
        object: &'a JsonObject,
    ) -> BoxFuture<'a, Result<Vec<ConditionalWrite>, RequestError>>;
}
