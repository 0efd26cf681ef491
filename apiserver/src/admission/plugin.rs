//! What a plugin is.

use std::fmt;

use futures_core::future::BoxFuture;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;

use crate::admission::Attributes;

/// What a plugin answers: an error refuses the request.
pub(crate) type Decision<'a> = BoxFuture<'a, Result<(), RequestError>>;

/// The two phases of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before the rules of the resource, on the object as the client wants it.
    Mutate,
    /// After them, on the object as it will be stored.
    Validate,
}

/// A plugin of the chain.
pub(crate) trait Plugin: fmt::Debug + Send + Sync {
    /// Returns whether the plugin does something for a request in a phase. Called for each write, so it is quick.
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool;

    /// Returns whether the plugin follows the decisions of others, such as webhooks, so that what it makes of an object
    /// is checked.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Changes the new object, or refuses it. A deletion has none; that of a connection are its options. The current
    /// version is that of the request. Called for each attempt of an update, with the version of that moment.
    fn mutate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a mut JsonObject>,
    ) -> Decision<'a> {
        let _ = (request, object);
        Box::pin(async { Ok(()) })
    }

    /// Refuses a new object, or a deletion. Called for each attempt, with complete and valid objects.
    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        let _ = (request, object);
        Box::pin(async { Ok(()) })
    }
}
