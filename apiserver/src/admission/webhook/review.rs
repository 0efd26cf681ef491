//! The requests to admission webhooks, and what is checked of their answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use revstore_watch_cache::registry::JsonObject;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::decode::decode;
use super::matches::Invocation;
use crate::admission::Attributes;
use crate::webhook::Answer;

/// The group of `AdmissionReview`.
pub(super) const GROUP: &str = "admission.k8s.io";

/// The version of `AdmissionReview` that is sent to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

/// The answer of a webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// A status with the reason of a denial.
    pub(super) result: Value,
    /// The patch, which is not empty.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) patch_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
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

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    /// Returns the body of the request to a webhook. The objects are in the version that it wants.
    pub(super) fn request(
        self,
        uid: &str,
        request: &Attributes<'_>,
        invocation: &Invocation<'_>,
        object: Option<&JsonObject>,
        old: Option<&JsonObject>,
    ) -> Vec<u8> {
        let names = &request.resource.names;
        let kind = json!({
            "group": request.kind.group,
            "version": request.kind.version,
            "kind": request.kind.kind,
        });
        let resource = json!({
            "group": names.group, "version": names.version, "resource": names.plural,
        });
        let (asked_kind, asked_resource) = match &invocation.other {
            None => (kind.clone(), resource.clone()),
            Some(other) => {
                let names = &other.names;
                let asked = json!({
                    "group": names.group, "version": names.version, "resource": names.plural,
                });
                let is_own = request.kind.kind == request.resource.names.kind;
                let asked_kind = json!({
                    "group": names.group, "version": names.version, "kind": names.kind,
                });
                (if is_own { asked_kind } else { kind.clone() }, asked)
            }
        };
        let review = Review {
            kind: "AdmissionReview",
            api_version: format!("{GROUP}/{}", self.name()),
            request: Asked {
                uid,
                kind: asked_kind,
                resource: asked_resource,
                sub_resource: request.subresource,
                request_kind: kind,
                request_resource: resource,
                request_sub_resource: request.subresource,
                name: &request.name,
                namespace: request.shown_namespace(),
                operation: request.operation.name(),
                user_info: user(request),
                object,
                old_object: old,
                dry_run: request.dry_run,
                options: request.options(),
            },
        };
        // The serialization of a JSON value does not fail.
        serde_json::to_vec(&review).unwrap_or_default()
    }

    /// Returns the review in an answer, whose fields have the right types.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn decode(self, answer: &Answer) -> Result<Map<String, Value>, String> {
        if answer.is_protobuf {
            return Err("empty body".to_owned());
        }
        decode(self, &answer.body)
    }

    /// Returns the answer in a review.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn verdict(
        self,
        uid: &str,
        is_mutating: bool,
        mut review: Map<String, Value>,
    ) -> Result<Verdict, String> {
        let text = |object: &Map<String, Value>, field: &str| {
            let text = object.get(field).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let Some(Value::Object(mut response)) = review.remove("response") else {
            return Err("webhook response was absent".to_owned());
        };
        let is_v1 = self == Self::V1;
        if is_v1 {
            let found = text(&response, "uid");
            if found != uid {
                return Err(format!("expected response.uid={uid:?}, got {found:?}"));
            }
            let (version, kind) = (text(&review, "apiVersion"), text(&review, "kind"));
            let expected = format!("{GROUP}/v1");
            if version != expected || kind != "AdmissionReview" {
                let version = if version.contains('/') {
                    version
                } else {
                    format!("/{version}")
                };
                return Err(format!(
                    "expected webhook response of {expected}, Kind=AdmissionReview, got {version}, Kind={kind}"
                ));
            }
        }
        let patch = match response.remove("patch") {
            Some(Value::String(text)) => STANDARD.decode(text).unwrap_or_default(),
            _ => Vec::new(),
        };
        let patch_type = match response.remove("patchType") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let checked = if is_v1 {
            check_patch(is_mutating, &patch, patch_type.as_deref())
        } else {
            Ok(())
        };
        checked?;
        let patch_type = match patch_type {
            Some(name) if is_v1 => name,
            _ => "JSONPatch".to_owned(),
        };
        let warnings = response.get("warnings").and_then(Value::as_array);
        let annotations = response.get("auditAnnotations").and_then(Value::as_object);
        Ok(Verdict {
            allowed: response.get("allowed").and_then(Value::as_bool) == Some(true),
            patch: (is_mutating && !patch.is_empty()).then_some(patch),
            patch_type,
            warnings: warnings
                .into_iter()
                .flatten()
                .filter_map(|warning| Some(warning.as_str()?.to_owned()))
                .collect(),
            annotations: annotations
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            result: response.remove("status").unwrap_or_default(),
        })
    }
}

/// The body of a request. Its objects are copied only if a resource version is added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: String,
    request: Asked<'a>,
}

/// What a review asks about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    uid: &'a str,
    /// The kind that the rule of the webhook matches, as is the resource.
    kind: Value,
    resource: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Value,
    request_resource: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: Value,
    object: Option<&'a JsonObject>,
    old_object: Option<&'a JsonObject>,
    dry_run: bool,
    options: Value,
}

/// Checks that a patch and its type are there, or that neither is.
fn check_patch(is_mutating: bool, patch: &[u8], patch_type: Option<&str>) -> Result<(), String> {
    let refused = |text: &str| Err(text.to_owned());
    match (is_mutating, patch.is_empty(), patch_type) {
        (true, false, None) => {
            refused("webhook returned response.patch but not response.patchType")
        }
        (true, true, Some(_)) => {
            refused("webhook returned response.patchType but not response.patch")
        }
        (true, _, Some("")) => refused("webhook returned invalid response.patchType of \"\""),
        (false, false, _) => refused("validating webhook may not return response.patch"),
        (false, _, Some(_)) => refused("validating webhook may not return response.patchType"),
        _ => Ok(()),
    }
}

/// Returns the user of a request, as in `userInfo`.
fn user(request: &Attributes<'_>) -> Value {
    let user = request.user();
    let mut info = Map::new();
    let texts = [("username", &user.name), ("uid", &user.uid)];
    for (field, text) in texts {
        if !text.is_empty() {
            info.insert(field.to_owned(), text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter();
        let extra: Map<_, _> = extra
            .map(|(key, values)| (key.clone(), json!(values)))
            .collect();
        info.insert("extra".to_owned(), extra.into());
    }
    Value::Object(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(version: ReviewVersion, is_mutating: bool, body: &Value) -> Result<Verdict, String> {
        let review = decode(version, body.to_string().as_bytes())?;
        version.verdict("u", is_mutating, review)
    }

    #[test]
    fn answers_are_checked() {
        let v1 = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        let refused = |is_mutating: bool, body: Value, expected: &str| {
            let error = verdict(ReviewVersion::V1, is_mutating, &body).unwrap_err();
            assert_eq!(error, expected);
        };
        refused(true, json!({}), "webhook response was absent");
        refused(
            true,
            v1(json!({"uid": "x"})),
            "expected response.uid=\"u\", got \"x\"",
        );
        refused(
            true,
            json!({"response": {"uid": "u"}}),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        );
        refused(
            true,
            v1(json!({"uid": "u", "patch": "W10="})),
            "webhook returned response.patch but not response.patchType",
        );
        refused(
            true,
            v1(json!({"uid": "u", "patchType": "JSONPatch"})),
            "webhook returned response.patchType but not response.patch",
        );
        refused(
            false,
            v1(json!({"uid": "u", "patch": "W10=", "patchType": "JSONPatch"})),
            "validating webhook may not return response.patch",
        );
        let beta = json!({"response": {"allowed": true, "patch": "W10="}});
        let beta = verdict(ReviewVersion::V1Beta1, true, &beta).unwrap();
        assert_eq!(
            (beta.patch.as_deref(), &*beta.patch_type),
            (Some(&b"[]"[..]), "JSONPatch")
        );
    }
}
