//! The configuration file: YAML with flag names as keys (FL-4).

use std::path::Path;

use saphyr::{LoadableYamlNode, Mapping, Scalar, Yaml};

use crate::{
    draft::Draft,
    error::{ConfigError, ValueError},
    flags::{self, Flag},
    warning::Warning,
};

/// Where etcd keeps the flags about certificates of clients; inside, keys are flag names again,
/// but for those in [`key_in_client_security`].
const CLIENT_SECURITY: &str = "client-transport-security";

/// Mappings of etcd that hold only what is ignored here.
const IGNORED_MAPPINGS: [&str; 3] = [
    "peer-transport-security",
    "socket-options",
    "discovery-config",
];

/// Reads the text of a configuration file into the draft. `path` is for messages only.
pub(crate) fn read(
    text: &str,
    path: &Path,
    draft: &mut Draft,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    let documents = Yaml::load_from_str(text).map_err(|source| ConfigError::FileSyntax {
        path: path.to_owned(),
        source,
    })?;
    let mut file = File {
        path,
        draft,
        warnings,
    };
    match documents.first() {
        None | Some(Yaml::Value(Scalar::Null)) => Ok(()),
        Some(Yaml::Mapping(entries)) => file.read_top(entries),
        Some(_) => Err(file.shape_error()),
    }
}

struct File<'a> {
    path: &'a Path,
    draft: &'a mut Draft,
    warnings: &'a mut Vec<Warning>,
}

impl File<'_> {
    fn read_top(&mut self, entries: &Mapping<'_>) -> Result<(), ConfigError> {
        for (key, node) in entries {
            let key = key.as_str().ok_or_else(|| self.shape_error())?;
            match node {
                Yaml::Mapping(inner) if key == CLIENT_SECURITY => {
                    self.read_client_security(inner)?;
                }
                _ if key == CLIENT_SECURITY || IGNORED_MAPPINGS.contains(&key) => {}
                _ => self.read_entry(key, flags::find(key), node)?,
            }
        }
        Ok(())
    }

    fn read_client_security(&mut self, entries: &Mapping<'_>) -> Result<(), ConfigError> {
        for (key, node) in entries {
            let key = key.as_str().ok_or_else(|| self.shape_error())?;
            self.read_entry(key, flags::find(key_in_client_security(key)), node)?;
        }
        Ok(())
    }

    fn read_entry(
        &mut self,
        key: &str,
        flag: Option<&'static Flag>,
        node: &Yaml<'_>,
    ) -> Result<(), ConfigError> {
        let Some(flag) = flag.filter(|flag| !flags::is_for_command_line_only(flag)) else {
            self.warnings.push(Warning::UnknownKey {
                key: key.to_owned(),
            });
            return Ok(());
        };
        let value_error = |value: &str, reason| ConfigError::FileValue {
            path: self.path.to_owned(),
            key: flag.name,
            value: value.to_owned(),
            reason,
        };
        match text_of(node) {
            // A key without a value leaves the default in place.
            Ok(None) => Ok(()),
            Ok(Some(text)) => flag
                .set_from_file(self.draft, &text)
                .map_err(|reason| value_error(&text, reason)),
            Err(reason) => Err(value_error("", reason)),
        }
    }

    fn shape_error(&self) -> ConfigError {
        ConfigError::FileShape {
            path: self.path.to_owned(),
        }
    }
}

fn key_in_client_security(key: &str) -> &str {
    match key {
        "allowed-hostname" => "client-cert-allowed-hostname",
        "client-crl-file" | "crl-file" => "client-crl-file",
        key => key,
    }
}

/// A value as it would stand on the command line; a list joined by commas. `None` for null.
fn text_of(node: &Yaml<'_>) -> Result<Option<String>, ValueError> {
    match node {
        Yaml::Value(Scalar::Null) => Ok(None),
        Yaml::Value(Scalar::Boolean(value)) => Ok(Some(value.to_string())),
        Yaml::Value(Scalar::Integer(value)) => Ok(Some(value.to_string())),
        Yaml::Value(Scalar::FloatingPoint(value)) => Ok(Some(value.to_string())),
        Yaml::Value(Scalar::String(value)) => Ok(Some(value.to_string())),
        Yaml::Sequence(items) => {
            let mut parts = Vec::new();
            for item in items {
                match item {
                    Yaml::Value(_) => parts.extend(text_of(item)?),
                    _ => return Err(ValueError::Nested),
                }
            }
            Ok(Some(parts.join(",")))
        }
        _ => Err(ValueError::Nested),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft_of(text: &str) -> (Result<Draft, String>, Vec<Warning>) {
        let mut draft = Draft::default();
        let mut warnings = Vec::new();
        let result = read(text, Path::new("etcd.yaml"), &mut draft, &mut warnings);
        (
            result.map(|()| draft).map_err(|error| error.to_string()),
            warnings,
        )
    }

    fn check<T: PartialEq + std::fmt::Debug>(
        text: &str,
        field: impl Fn(&Draft) -> T,
        expected: impl Into<T>,
    ) {
        let (draft, warnings) = draft_of(text);
        assert_eq!(
            (field(&draft.unwrap()), warnings),
            (expected.into(), vec![]),
            "{text}"
        );
    }

    fn check_error(text: &str, expected: &str) {
        let (draft, _) = draft_of(text);
        let error = draft.map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{text:?}: {error}");
    }

    #[test]
    fn fl_4_keys_are_flag_names() {
        check("", |draft| draft.name.clone(), "default");
        check(
            "# nothing but a comment",
            |draft| draft.name.clone(),
            "default",
        );
        check("name: a", |draft| draft.name.clone(), "a");
        check("name:", |draft| draft.name.clone(), "default");
        check("max-txn-ops: 7", |draft| draft.max_txn_ops, 7_u64);
        check(
            "auto-compaction-retention: 1",
            |draft| draft.compaction_retention.clone(),
            "1",
        );
        check(
            "log-outputs: [stdout, a.log]",
            |draft| draft.log_outputs.clone(),
            "stdout,a.log",
        );
        check("enable-pprof: true", |draft| draft.enable_pprof, true);
        check(
            "listen-client-urls: http://127.0.0.1:1,http://127.0.0.1:2",
            |draft| draft.listen_client_urls.len(),
            2_usize,
        );
    }

    #[test]
    fn durations_are_nanoseconds_or_gos_form() {
        let interval = |draft: &Draft| draft.progress_interval.0;
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
    fn certificates_stand_in_a_mapping_of_their_own() {
        check(
            "client-transport-security:\n  cert-file: a.crt\n  client-cert-auth: true\n  \
             allowed-hostname: [x, y]\npeer-transport-security:\n  cert-file: b.crt\n",
            |draft| {
                let names = draft.client_allowed_hostnames.clone();
                (draft.cert_file.clone(), draft.client_cert_auth, names)
            },
            ("a.crt".to_owned(), true, "x,y".to_owned()),
        );
    }

    #[test]
    fn fl_4_unknown_keys_are_ignored() {
        let (draft, warnings) = draft_of("name: a\nbogus: {b: 1}\nversion: true\n");
        assert_eq!(draft.unwrap().name, "a");
        let keys = ["bogus", "version"].map(|key| Warning::UnknownKey {
            key: key.to_owned(),
        });
        assert_eq!(warnings, keys);
    }

    #[test]
    fn what_is_no_configuration() {
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
