//! The flags of a program, and the values that a user gives them.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use super::{
    ConfigError, Declaration, FileMapping, Flag, FlagValue, Section, Support, ValueKind, arguments,
    completion, environment, file, flag, help,
};

/// The flags of a program with configuration `C`, which declares this as a constant.
#[derive(Debug)]
pub struct FlagSet<C> {
    /// The name of the program.
    pub program: &'static str,
    /// The beginning of the help page.
    pub about: &'static str,
    /// The text that `--version` prints.
    pub version: fn() -> String,
    /// The flags, without `config-file`, `version` and `help`, which are part of every set.
    pub sections: &'static [Section],
    /// The prefix of environment variables. The rest is the name of a flag in upper case, with
    /// underscores instead of dashes.
    pub variable_prefix: &'static str,
    /// Variables with the prefix that are not flags, and do not cause a warning.
    pub known_variables: &'static [&'static str],
    /// Mappings inside the configuration file whose keys are flags, too.
    pub file_mappings: &'static [FileMapping],
    /// Flags that are accepted without an effect on the command line.
    pub foreign: ForeignFlags,
    /// Checks the values against each other and makes the configuration.
    pub configure: fn(&mut Values) -> Result<C, ConfigError>,
}

/// The flags of another program, in whose place this one can be started. Those that this program does not have cause a
/// warning. Flags of neither are an error, unless [`accepts_others`](Self::accepts_others) is set.
#[derive(Clone, Copy, Debug)]
pub struct ForeignFlags {
    /// The name of the other program.
    pub program: &'static str,
    /// The flags that take a value only after `=`: booleans.
    pub switches: &'static [&'static str],
    /// The other flags.
    pub with_values: &'static [&'static str],
    /// Whether flags of neither program cause a warning, too, for a program that was started under the name of the
    /// other one, by what knows flags of other versions. Such a flag takes the next argument as its value if there is
    /// none behind `=` and the argument does not begin with a dash.
    pub accepts_others: bool,
}

impl ForeignFlags {
    /// No flags.
    pub const NONE: Self = Self {
        program: "",
        switches: &[],
        with_values: &[],
        accepts_others: false,
    };

    /// Returns whether a flag takes its value from the next argument, if there is none behind `=`.
    pub(super) fn takes_value(&self, name: &str) -> Option<bool> {
        let is_switch = self.switches.contains(&name);
        (is_switch || self.with_values.contains(&name)).then_some(!is_switch)
    }
}

/// The task that a command line and its environment give to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation<C> {
    /// Print a text to standard output and exit with status 0: the help page, the version or a
    /// completion script.
    Print(String),
    /// Serve.
    Serve {
        /// The configuration of the server.
        config: Box<C>,
        /// Messages to log as soon as there is a log.
        warnings: Vec<String>,
    },
}

/// The values that a user gives to flags, each checked against the type of its flag, and the
/// warnings about them.
#[derive(Clone, Debug, Default)]
pub struct Values {
    texts: BTreeMap<&'static str, String>,
    warnings: Vec<String>,
}

crate::flags! {
    pub(super) static COMMON_SECTIONS;

    "General" {
        CONFIG_FILE: Option<PathBuf> = "config-file", "",
            "A YAML file with flag names as keys. It replaces all other flags and variables.";
        VERSION: bool = "version", "false", "Print the versions and exit.";
        HELP: bool = "help", "false", "Print this page and exit.";
    }
}

impl<C> FlagSet<C> {
    /// Parses the arguments of a process, without the program's name, and its environment.
    ///
    /// A flag takes precedence over its environment variable. A configuration file, named by a flag
    /// or a variable, replaces both, but the flags must still be valid.
    ///
    /// # Errors
    /// The first error in the command line, the environment or the file.
    pub fn parse(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Invocation<C>, ConfigError> {
        let mut arguments = arguments.into_iter().peekable();
        if arguments.next_if_eq(completion::COMMAND).is_some() {
            return completion::run(self, arguments).map(Invocation::Print);
        }
        let mut values = Values::default();
        arguments::read(self, arguments, &mut values)?;
        if values.get(&HELP) {
            return Ok(Invocation::Print(help::page(self)));
        }
        if values.get(&VERSION) {
            return Ok(Invocation::Print((self.version)()));
        }
        environment::read(self, environment, &mut values)?;
        if let Some(path) = values.get(&CONFIG_FILE) {
            if values.texts.len() > 1 {
                values.warn(
                    "a configuration file is given; other flags and environment variables are \
                     ignored",
                );
            }
            let config_file = CONFIG_FILE.declaration.name;
            values.texts.retain(|name, _| *name == config_file);
            file::read(self, &path, &mut values)?;
        }
        for flag in self.own_flags() {
            values.check_support(flag)?;
        }
        let config = Box::new((self.configure)(&mut values)?);
        let warnings = values.warnings;
        Ok(Invocation::Serve { config, warnings })
    }

    /// All flags, in the order of the help page.
    pub(super) fn flags(&self) -> impl Iterator<Item = &'static Declaration> + use<C> {
        flags_of(COMMON_SECTIONS).chain(self.own_flags())
    }

    /// The flags without those that are part of every set, which are neither variables nor keys of a
    /// file.
    pub(super) fn own_flags(&self) -> impl Iterator<Item = &'static Declaration> + use<C> {
        flags_of(self.sections)
    }
}

fn flags_of(sections: &'static [Section]) -> impl Iterator<Item = &'static Declaration> {
    sections.iter().flat_map(|section| section.flags).copied()
}

impl Values {
    /// The value of a flag: the value given or the default.
    ///
    /// # Panics
    /// If the declared default is not a value of the flag.
    pub fn get<T: FlagValue>(&self, flag: &Flag<T>) -> T {
        let given = self.texts.get(flag.declaration.name);
        let text = given.map_or(flag.declaration.default, String::as_str);
        T::parse(text).expect("values are checked when they are set, and defaults are values")
    }

    /// Whether a flag is given.
    pub fn is_given(&self, flag: &Declaration) -> bool {
        self.texts.contains_key(flag.name)
    }

    /// Whether the values come from a configuration file.
    pub fn is_from_file(&self) -> bool {
        self.get(&CONFIG_FILE).is_some()
    }

    /// Adds a message to log as soon as there is a log.
    pub fn warn(&mut self, message: impl Into<String>) {
        self.warnings.push(message.into());
    }

    /// Adds a message unless it is there already.
    pub(super) fn warn_once(&mut self, message: String) {
        if !self.warnings.contains(&message) {
            self.warnings.push(message);
        }
    }

    /// Adds a warning about a value without effect, and refuses a value that is not supported.
    fn check_support(&mut self, flag: &Declaration) -> Result<(), ConfigError> {
        let Some(text) = self.texts.get(flag.name) else {
            return Ok(());
        };
        let is_any_of = |values: &[&str]| values.iter().any(|value| (flag.is_same)(value, text));
        let name = flag.name;
        match flag.support {
            Support::NoEffect { silent, reason } if !is_any_of(silent) => {
                // Without the value, which may be a password.
                self.warn(format!("--{name} has no effect: {reason}"));
            }
            Support::Only { accepted, reason } if !is_any_of(accepted) => {
                let accepted = flag::quoted(accepted);
                return Err(ConfigError::new(format!(
                    "--{name}={text} is not supported (only {accepted} is): {reason}"
                )));
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks and stores a value. The last of several values counts, but for [`ValueKind::Repeated`].
    pub(super) fn set(&mut self, flag: &Declaration, text: &str) -> Result<(), ConfigError> {
        (flag.check)(flag, text)?;
        if flag.kind == ValueKind::Repeated
            && let Some(stored) = self.texts.get_mut(flag.name)
        {
            stored.push('\n');
            stored.push_str(text);
            return Ok(());
        }
        let stored = self
            .texts
            .entry(flag.name)
            .or_insert_with(|| flag.default.to_owned());
        let is_kept = flag.kind == ValueKind::Urls
            && (text.is_empty() || stored.split(',').any(|url| url.trim() == text));
        if !is_kept {
            text.clone_into(stored);
        }
        Ok(())
    }
}
