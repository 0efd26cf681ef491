//! The rules of one resource.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::status::RequestError;
use crate::status::StatusCause;

/// A JSON object.
pub type JsonObject = Map<String, Value>;

/// The rules of one resource, which an [`ObjectStore`](crate::registry::ObjectStore) follows in addition
/// to those of all resources. Corresponds to `RESTCreateStrategy` and `RESTUpdateStrategy`.
///
/// The methods of a write are called in the order `prepare_*`, `validate_*`. They may be called more than
/// once for one write, so they must have no side effects.
///
/// ```
/// use revstore_watch_cache::registry::{JsonObject, Strategy};
/// use revstore_watch_cache::status::{FieldPath, StatusCause};
/// use revstore_watch_cache::RequestError;
///
/// #[derive(Debug)]
/// struct Widgets;
///
/// impl Strategy for Widgets {
///     fn api_version(&self) -> &str {
///         "example.org/v1"
///     }
///     fn kind(&self) -> &str {
///         "Widget"
///     }
///     fn prepare_create(&self, widget: &mut JsonObject) -> Result<(), RequestError> {
///         widget.entry("spec").or_insert_with(|| serde_json::json!({"size": 1}));
///         Ok(())
///     }
///     fn validate_create(&self, widget: &JsonObject) -> Vec<StatusCause> {
///         let path = FieldPath::new("spec").child("size");
///         match widget["spec"]["size"].as_i64() {
///             Some(1..) => Vec::new(),
///             size => vec![StatusCause::invalid(path, size, "must be positive")],
///         }
///     }
/// }
/// ```
pub trait Strategy: fmt::Debug + Send + Sync + 'static {
    /// Returns the API version of the objects, `<group>/<version>` or the version alone.
    fn api_version(&self) -> &str;

    /// Returns the kind of the objects.
    fn kind(&self) -> &str;

    /// Returns whether objects have a generation, which a change outside of `metadata` and `status`
    /// raises. Otherwise a generation that a client creates an object with is kept.
    // WC-440, WC-442.
    fn has_generation(&self) -> bool {
        true
    }

    /// Returns whether an update without a resource version is allowed.
    // WC-414.
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    /// Returns whether an update creates an object that does not exist.
    // WC-414.
    fn creates_on_update(&self) -> bool {
        false
    }

    /// Returns what is wrong with the name of an object, or `None`. The default accepts DNS subdomains.
    // WC-445.
    fn name_error(&self, name: &str) -> Option<String> {
        crate::names::subdomain_error(name)
    }

    /// Returns whether the answer to an invalid update has the causes in its metadata twice, as that of
    /// kube-apiserver has: of all resources, and of the kind.
    fn repeats_metadata_rules(&self) -> bool {
        false
    }

    /// Returns the time after which a new version of an object is deleted, or `None` to keep it.
    // WC-409.
    fn time_to_live(&self, object: &JsonObject) -> Option<Duration> {
        let _ = object;
        None
    }

    /// Returns the grace period of a deletion in seconds. `requested` is that of the request. 0 deletes
    /// the object at once.
    // WC-448.
    fn grace_period_seconds(&self, object: &JsonObject, requested: Option<i64>) -> i64 {
        let _ = (object, requested);
        0
    }

    /// Returns whether objects are given time to end: their deletion always sets the deletion timestamp, also
    /// that of an object that is removed at once.
    // WC-448.
    fn is_graceful(&self) -> bool {
        false
    }

    /// Returns whether something holds an object that is deleted, besides finalizers and the grace period:
    /// such an object is removed by the update after which nothing holds it.
    fn is_held(&self, object: &JsonObject) -> bool {
        let _ = object;
        false
    }

    /// Completes an object whose deletion begins, and which is not removed yet.
    fn prepare_delete(&self, object: &mut JsonObject) {
        let _ = object;
    }

    /// Sets the defaults of a new object.
    ///
    /// # Errors
    /// Any error rejects the object.
    fn prepare_create(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        let _ = object;
        Ok(())
    }

    /// Sets the defaults of a new version, and restores fields of `old` that this request may not change.
    ///
    /// # Errors
    /// Any error rejects the update.
    fn prepare_update(&self, new: &mut JsonObject, old: &JsonObject) -> Result<(), RequestError> {
        let _ = old;
        self.prepare_create(new)
    }

    /// Returns what is wrong with a new object. Its metadata is checked by the store.
    fn validate_create(&self, object: &JsonObject) -> Vec<StatusCause> {
        let _ = object;
        Vec::new()
    }

    /// Returns what is wrong with a new version of an object. Its metadata is checked by the store.
    fn validate_update(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        let _ = old;
        self.validate_create(new)
    }
}
