//! The configuration file: YAML with the names of flags as keys.

use std::{fs, path::Path};

use saphyr::{LoadableYamlNode, Scalar, Yaml};

use super::{ConfigError, Declaration, FlagSet, ValueKind, Values};

/// Reads a configuration file into `values`. Keys inside the mapping of `flags` take precedence.
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
    let nested = root
        .iter()
        .filter(|(key, _)| key.as_str() == Some(flags.file_mapping));
    let nested = nested.filter_map(|(_, node)| node.as_mapping()).flatten();
    let entries = root.iter().map(|entry| (entry, false));
    for ((key, node), is_nested) in entries.chain(nested.map(|entry| (entry, true))) {
        let key = key.as_str().ok_or_else(shape_error)?;
        let has_key =
            |flag: &&Declaration| flag.has_name(key) || is_nested && flag.file_key == Some(key);
        let is_mapping = key == flags.file_mapping || flags.ignored_mappings.contains(&key);
        if let Some(flag) = flags.own_flags().find(has_key) {
            set(values, flag, node, &file)?;
        } else if is_nested || !is_mapping {
            values.warn(format!(
                "unrecognized key {key:?} in the configuration file"
            ));
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
