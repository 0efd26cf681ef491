//! What a client is told when a request cannot be served, with the exact reasons and texts.

use std::fmt;

use revstore_engine::Revision;
use serde::Serialize;
use thiserror::Error;

/// Why a request has no answer. Each variant carries the facts; [`RequestError::status`] makes the
/// `Status` of them that clients parse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Options that exclude each other (WC-230): 422.
    #[error("{}", invalid_message(.0))]
    Invalid(Vec<Cause>),
    /// A request that cannot be understood: 400.
    #[error("{0}")]
    BadRequest(String),
    /// There is no such object: 404.
    #[error("{resource} \"{name}\" not found")]
    NotFound {
        /// Which kind of object.
        resource: ResourceName,
        /// Its name.
        name: String,
    },
    /// There is such an object already: 409.
    #[error("{resource} \"{name}\" already exists")]
    AlreadyExists {
        /// Which kind of object.
        resource: ResourceName,
        /// Its name.
        name: String,
    },
    /// The object is not what the request took it for: 409.
    #[error("Operation cannot be fulfilled on {resource} \"{name}\": {why}")]
    Conflict {
        /// Which kind of object.
        resource: ResourceName,
        /// Its name.
        name: String,
        /// What differs; in a box, because an error should not be larger than an answer.
        why: Box<Conflict>,
    },
    /// The history asked for is gone: 410.
    #[error("{0}")]
    Expired(Expired),
    /// The revision asked for was not reached in time (WC-232): 504.
    #[error("Timeout: Too large resource version: {asked}, current: {current}")]
    TooLarge {
        /// What was asked for.
        asked: Revision,
        /// How far the store was.
        current: Revision,
    },
    /// The cache is loading (B.1): 429.
    #[error("storage is (re)initializing{}", cause_suffix(.cause.as_deref()))]
    NotReady {
        /// What the last attempt failed with.
        cause: Option<String>,
        /// When to try again.
        retry_after_seconds: u32,
    },
    /// The cache was stopped (WC-104): 429.
    #[error("apiserver cacher is stopped")]
    Stopped,
    /// Something that the client cannot change: 500.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

/// What a conflicting write differs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The object was written since the client read it (WC-414).
    Modified,
    /// A precondition on the uid failed.
    Uid {
        /// What was asked for.
        asked: String,
        /// What the object has.
        found: String,
    },
    /// A precondition on the resource version failed.
    ResourceVersion {
        /// What was asked for.
        asked: String,
        /// What the object has.
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
            Self::Uid { asked, found } => write!(
                f,
                "Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
            ),
            Self::ResourceVersion { asked, found } => write!(
                f,
                "Precondition failed: ResourceVersion in precondition: {asked}, ResourceVersion \
                 in object meta: {found}"
            ),
        }
    }
}

/// Which history is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expired {
    /// An exact list below the compacted revision (WC-231).
    List,
    /// A continued list below the compacted revision (WC-234).
    Continue {
        /// A token to go on with, at the price of an inconsistent list.
        token: Option<String>,
    },
    /// A watch from before the window (WC-313).
    Window {
        /// The revision to start after.
        asked: Revision,
        /// The oldest one that could be started after.
        oldest: Revision,
    },
    /// A watch of the raw store from below the compacted revision (WC-313).
    Watch,
    /// Whatever was known: the store behind was restored from a backup, or began anew.
    Replaced {
        /// The newest revision that was known.
        known: Revision,
        /// The newest revision now.
        found: Revision,
    },
    /// A watch from a revision that did not come within the grace period (WC-316).
    Future {
        /// The revision to start after.
        asked: Revision,
        /// How far the store is.
        current: Revision,
    },
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
            Self::Window { asked, oldest } => {
                write!(f, "too old resource version: {asked} ({oldest})")
            }
            Self::Watch => f.write_str("The resourceVersion for the provided watch is too old."),
            Self::Replaced { known, found } => write!(
                f,
                "the store was replaced: it was at revision {known} and is at {found}"
            ),
            Self::Future { asked, current } => {
                write!(f, "too large resource version: {asked} ({current})")
            }
        }
    }
}

/// How errors name a resource type.
///
/// ```
/// use revstore_watch_cache::ResourceName;
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
    /// The resource `plural` of the API group `group`.
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

/// One reason among those of a [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// The option it is about.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub field: &'static str,
}

/// The fields of a Kubernetes `Status` (WC-230 to 236): what every failed request answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The HTTP code.
    pub code: u16,
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people, which old clients parse as well.
    pub message: String,
    /// What it is about.
    pub details: Details,
    /// `metadata.continue`: a token to go on with (WC-234).
    pub continue_token: Option<String>,
}

/// What a [`Status`] is about; empty fields are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The single reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again; 0 means not said.
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

fn invalid_message(causes: &[Cause]) -> String {
    let bodies: Vec<String> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    let bodies = match bodies.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    format!("ListOptions.meta.k8s.io \"\" is invalid: {bodies}")
}

impl RequestError {
    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.code_and_reason().0
    }

    /// Whether the client must list again: code 410, reason Expired or Gone (WC-530).
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Expired(_))
    }

    fn code_and_reason(&self) -> (u16, &'static str) {
        match self {
            Self::Invalid(_) => (422, "Invalid"),
            Self::BadRequest(_) => (400, "BadRequest"),
            Self::NotFound { .. } => (404, "NotFound"),
            Self::AlreadyExists { .. } => (409, "AlreadyExists"),
            Self::Conflict { .. } => (409, "Conflict"),
            Self::Expired(_) => (410, "Expired"),
            Self::TooLarge { .. } => (504, "Timeout"),
            Self::NotReady { .. } | Self::Stopped => (429, "TooManyRequests"),
            Self::Internal(_) => (500, "InternalError"),
        }
    }

    /// The `Status` that says so.
    ///
    /// ```
    /// use revstore_watch_cache::{Expired, RequestError};
    /// let status = RequestError::Expired(Expired::List).status();
    /// assert_eq!((status.code, status.reason), (410, "Expired"));
    /// ```
    pub fn status(&self) -> Status {
        let (code, reason) = self.code_and_reason();
        let mut status = Status {
            code,
            reason,
            message: self.to_string(),
            details: Details::default(),
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
            Self::TooLarge { .. } => {
                // WC-232: old clients match on the message, new ones on this cause.
                details.causes = vec![Cause {
                    reason: "ResourceVersionTooLarge",
                    message: "Too large resource version".into(),
                    field: "",
                }];
                details.retry_after_seconds = 1;
            }
            Self::NotReady {
                retry_after_seconds,
                ..
            } => details.retry_after_seconds = (*retry_after_seconds).max(1),
            Self::Stopped => details.retry_after_seconds = 1,
            Self::Expired(Expired::Continue { token }) => status.continue_token.clone_from(token),
            Self::BadRequest(_) | Self::Expired(_) | Self::Internal(_) => {}
        }
        status
    }
}

impl Status {
    /// The JSON object, on one line.
    ///
    /// # Panics
    /// Never: strings and numbers always become JSON.
    ///
    /// ```
    /// use revstore_watch_cache::RequestError;
    /// let status = RequestError::BadRequest("no".into()).status();
    /// assert_eq!(
    ///     status.to_json(),
    ///     r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"BadRequest","code":400}"#,
    /// );
    /// ```
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
            reason: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<&'a Details>,
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
            details: (self.details != Details::default()).then_some(&self.details),
            code: self.code,
        };
        serde_json::to_string(&body).expect("strings and numbers become JSON")
    }
}
