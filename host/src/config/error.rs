//! Errors of a configuration.

use crate::net::UrlError;

/// The reason why a text is not a value, or why arguments, an environment or a file are not a
/// configuration.
///
/// Displays as a message for the user, with the flag, the value received and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    message: String,
    exit_code: u8,
}

impl ConfigError {
    /// An error with this message and exit status 1.
    pub fn new(message: impl Into<String>) -> Self {
        let (message, exit_code) = (message.into(), 1);
        Self { message, exit_code }
    }

    /// The error for a text in a variable or a file that is not a value.
    pub(super) fn invalid_value(text: &str, place: &str, reason: &Self) -> Self {
        Self::new(format!("invalid value {text:?} for {place}: {reason}"))
    }

    /// An error in the use of the command line, as Go's flag package reports it.
    pub(super) fn usage(message: String) -> Self {
        let exit_code = 2;
        Self { message, exit_code }
    }

    /// Go's error for a value of another type.
    pub(super) fn syntax() -> Self {
        Self::new("parse error")
    }

    /// Go's error for a number that does not fit in its type.
    pub(super) fn range() -> Self {
        Self::new("value out of range")
    }

    /// The exit status of the process: 2 for an unknown flag or an invalid value on the command
    /// line, 1 for all other errors.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl From<UrlError> for ConfigError {
    fn from(error: UrlError) -> Self {
        Self::new(error.to_string())
    }
}
