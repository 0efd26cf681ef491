//! The task that a command line and its environment give to the process.

use std::{ffi::OsString, fs, io, path::Path};

use revstore_host::config::{ConfigError, Request};

use super::{Config, flags::FLAGS};

/// The task of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Print a text to standard output and exit with status 0: the help page, the versions or a
    /// script of shell completions.
    Print(String),
    /// Serve.
    Serve {
        /// The configuration of the server.
        config: Box<Config>,
        /// Messages to log as soon as there is a log.
        warnings: Vec<String>,
    },
}

/// Parses the arguments of a process, without the program's name, and its environment.
///
/// A flag takes precedence over its variable. A configuration file, named by a flag or a variable,
/// replaces both, but the flags must still be valid. Reads that file; has no other effect, so that
/// a configuration can be tested without starting it.
///
/// # Errors
/// The first error; [`ConfigError::exit_code`] is the exit status for it.
///
/// # Example
/// ```
/// use revstore::{Invocation, parse};
///
/// let arguments = ["--name=a", "--auto-compaction-retention", "5m"].map(Into::into);
/// let Invocation::Serve { config, .. } = parse(arguments, [])? else { unreachable!() };
/// assert_eq!(config.name, "a");
/// # Ok::<(), revstore::ConfigError>(())
/// ```
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, ConfigError> {
    parse_with(arguments, environment, |path| fs::read_to_string(path))
}

/// [`parse`] with a function that reads the file, for tests.
pub(super) fn parse_with(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    read_file: impl Fn(&Path) -> io::Result<String>,
) -> Result<Invocation, ConfigError> {
    Ok(match FLAGS.parse(arguments, environment, read_file)? {
        Request::Print(text) => Invocation::Print(text),
        Request::Run {
            values,
            mut warnings,
        } => {
            let config = Box::new(Config::from_values(&values, &mut warnings)?);
            Invocation::Serve { config, warnings }
        }
    })
}
