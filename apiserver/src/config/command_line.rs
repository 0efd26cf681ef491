//! The command line of a process.

use std::ffi::OsString;

use revstore_host::config::ConfigError;

use super::{Invocation, flags, parse_in_place};

/// The arguments of a process, without the name of the program, and the variables of its environment that are flags.
///
/// ```
/// use revstore_apiserver::{CommandLine, Invocation};
/// let line = CommandLine::new(["--secure-port=0".into()], std::env::vars_os());
/// assert!(matches!(line.parse_in_place()?, Invocation::Serve { .. }));
/// # Ok::<(), revstore_host::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CommandLine {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
}

impl CommandLine {
    /// Keeps the arguments and the variables that are flags.
    pub fn new(
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let prefix = flags::FLAGS.variable_prefix.as_bytes();
        let is_flag = |(name, _): &(OsString, _)| name.as_encoded_bytes().starts_with(prefix);
        Self {
            arguments: arguments.into_iter().collect(),
            variables: environment.into_iter().filter(is_flag).collect(),
        }
    }

    /// Parses it as [`parse_in_place`] does.
    ///
    /// # Errors
    /// As [`parse_in_place`].
    pub fn parse_in_place(&self) -> Result<Invocation, ConfigError> {
        parse_in_place(self.arguments.clone(), self.variables.clone())
    }
}
