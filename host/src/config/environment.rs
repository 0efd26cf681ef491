//! Environment variables: every flag as a prefix and its name in upper case.

use std::{collections::BTreeMap, ffi::OsString};

use super::{ConfigError, Declaration, FlagSet, Values, set::CONFIG_FILE};

/// Reads the variables into `values`, which contain the command line already. A variable or a flag
/// that names a configuration file replaces all other variables.
pub(super) fn read<C>(
    flags: &FlagSet<C>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    values: &mut Values,
) -> Result<(), ConfigError> {
    let prefix = flags.variable_prefix;
    let environment = environment.into_iter();
    // An empty variable counts as unset.
    let mut variables: BTreeMap<String, OsString> = environment
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, value)| name.starts_with(prefix) && !value.is_empty())
        .collect();
    // The variable of the current name comes last and takes precedence over that of the former name.
    let mut take = |flag: &Declaration| -> Vec<_> {
        let names = flag.names().map(|name| name.replace('-', "_"));
        let names = names.map(|name| format!("{prefix}{}", name.to_ascii_uppercase()));
        names
            .filter_map(|name| variables.remove_entry(&name))
            .collect()
    };
    let config_file = &CONFIG_FILE.declaration;
    if values.get(&CONFIG_FILE).is_none() {
        set(values, config_file, take(config_file))?;
    }
    if values.is_from_file() {
        return Ok(());
    }
    for flag in flags.own_flags() {
        let variables = take(flag);
        if !values.is_given(flag) {
            set(values, flag, variables)?;
            continue;
        }
        // FL-3: etcd refuses to start.
        for (variable, _) in variables {
            let flag = flag.name;
            values.warn(format!(
                "the variable {variable} is set as well as --{flag}; the flag is used"
            ));
        }
    }
    for name in variables.into_keys() {
        if !flags.known_variables.contains(&name.as_str()) {
            values.warn(format!("unrecognized environment variable {name}"));
        }
    }
    Ok(())
}

fn set(
    values: &mut Values,
    flag: &Declaration,
    variables: Vec<(String, OsString)>,
) -> Result<(), ConfigError> {
    for (variable, value) in variables {
        let text = value.to_str().ok_or(ConfigError::new("not valid UTF-8"));
        let set = text.and_then(|text| values.set(flag, text));
        let value = value.to_string_lossy();
        set.map_err(|reason| ConfigError::invalid_value(&value, &variable, &reason))?;
    }
    Ok(())
}
