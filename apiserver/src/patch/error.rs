//! The errors of patches.

use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusCause, StatusDetails};
use thiserror::Error;

use super::schema::SchemaError;
use crate::decode::{DecodeError, MAX_DEPTH, strict_message};

/// The largest number of operations in a JSON patch. More are answered with 413.
pub const MAX_JSON_PATCH_OPERATIONS: usize = 10_000;

/// The error of a patch. [`PatchError::status`] converts it into the `Status` that clients see.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatchError {
    /// 400: the patch is not JSON, or not an object or a list of operations.
    #[error("error decoding patch: {0}")]
    Malformed(String),
    /// 400: a merge patch without strict decoding is malformed.
    #[error("Invalid JSON Patch")]
    MalformedMerge,
    /// 400: a patch without strict decoding, or a strategic merge patch, is malformed.
    #[error("{0}")]
    Undecodable(String),
    /// 413: a JSON patch has too many operations.
    #[error(
        "The allowed maximum operations in a JSON patch is {MAX_JSON_PATCH_OPERATIONS}, got {0}"
    )]
    TooManyOperations(usize),
    /// 422: an operation of a JSON patch fails. Clients do not see the reason, as with kube-apiserver.
    #[error("{0}")]
    Failed(String),
    /// 400: a directive of a strategic merge patch is malformed.
    #[error("{0}")]
    BadDirective(&'static str),
    /// 422: a strategic merge patch has lists of lists. Clients do not see the reason.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// 500: a strategic merge patch does not fit the object. kube-apiserver does not classify these
    /// errors.
    #[error("{0}")]
    Unfit(String),
    /// 422: the patched object is nested too deeply. Clients do not see the reason.
    #[error("exceeded max depth of {MAX_DEPTH}")]
    TooDeep,
}

impl PatchError {
    pub(super) fn malformed(error: &DecodeError) -> Self {
        Self::Malformed(error.to_string())
    }

    /// Returns the status of the response.
    pub fn status(&self) -> Status {
        match self {
            Self::Malformed(_)
            | Self::MalformedMerge
            | Self::Undecodable(_)
            | Self::BadDirective(_) => Status::bad_request(self.to_string()),
            Self::TooManyOperations(_) => {
                let message = format!("Request entity too large: {self}");
                Status::failure(Reason::RequestEntityTooLarge, message)
            }
            Self::Failed(_) | Self::ListOfLists | Self::TooDeep => {
                let message = "the server rejected our request due to an error in our request";
                Status::failure(Reason::Invalid, message).with_details(StatusDetails::default())
            }
            Self::Unfit(_) => Status::unclassified(self.to_string()),
        }
    }

    /// Returns the response about a patched object that cannot be decoded: 422. `shown` is the text of
    /// [`Patch::shown`](super::Patch::shown), and `detail` the error.
    pub fn invalid_result(shown: &str, detail: &str) -> Status {
        let cause = StatusCause::invalid("patch", shown, detail);
        Status::invalid(&ResourceName::new("", ""), "", vec![cause])
    }

    /// Returns the response about unknown and duplicate fields with strict field validation: 422.
    pub fn strict_result(shown: &str, strict: &[String]) -> Status {
        Self::invalid_result(shown, &strict_message(strict))
    }
}

impl From<SchemaError> for PatchError {
    fn from(error: SchemaError) -> Self {
        Self::Unfit(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::PatchError;

    #[test]
    fn statuses_are_those_of_kube_apiserver() {
        let generic = "the server rejected our request due to an error in our request";
        for (error, code, message) in [
            (
                PatchError::Malformed("x".into()),
                400,
                "error decoding patch: x",
            ),
            (PatchError::MalformedMerge, 400, "Invalid JSON Patch"),
            (
                PatchError::TooManyOperations(10_001),
                413,
                "Request entity too large: The allowed maximum operations in a JSON patch is \
                 10000, got 10001",
            ),
            (PatchError::Failed("x".into()), 422, generic),
            (PatchError::ListOfLists, 422, generic),
            (PatchError::Unfit("x".into()), 500, "x"),
        ] {
            let status = error.status();
            assert_eq!((status.code, status.message.as_str()), (code, message));
        }
        let status = PatchError::strict_result("{}", &["unknown field \"a\"".to_owned()]);
        assert_eq!(
            status.message,
            " \"\" is invalid: patch: Invalid value: \"{}\": strict decoding error: unknown field \
             \"a\""
        );
        let details = status.details.unwrap();
        assert_eq!((details.kind.as_str(), details.name.as_str()), ("", ""));
    }
}
