//! The flags of a program, and the values that a user gives them.

use std::{collections::BTreeMap, ffi::OsString, io, path::Path, path::PathBuf};

use super::{
    ConfigError, Declaration, Flag, FlagValue, Kind, Section, arguments, completion, environment,
    file, help,
};

/// The flags of a program, which declares this as a constant. The flags `config-file`, `help` and
/// `version` are part of every set.
#[derive(Debug)]
pub struct FlagSet {
    /// The name of the program.
    pub program: &'static str,
    /// The beginning of the help page.
    pub about: &'static str,
    /// The text that `--version` prints.
    pub version: fn() -> String,
    /// The flags of the program.
    pub sections: &'static [Section],
    /// The prefix of environment variables. The rest is the name of a flag in upper case, with
    /// underscores instead of dashes.
    pub variable_prefix: &'static str,
    /// Variables with the prefix that are not flags, and do not cause a warning.
    pub known_variables: &'static [&'static str],
    /// A mapping inside the configuration file whose keys are flags, too.
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
        warnings: Vec<String>,
    },
}

/// The values that a user gives to flags. Each is checked against the type of its flag.
#[derive(Clone, Debug, Default)]
pub struct Values {
    texts: BTreeMap<&'static str, String>,
    is_from_file: bool,
}

crate::flags! {
    pub(super) static COMMON_SECTIONS;

    "General" {
        CONFIG_FILE: Option<PathBuf> = "config-file", "",
            "A YAML file with flag names as keys. It replaces all other flags and variables.";
        VERSION: bool = "version", "false", "Print the versions and exit.";
    }
}

impl FlagSet {
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
        if arguments::read(self, arguments, &mut values)? == arguments::End::Help {
            return Ok(Request::Print(help::text(self)));
        }
        if values.get(&VERSION) {
            return Ok(Request::Print((self.version)()));
        }
        let mut warnings = Vec::new();
        let variables = environment::variables(self, environment);
        let path = match values.get(&CONFIG_FILE) {
            Some(path) => Some(path),
            None => environment::config_file(self, &variables)?,
        };
        let Some(path) = path else {
            environment::read(self, &variables, &mut values, &mut warnings)?;
            return Ok(Request::Run { values, warnings });
        };
        if values.texts.keys().any(|name| *name != CONFIG_FILE.name()) {
            warnings.push(
                "a configuration file is given; other flags and environment variables are ignored"
                    .to_owned(),
            );
        }
        values = Values::default();
        values.is_from_file = true;
        let text = read_file(&path).map_err(|error| {
            let path = path.display();
            ConfigError::new(format!(
                "cannot read the configuration file {path}: {error}"
            ))
        })?;
        file::read(self, &text, &path, &mut values, &mut warnings)?;
        Ok(Request::Run { values, warnings })
    }

    /// All flags, in the order of the help page.
    pub fn flags(&self) -> impl Iterator<Item = &'static Declaration> + use<> {
        let sections = COMMON_SECTIONS.iter().chain(self.sections);
        sections.flat_map(|section| section.flags).copied()
    }

    /// Returns the flag with a name, which may be its former name.
    pub(super) fn find(&self, name: &str) -> Option<&'static Declaration> {
        self.flags().find(|flag| flag.has_name(name))
    }
}

impl Values {
    /// The value of a flag: the value given or the default.
    ///
    /// # Panics
    /// If the declared default is not a value of the flag.
    pub fn get<T: FlagValue>(&self, flag: &Flag<T>) -> T {
        match self.texts.get(flag.name()) {
            Some(text) => T::parse(text).expect("values are checked when they are set"),
            None => flag.default_value(),
        }
    }

    /// Whether a value is given.
    pub fn is_given<T: FlagValue>(&self, flag: &Flag<T>) -> bool {
        self.has(flag.declaration())
    }

    /// Whether the values come from a configuration file.
    pub fn is_from_file(&self) -> bool {
        self.is_from_file
    }

    pub(super) fn has(&self, flag: &Declaration) -> bool {
        self.texts.contains_key(flag.name)
    }

    /// Checks and stores a value. The last of several values counts.
    pub(super) fn set(&mut self, flag: &Declaration, text: &str) -> Result<(), ConfigError> {
        flag.kind.check(text)?;
        let stored = self
            .texts
            .entry(flag.name)
            .or_insert_with(|| flag.default.to_owned());
        if flag.kind != Kind::Urls || !text.is_empty() {
            text.clone_into(stored);
        }
        Ok(())
    }
}
