//! The strategy of a built-in resource: its rules, and the form that Go's types give to its objects.

use std::time::Duration;

use revstore_kinds as kinds;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::{JsonObject, Strategy};
use revstore_watch_cache::status::StatusCause;
use serde_json::{Value, json};

use crate::builtin;

/// The rules of a built-in resource, and the form that Go's types give to its objects.
#[derive(Clone, Debug)]
pub(crate) struct BuiltinStrategy {
    pub(crate) rules: builtin::Rules,
    pub(crate) object: &'static kinds::Type,
    pub(crate) storage: kinds::Storage,
}

impl BuiltinStrategy {
    /// Gives an object the fields that it has after it was decoded and encoded by Go: fields that are always
    /// shown, and no others that are empty.
    fn normalize(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        let mut value = Value::Object(std::mem::take(object));
        let normalized = kinds::normalize(self.object, &mut value, self.storage);
        if let Value::Object(normal) = value {
            *object = normal;
        }
        match normalized {
            Ok(_) => Ok(()),
            Err(error) => Err(RequestError::BadRequest(error.to_string())),
        }
    }

    fn is_namespace(&self) -> bool {
        self.rules.kind() == "Namespace"
    }
}

impl Strategy for BuiltinStrategy {
    fn api_version(&self) -> &str {
        self.rules.api_version()
    }

    fn kind(&self) -> &str {
        self.rules.kind()
    }

    fn has_generation(&self) -> bool {
        self.rules.has_generation()
    }

    fn allows_unconditional_update(&self) -> bool {
        self.rules.allows_unconditional_update()
    }

    fn creates_on_update(&self) -> bool {
        self.rules.creates_on_update()
    }

    fn repeats_metadata_rules(&self) -> bool {
        true
    }

    fn name_error(&self, name: &str) -> Option<String> {
        self.rules.name_error(name)
    }

    fn time_to_live(&self, object: &JsonObject) -> Option<Duration> {
        self.rules.time_to_live(object)
    }

    fn grace_period_seconds(&self, object: &JsonObject, requested: Option<i64>) -> i64 {
        self.rules.grace_period_seconds(object, requested)
    }

    fn is_graceful(&self) -> bool {
        self.rules.kind() == "Pod"
    }

    fn is_held(&self, object: &JsonObject) -> bool {
        let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers"));
        let finalizers = finalizers.and_then(Value::as_array);
        self.is_namespace() && finalizers.is_some_and(|finalizers| !finalizers.is_empty())
    }

    fn prepare_delete(&self, object: &mut JsonObject) {
        if self.is_namespace() {
            object.insert("status".to_owned(), json!({"phase": "Terminating"}));
        }
    }

    fn prepare_create(&self, object: &mut JsonObject) -> Result<(), RequestError> {
        self.rules.prepare_create(object)?;
        self.normalize(object)
    }

    fn prepare_update(&self, new: &mut JsonObject, old: &JsonObject) -> Result<(), RequestError> {
        self.rules.prepare_update(new, old)?;
        self.normalize(new)
    }

    fn validate_create(&self, object: &JsonObject) -> Vec<StatusCause> {
        self.rules.validate_create(object)
    }

    fn validate_update(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        self.rules.validate_update(new, old)
    }
}
