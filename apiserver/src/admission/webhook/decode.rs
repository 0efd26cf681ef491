//! From the body of an answer to a review, with the errors of Go's decoder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::review::{GROUP, ReviewVersion};
use crate::decode::{from_json, from_yaml, json_type};

/// Where kube-apiserver registers the kinds that it knows.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// The type of a field.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Bool,
    Int32,
    Bytes,
    Texts,
    TextMap,
    Struct,
}

/// The fields of `AdmissionResponse` and of its `Status` with their types and the names of these in Go.
const RESPONSE: [(&str, Type, &str); 7] = [
    ("uid", Type::Text, "types.UID"),
    ("allowed", Type::Bool, "bool"),
    ("status", Type::Struct, "v1.Status"),
    ("patch", Type::Bytes, "[]uint8"),
    ("patchType", Type::Text, "v1.PatchType"),
    ("auditAnnotations", Type::TextMap, "map[string]string"),
    ("warnings", Type::Texts, "[]string"),
];
const STATUS: [(&str, Type, &str); 5] = [
    ("status", Type::Text, "string"),
    ("message", Type::Text, "string"),
    ("reason", Type::Text, "v1.StatusReason"),
    ("details", Type::Struct, "v1.StatusDetails"),
    ("code", Type::Int32, "int32"),
];

/// Decodes a review of one version.
///
/// # Errors
/// The body is malformed, of another kind or version, or has fields of other types.
pub(super) fn decode(version: ReviewVersion, body: &[u8]) -> Result<Map<String, Value>, String> {
    let unreadable =
        |error: String| format!("couldn't get version/kind; json parse error: {error}");
    let mut review = match value(body).map_err(unreadable)? {
        Value::Object(review) => review,
        Value::Null => Map::new(),
        other => {
            return Err(unreadable(format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                json_type(&other)
            )));
        }
    };
    for field in ["apiVersion", "kind"] {
        match review.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Err(unreadable(format!(
                    "json: cannot unmarshal {} into Go struct field .{field} of type string",
                    json_type(other)
                )));
            }
        }
    }
    check_kind(version, &review)?;
    match review.get_mut("response") {
        None | Some(Value::Null) => {}
        Some(Value::Object(response)) => {
            check_fields("AdmissionResponse", "response", &RESPONSE, response)?;
            if let Some(Value::Object(status)) = response.get("status") {
                check_fields("Status", "response.status", &STATUS, status)?;
            }
        }
        Some(other) => {
            let name = version.name();
            let go = format!("{name}.AdmissionResponse");
            return Err(mismatch(other, "AdmissionReview", "response", &go));
        }
    }
    Ok(review)
}

/// Returns the value of a text in JSON, or in YAML if it does not begin like an object.
fn value(body: &[u8]) -> Result<Value, String> {
    let error = match from_json(body) {
        Ok(decoded) => return Ok(decoded.value),
        Err(error) => error.to_string(),
    };
    if body.trim_ascii_start().first() == Some(&b'{') {
        return Err(error);
    }
    from_yaml(body)
        .map(|decoded| decoded.value)
        .map_err(|error| error.to_string())
}

/// Checks the kind and the version, which may be left out.
fn check_kind(version: ReviewVersion, review: &Map<String, Value>) -> Result<(), String> {
    let text = |field: &str| {
        let text = review.get(field).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let (kind, group_version) = (text("kind"), text("apiVersion"));
    let own = format!("{GROUP}/{}", version.name());
    let is_kind = ["", "AdmissionReview"].contains(&kind);
    if is_kind && (group_version.is_empty() || group_version == own) {
        return Ok(());
    }
    let known = match group_version.strip_prefix(GROUP) {
        Some("/v1") if is_kind => Some("v1.AdmissionReview"),
        Some("/v1beta1") if is_kind => Some("v1beta1.AdmissionReview"),
        None if group_version == "v1" && kind == "Status" => Some("v1.Status"),
        _ => None,
    };
    if let Some(known) = known {
        let wanted = version.name();
        return Err(format!(
            "converting ({known}) to ({wanted}.AdmissionReview): unknown conversion"
        ));
    }
    let kind = if kind.is_empty() {
        "AdmissionReview"
    } else {
        kind
    };
    let shown = if group_version.is_empty() {
        &own
    } else {
        group_version
    };
    Err(format!(
        "no kind {kind:?} is registered for version {shown:?} in scheme {SCHEME:?}"
    ))
}

fn mismatch(value: &Value, of: &str, path: &str, go: &str) -> String {
    let found = json_type(value);
    format!("json: cannot unmarshal {found} into Go struct field {of}.{path} of type {go}")
}

/// Checks the types of fields.
fn check_fields(
    of: &str,
    path: &str,
    fields: &[(&str, Type, &str)],
    object: &Map<String, Value>,
) -> Result<(), String> {
    for (name, kind, go) in fields {
        let Some(value) = object.get(*name).filter(|value| !value.is_null()) else {
            continue;
        };
        let path = format!("{path}.{name}");
        let wrong = |value: &Value, go: &str| Err(mismatch(value, of, &path, go));
        let is_text = |value: &&Value| !value.is_string() && !value.is_null();
        match (kind, value) {
            (Type::Text, Value::String(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Struct, Value::Object(_)) => {}
            (Type::Int32, Value::Number(number)) => {
                let number = number.as_i64().and_then(|it| i32::try_from(it).ok());
                if number.is_none() {
                    let found = format!("number {value}");
                    return Err(format!(
                        "json: cannot unmarshal {found} into Go struct field {of}.{path} of type {go}"
                    ));
                }
            }
            (Type::Bytes, Value::String(text)) => {
                if let Err(error) = STANDARD.decode(text) {
                    return Err(illegal_base64(text, &error));
                }
            }
            (Type::Texts, Value::Array(items)) => {
                if let Some(item) = items.iter().find(is_text) {
                    return wrong(item, "string");
                }
            }
            (Type::TextMap, Value::Object(items)) => {
                if let Some(item) = items.values().find(is_text) {
                    return wrong(item, "string");
                }
            }
            (_, other) => return wrong(other, go),
        }
    }
    Ok(())
}

fn illegal_base64(text: &str, error: &base64::DecodeError) -> String {
    use base64::DecodeError;
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len(),
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_kind_and_the_types_of_reviews() {
        let check = |version, body: &str, expected: &str| {
            let found = decode(version, body.as_bytes());
            let found = found.err().unwrap_or_default();
            assert!(found.ends_with(expected), "{body}: {found}");
            assert_eq!(found.is_empty(), expected.is_empty(), "{body}: {found}");
        };
        let v1 = |body: &str, expected: &str| check(ReviewVersion::V1, body, expected);
        for body in [
            "{}",
            "null",
            "",
            "kind: AdmissionReview",
            r#"{"response": null}"#,
        ] {
            v1(body, "");
        }
        v1(
            r#"{"apiVersion": "admission.k8s.io/v1", "response": {"patch": "e30=", "warnings": ["a", null]}}"#,
            "",
        );
        v1("[]", "\"kind,omitempty\\\"\" }");
        v1("garbage", "\"kind,omitempty\\\"\" }");
        v1("{\"kind\"", "unexpected end of JSON input");
        v1(
            r#"{"kind": 5}"#,
            "into Go struct field .kind of type string",
        );
        v1(
            r#"{"kind": "X"}"#,
            "registered for version \"admission.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        );
        let other = r#"{"apiVersion": "admission.k8s.io/v1beta1"}"#;
        v1(
            other,
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        );
        check(ReviewVersion::V1Beta1, other, "");
        v1(
            r#"{"response": []}"#,
            "AdmissionReview.response of type v1.AdmissionResponse",
        );
        v1(
            r#"{"response": {"allowed": "x"}}"#,
            "AdmissionResponse.response.allowed of type bool",
        );
        v1(
            r#"{"response": {"warnings": [1]}}"#,
            "AdmissionResponse.response.warnings of type string",
        );
        v1(
            r#"{"response": {"auditAnnotations": {"a": {}}}}"#,
            "response.auditAnnotations of type string",
        );
        v1(
            r#"{"response": {"patch": "a b"}}"#,
            "illegal base64 data at input byte 1",
        );
        v1(
            r#"{"response": {"status": {"code": 3000000000}}}"#,
            "Status.response.status.code of type int32",
        );
    }
}
