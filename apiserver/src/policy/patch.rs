//! The changes that the mutations of a policy make.

use revstore_cel::Value;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::Status;
use serde_json::{Value as Json, json};

use super::constraints::{Matched, has_own_kind};
use crate::admission::Attributes;
use crate::catalog::Origin;
use crate::decode::strict_message;
use crate::managed_fields::{KindsSchema, merge_granular};
use crate::patch::{JsonPatch, PatchError};

/// Why a mutation fails.
#[derive(Debug)]
pub(crate) enum MutationError {
    /// The policy refuses the request.
    Refused(String),
    /// The request fails at once.
    Failed(RequestError),
}

fn refused(text: String) -> MutationError {
    MutationError::Refused(text)
}

fn internal(detail: &str) -> MutationError {
    MutationError::Failed(Status::internal_error(detail).into())
}

/// The kind of the objects that a policy mutates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutated<'a> {
    pub(crate) request: &'a Attributes<'a>,
    pub(crate) matched: &'a Matched,
}

impl Mutated<'_> {
    /// Returns an object with the fields of a configuration.
    fn merge(self, object: &JsonObject, config: &JsonObject) -> Result<JsonObject, String> {
        if has_own_kind(self.request) {
            let resource = self.matched.resource(self.request);
            return resource.rules.merge(object, config);
        }
        let kind = &self.request.kind;
        match revstore_kinds::kind(kind.group, kind.version, kind.kind) {
            Some(ty) => merge_granular(object, config, KindsSchema::new(ty)),
            None => Err(format!("there is no schema of {}", kind.kind)),
        }
    }

    /// Sets the defaults, and removes the unknown fields. Returns those that are an error: custom resources are decoded
    /// without their schemas, and have none.
    fn conform(self, object: &mut JsonObject) -> Result<Vec<String>, RequestError> {
        if !has_own_kind(self.request) {
            return Ok(Vec::new());
        }
        let resource = self.matched.resource(self.request);
        let mut unknown = resource.rules.conform(object)?;
        if resource.origin == Origin::Custom {
            unknown.clear();
        }
        Ok(unknown)
    }
}

/// Returns an object with the fields of a configuration, which is what an expression has made.
pub(crate) fn apply_configuration(
    mutated: Mutated<'_>,
    object: &JsonObject,
    made: &Value,
) -> Result<JsonObject, MutationError> {
    let mismatches = made.type_mismatches();
    if !mismatches.is_empty() {
        return Err(refused(format!("type mismatch: {}", mismatches.join("\n"))));
    }
    let config = made.to_json().map_err(|error| refused(error.to_string()))?;
    let Json::Object(mut config) = config else {
        return Err(refused("invalid return type".to_owned()));
    };
    for name in ["apiVersion", "kind"] {
        config.insert(name.to_owned(), object.get(name).cloned().into());
    }
    let merged = mutated.merge(object, &config);
    let mut merged = merged.map_err(|error| refused(format!("error applying patch: {error}")))?;
    // Unknown fields cannot be in the configuration.
    let conformed = mutated.conform(&mut merged);
    conformed.map_err(|error| refused(error.status().message))?;
    Ok(merged)
}

/// Applies a JSON patch, whose operations an expression has made. `None`: a test in it failed.
pub(crate) fn apply_json_patch(
    mutated: Mutated<'_>,
    object: &JsonObject,
    made: &Value,
) -> Result<Option<JsonObject>, MutationError> {
    let mut operations = Vec::new();
    for operation in made.items() {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        let mut json = json!({
            "op": text("op").unwrap_or_default(),
            "path": text("path").unwrap_or_default(),
        });
        if let Some(from) = text("from").filter(|from| !from.is_empty()) {
            json["from"] = from.into();
        }
        if let Some(value) = operation.get("value") {
            let mismatches = value.type_mismatches();
            if !mismatches.is_empty() {
                return Err(refused(format!("type mismatch: {}", mismatches.join("\n"))));
            }
            json["value"] = value.to_json().map_err(|error| {
                refused(format!(
                    "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}"
                ))
            })?;
        }
        operations.push(json);
    }
    let body = Json::Array(operations).to_string();
    let failed = |error: &PatchError| refused(format!("JSON Patch: {error}"));
    let (patch, _) =
        JsonPatch::from_body(body.as_bytes(), false).map_err(|error| failed(&error))?;
    let patched = match patch.apply(&Json::Object(object.clone())) {
        Ok(patched) => patched,
        Err(PatchError::Failed(text)) if text.starts_with("testing value ") => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let Json::Object(mut patched) = patched else {
        return Err(internal("the patched object is no object"));
    };
    match mutated.conform(&mut patched) {
        Ok(unknown) if unknown.is_empty() => Ok(Some(patched)),
        Ok(unknown) => Err(internal(&strict_message(&unknown))),
        Err(error) => {
            let message = error.status().message;
            // The reason, without the kind.
            let reason = message
                .split_once(" cannot be handled as a ")
                .and_then(|(_, rest)| rest.split_once(": "));
            Err(internal(reason.map_or(&*message, |(_, reason)| reason)))
        }
    }
}
