//! The Kubernetes `Status`: the response to a failed request, and to some that succeed. A [`Status`] is
//! built from a [`Reason`], a message, and [`StatusCause`]s that name fields by their [`FieldPath`].

mod cause;
mod field_path;
mod reason;
mod resource_name;

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use cause::{CauseReason, StatusCause, quoted};
pub use field_path::FieldPath;
pub use reason::Reason;
pub use resource_name::ResourceName;

/// A Kubernetes `Status` object. Corresponds to `metav1.Status`.
///
/// ```
/// use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusCause};
/// let status = Status::invalid(
///     &ResourceName::new("apps", "Deployment"),
///     "web",
///     vec![StatusCause::required("spec.selector", "")],
/// );
/// assert_eq!((status.code, status.reason), (422, Some(Reason::Invalid)));
/// assert_eq!(
///     status.message,
///     "Deployment.apps \"web\" is invalid: spec.selector: Required value"
/// );
/// ```
// WC-230 to WC-236.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Whether the request succeeded.
    pub success: bool,
    /// The HTTP status code; 0 if unspecified, as in the response to a deletion.
    pub code: u16,
    /// The machine-readable reason of a failure. Some errors of Kubernetes with code 500 have none.
    pub reason: Option<Reason>,
    /// The human-readable message. Old clients parse it as well.
    pub message: String,
    /// The object or the options that caused the error. `Some` with empty details is serialized as `{}`.
    pub details: Option<StatusDetails>,
    /// The token that continues an expired list: `metadata.continue`.
    // WC-234.
    pub continue_token: Option<String>,
}

/// The `details` of a [`Status`]. Empty fields are not serialized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource, or the kind if the fields of an object are invalid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The causes of the error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// The number of seconds after which the client should try again; 0 if unspecified.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The JSON form of a [`Status`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody {
    kind: String,
    api_version: String,
    #[serde(default)]
    metadata: StatusMetadata,
    #[serde(default)]
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails>,
    #[serde(default, skip_serializing_if = "is_unspecified")]
    code: u16,
}

/// The `metadata` of a [`StatusBody`].
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StatusMetadata {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_unspecified(code: &u16) -> bool {
    *code == 0
}

impl StatusDetails {
    /// Returns the details of an error about one object of a resource.
    pub fn of(resource: &ResourceName, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            group: resource.group.clone(),
            kind: resource.plural.clone(),
            ..Self::default()
        }
    }
}

impl Status {
    /// Returns a failure without details, with the code of the reason.
    pub fn failure(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code: reason.code(),
            reason: Some(reason),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Returns a success without a code and a message.
    pub fn success() -> Self {
        Self {
            success: true,
            ..Self::default()
        }
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// Adds causes to the details.
    #[must_use]
    pub fn with_causes(mut self, causes: impl IntoIterator<Item = StatusCause>) -> Self {
        self.details.get_or_insert_default().causes.extend(causes);
        self
    }

    /// Sets the number of seconds after which the client should try again. Such a response also has the
    /// header `Retry-After`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(Reason::BadRequest, message)
    }

    /// 401: the client is not authenticated.
    pub fn unauthorized() -> Self {
        Self::failure(Reason::Unauthorized, "Unauthorized")
    }

    /// 403: this is not allowed for an object of the resource, or for all of them if `name` is empty.
    pub fn forbidden(resource: &ResourceName, name: &str, detail: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {detail}")
        } else {
            format!("{resource} {} is forbidden: {detail}", quoted(name))
        };
        Self::failure(Reason::Forbidden, message).with_details(StatusDetails::of(resource, name))
    }

    /// 404: the object does not exist.
    pub fn not_found(resource: &ResourceName, name: &str) -> Self {
        Self::failure(
            Reason::NotFound,
            format!("{resource} {} not found", quoted(name)),
        )
        .with_details(StatusDetails::of(resource, name))
    }

    /// 404: the server does not know the resource.
    pub fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(Reason::NotFound, message).with_details(StatusDetails::default())
    }

    /// 405: the resource does not have this verb.
    pub fn method_not_allowed(resource: &ResourceName, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        Self::failure(Reason::MethodNotAllowed, message)
            .with_details(StatusDetails::of(resource, ""))
    }

    /// 406: none of the accepted media types is available.
    pub fn not_acceptable(available: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            available.join(", ")
        );
        Self::failure(Reason::NotAcceptable, message)
    }

    /// 409: the object to create exists already.
    pub fn already_exists(resource: &ResourceName, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quoted(name));
        Self::failure(Reason::AlreadyExists, message)
            .with_details(StatusDetails::of(resource, name))
    }

    /// 409: the object was changed meanwhile, or a precondition does not hold.
    pub fn conflict(resource: &ResourceName, name: &str, detail: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {detail}",
            quoted(name)
        );
        Self::failure(Reason::Conflict, message).with_details(StatusDetails::of(resource, name))
    }

    /// 413: the body of the request has more than `max` bytes.
    pub fn request_entity_too_large(max: usize) -> Self {
        let message = format!("Request entity too large: limit is {max}");
        Self::failure(Reason::RequestEntityTooLarge, message)
    }

    /// 415: the media type of the request is not supported.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(Reason::UnsupportedMediaType, message)
    }

    /// 422: fields of an object, or of the options of a request, are invalid. A message that several
    /// causes have in common is contained once.
    pub fn invalid(kind: &ResourceName, name: &str, causes: Vec<StatusCause>) -> Self {
        let message = format!("{kind} {} is invalid: {}", quoted(name), joined(&causes));
        Self::failure(Reason::Invalid, message)
            .with_details(StatusDetails::of(kind, name))
            .with_causes(causes)
    }

    /// 429: the client should try again after `seconds`.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::failure(Reason::TooManyRequests, message).with_retry_after(seconds)
    }

    /// 500: the server failed.
    pub fn internal_error(message: impl Into<String>) -> Self {
        let message = message.into();
        let cause = StatusCause::new(CauseReason::default(), message.clone());
        Self::failure(
            Reason::InternalError,
            format!("Internal error occurred: {message}"),
        )
        .with_causes([cause])
    }

    /// 500 without a reason: an error that Kubernetes does not classify.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            message: message.into(),
            ..Self::default()
        }
    }

    /// 503: the server is unavailable.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(Reason::ServiceUnavailable, message)
    }

    /// 504: the request timed out.
    pub fn timeout(message: &str) -> Self {
        Self::failure(Reason::Timeout, format!("Timeout: {message}"))
    }

    /// Returns the number of seconds after which the client should try again, if the server said so.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    /// Returns whether one of the causes has this reason.
    pub fn has_cause(&self, reason: &CauseReason) -> bool {
        let causes = self.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == *reason)
    }

    /// Returns the JSON object on one line.
    ///
    /// ```
    /// use revstore_watch_cache::status::Status;
    /// assert_eq!(
    ///     Status::bad_request("no").to_json(),
    ///     r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"BadRequest","code":400}"#,
    /// );
    /// ```
    #[expect(
        clippy::missing_panics_doc,
        reason = "the serialization of strings and numbers does not fail"
    )]
    pub fn to_json(&self) -> String {
        let body = StatusBody {
            kind: "Status".into(),
            api_version: "v1".into(),
            metadata: StatusMetadata {
                continue_token: self.continue_token.clone(),
            },
            status: if self.success { "Success" } else { "Failure" }.into(),
            message: self.message.clone(),
            reason: self.reason.map_or("", Reason::name).into(),
            details: self.details.clone(),
            code: self.code,
        };
        serde_json::to_string(&body)
            .expect("the serialization of strings and numbers does not fail")
    }

    /// Reads a status from JSON. Unknown fields are ignored, and an unknown reason is none.
    ///
    /// # Errors
    /// The error of the parser if the text is not an object of the kind `Status`.
    ///
    /// ```
    /// use revstore_watch_cache::status::{Reason, Status};
    /// let status = Status::failure(Reason::Expired, "too old resource version: 1 (7)");
    /// assert_eq!(Status::from_json(status.to_json().as_bytes())?, status);
    /// assert!(Status::from_json(br#"{"kind":"Pod","apiVersion":"v1"}"#).is_err());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn from_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        let body: StatusBody = serde_json::from_slice(text)?;
        if body.kind != "Status" {
            let message = format!("the kind is `{}` and not `Status`", body.kind);
            return Err(serde::de::Error::custom(message));
        }
        Ok(Self {
            success: body.status == "Success",
            code: body.code,
            reason: Reason::from_name(&body.reason),
            message: body.message,
            details: body.details,
            continue_token: body
                .metadata
                .continue_token
                .filter(|token| !token.is_empty()),
        })
    }
}

/// Joins the causes of an invalid object, each text once: `a`, or `[a, b]`.
fn joined(causes: &[StatusCause]) -> String {
    let mut seen = HashSet::new();
    let mut texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
    texts.retain(|text| seen.insert(text.clone()));
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::{Reason, ResourceName, Status, StatusCause, StatusDetails};

    #[test]
    fn bodies_are_those_of_kubernetes() {
        let pods = ResourceName::new("", "pods");
        let body = |fields: &str| {
            format!(r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},{fields}}}"#)
        };
        for (status, fields) in [
            (
                Status::success().with_details(StatusDetails {
                    uid: "u".into(),
                    ..StatusDetails::of(&pods, "p")
                }),
                r#""status":"Success","details":{"name":"p","kind":"pods","uid":"u"}"#,
            ),
            (
                Status::unknown_resource(),
                r#""status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404"#,
            ),
            (
                Status::forbidden(&pods, "", "no"),
                r#""status":"Failure","message":"pods is forbidden: no","reason":"Forbidden","details":{"kind":"pods"},"code":403"#,
            ),
            (
                Status::unclassified("content is not a list"),
                r#""status":"Failure","message":"content is not a list","code":500"#,
            ),
            (
                Status::internal_error("broken"),
                r#""status":"Failure","message":"Internal error occurred: broken","reason":"InternalError","details":{"causes":[{"message":"broken"}]},"code":500"#,
            ),
            (
                Status::too_many_requests("later", 3),
                r#""status":"Failure","message":"later","reason":"TooManyRequests","details":{"retryAfterSeconds":3},"code":429"#,
            ),
        ] {
            let json = status.to_json();
            assert_eq!(json, body(fields));
            assert_eq!(Status::from_json(json.as_bytes()).unwrap(), status);
        }
    }

    #[test]
    fn a_text_that_several_causes_have_in_common_is_in_the_message_once() {
        let kind = ResourceName::new("", "Pod");
        let cause = |field: &str| StatusCause::required(field, "");
        let status = Status::invalid(&kind, "p", vec![cause("a"), cause("a")]);
        assert_eq!(status.message, "Pod \"p\" is invalid: a: Required value");
        assert_eq!(status.details.unwrap().causes.len(), 2);
        let status = Status::invalid(&kind, "p", vec![cause("a"), cause("b")]);
        assert_eq!(
            status.message,
            "Pod \"p\" is invalid: [a: Required value, b: Required value]"
        );
    }

    #[test]
    fn a_foreign_status_is_read_as_far_as_it_is_known() {
        let status = Status::from_json(
            br#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"t","x":1},"status":"Failure",
                "message":"m","reason":"Novel","details":{"causes":[{"reason":"Own","field":"f"}],"y":2},"code":418}"#,
        )
        .unwrap();
        assert_eq!((status.code, status.reason), (418, None));
        assert_eq!(status.continue_token.as_deref(), Some("t"));
        assert_eq!(status.details.unwrap().causes[0].reason.as_str(), "Own");
        for invalid in [
            "",
            "[]",
            "{}",
            r#"{"kind":"Status"}"#,
            r#"{"kind":"Status","apiVersion":"v1","code":-1}"#,
        ] {
            assert!(Status::from_json(invalid.as_bytes()).is_err(), "{invalid}");
        }
        assert_eq!(Reason::Timeout.to_string(), "Timeout");
    }
}
