//! The configuration file: YAML with the names of flags as keys.

use std::{fs, path::Path};

use saphyr::{LoadableYamlNode, Mapping, Scalar, Yaml};

use super::{ConfigError, Declaration, FlagSet, Kind, Values};

/// Reads a configuration file into `values`.
pub(super) fn read<C>(
    flags: &FlagSet<C>,
    path: &Path,
    values: &mut Values,
) -> Result<(), ConfigError> {
    let name = format!("the configuration file {}", path.display());
    let text = fs::read_to_string(path)
        .map_err(|error| ConfigError::new(format!("cannot read {name}: {error}")))?;
    let documents = Yaml::load_from_str(&text)
        .map_err(|error| ConfigError::new(format!("{name} is not valid YAML: {error}")))?;
    let mut file = File {
        flags,
        name,
        values,
    };
    match documents.first() {
        None | Some(Yaml::Value(Scalar::Null)) => Ok(()),
        Some(Yaml::Mapping(entries)) => file.read_entries(entries, false),
        Some(_) => Err(file.shape_error()),
    }
}

struct File<'a, C> {
    flags: &'a FlagSet<C>,
    name: String,
    values: &'a mut Values,
}

impl<C> File<'_, C> {
    fn read_entries(&mut self, entries: &Mapping<'_>, is_nested: bool) -> Result<(), ConfigError> {
        for (key, node) in entries {
            let key = key.as_str().ok_or_else(|| self.shape_error())?;
            let has_key =
                |flag: &&Declaration| flag.has_name(key) || is_nested && flag.file_key == Some(key);
            if !is_nested && key == self.flags.file_mapping {
                if let Yaml::Mapping(inner) = node {
                    self.read_entries(inner, true)?;
                }
            } else if let Some(flag) = self.flags.own_flags().find(has_key) {
                self.set(flag, node)?;
            } else if is_nested || !self.flags.ignored_mappings.contains(&key) {
                self.values.warn(format!(
                    "unrecognized key {key:?} in the configuration file"
                ));
            }
        }
        Ok(())
    }

    fn set(&mut self, flag: &Declaration, node: &Yaml<'_>) -> Result<(), ConfigError> {
        let place = format!("{} in {}", flag.name, self.name);
        let text = text_of(node).map_err(|reason| ConfigError::invalid_value("", &place, &reason));
        // A key without a value has no effect.
        let Some(mut text) = text? else {
            return Ok(());
        };
        // etcd accepts durations in files only as nanoseconds; both forms are accepted here.
        if flag.kind == Kind::Duration && text.parse::<i64>().is_ok() {
            text.push_str("ns");
        }
        let set = self.values.set(flag, &text);
        set.map_err(|reason| ConfigError::invalid_value(&text, &place, &reason))
    }

    fn shape_error(&self) -> ConfigError {
        ConfigError::new(format!("{} does not map flag names to values", self.name))
    }
}

/// Returns a value as a user would write it on the command line, a list joined by commas; `None`
/// for null.
fn text_of(node: &Yaml<'_>) -> Result<Option<String>, ConfigError> {
    Ok(match node {
        Yaml::Value(Scalar::Null) => None,
        Yaml::Value(Scalar::Boolean(value)) => Some(value.to_string()),
        Yaml::Value(Scalar::Integer(value)) => Some(value.to_string()),
        Yaml::Value(Scalar::FloatingPoint(value)) => Some(value.to_string()),
        Yaml::Value(Scalar::String(value)) => Some(value.to_string()),
        Yaml::Sequence(items) if items.iter().all(|item| matches!(item, Yaml::Value(_))) => {
            let parts: Result<Vec<_>, _> = items.iter().map(text_of).collect();
            Some(parts?.into_iter().flatten().collect::<Vec<_>>().join(","))
        }
        _ => {
            return Err(ConfigError::new(
                "a single value or a list of values is expected",
            ));
        }
    })
}
