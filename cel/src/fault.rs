//! Why an evaluation has no value.

use crate::work::Exhausted;

/// Why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// An operation failed. `&&` and `||` can make up for it.
    #[error("{0}")]
    Failed(String),
    /// The cost, or the work that has no cost, reached its limit.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
}

/// The error of a function that has no form for its arguments.
pub(crate) fn no_such_overload() -> EvaluationError {
    EvaluationError::Failed("no such overload".to_owned())
}

pub(crate) fn fail<T>(message: impl Into<String>) -> Result<T, EvaluationError> {
    Err(EvaluationError::Failed(message.into()))
}

impl From<String> for EvaluationError {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<&str> for EvaluationError {
    fn from(message: &str) -> Self {
        Self::Failed(message.to_owned())
    }
}

impl From<Exhausted> for EvaluationError {
    fn from(_: Exhausted) -> Self {
        Self::CostLimit
    }
}
