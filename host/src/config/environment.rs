//! Environment variables: every flag as a prefix and its name in upper case.

use std::{collections::BTreeMap, ffi::OsString};

use super::{ConfigError, Declaration, FlagSet, Values};

/// The environment variables with the prefix of a program.
#[derive(Debug)]
pub(super) struct Environment {
    prefix: &'static str,
    variables: BTreeMap<String, OsString>,
}

impl Environment {
    /// Keeps the variables with a prefix that are not empty. An empty variable counts as unset.
    pub(super) fn new(
        prefix: &'static str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let variables = variables.into_iter();
        let variables = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, value)| name.starts_with(prefix) && !value.is_empty())
            .collect();
        Self { prefix, variables }
    }

    /// Moves the variables of all flags into `values`, which contain the command line already.
    pub(super) fn read<C>(
        mut self,
        flags: &FlagSet<C>,
        values: &mut Values,
    ) -> Result<(), ConfigError> {
        for flag in flags.own_flags() {
            if !values.is_given(flag) {
                self.read_flag(flag, values)?;
                continue;
            }
            // FL-3: etcd refuses to start.
            for (variable, _) in self.take(flag) {
                let flag = flag.name;
                values.warn(format!(
                    "the variable {variable} is set as well as --{flag}; the flag is used"
                ));
            }
        }
        for name in self.variables.into_keys() {
            if !flags.known_variables.contains(&name.as_str()) {
                values.warn(format!("unrecognized environment variable {name}"));
            }
        }
        Ok(())
    }

    /// Moves the variables of a flag into `values`.
    pub(super) fn read_flag(
        &mut self,
        flag: &Declaration,
        values: &mut Values,
    ) -> Result<(), ConfigError> {
        for (variable, value) in self.take(flag) {
            let text = value.to_str().ok_or(ConfigError::new("not valid UTF-8"));
            let set = text.and_then(|text| values.set(flag, text));
            set.map_err(|reason| {
                ConfigError::invalid_value(&value.to_string_lossy(), &variable, &reason)
            })?;
        }
        Ok(())
    }

    /// Removes and returns the variables of a flag. That of its current name, which takes
    /// precedence over that of its former name, comes last.
    fn take(&mut self, flag: &Declaration) -> Vec<(String, OsString)> {
        let names = flag.names();
        let variables = names.filter_map(|name| {
            let name = name.replace('-', "_").to_ascii_uppercase();
            self.variables
                .remove_entry(&format!("{}{name}", self.prefix))
        });
        variables.collect()
    }
}
