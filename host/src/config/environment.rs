//! Environment variables: every flag as a prefix and its name in upper case.

use std::{collections::BTreeMap, ffi::OsString};

use super::{ConfigError, Declaration, FlagSet, Values, set::CONFIG_FILE};

/// Environment variables by name.
pub(super) type Variables = BTreeMap<String, OsString>;

/// Returns the variables with the prefix of a program that are not empty. An empty variable counts
/// as unset.
pub(super) fn variables<C>(
    flags: &FlagSet<C>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Variables {
    let variables = environment.into_iter();
    let variables = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let is_ours = |name: &str| name.starts_with(flags.variable_prefix);
    variables
        .filter(|(name, value)| is_ours(name) && !value.is_empty())
        .collect()
}

/// Reads the path of the configuration file, which replaces all other variables, into `values`.
pub(super) fn read_config_file<C>(
    flags: &FlagSet<C>,
    variables: &Variables,
    values: &mut Values,
) -> Result<(), ConfigError> {
    let variable = variable_of(flags, CONFIG_FILE.name());
    match variables.get(&variable) {
        Some(value) => set(values, CONFIG_FILE.declaration(), &variable, value),
        None => Ok(()),
    }
}

/// Reads the variables into `values`, which contain the command line already.
pub(super) fn read<C>(
    flags: &FlagSet<C>,
    variables: &Variables,
    values: &mut Values,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let command_line = values.clone();
    for (variable, value) in variables {
        let name = variable[flags.variable_prefix.len()..]
            .replace('_', "-")
            .to_ascii_lowercase();
        let flag = flags
            .find(&name)
            .filter(|_| variable_of(flags, &name) == *variable);
        let Some(flag) = flag else {
            if !flags.known_variables.contains(&variable.as_str()) {
                warnings.push(format!("unrecognized environment variable {variable}"));
            }
            continue;
        };
        if command_line.has(flag) {
            // FL-3: etcd refuses to start.
            let flag = flag.name;
            warnings.push(format!(
                "the variable {variable} is set as well as --{flag}; the flag is used"
            ));
        } else if flag.name == name || !values.has(flag) {
            // The variable of the name takes precedence over that of the former name.
            set(values, flag, variable, value)?;
        }
    }
    Ok(())
}

fn set(
    values: &mut Values,
    flag: &Declaration,
    variable: &str,
    value: &OsString,
) -> Result<(), ConfigError> {
    let text = value
        .to_str()
        .ok_or_else(|| ConfigError::new("not valid UTF-8"));
    text.and_then(|text| values.set(flag, text))
        .map_err(|reason| {
            let value = value.to_string_lossy();
            ConfigError::new(format!("invalid value {value:?} for {variable}: {reason}"))
        })
}

fn variable_of<C>(flags: &FlagSet<C>, name: &str) -> String {
    let name = name.replace('-', "_").to_ascii_uppercase();
    format!("{}{name}", flags.variable_prefix)
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
        let environment = super::variables(&FLAGS, variables_os);
        let mut values = Values::default();
        let mut warnings = Vec::new();
        let arguments = line.split_whitespace().map(Into::into);
        arguments::read(&FLAGS, arguments, &mut values).unwrap();
        let actual = read(&FLAGS, &environment, &mut values, &mut warnings);
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
        let variables = super::variables(&FLAGS, variables);
        read(&FLAGS, &variables, &mut values, &mut Vec::new()).unwrap();
        assert_eq!(values.get(&INTERVAL).0, 2_000_000_000);
    }
}
