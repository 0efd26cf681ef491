//! Errors of requests, with the codes, reasons and texts of kube-apiserver.

use std::fmt;
use std::time::Duration;

use revstore_engine::Revision;
use thiserror::Error;

use crate::api::corrupt::{CorruptList, CorruptObject};
use crate::status::{CauseReason, Reason, ResourceName, Status, StatusCause, StatusDetails};

/// The error of a request. [`RequestError::status`] converts it into the `Status` that clients parse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// 422: options are missing, are not supported, or exclude each other.
    // WC-230.
    #[error("{}", invalid_options(.0))]
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
        /// The resource of the object. For a precondition of a deletion it has the name of the kind in
        /// place of the plural, as in kube-apiserver.
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
    /// 404: the resource was removed from the cache, or replaced by one with another configuration. A
    /// server that has a newer handle of the resource sends the request there.
    #[error("the server could not find the requested resource")]
    Removed,
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
    /// Any other error, as a server on the network reported it, or a function that computes or validates
    /// an object.
    #[error("{0}")]
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
    fn status(&self) -> Status {
        let (resource, name, reason) = match self {
            Self::NotCorrupt { resource, name } => (
                resource.clone(),
                name.as_str(),
                "is exclusively used to delete corrupt object(s), try again by removing this option",
            ),
            Self::Preconditions => (
                ResourceName::new("meta.k8s.io", "DeleteOptions"),
                "",
                "cannot be set together with .preconditions",
            ),
        };
        let option = "ignoreStoreReadErrorWithClusterBreakingPotential";
        let cause = StatusCause::invalid(option, true, reason);
        Status::invalid(&resource, name, vec![cause])
    }
}

impl fmt::Display for InvalidDelete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status().fmt(f)
    }
}

/// The reason of a [`RequestError::Conflict`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// The object was changed by other writes during all attempts of this write.
    // WC-414.
    Modified,
    /// A key that is written [with the object](crate::api::UpdateOptions::others) was changed.
    Others,
    /// The precondition of an update on the uid does not hold.
    Uid {
        /// The key of the object in the store.
        key: String,
        /// The value in the precondition.
        requested: String,
        /// The value of the object.
        found: String,
    },
    /// The precondition of an update on the resource version does not hold.
    ResourceVersion {
        /// The key of the object in the store.
        key: String,
        /// The value in the precondition.
        requested: String,
        /// The value of the object.
        found: String,
    },
    /// The precondition of a deletion on the uid does not hold.
    DeletedUid {
        /// The value in the precondition.
        requested: String,
        /// The value of the object.
        found: String,
    },
    /// The precondition of a deletion on the resource version does not hold.
    DeletedResourceVersion {
        /// The value in the precondition.
        requested: String,
        /// The value of the object.
        found: String,
    },
}

/// The beginning of the text of a failed precondition in the store.
fn invalid_object(key: &str) -> String {
    format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed:"
    )
}

impl Conflict {
    /// Returns the conflict of a deletion for that of an update with the same precondition.
    pub(crate) fn of_deletion(self) -> Self {
        match self {
            Self::Uid {
                requested, found, ..
            } => Self::DeletedUid { requested, found },
            Self::ResourceVersion {
                requested, found, ..
            } => Self::DeletedResourceVersion { requested, found },
            other => other,
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Modified | Self::Others => f.write_str(
                "the object has been modified; please apply your changes to the latest version \
                 and try again",
            ),
            Self::Uid {
                key,
                requested,
                found,
            } => write!(
                f,
                "{} UID in precondition: {requested}, UID in object meta: {found}",
                invalid_object(key)
            ),
            Self::ResourceVersion {
                key,
                requested,
                found,
            } => write!(
                f,
                "{} ResourceVersion in precondition: {requested}, ResourceVersion in object meta: \
                 {found}",
                invalid_object(key)
            ),
            Self::DeletedUid { requested, found } => write!(
                f,
                "the UID in the precondition ({requested}) does not match the UID in record \
                 ({found}). The object might have been deleted and then recreated"
            ),
            Self::DeletedResourceVersion { requested, found } => write!(
                f,
                "the ResourceVersion in the precondition ({requested}) does not match the \
                 ResourceVersion in record ({found}). The object might have been modified"
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
    /// The revision as of which an object is read is compacted.
    Get,
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
            Self::Get => f.write_str("The resourceVersion for the provided get is too old."),
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

fn cause_suffix(cause: Option<&str>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

fn invalid_options(causes: &[StatusCause]) -> Status {
    let options = ResourceName::new("meta.k8s.io", "ListOptions");
    Status::invalid(&options, "", causes.to_vec())
}

impl RequestError {
    /// Returns the HTTP status code.
    pub fn code(&self) -> u16 {
        let reason = match self {
            Self::Invalid(_) | Self::InvalidDelete(_) => Reason::Invalid,
            Self::BadRequest(_) => Reason::BadRequest,
            Self::NotFound { .. } | Self::Removed => Reason::NotFound,
            Self::AlreadyExists { .. } => Reason::AlreadyExists,
            Self::Conflict { .. } => Reason::Conflict,
            Self::Expired(_) => Reason::Expired,
            Self::TooLarge { .. } => Reason::Timeout,
            Self::NotReady { .. } | Self::Stopped | Self::TooManyRequests { .. } => {
                Reason::TooManyRequests
            }
            Self::Internal(_) | Self::Corrupt(_) | Self::Unclassified(_) => Reason::InternalError,
            Self::CorruptList(_) | Self::CorruptDeleted(_) => Reason::StoreReadError,
            Self::Unavailable(_) => Reason::ServiceUnavailable,
            Self::Reported(status) => return status.code,
        };
        reason.code()
    }

    /// Returns the error of a create of an object with a resource version.
    // WC-443.
    pub(crate) fn version_on_create() -> Self {
        Self::Unclassified("resourceVersion should not be set on objects to be created".to_owned())
    }

    /// Returns whether the client must list again, because the error has code 410.
    // WC-530.
    pub fn is_expired(&self) -> bool {
        self.code() == Reason::Expired.code()
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
        let seconds = self.status().retry_after_seconds()?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// Returns the `Status` object for this error.
    ///
    /// ```
    /// use revstore_watch_cache::RequestError;
    /// use revstore_watch_cache::api::Expired;
    /// use revstore_watch_cache::status::Reason;
    /// let status = RequestError::Expired(Expired::List).status();
    /// assert_eq!((status.code, status.reason), (410, Some(Reason::Expired)));
    /// ```
    pub fn status(&self) -> Status {
        match self {
            Self::Invalid(causes) => invalid_options(causes),
            Self::InvalidDelete(invalid) => invalid.status(),
            Self::BadRequest(message) => Status::bad_request(message),
            Self::NotFound { resource, name } => Status::not_found(resource, name),
            Self::AlreadyExists { resource, name } => Status::already_exists(resource, name),
            Self::Conflict {
                resource,
                name,
                reason,
            } => Status::conflict(resource, name, &reason.to_string()),
            // WC-232: old clients match the message, new clients match this cause.
            Self::TooLarge { .. } => Status::failure(Reason::Timeout, self.to_string())
                .with_causes([StatusCause::new(
                    CauseReason::RESOURCE_VERSION_TOO_LARGE,
                    "Too large resource version",
                )])
                .with_retry_after(1),
            Self::NotReady {
                retry_after_seconds,
                ..
            } => Status::too_many_requests(self.to_string(), (*retry_after_seconds).max(1)),
            Self::Stopped => Status::too_many_requests(self.to_string(), 1),
            Self::Removed => Status::unknown_resource(),
            Self::TooManyRequests {
                message,
                retry_after_seconds,
            } => Status::too_many_requests(message, *retry_after_seconds),
            Self::Expired(expired) => {
                let mut status = Status::failure(Reason::Expired, expired.to_string());
                if let Expired::Continue { token } = expired {
                    status.continue_token.clone_from(token);
                }
                status
            }
            Self::Internal(message) => Status::internal_error(message),
            Self::Unclassified(message) => Status::unclassified(message),
            Self::Corrupt(corrupt) => Status::failure(Reason::InternalError, self.to_string())
                .with_causes([corrupt.cause()]),
            Self::CorruptDeleted(corrupt) => {
                Status::failure(Reason::StoreReadError, self.to_string())
                    .with_causes([corrupt.cause()])
            }
            Self::CorruptList(list) => Status::failure(Reason::StoreReadError, self.to_string())
                .with_details(StatusDetails::of(&list.resource, "list"))
                .with_causes(list.causes()),
            Self::Unavailable(_) => Status::service_unavailable(self.to_string()),
            Self::Reported(status) => (**status).clone(),
        }
    }
}

impl From<Box<Status>> for RequestError {
    fn from(status: Box<Status>) -> Self {
        Self::Reported(status)
    }
}

impl From<Status> for RequestError {
    fn from(status: Status) -> Self {
        Self::Reported(Box::new(status))
    }
}
