//! Errors of requests, and the Kubernetes `Status` that clients receive for them, with the codes,
//! reasons and texts of kube-apiserver.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use revstore_engine::Revision;
use serde::Serialize;
use thiserror::Error;

use crate::api::corrupt::{CorruptList, CorruptObject};

/// The error of a request. [`RequestError::status`] converts it into the `Status` that clients parse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// 422: options are missing, are not supported, or exclude each other.
    // WC-230.
    #[error("{}", invalid_options_message(.0))]
    Invalid(Vec<StatusCause>),
    /// 400: an option or a name cannot be parsed.
    #[error("{0}")]
    BadRequest(String),
    /// 404: the object does not exist.
    #[error("{resource} \"{name}\" not found")]
    NotFound {
        /// The resource of the object.
        resource: ResourceName,
        /// The name of the object.
        name: String,
    },
    /// 409: the object to create exists already.
    #[error("{resource} \"{name}\" already exists")]
    AlreadyExists {
        /// The resource of the object.
        resource: ResourceName,
        /// The name of the object.
        name: String,
    },
    /// 409: the object was changed meanwhile, or a precondition does not hold.
    #[error("Operation cannot be fulfilled on {resource} \"{name}\": {reason}")]
    Conflict {
        /// The resource of the object.
        resource: ResourceName,
        /// The name of the object.
        name: String,
        /// The reason of the conflict. Boxed, so that the `Result`s of requests are small.
        reason: Box<Conflict>,
    },
    /// 410: the requested history is no longer available.
    #[error("{0}")]
    Expired(Expired),
    /// 504: the requested revision was not reached in time.
    // WC-232.
    #[error("Timeout: Too large resource version: {requested}, current: {current}")]
    TooLarge {
        /// The requested revision.
        requested: Revision,
        /// The revision that was reached.
        current: Revision,
    },
    /// 429: the cache is loading.
    // docs/watch-cache.md, B.1.
    #[error("storage is (re)initializing{}", cause_suffix(.cause.as_deref()))]
    NotReady {
        /// The error of the last attempt to load, if one failed.
        cause: Option<String>,
        /// The number of seconds after which the client should try again.
        retry_after_seconds: u32,
    },
    /// 429: the cache was stopped.
    // WC-104.
    #[error("apiserver cacher is stopped")]
    Stopped,
    /// 429: the server has too many requests.
    #[error("{message}")]
    TooManyRequests {
        /// The message of the server.
        message: String,
        /// The number of seconds after which the client should try again; 0 if unspecified.
        retry_after_seconds: u32,
    },
    /// 500: the source failed.
    #[error("Internal error occurred: {0}")]
    Internal(String),
    /// 500 without a reason, as kube-apiserver answers where it has no status for an error, such as
    /// a resource version of a get or a watch that is not a number.
    // WC-235.
    #[error("{0}")]
    Unclassified(String),
    /// 500: the object cannot be decoded.
    // WC-205. Boxed, as the next three, so that the `Result`s of requests are small.
    #[error("Internal error occurred: {0}")]
    Corrupt(Box<CorruptObject>),
    /// 500: objects of a list cannot be decoded.
    #[error("failed to read one or more {} from the storage", .0.resource)]
    CorruptList(Box<CorruptList>),
    /// 500: an object that a watch has to report as deleted cannot be decoded.
    #[error("saw a DELETED event, but object data is corrupt - {}", .0.failure())]
    CorruptDeleted(Box<CorruptObject>),
    /// 422: the options of a deletion exclude each other, or do not fit the object.
    #[error("{0}")]
    InvalidDelete(Box<InvalidDelete>),
    /// 503: the server cannot be reached, or does not answer. Only clients over a network report it.
    #[error("the server is unavailable: {0}")]
    Unavailable(String),
    /// Any other error of a server on the network, as that server reported it.
    #[error("{}", .0.message)]
    Reported(Box<Status>),
}

/// The reason of a [`RequestError::InvalidDelete`]. All variants are about
/// [`DeleteOptions::ignore_store_read_error`](crate::api::DeleteOptions).
// WC-205.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidDelete {
    /// The object can be decoded, or does not exist.
    NotCorrupt {
        /// The resource of the object.
        resource: ResourceName,
        /// The name of the object.
        name: String,
    },
    /// The option is set together with preconditions.
    Preconditions,
}

impl InvalidDelete {
    fn details(&self) -> StatusDetails {
        let (name, group, kind) = match self {
            Self::NotCorrupt { resource, name } => {
                (name.as_str(), &*resource.group, &*resource.plural)
            }
            Self::Preconditions => ("", "meta.k8s.io", "DeleteOptions"),
        };
        let reason = match self {
            Self::NotCorrupt { .. } => {
                "is exclusively used to delete corrupt object(s), try again by removing this option"
            }
            Self::Preconditions => "cannot be set together with .preconditions",
        };
        StatusDetails {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            causes: vec![StatusCause {
                reason: "FieldValueInvalid",
                message: format!("Invalid value: true: {reason}"),
                field: "ignoreStoreReadErrorWithClusterBreakingPotential".into(),
            }],
            ..StatusDetails::default()
        }
    }
}

impl fmt::Display for InvalidDelete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StatusDetails {
            name,
            group,
            kind,
            causes,
            ..
        } = self.details();
        let resource = ResourceName::new(group, kind);
        f.write_str(&invalid_message(&resource, &name, &causes))
    }
}

/// The reason of a [`RequestError::Conflict`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// The object was changed by other writes during all attempts of this write.
    // WC-414.
    Modified,
    /// The precondition on the uid does not hold.
    Uid {
        /// The value in the precondition.
        requested: String,
        /// The value of the object.
        found: String,
    },
    /// The precondition on the resource version does not hold.
    ResourceVersion {
        /// The value in the precondition.
        requested: String,
        /// The value of the object.
        found: String,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Modified => f.write_str(
                "the object has been modified; please apply your changes to the latest version \
                 and try again",
            ),
            Self::Uid { requested, found } => write!(
                f,
                "Precondition failed: UID in precondition: {requested}, UID in object meta: {found}"
            ),
            Self::ResourceVersion { requested, found } => write!(
                f,
                "Precondition failed: ResourceVersion in precondition: {requested}, ResourceVersion \
                 in object meta: {found}"
            ),
        }
    }
}

/// The reason of a [`RequestError::Expired`].
// WC-231, WC-234, WC-313, WC-316.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expired {
    /// The revision of an exact list is compacted.
    List,
    /// The revision of a continue token is compacted.
    Continue {
        /// A token that continues at the latest revision, which makes the list inconsistent.
        token: Option<String>,
    },
    /// The window does not contain all events after the position of a watch.
    Window {
        /// The revision after which the events were requested: the start of the watch, or the last
        /// delivered revision.
        requested: Revision,
        /// The oldest revision after which a watch can start.
        oldest: Revision,
    },
    /// The start of a watch of the raw store is compacted.
    Watch,
    /// The store was replaced: it was restored from a backup or started empty.
    Replaced {
        /// The newest known revision of the previous store.
        known: Revision,
        /// The newest revision of the current store.
        found: Revision,
    },
    /// The start of a watch is a future revision that was not reached within the grace period.
    Future {
        /// The revision after which the watch starts.
        requested: Revision,
        /// The watermark of the cache.
        current: Revision,
    },
    /// A server on the network reported the error, with this message.
    Reported(String),
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("The resourceVersion for the provided list is too old."),
            Self::Continue { token: Some(_) } => f.write_str(
                "The provided continue parameter is too old to display a consistent list result. \
                 You can start a new list without the continue parameter, or use the continue \
                 token in this response to retrieve the remainder of the results. Continuing with \
                 the provided token results in an inconsistent list - objects that were created, \
                 modified, or deleted between the time the first chunk was returned and now may \
                 show up in the list.",
            ),
            Self::Continue { token: None } => f.write_str(
                "The provided continue parameter is too old to display a consistent list result. \
                 You can start a new list without the continue parameter.",
            ),
            Self::Window { requested, oldest } => {
                write!(f, "too old resource version: {requested} ({oldest})")
            }
            Self::Watch => f.write_str("The resourceVersion for the provided watch is too old."),
            Self::Replaced { known, found } => write!(
                f,
                "the store was replaced: it was at revision {known} and is at {found}"
            ),
            Self::Future { requested, current } => {
                write!(f, "too large resource version: {requested} ({current})")
            }
            Self::Reported(message) => f.write_str(message),
        }
    }
}

/// The name of a resource in errors: `<plural>.<group>`, or `<plural>` for the core group.
///
/// ```
/// use revstore_watch_cache::api::ResourceName;
/// assert_eq!(ResourceName::new("", "pods").to_string(), "pods");
/// assert_eq!(ResourceName::new("apps", "deployments").to_string(), "deployments.apps");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name.
    pub plural: String,
}

impl ResourceName {
    /// Returns the name of the resource `plural` of the API group `group`.
    pub fn new(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// One of the causes in a [`StatusDetails`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusCause {
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The human-readable message.
    pub message: String,
    /// The option that caused the error, or the key of a corrupt object, or empty.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub field: Cow<'static, str>,
}

/// A Kubernetes `Status` object: the response to a failed request.
// WC-230 to WC-236.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, or empty.
    pub reason: &'static str,
    /// The human-readable message. Old clients parse it as well.
    pub message: String,
    /// The object or the options that caused the error.
    pub details: StatusDetails,
    /// The token that continues an expired list: `metadata.continue`.
    // WC-234.
    pub continue_token: Option<String>,
}

/// The `details` of a [`Status`]. Empty fields are not serialized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource; Kubernetes calls this field `kind`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
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

fn cause_suffix(cause: Option<&str>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

fn invalid_options_message(causes: &[StatusCause]) -> String {
    invalid_message(&ResourceName::new("meta.k8s.io", "ListOptions"), "", causes)
}

fn invalid_message(resource: &ResourceName, name: &str, causes: &[StatusCause]) -> String {
    let bodies: Vec<String> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    let bodies = match bodies.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    format!("{resource} \"{name}\" is invalid: {bodies}")
}

impl RequestError {
    /// Returns the HTTP status code.
    pub fn code(&self) -> u16 {
        self.code_and_reason().0
    }

    /// Returns whether the client must list again, because the error has code 410.
    // WC-530.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Expired(_))
    }

    fn code_and_reason(&self) -> (u16, &'static str) {
        match self {
            Self::Invalid(_) | Self::InvalidDelete(_) => (422, "Invalid"),
            Self::BadRequest(_) => (400, "BadRequest"),
            Self::NotFound { .. } => (404, "NotFound"),
            Self::AlreadyExists { .. } => (409, "AlreadyExists"),
            Self::Conflict { .. } => (409, "Conflict"),
            Self::Expired(_) => (410, "Expired"),
            Self::TooLarge { .. } => (504, "Timeout"),
            Self::NotReady { .. } | Self::Stopped | Self::TooManyRequests { .. } => {
                (429, "TooManyRequests")
            }
            Self::Internal(_) | Self::Corrupt(_) => (500, "InternalError"),
            Self::CorruptList(_) | Self::CorruptDeleted(_) => (500, "StorageReadError"),
            Self::Unclassified(_) => (500, ""),
            Self::Unavailable(_) => (503, "ServiceUnavailable"),
            Self::Reported(status) => (status.code, status.reason),
        }
    }

    /// Returns whether the same request may succeed later, because the server is overloaded, not
    /// ready or not reachable.
    ///
    /// ```
    /// use revstore_watch_cache::RequestError;
    /// assert!(RequestError::Unavailable("connection refused".into()).is_temporary());
    /// assert!(!RequestError::BadRequest("no".into()).is_temporary());
    /// ```
    // WC-506.
    pub fn is_temporary(&self) -> bool {
        matches!(self.code(), 429 | 503)
    }

    /// Returns the time after which the server wants the client to try again, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status().details.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Returns the `Status` object for this error.
    ///
    /// ```
    /// use revstore_watch_cache::RequestError;
    /// use revstore_watch_cache::api::Expired;
    /// let status = RequestError::Expired(Expired::List).status();
    /// assert_eq!((status.code, status.reason), (410, "Expired"));
    /// ```
    pub fn status(&self) -> Status {
        if let Self::Reported(status) = self {
            return (**status).clone();
        }
        let (code, reason) = self.code_and_reason();
        let mut status = Status {
            code,
            reason,
            message: self.to_string(),
            details: StatusDetails::default(),
            continue_token: None,
        };
        let details = &mut status.details;
        match self {
            Self::Invalid(causes) => {
                details.group = "meta.k8s.io".into();
                details.kind = "ListOptions".into();
                details.causes.clone_from(causes);
            }
            Self::NotFound { resource, name }
            | Self::AlreadyExists { resource, name }
            | Self::Conflict { resource, name, .. } => {
                details.name.clone_from(name);
                details.group.clone_from(&resource.group);
                details.kind.clone_from(&resource.plural);
            }
            Self::InvalidDelete(invalid) => *details = invalid.details(),
            Self::CorruptList(list) => {
                details.name = "list".into();
                details.group.clone_from(&list.resource.group);
                details.kind.clone_from(&list.resource.plural);
                details.causes = list.causes();
            }
            Self::Corrupt(corrupt) | Self::CorruptDeleted(corrupt) => {
                details.causes = vec![corrupt.cause()];
            }
            Self::TooLarge { .. } => {
                // WC-232: old clients match the message, new clients match this cause.
                details.causes = vec![StatusCause {
                    reason: "ResourceVersionTooLarge",
                    message: "Too large resource version".into(),
                    field: "".into(),
                }];
                details.retry_after_seconds = 1;
            }
            Self::NotReady {
                retry_after_seconds,
                ..
            } => details.retry_after_seconds = (*retry_after_seconds).max(1),
            Self::Stopped => details.retry_after_seconds = 1,
            Self::TooManyRequests {
                retry_after_seconds,
                ..
            } => details.retry_after_seconds = *retry_after_seconds,
            Self::Expired(Expired::Continue { token }) => status.continue_token.clone_from(token),
            Self::BadRequest(_)
            | Self::Expired(_)
            | Self::Internal(_)
            | Self::Unclassified(_)
            | Self::Unavailable(_)
            | Self::Reported(_) => {}
        }
        status
    }
}

impl Status {
    /// Returns the JSON object on one line.
    ///
    /// ```
    /// use revstore_watch_cache::RequestError;
    /// let status = RequestError::BadRequest("no".into()).status();
    /// assert_eq!(
    ///     status.to_json(),
    ///     r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"BadRequest","code":400}"#,
    /// );
    /// ```
    #[expect(
        clippy::missing_panics_doc,
        reason = "the serialization of strings and numbers does not fail"
    )]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Metadata<'a> {
            #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
            continue_token: Option<&'a str>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a> {
            kind: &'static str,
            api_version: &'static str,
            metadata: Metadata<'a>,
            status: &'static str,
            message: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            reason: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<&'a StatusDetails>,
            code: u16,
        }
        let body = Body {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata {
                continue_token: self.continue_token.as_deref(),
            },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: (self.details != StatusDetails::default()).then_some(&self.details),
            code: self.code,
        };
        serde_json::to_string(&body)
            .expect("the serialization of strings and numbers does not fail")
    }
}
