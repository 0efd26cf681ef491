//! A strategy for a Rust type.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::status::RequestError;
use crate::registry::{JsonObject, Strategy};
use crate::status::StatusCause;

type DefaultFn<T> = Box<dyn Fn(&mut T) + Send + Sync>;
type ValidateFn<T> = Box<dyn Fn(&T, Option<&T>) -> Vec<StatusCause> + Send + Sync>;

/// The rules of a resource whose objects are values of the Rust type `T`.
///
/// `T` describes all of an object but `apiVersion`, `kind` and `metadata`, which it need not have. Each
/// write decodes the object as `T` and encodes it again, so that fields that `T` does not have are
/// removed. An object that cannot be decoded is refused with 400.
///
/// ```
/// use revstore_watch_cache::registry::TypedStrategy;
/// use revstore_watch_cache::status::StatusCause;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Widget {
///     spec: Spec,
/// }
/// #[derive(Serialize, Deserialize)]
/// struct Spec {
///     #[serde(default)]
///     size: u32,
/// }
///
/// let widgets = TypedStrategy::<Widget>::new("example.org/v1", "Widget")
///     .default_with(|widget| widget.spec.size = widget.spec.size.max(1))
///     .validate_with(|widget, old| match old {
///         Some(old) if old.spec.size > widget.spec.size => {
///             vec![StatusCause::invalid("spec.size", widget.spec.size, "must not shrink")]
///         }
///         _ => Vec::new(),
///     });
/// # let _ = widgets;
/// ```
pub struct TypedStrategy<T> {
    api_version: String,
    kind: String,
    default: Option<DefaultFn<T>>,
    validate: Option<ValidateFn<T>>,
    marker: PhantomData<fn() -> T>,
}

impl<T> TypedStrategy<T> {
    /// Returns a strategy without defaults and validation.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            default: None,
            validate: None,
            marker: PhantomData,
        }
    }

    /// Sets the function that sets the defaults of a new version.
    #[must_use]
    pub fn default_with(mut self, default: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.default = Some(Box::new(default));
        self
    }

    /// Sets the function that returns what is wrong with a new version, given the previous one.
    #[must_use]
    pub fn validate_with(
        mut self,
        validate: impl Fn(&T, Option<&T>) -> Vec<StatusCause> + Send + Sync + 'static,
    ) -> Self {
        self.validate = Some(Box::new(validate));
        self
    }
}

impl<T> fmt::Debug for TypedStrategy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedStrategy")
            .field("api_version", &self.api_version)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

fn decode<T: DeserializeOwned>(object: &JsonObject) -> Result<T, serde_json::Error> {
    T::deserialize(Value::Object(object.clone()))
}

/// The fields that the store itself reads and writes.
const STORE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl<T: Serialize + DeserializeOwned + 'static> Strategy for TypedStrategy<T> {
    fn api_version(&self) -> &str {
        &self.api_version
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn prepare_create(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        let undecodable = |error: &dyn fmt::Display| {
            let Self {
                api_version, kind, ..
            } = self;
            let version = api_version.rsplit('/').next().unwrap_or_default();
            RequestError::BadRequest(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
            ))
        };
        let mut typed: T = decode(object).map_err(|error| undecodable(&error))?;
        if let Some(default) = &self.default {
            default(&mut typed);
        }
        let mut encoded = match serde_json::to_value(&typed) {
            Ok(Value::Object(encoded)) => encoded,
            Ok(_) => return Err(RequestError::Internal("the type is not an object".into())),
            Err(error) => return Err(RequestError::Internal(error.to_string())),
        };
        for field in STORE_FIELDS {
            if let Some(value) = object.remove(field) {
                encoded.insert(field.to_owned(), value);
            }
        }
        *object = encoded;
        Ok(())
    }

    fn validate_create(&self, object: &JsonObject) -> Vec<StatusCause> {
        self.validate_versions(object, None)
    }

    fn validate_update(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        self.validate_versions(new, Some(old))
    }
}

impl<T: DeserializeOwned> TypedStrategy<T> {
    fn validate_versions(&self, new: &JsonObject, old: Option<&JsonObject>) -> Vec<StatusCause> {
        let Some(validate) = &self.validate else {
            return Vec::new();
        };
        // A previous version that cannot be decoded, because the type has changed, is as good as none.
        let old = old.and_then(|old| decode(old).ok());
        match decode(new) {
            Ok(new) => validate(&new, old.as_ref()),
            Err(error) => vec![StatusCause::internal("", &error.to_string())],
        }
    }
}
