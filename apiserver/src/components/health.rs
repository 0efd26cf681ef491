//! The health of a component: the one condition of its status.

use serde::Serialize;

/// The health of a component, as the JSON of a condition.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Health {
    r#type: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
}

impl Health {
    fn new(status: &'static str, message: String, error: String) -> Self {
        Self {
            r#type: "Healthy",
            status,
            message,
            error,
        }
    }

    pub(super) fn healthy(message: String) -> Self {
        Self::new("True", message, String::new())
    }

    /// Returns the health of a component that has answered something else, or that was not reached.
    pub(super) fn unhealthy(message: String) -> Self {
        Self::new("False", message, String::new())
    }

    /// Returns the health of a store that does not answer.
    pub(super) fn failed(error: String) -> Self {
        Self::new("False", String::new(), error)
    }

    /// Returns the health of a component whose answer says nothing about it.
    pub(super) fn unclear(message: String) -> Self {
        Self::new("Unknown", message, String::new())
    }

    /// Returns the health of a component whose answer could not be read to its end.
    pub(super) fn unreadable(error: String) -> Self {
        Self::new("Unknown", String::new(), error)
    }
}
