//! The configuration file: YAML with the names of flags as keys.

use std::{fs, path::Path};

use saphyr::{LoadableYamlNode, Scalar, Yaml};

use super::{ConfigError, Declaration, FlagSet, ValueKind, Values};

/// A mapping inside a configuration file whose keys are flags.
#[derive(Debug)]
pub struct FileMapping {
    /// The key of the mapping.
    pub name: &'static str,
    /// The part of the names of flags that is missing in the keys.
    pub prefix: &'static str,
    /// Keys with another flag than the prefix and the key, each with the name of the flag.
    pub other_names: &'static [(&'static str, &'static str)],
}

impl FileMapping {
    /// Returns the name of the flag of a key inside the mapping.
    fn flag_name(&self, key: &str) -> String {
        let mut others = self.other_names.iter();
        match others.find(|(other, _)| *other == key) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("{}{key}", self.prefix),
        }
    }
}

/// Reads a configuration file into `values`. Keys inside the mappings of `flags` take precedence.
pub(super) fn read<C>(
    flags: &FlagSet<C>,
    path: &Path,
    values: &mut Values,
) -> Result<(), ConfigError> {
    let file = format!("the configuration file {}", path.display());
    let error = |problem: String| ConfigError::new(format!("{file} {problem}"));
    let text = fs::read_to_string(path)
        .map_err(|error| ConfigError::new(format!("cannot read {file}: {error}")))?;
    let documents = Yaml::load_from_str(&text)
        .map_err(|reason| error(format!("is not valid YAML: {reason}")))?;
    let shape_error = || error("does not map flag names to values".to_owned());
    let root = match documents.first() {
        None | Some(Yaml::Value(Scalar::Null)) => return Ok(()),
        Some(Yaml::Mapping(root)) => root,
        Some(_) => return Err(shape_error()),
    };
    let mapping_of = |key: &str| flags.file_mappings.iter().find(|it| it.name == key);
    let mut set_key = |key: &str, name: &str, node: &Yaml<'_>| -> Result<(), ConfigError> {
        match flags.own_flags().find(|flag| flag.has_name(name)) {
            Some(flag) => set(values, flag, node, &file)?,
            None => values.warn(format!(
                "unrecognized key {key:?} in the configuration file"
            )),
        }
        Ok(())
    };
    let mut nested = Vec::new();
    for (key, node) in root {
        let key = key.as_str().ok_or_else(shape_error)?;
        match (mapping_of(key), node.as_mapping()) {
            (Some(mapping), Some(nodes)) => nested.push((mapping, nodes)),
            // An empty mapping.
            (Some(_), None) if node.is_null() => {}
            (Some(_), None) => return Err(error(format!("has no mapping at {key:?}"))),
            (None, _) => set_key(key, key, node)?,
        }
    }
    for (mapping, nodes) in nested {
        for (key, node) in nodes {
            let key = key.as_str().ok_or_else(shape_error)?;
            set_key(key, &mapping.flag_name(key), node)?;
        }
    }
    Ok(())
}

fn set(
    values: &mut Values,
    flag: &Declaration,
    node: &Yaml<'_>,
    file: &str,
) -> Result<(), ConfigError> {
    let place = format!("{} in {file}", flag.name);
    let text = text_of(node).map_err(|reason| ConfigError::invalid_value("", &place, &reason))?;
    // A key without a value has no effect.
    let Some(mut text) = text else {
        return Ok(());
    };
    if text.is_empty() && matches!(flag.kind, ValueKind::Urls | ValueKind::Names) {
        return Ok(());
    }
    // etcd accepts durations in files only as nanoseconds; both forms are accepted here.
    if flag.kind == ValueKind::Duration && text.parse::<i64>().is_ok() {
        text.push_str("ns");
    }
    let set = values.set(flag, &text);
    set.map_err(|reason| ConfigError::invalid_value(&text, &place, &reason))
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
            let message = "a single value or a list of values is expected";
            return Err(ConfigError::new(message));
        }
    })
}
