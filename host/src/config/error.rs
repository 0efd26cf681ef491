//! Errors and warnings of a configuration.

use std::{borrow::Cow, fmt};

/// The reason why arguments, an environment or a file do not make a configuration.
///
/// Displays as a message for the user, which names the flag, the value received and what is
/// allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    message: String,
    exit_code: u8,
}

impl ConfigError {
    /// An error in the use of the command line, as Go's flag package reports it: exit status 2.
    pub(super) fn usage(message: String) -> Self {
        Self {
            message,
            exit_code: 2,
        }
    }

    /// Any other error: exit status 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            exit_code: 1,
        }
    }

    /// The exit status of the process: 2 for an unknown flag or an invalid value on the command
    /// line, 1 for all other errors.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

/// The reason why a text is not a value of a flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(Cow<'static, str>);

impl ValueError {
    /// Go's text for a value of another type.
    pub(super) const SYNTAX: Self = Self(Cow::Borrowed("parse error"));
    /// Go's text for a number beyond the flag's type.
    pub(super) const RANGE: Self = Self(Cow::Borrowed("value out of range"));

    /// An error with this message.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

impl From<ValueError> for ConfigError {
    fn from(error: ValueError) -> Self {
        Self::new(error.0)
    }
}

/// A message about a configuration that is valid and probably not what the user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(String);

impl Warning {
    /// A warning with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
