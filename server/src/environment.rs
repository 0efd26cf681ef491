//! The environment: every flag as `ETCD_` and its name in upper case (FL-2).

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};

use crate::{
    draft::Draft,
    error::{ConfigError, ValueError},
    flags,
    warning::Warning,
};

/// The variables that begin with `ETCD_` and are not empty. An empty one counts as unset.
#[derive(Debug)]
pub(crate) struct Environment {
    variables: BTreeMap<String, OsString>,
}

/// Read by etcd itself on unusual processors, and set by images for them: no flag, yet known.
const KNOWN_WITHOUT_FLAG: [&str; 1] = ["ETCD_UNSUPPORTED_ARCH"];

impl Environment {
    pub(crate) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let variables = variables
            .into_iter()
            // A name that is not UTF-8 is none of ours.
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, value)| name.starts_with("ETCD_") && !value.is_empty())
            .collect();
        Self { variables }
    }

    /// The variable of one flag, read apart from the others because it replaces them (FL-4).
    pub(crate) fn config_file(&self) -> Result<Option<String>, ConfigError> {
        self.text(&variable_of(flags::CONFIG_FILE))
    }

    /// Reads the variables into a draft that holds the command line already.
    pub(crate) fn read(
        &self,
        draft: &mut Draft,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), ConfigError> {
        let mut unknown: BTreeSet<&str> = self.variables.keys().map(String::as_str).collect();
        for name in KNOWN_WITHOUT_FLAG {
            unknown.remove(name);
        }
        for flag in flags::all().filter(|flag| flag.name != flags::VERSION) {
            // What was set before is set by the command line: a flag's two variables do not
            // shadow each other.
            let is_on_command_line = draft.is_given(flag.name);
            for name in flag.names() {
                let variable = variable_of(&name);
                let Some(value) = self.text(&variable)? else {
                    continue;
                };
                unknown.remove(variable.as_str());
                if is_on_command_line {
                    // FL-3: etcd stops here.
                    warnings.push(Warning::ShadowedVariable {
                        flag: flag.name,
                        variable,
                    });
                    continue;
                }
                flag.set(draft, &value)
                    .map_err(|reason| ConfigError::BadVariable {
                        variable,
                        value,
                        reason,
                    })?;
            }
        }
        warnings.extend(unknown.into_iter().map(|name| Warning::UnknownVariable {
            variable: name.to_owned(),
        }));
        Ok(())
    }

    fn text(&self, variable: &str) -> Result<Option<String>, ConfigError> {
        let Some(value) = self.variables.get(variable) else {
            return Ok(None);
        };
        match value.to_str() {
            Some(value) => Ok(Some(value.to_owned())),
            None => Err(ConfigError::BadVariable {
                variable: variable.to_owned(),
                value: value.to_string_lossy().into_owned(),
                reason: ValueError::Encoding,
            }),
        }
    }
}

fn variable_of(flag: &str) -> String {
    format!("ETCD_{}", flag.replace('-', "_").to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;

    fn check(line: &str, variables: &[(&str, &str)], expected: Result<(&str, &[&str]), &str>) {
        let environment = Environment::new(
            variables
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        let mut draft = Draft::default();
        let mut warnings = Vec::new();
        arguments::read(line.split_whitespace().map(Into::into), &mut draft).unwrap();
        let actual = environment.read(&mut draft, &mut warnings);
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        let actual = actual
            .map(|()| (draft.name.as_str(), warnings.as_slice()))
            .map_err(|error| format!("{error}; exit {}", error.exit_code()));
        assert_eq!(
            actual,
            expected.map_err(str::to_owned),
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
    fn fl_3_the_flag_beats_the_variable() {
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
    fn the_current_name_beats_the_former_one() {
        let environment = Environment::new([
            ("ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL".into(), "2s".into()),
            (
                "ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL".into(),
                "1s".into(),
            ),
        ]);
        let mut draft = Draft::default();
        environment.read(&mut draft, &mut Vec::new()).unwrap();
        assert_eq!(draft.progress_interval.0, 2_000_000_000);
    }
}
