//! The requests to conversion webhooks, and what is checked of their answers.

use revstore_watch_cache::names::{label_value_error, qualified_name_error};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;
use serde_json::{Value, json};

use crate::decode::{from_json, json_type};

/// The group of `ConversionReview`.
const GROUP: &str = "apiextensions.k8s.io";

/// The version of `ConversionReview` that is sent to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// Returns the first known version of a list.
    pub(super) fn of(accepted: &[String]) -> Option<Self> {
        accepted.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// Returns the body of a request.
    pub(super) fn request(self, uid: &str, target: &str, objects: &[JsonObject]) -> Vec<u8> {
        let review = json!({
            "kind": "ConversionReview",
            "apiVersion": format!("{GROUP}/{}", self.name()),
            "request": {"uid": uid, "desiredAPIVersion": target, "objects": objects},
        });
        // The serialization of a JSON value does not fail.
        serde_json::to_vec(&review).unwrap_or_default()
    }

    /// Returns the objects in the body of an answer.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn converted(self, uid: &str, body: &[u8]) -> Result<Vec<Value>, String> {
        let decoded = from_json(body)
            .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
        let mut review = decoded.value;
        if !review.is_object() {
            return Err(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value \
                 of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                 \"json:\\\"kind,omitempty\\\"\" }}",
                json_type(&review)
            ));
        }
        let text = |value: &Value, field: &str| {
            let text = value.get(field).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        if self == Self::V1 {
            let expected = format!("{GROUP}/v1");
            let (found, kind) = (text(&review, "apiVersion"), text(&review, "kind"));
            if found != expected || kind != "ConversionReview" {
                return Err(format!(
                    "expected webhook response of {expected}, Kind=ConversionReview, got {}",
                    kind_text(&found, &kind)
                ));
            }
        }
        let mut response = review["response"].take();
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        let found = text(&response, "uid");
        if self == Self::V1 && found != uid {
            return Err(format!("expected response.uid={uid:?}, got {found:?}"));
        }
        let result = response.get("result").unwrap_or(&Value::Null);
        let status = text(result, "status");
        if status != "Success" {
            let message = text(result, "message");
            return Err(if message.is_empty() {
                format!("response.result.status was '{status}', not 'Success'")
            } else {
                message
            });
        }
        match response["convertedObjects"].take() {
            Value::Array(objects) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }
}

/// Returns the text of a group, version and kind.
pub(super) fn kind_text(api_version: &str, kind: &str) -> String {
    if api_version.contains('/') {
        format!("{api_version}, Kind={kind}")
    } else {
        format!("/{api_version}, Kind={kind}")
    }
}

/// What is wrong with a converted object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Object(String),
    Metadata(String),
}

/// Checks an object that was converted from `original` to `target`, and gives it the metadata of the original, but for
/// labels and annotations.
pub(super) fn checked(
    original: &JsonObject,
    converted: Value,
    target: &str,
) -> Result<JsonObject, Flaw> {
    let of = |object: &JsonObject, field: &str| {
        let text = object.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let Value::Object(mut new) = converted else {
        return Err(Flaw::Object(format!(
            "Object 'Kind' is missing in '{converted}'"
        )));
    };
    let kind = of(&new, "kind");
    if kind.is_empty() {
        let shown = Value::Object(new);
        return Err(Flaw::Object(format!(
            "Object 'Kind' is missing in '{shown}'"
        )));
    }
    let found = of(&new, "apiVersion");
    if found != target {
        return Err(Flaw::Object(format!(
            "invalid groupVersion (expected {target}, received {found})"
        )));
    }
    let expected = of(original, "kind");
    if kind != expected {
        return Err(Flaw::Object(format!(
            "invalid kind (expected {expected}, received {kind})"
        )));
    }
    let metadata = |object: &JsonObject, field: &str| {
        let text = object
            .get("metadata")
            .and_then(|metadata| metadata.get(field));
        text.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (metadata(original, field), metadata(&new, field));
        if before != after {
            return Err(Flaw::Object(format!(
                "must have the same {name}: {before} != {after}"
            )));
        }
    }
    let restored = restored_metadata(original, new.get("metadata")).map_err(Flaw::Metadata)?;
    new.insert("metadata".to_owned(), restored);
    Ok(new)
}

/// Returns the metadata of an object with the labels and annotations of its conversion.
fn restored_metadata(original: &JsonObject, converted: Option<&Value>) -> Result<Value, String> {
    let converted = match converted {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            let kind = go_type(other);
            return Err(format!(
                "invalid metadata of type {kind} in converted object"
            ));
        }
    };
    let before = original.get("metadata").and_then(Value::as_object);
    let mut metadata = before.cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let entries = match converted.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(entries)) => entries,
            Some(other) => {
                let kind = go_type(other);
                return Err(format!(
                    "invalid metadata.{field} of type {kind} in converted object"
                ));
            }
        };
        for (key, value) in entries {
            if !value.is_string() {
                let kind = go_type(value);
                return Err(format!(
                    "metadata.{field}[{key}] must be a string, but is {kind} in converted object"
                ));
            }
        }
        if metadata.get(field).and_then(Value::as_object) != Some(entries) {
            check_entries(field, entries)?;
        }
        metadata.insert(field.to_owned(), Value::Object(entries.clone()));
    }
    Ok(Value::Object(metadata))
}

/// Checks changed labels or annotations.
fn check_entries(field: &str, entries: &JsonObject) -> Result<(), String> {
    // The name that kube-apiserver gives to the field of annotations.
    let path = match field {
        "labels" => "metadata.labels",
        _ => "metadata.annotation",
    };
    let mut causes = Vec::new();
    for (key, value) in entries {
        let name = match field {
            "labels" => key.clone(),
            _ => key.to_lowercase(),
        };
        if let Some(error) = qualified_name_error(&name) {
            causes.push(StatusCause::invalid(path, key.as_str(), &error));
        }
        let text = value.as_str().unwrap_or_default();
        if field == "labels"
            && let Some(error) = label_value_error(text)
        {
            causes.push(StatusCause::invalid(path, text, &error));
        }
    }
    let texts: Vec<_> = causes.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [text] => Err(text.clone()),
        texts => Err(format!("[{}]", texts.join(", "))),
    }
}

/// Returns the type in Go of a JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn reviews_are_checked() {
        let check = |version: ReviewVersion, body: &str, expected: &str| {
            assert_eq!(
                version.converted("u", body.as_bytes()),
                Err(expected.to_owned())
            );
        };
        let (v1, beta) = (ReviewVersion::V1, ReviewVersion::V1Beta1);
        check(
            v1,
            "{}",
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        );
        let head = r#""kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1""#;
        check(v1, &format!("{{{head}}}"), "no response provided");
        check(beta, "{}", "no response provided");
        check(
            v1,
            &format!("{{{head},\"response\":{{\"uid\":\"x\"}}}}"),
            "expected response.uid=\"u\", got \"x\"",
        );
        check(
            beta,
            r#"{"response":{"result":{"status":"Failure"}}}"#,
            "response.result.status was 'Failure', not 'Success'",
        );
        check(beta, r#"{"response":{"result":{"message":"no"}}}"#, "no");
        assert!(v1.converted("u", b"garbage").is_err());
        assert!(v1.converted("u", b"[]").is_err());
    }

    #[test]
    fn only_labels_and_annotations_of_the_metadata_change() {
        let original = object(&json!({"apiVersion": "g/v1", "kind": "K", "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "finalizers": ["f"], "labels": {"a": "b"}}}));
        let good = json!({"apiVersion": "g/v2", "kind": "K", "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "finalizers": [], "annotations": {"x": "y"}}, "spec": 1});
        let new = checked(&original, good.clone(), "g/v2").unwrap();
        assert_eq!(
            new["metadata"],
            json!({"name": "a", "namespace": "n", "uid": "u", "finalizers": ["f"], "annotations": {"x": "y"}})
        );
        assert_eq!(new["spec"], 1);
        for (pointer, value, expected) in [
            (
                "/apiVersion",
                json!("g/v3"),
                "invalid groupVersion (expected g/v2, received g/v3)",
            ),
            ("/kind", json!("L"), "invalid kind (expected K, received L)"),
            ("/kind", json!(null), "Object 'Kind' is missing in"),
            (
                "/metadata/name",
                json!("b"),
                "must have the same name: a != b",
            ),
            (
                "/metadata/uid",
                json!("v"),
                "must have the same UID: u != v",
            ),
            (
                "/metadata/namespace",
                json!(""),
                "must have the same namespace: n != ",
            ),
            (
                "/metadata/annotations",
                json!(1),
                "invalid metadata.annotations of type int64 in converted object",
            ),
            (
                "/metadata/annotations/x",
                json!([]),
                "metadata.annotations[x] must be a string, but is []interface {} in converted object",
            ),
            (
                "/metadata/annotations",
                json!({"a b": "c"}),
                "metadata.annotation: Invalid value: \"a b\"",
            ),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value;
            let (Flaw::Object(text) | Flaw::Metadata(text)) =
                checked(&original, bad, "g/v2").unwrap_err();
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
