//! The reasons of a [`Status`](crate::status::Status).

use std::fmt;

/// The machine-readable reason of a failed request. Corresponds to `metav1.StatusReason`.
///
/// ```
/// use revstore_watch_cache::status::Reason;
/// assert_eq!(Reason::Expired.code(), 410);
/// assert_eq!(Reason::from_name("Expired"), Some(Reason::Expired));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// 400: the request is malformed.
    BadRequest,
    /// 401: the client is not authenticated.
    Unauthorized,
    /// 403: the client may not do this, or the state of the server forbids it.
    Forbidden,
    /// 404: the object, the resource or the path does not exist.
    NotFound,
    /// 405: the resource does not have this verb.
    MethodNotAllowed,
    /// 406: none of the accepted media types is available.
    NotAcceptable,
    /// 409: the object to create exists already.
    AlreadyExists,
    /// 409: the object was changed meanwhile, or a precondition does not hold.
    Conflict,
    /// 410: the object is gone and its new address is unknown.
    Gone,
    /// 410: the requested history is no longer available.
    Expired,
    /// 413: the body of the request is too large.
    RequestEntityTooLarge,
    /// 415: the media type of the request is not supported.
    UnsupportedMediaType,
    /// 422: the object or the options are invalid; the causes name the fields.
    Invalid,
    /// 429: the client should try again later.
    TooManyRequests,
    /// 500: the server failed.
    InternalError,
    /// 500: the request could not be completed in time, and may be tried again.
    ServerTimeout,
    /// 500: a stored object cannot be read.
    StoreReadError,
    /// 503: the server is unavailable.
    ServiceUnavailable,
    /// 504: the request timed out.
    Timeout,
}

/// Each reason with its name and its HTTP status code.
const REASONS: [(Reason, &str, u16); 19] = [
    (Reason::BadRequest, "BadRequest", 400),
    (Reason::Unauthorized, "Unauthorized", 401),
    (Reason::Forbidden, "Forbidden", 403),
    (Reason::NotFound, "NotFound", 404),
    (Reason::MethodNotAllowed, "MethodNotAllowed", 405),
    (Reason::NotAcceptable, "NotAcceptable", 406),
    (Reason::AlreadyExists, "AlreadyExists", 409),
    (Reason::Conflict, "Conflict", 409),
    (Reason::Gone, "Gone", 410),
    (Reason::Expired, "Expired", 410),
    (Reason::RequestEntityTooLarge, "RequestEntityTooLarge", 413),
    (Reason::UnsupportedMediaType, "UnsupportedMediaType", 415),
    (Reason::Invalid, "Invalid", 422),
    (Reason::TooManyRequests, "TooManyRequests", 429),
    (Reason::InternalError, "InternalError", 500),
    (Reason::ServerTimeout, "ServerTimeout", 500),
    (Reason::StoreReadError, "StorageReadError", 500),
    (Reason::ServiceUnavailable, "ServiceUnavailable", 503),
    (Reason::Timeout, "Timeout", 504),
];

impl Reason {
    fn row(self) -> &'static (Self, &'static str, u16) {
        // The rows are in the order of the variants, which a test checks.
        &REASONS[self as usize]
    }

    /// Returns the name of the reason, as it is in a `Status`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the HTTP status code of errors with this reason.
    pub fn code(self) -> u16 {
        self.row().2
    }

    /// Returns the reason with a name, or `None` if the name is not known.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = REASONS.iter().find(|row| row.1 == name)?;
        Some(row.0)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{REASONS, Reason};

    #[test]
    fn each_reason_has_its_own_row() {
        for (reason, name, code) in REASONS {
            assert_eq!((reason.name(), reason.code()), (name, code));
            assert_eq!(Reason::from_name(name), Some(reason));
        }
        assert_eq!(Reason::from_name("Nonsense"), None);
    }
}
