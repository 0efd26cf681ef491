//! From the arguments and the environment of a process to what it is asked to do.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    arguments::{self, End},
    config::Config,
    config_file,
    draft::Draft,
    environment::Environment,
    error::ConfigError,
    help, version,
    warning::Warning,
};

/// What a process is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Print a text to standard output and exit with status 0: `--help` and `--version`.
    Print(String),
    /// Serve.
    Serve {
        /// As what.
        config: Box<Config>,
        /// What to tell the user as soon as there is a log.
        warnings: Vec<Warning>,
    },
}

/// Reads the arguments of a process, without its name, and its environment.
///
/// A flag beats its variable (FL-3); a configuration file, named by a flag or a variable, replaces
/// both (FL-4), though the flags must still be well-formed. Reads that file; does nothing else to
/// the world, so that a configuration can be tested without starting it.
///
/// # Errors
/// The first thing that is wrong; [`ConfigError::exit_code`] says how to exit.
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

fn parse_with(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    read_file: impl Fn(&Path) -> io::Result<String>,
) -> Result<Invocation, ConfigError> {
    let mut draft = Draft::default();
    if arguments::read(arguments, &mut draft)? == End::Help {
        return Ok(Invocation::Print(help::text()));
    }
    if draft.print_version {
        return Ok(Invocation::Print(version::text()));
    }

    let environment = Environment::new(environment);
    let mut warnings = Vec::new();
    let config_file = match draft.config_file.as_str() {
        "" => environment.config_file()?,
        path => Some(path.to_owned()),
    };
    if let Some(path) = config_file.map(PathBuf::from) {
        if draft.is_given_beside_file() {
            warnings.push(Warning::FlagsReplacedByFile);
        }
        draft = Draft::for_file();
        let text = read_file(&path).map_err(|source| ConfigError::FileUnreadable {
            path: path.clone(),
            source,
        })?;
        config_file::read(&text, &path, &mut draft, &mut warnings)?;
    } else {
        environment.read(&mut draft, &mut warnings)?;
    }
    let config = Box::new(draft.finish(&mut warnings)?);
    Ok(Invocation::Serve { config, warnings })
}

#[cfg(test)]
mod tests;
