//! The flags of a program, and the values that a user gives them.

use std::{collections::BTreeMap, ffi::OsString, fs, io, path::Path, path::PathBuf};

use super::{
    ConfigError, Declaration, Flag, FlagValue, Kind, Section, ValueError, Warning,
    arguments::{self, End},
    completion,
    environment::Environment,
    file, help,
};

/// All flags of a program. A program declares one as a constant.
#[derive(Debug)]
pub struct FlagSet {
    /// The name of the program.
    pub program: &'static str,
    /// The beginning of the help page.
    pub about: &'static str,
    /// The flags.
    pub sections: &'static [Section],
    /// The flag that names a configuration file.
    pub config_file: Flag<Option<PathBuf>>,
    /// The flag that prints the version.
    pub version: Flag<bool>,
    /// The text that it prints.
    pub version_text: fn() -> String,
    /// The prefix of environment variables. The rest is the name of a flag in upper case, with
    /// underscores instead of dashes.
    pub variable_prefix: &'static str,
    /// Variables with the prefix that are not flags, and do not cause a warning.
    pub known_variables: &'static [&'static str],
    /// A mapping inside the file whose keys are flags, too.
    pub file_mapping: &'static str,
    /// Mappings inside the file that are ignored without a warning.
    pub ignored_mappings: &'static [&'static str],
}

/// The task that arguments and environment give to a program.
#[derive(Clone, Debug)]
pub enum Request {
    /// Print a text to standard output and exit with status 0: the help page, the version or a
    /// completion script.
    Print(String),
    /// Run.
    Run {
        /// The values of the flags.
        values: Values,
        /// Warnings for the user.
        warnings: Vec<Warning>,
    },
}

/// The values that a user gives to flags. Each is checked against the type of its flag.
#[derive(Clone, Debug, Default)]
pub struct Values {
    texts: BTreeMap<&'static str, String>,
    is_from_file: bool,
}

impl FlagSet {
    /// Parses the arguments of a process, without the program's name, and its environment.
    ///
    /// A flag takes precedence over its environment variable. A configuration file, named by a flag
    /// or a variable, replaces both, but the flags must still be valid. Reads the file; has no
    /// other effect.
    ///
    /// # Errors
    /// The first error in the command line, the environment or the file.
    pub fn parse(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Request, ConfigError> {
        self.parse_with(arguments, environment, |path| fs::read_to_string(path))
    }

    /// [`parse`](Self::parse) with a function that reads the file, for tests.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse).
    pub fn parse_with(
        &self,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        read_file: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<Request, ConfigError> {
        let mut arguments = arguments.into_iter().peekable();
        if arguments
            .next_if(|first| first == completion::COMMAND)
            .is_some()
        {
            return completion::run(self, arguments).map(Request::Print);
        }
        let mut values = Values::default();
        if arguments::read(self, arguments, &mut values)? == End::Help {
            return Ok(Request::Print(help::text(self)));
        }
        if values.get(&self.version) {
            return Ok(Request::Print((self.version_text)()));
        }

        let mut warnings = Vec::new();
        let environment = Environment::new(self, environment);
        let path = match values.get(&self.config_file) {
            Some(path) => Some(path),
            None => environment.config_file()?,
        };
        if let Some(path) = path {
            let config_file = self.config_file.name();
            if values.texts.keys().any(|name| *name != config_file) {
                warnings.push(Warning::new(
                    "a configuration file is given; other flags and environment variables are \
                     ignored",
                ));
            }
            values = Values {
                is_from_file: true,
                ..Values::default()
            };
            let text = read_file(&path).map_err(|error| {
                let path = path.display();
                ConfigError::new(format!(
                    "cannot read the configuration file {path}: {error}"
                ))
            })?;
            file::read(self, &text, &path, &mut values, &mut warnings)?;
        } else {
            environment.read(&mut values, &mut warnings)?;
        }
        Ok(Request::Run { values, warnings })
    }

    /// All flags, in the order of the help page.
    pub fn flags(&self) -> impl Iterator<Item = &'static Declaration> + use<> {
        self.sections
            .iter()
            .flat_map(|section| section.flags)
            .copied()
    }

    /// The flag with a name, which may be a former one.
    pub(super) fn find(&self, name: &str) -> Option<&'static Declaration> {
        self.flags().find(|flag| flag.has_name(name))
    }
}

impl Values {
    /// The value of a flag: the value given or the default.
    ///
    /// # Panics
    /// If the default is not a value of the flag's type, which is an error in the declaration.
    pub fn get<T: FlagValue>(&self, flag: &Flag<T>) -> T {
        match self.texts.get(flag.name()) {
            Some(text) => T::parse(text).expect("values are checked when they are set"),
            None => flag.default_value(),
        }
    }

    /// Whether a value is given.
    pub fn is_given<T: FlagValue>(&self, flag: &Flag<T>) -> bool {
        self.texts.contains_key(flag.name())
    }

    /// Whether the values come from a configuration file.
    pub fn is_from_file(&self) -> bool {
        self.is_from_file
    }

    pub(super) fn has(&self, flag: &Declaration) -> bool {
        self.texts.contains_key(flag.name)
    }

    /// Checks and stores a value. The last of several values counts.
    pub(super) fn set(&mut self, flag: &Declaration, text: &str) -> Result<(), ValueError> {
        flag.kind.check(text)?;
        let default = || flag.default.to_owned();
        let stored = self.texts.entry(flag.name).or_insert_with(default);
        if flag.kind != Kind::Urls || !text.is_empty() {
            text.clone_into(stored);
        }
        Ok(())
    }
}
