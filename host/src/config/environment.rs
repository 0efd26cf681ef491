//! Environment variables: every flag as a prefix and its name in upper case.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::PathBuf,
};

use super::{ConfigError, Declaration, FlagSet, Values, Warning};

/// The variables with the prefix of a program that are not empty. An empty variable counts as
/// unset.
#[derive(Debug)]
pub(super) struct Environment<'a> {
    flags: &'a FlagSet,
    variables: BTreeMap<String, OsString>,
}

impl<'a> Environment<'a> {
    pub(super) fn new(
        flags: &'a FlagSet,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let variables = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, value)| name.starts_with(flags.variable_prefix) && !value.is_empty())
            .collect();
        Self { flags, variables }
    }

    /// The path of the configuration file. Read before the other variables, which it replaces.
    pub(super) fn config_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        let variable = self.variable_of(self.flags.config_file.name());
        Ok(self.text(&variable)?.map(PathBuf::from))
    }

    /// Reads the variables into `values`, which contain the command line already.
    pub(super) fn read(
        &self,
        values: &mut Values,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), ConfigError> {
        let mut unknown: BTreeSet<&str> = self.variables.keys().map(String::as_str).collect();
        for name in self.flags.known_variables {
            unknown.remove(name);
        }
        for flag in self.flags.flags().filter(|flag| flag.in_environment) {
            for name in self.read_flag(flag, values, warnings)? {
                unknown.remove(name.as_str());
            }
        }
        let unknown = unknown.into_iter();
        warnings.extend(
            unknown.map(|name| Warning::new(format!("unrecognized environment variable {name}"))),
        );
        Ok(())
    }

    /// Reads the variables of one flag, that of its former name first, and returns their names.
    fn read_flag(
        &self,
        flag: &Declaration,
        values: &mut Values,
        warnings: &mut Vec<Warning>,
    ) -> Result<Vec<String>, ConfigError> {
        let is_on_command_line = values.has(flag);
        let mut found = Vec::new();
        for variable in flag.names().map(|name| self.variable_of(&name)) {
            let Some(value) = self.text(&variable)? else {
                continue;
            };
            if is_on_command_line {
                // FL-3: etcd refuses to start.
                warnings.push(Warning::new(format!(
                    "the variable {variable} is set as well as --{}; the flag is used",
                    flag.name
                )));
            } else {
                values.set(flag, value).map_err(|reason| {
                    ConfigError::new(format!("invalid value {value:?} for {variable}: {reason}"))
                })?;
            }
            found.push(variable);
        }
        Ok(found)
    }

    fn text(&self, variable: &str) -> Result<Option<&str>, ConfigError> {
        let Some(value) = self.variables.get(variable) else {
            return Ok(None);
        };
        value.to_str().map(Some).ok_or_else(|| {
            let value = value.to_string_lossy();
            ConfigError::new(format!(
                "invalid value {value:?} for {variable}: not valid UTF-8"
            ))
        })
    }

    fn variable_of(&self, flag: &str) -> String {
        let name = flag.replace('-', "_").to_ascii_uppercase();
        format!("{}{name}", self.flags.variable_prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        arguments,
        testing::{FLAGS, INTERVAL, NAME},
    };

    fn check(line: &str, variables: &[(&str, &str)], expected: Result<(&str, &[&str]), &str>) {
        let variables = variables.iter();
        let variables_os = variables
            .clone()
            .map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::new(&FLAGS, variables_os);
        let mut values = Values::default();
        let mut warnings = Vec::new();
        let arguments = line.split_whitespace().map(Into::into);
        arguments::read(&FLAGS, arguments, &mut values).unwrap();
        let actual = environment.read(&mut values, &mut warnings);
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        let actual = actual
            .map(|()| (values.get(&NAME), warnings.as_slice()))
            .map_err(|error| format!("{error}; exit {}", error.exit_code()));
        assert_eq!(
            actual,
            expected
                .map(|(name, warnings)| (name.to_owned(), warnings))
                .map_err(str::to_owned),
            "{line:?} {variables:?}"
        );
    }

    #[test]
    fn fl_2_every_flag_is_a_variable() {
        check("", &[("ETCD_NAME", "a"), ("NAME", "b")], Ok(("a", &[])));
        check("", &[("ETCD_NAME", "")], Ok(("default", &[])));
        check(
            "",
            &[("ETCD_UNSAFE_NO_FSYNC", "true")],
            Ok(("default", &[])),
        );
        check(
            "",
            &[("ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK", "true")],
            Ok(("default", &[])),
        );
        check(
            "",
            &[("ETCD_UNSUPPORTED_ARCH", "riscv64")],
            Ok(("default", &[])),
        );
    }

    #[test]
    fn fl_2_unknown_variables_only_warn() {
        check(
            "",
            &[
                ("ETCD_SERVICE_HOST", "10.0.0.1"),
                ("ETCD_VERSION", "v3.5.30"),
                ("ETCDCTL_API", "3"),
            ],
            Ok((
                "default",
                &[
                    "unrecognized environment variable ETCD_SERVICE_HOST",
                    "unrecognized environment variable ETCD_VERSION",
                ],
            )),
        );
    }

    #[test]
    fn fl_3_the_flag_takes_precedence_over_the_variable() {
        check(
            "--name a",
            &[("ETCD_NAME", "b")],
            Ok((
                "a",
                &["the variable ETCD_NAME is set as well as --name; the flag is used"],
            )),
        );
    }

    #[test]
    fn bad_values_exit_1() {
        check(
            "",
            &[("ETCD_MAX_TXN_OPS", "x")],
            Err("invalid value \"x\" for ETCD_MAX_TXN_OPS: parse error; exit 1"),
        );
        check(
            "",
            &[("ETCD_AUTO_TLS", "maybe")],
            Err("invalid value \"maybe\" for ETCD_AUTO_TLS: parse error; exit 1"),
        );
    }

    #[test]
    fn the_current_name_takes_precedence_over_the_former_name() {
        let variables = [
            ("ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL".into(), "2s".into()),
            (
                "ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL".into(),
                "1s".into(),
            ),
        ];
        let mut values = Values::default();
        let environment = Environment::new(&FLAGS, variables);
        environment.read(&mut values, &mut Vec::new()).unwrap();
        assert_eq!(values.get(&INTERVAL).0, 2_000_000_000);
    }
}
