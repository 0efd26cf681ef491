//! Options of the log.

use std::path::PathBuf;

use super::LogRotation;

/// The level and the outputs of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOptions {
    /// The lowest level that is written. Default info.
    pub level: LogLevel,
    /// The outputs. Each line is written to all of them. Default standard error.
    pub outputs: Vec<LogOutput>,
    /// Prefixes of targets (module paths). Only events of these targets are written. Default `revstore`,
    /// which excludes the events of libraries such as hyper.
    pub targets: Vec<String>,
}

impl LogOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the lowest level that is written.
    #[must_use]
    pub fn level(mut self, level: LogLevel) -> Self {
        self.level = level;
        self
    }

    /// Sets the outputs.
    #[must_use]
    pub fn outputs(mut self, outputs: impl IntoIterator<Item = LogOutput>) -> Self {
        self.outputs = outputs.into_iter().collect();
        self
    }

    /// Sets the prefixes of targets. Only events of these targets are written.
    #[must_use]
    pub fn targets(mut self, targets: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.targets = targets.into_iter().map(Into::into).collect();
        self
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            outputs: vec![LogOutput::Stderr],
            targets: vec!["revstore".to_owned()],
        }
    }
}

/// The importance of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Details for debugging the server.
    Debug,
    /// Normal events.
    Info,
    /// Unexpected events that the server tolerates.
    Warn,
    /// Failed operations.
    Error,
    /// Failures that make a task of the server panic.
    Panic,
    /// Failures that stop the server.
    Fatal,
}

/// A destination of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file. Lines are appended to it. It is created if it does not exist.
    File(PathBuf),
    /// Like [`File`](Self::File), and replaced when it has reached a size.
    RotatedFile(PathBuf, LogRotation),
}
