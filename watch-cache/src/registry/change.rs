//! What the caller of a write decides: the new version of an object, and whether a write happens.

use futures_core::future::BoxFuture;

use crate::api::status::RequestError;
use crate::registry::JsonObject;

/// Asked before each write, with the versions that are about to be written or deleted. Corresponds to
/// `ValidateObjectFunc` and its variant for updates.
///
/// A write that is attempted again, because another one was faster, asks again.
pub trait Admit: Send {
    /// Decides on a write. `new` is the complete and valid version to write, or `None` for a deletion; in an
    /// update it has the resource version that it replaces. `old` is the
    /// version that it replaces or deletes, or `None` for a create.
    ///
    /// # Errors
    /// Any error rejects the write.
    fn admit<'a>(
        &'a mut self,
        new: Option<&'a JsonObject>,
        old: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<(), RequestError>>;
}

/// Admits all writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmitAll;

impl Admit for AdmitAll {
    fn admit<'a>(
        &'a mut self,
        _: Option<&'a JsonObject>,
        _: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Computes the new version of an object from the current one, and admits it. Corresponds to `UpdatedObjectInfo`.
pub trait Change: Admit {
    /// Returns the new version. `None` is an object that does not exist. Called again if another write changes the
    /// object meanwhile.
    ///
    /// # Errors
    /// Any error rejects the update.
    fn change<'a>(
        &'a mut self,
        old: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<JsonObject, RequestError>>;
}

/// A function that computes a version at once, which is always admitted.
#[derive(Debug)]
pub struct ChangeFn<F>(
    /// The function.
    pub F,
);

impl<F: Send> Admit for ChangeFn<F> {
    fn admit<'a>(
        &'a mut self,
        new: Option<&'a JsonObject>,
        old: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        let _ = (new, old);
        Box::pin(async { Ok(()) })
    }
}

impl<F> Change for ChangeFn<F>
where
    F: FnMut(Option<&JsonObject>) -> Result<JsonObject, RequestError> + Send,
{
    fn change<'a>(
        &'a mut self,
        old: Option<&'a JsonObject>,
    ) -> BoxFuture<'a, Result<JsonObject, RequestError>> {
        let changed = (self.0)(old);
        Box::pin(async { changed })
    }
}
