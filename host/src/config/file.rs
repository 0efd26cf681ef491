//! The configuration file: YAML with the names of flags as keys.

use saphyr::{LoadableYamlNode, Mapping, Scalar, Yaml};

use super::{ConfigError, Declaration, FlagSet, Kind, Values};

/// Reads the text of a configuration file into `values`. `name` begins the error messages.
pub(super) fn read<C>(
    flags: &FlagSet<C>,
    name: &str,
    text: &str,
    values: &mut Values,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let documents = Yaml::load_from_str(text)
        .map_err(|error| ConfigError::new(format!("{name} is not valid YAML: {error}")))?;
    let mut file = File {
        flags,
        name,
        values,
        warnings,
    };
    match documents.first() {
        None | Some(Yaml::Value(Scalar::Null)) => Ok(()),
        Some(Yaml::Mapping(entries)) => file.read_entries(entries, false),
        Some(_) => Err(file.shape_error()),
    }
}

struct File<'a, C> {
    flags: &'a FlagSet<C>,
    name: &'a str,
    values: &'a mut Values,
    warnings: &'a mut Vec<String>,
}

impl<C> File<'_, C> {
    fn read_entries(&mut self, entries: &Mapping<'_>, is_nested: bool) -> Result<(), ConfigError> {
        for (key, node) in entries {
            let key = key.as_str().ok_or_else(|| self.shape_error())?;
            let is_mapping = !is_nested && key == self.flags.file_mapping;
            match (node, self.find(key, is_nested)) {
                (Yaml::Mapping(inner), _) if is_mapping => self.read_entries(inner, true)?,
                _ if is_mapping => {}
                _ if !is_nested && self.flags.ignored_mappings.contains(&key) => {}
                (node, Some(flag)) => self.set(flag, node)?,
                _ => {
                    let message = format!("unrecognized key {key:?} in the configuration file");
                    self.warnings.push(message);
                }
            }
        }
        Ok(())
    }

    fn find(&self, key: &str, is_nested: bool) -> Option<&'static Declaration> {
        let is_renamed = is_nested && !key.is_empty();
        let renamed = self
            .flags
            .flags()
            .find(|flag| is_renamed && flag.file_key == key);
        renamed.or_else(|| self.flags.find(key))
    }

    fn set(&mut self, flag: &Declaration, node: &Yaml<'_>) -> Result<(), ConfigError> {
        let error = |value: &str, reason| {
            let (flag, file) = (flag.name, self.name);
            ConfigError::new(format!(
                "invalid value {value:?} for {flag} in {file}: {reason}"
            ))
        };
        // A key without a value has no effect.
        let Some(mut text) = text_of(node).map_err(|reason| error("", reason))? else {
            return Ok(());
        };
        // etcd accepts durations in files only as nanoseconds; both forms are accepted here.
        if flag.kind == Kind::Duration && text.parse::<i64>().is_ok() {
            text.push_str("ns");
        }
        let set = self.values.set(flag, &text);
        set.map_err(|reason| error(&text, reason))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::{
        CERT_AUTH, CERT_FILE, FLAGS, HOSTNAMES, INTERVAL, LISTEN_CLIENT_URLS, MAX_TXN_OPS, NAME,
        OUTPUTS, PPROF, RETENTION,
    };

    fn values_of(text: &str) -> (Result<Values, String>, Vec<String>) {
        let mut values = Values::default();
        let mut warnings = Vec::new();
        let name = "the configuration file etcd.yaml";
        let result = read(&FLAGS, name, text, &mut values, &mut warnings);
        (
            result.map(|()| values).map_err(|error| error.to_string()),
            warnings,
        )
    }

    fn check<T: PartialEq + std::fmt::Debug>(
        text: &str,
        field: impl Fn(&Values) -> T,
        expected: impl Into<T>,
    ) {
        let (values, warnings) = values_of(text);
        assert_eq!(
            (field(&values.unwrap()), warnings),
            (expected.into(), vec![]),
            "{text}"
        );
    }

    fn check_error(text: &str, expected: &str) {
        let (values, _) = values_of(text);
        let error = values.map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{text:?}: {error}");
    }

    #[test]
    fn fl_4_keys_are_flag_names() {
        check("", |values| values.get(&NAME), "default");
        check(
            "# nothing but a comment",
            |values| values.get(&NAME),
            "default",
        );
        check("name: a", |values| values.get(&NAME), "a");
        check("name:", |values| values.get(&NAME), "default");
        check("max-txn-ops: 7", |values| values.get(&MAX_TXN_OPS), 7_u64);
        check(
            "auto-compaction-retention: 1",
            |values| values.get(&RETENTION),
            "1",
        );
        check(
            "log-outputs: [stdout, a.log]",
            |values| values.get(&OUTPUTS).join(","),
            "stdout,a.log",
        );
        check("enable-pprof: true", |values| values.get(&PPROF), true);
        check(
            "listen-client-urls: http://127.0.0.1:1,http://127.0.0.1:2",
            |values| values.get(&LISTEN_CLIENT_URLS).len(),
            2_usize,
        );
    }

    #[test]
    fn durations_are_nanoseconds_or_gos_form() {
        let interval = |values: &Values| values.get(&INTERVAL).0;
        check(
            "experimental-watch-progress-notify-interval: 5000000000",
            interval,
            5_000_000_000_i64,
        );
        check(
            "watch-progress-notify-interval: 5s",
            interval,
            5_000_000_000_i64,
        );
    }

    #[test]
    fn keys_in_the_mapping_are_flags_too() {
        check(
            "client-transport-security:\n  cert-file: a.crt\n  client-cert-auth: true\n  \
             allowed-hostname: [x, y]\npeer-transport-security:\n  cert-file: b.crt\n",
            |values| {
                let names = values.get(&HOSTNAMES).join(",");
                (values.get(&CERT_FILE), values.get(&CERT_AUTH), names)
            },
            (Some("a.crt".into()), true, "x,y".to_owned()),
        );
    }

    #[test]
    fn fl_4_unknown_keys_are_ignored() {
        let (values, warnings) = values_of("name: a\nbogus: {b: 1}\nversion: true\n");
        assert_eq!(values.unwrap().get(&NAME), "a");
        let keys = ["bogus", "version"]
            .map(|key| format!("unrecognized key \"{key}\" in the configuration file"));
        assert_eq!(warnings, keys);
    }

    #[test]
    fn invalid_files() {
        check_error(
            "name: [",
            "the configuration file etcd.yaml is not valid YAML: ",
        );
        check_error(
            "- name",
            "the configuration file etcd.yaml does not map flag names to values",
        );
        check_error("just text", "the configuration file etcd.yaml does not map");
        check_error(
            "max-txn-ops: many",
            "invalid value \"many\" for max-txn-ops in the configuration file etcd.yaml: parse error",
        );
        check_error(
            "name: {a: b}",
            "a single value or a list of values is expected",
        );
    }
}
