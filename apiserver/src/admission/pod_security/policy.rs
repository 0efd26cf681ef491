//! What the labels of a namespace demand of its pods.

use std::fmt;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::Value;

use crate::builtin::edit;

/// The beginning of the labels, and of the audit annotations.
pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

/// A set of checks. A greater level has those of a smaller one, or stricter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        let levels = [Self::Privileged, Self::Baseline, Self::Restricted];
        levels.into_iter().find(|level| level.name() == text)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The minor version of Kubernetes 1 whose checks count, or the latest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Minor(u64),
    Latest,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let digits = text.strip_prefix("v1.")?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_short = digits == "0" || !digits.starts_with('0');
        let minor: i64 = digits.parse().ok().filter(|_| is_number && is_short)?;
        u64::try_from(minor).ok().map(Self::Minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// A standard: the checks of a level in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standard {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl Standard {
    /// The standard that all pods satisfy.
    pub(super) const NONE: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };

    pub(super) fn is_privileged(self) -> bool {
        self.level == Level::Privileged
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}

/// The standards of a namespace, and what is wrong with its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// Pods that violate it are refused.
    pub(super) enforce: Standard,
    /// Violations become audit annotations.
    pub(super) audit: Standard,
    /// Violations become warnings.
    pub(super) warn: Standard,
    /// The labels that cannot be read. Enforcement is strict then, the others are lax.
    pub(super) errors: Vec<StatusCause>,
}

impl Policy {
    /// Returns the policy of a namespace.
    pub(super) fn of(namespace: &JsonObject) -> Self {
        let mut policy = Self {
            enforce: Standard::NONE,
            audit: Standard::NONE,
            warn: Standard::NONE,
            errors: Vec::new(),
        };
        let labels = edit::at(namespace, &["metadata", "labels"]).and_then(Value::as_object);
        let Some(labels) = labels else {
            return policy;
        };
        let mut labels = Labels {
            labels,
            errors: Vec::new(),
        };
        let has_enforce = labels.read("enforce", &mut policy.enforce, Level::Restricted);
        labels.read("audit", &mut policy.audit, Level::Privileged);
        labels.read("warn", &mut policy.warn, Level::Privileged);
        let has_warn = labels.get("warn").is_some();
        if has_enforce && !has_warn && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if labels.get("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        policy.errors = labels.errors;
        policy
    }

    /// Returns whether the labels demand nothing, and can be read.
    pub(super) fn is_privileged(&self) -> bool {
        self.errors.is_empty() && self.enforce.is_privileged() && !self.reports()
    }

    /// Returns whether violations are reported.
    pub(super) fn reports(&self) -> bool {
        !self.audit.is_privileged() || !self.warn.is_privileged()
    }
}

struct Labels<'a> {
    labels: &'a JsonObject,
    errors: Vec<StatusCause>,
}

impl Labels<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.labels.get(&format!("{PREFIX}{name}"))?.as_str()
    }

    /// Reads the two labels of a mode; `fallback` is the level if it cannot be read. Returns whether there is a valid level.
    fn read(&mut self, mode: &str, standard: &mut Standard, fallback: Level) -> bool {
        let mut is_valid = false;
        if let Some(text) = self.get(mode).map(str::to_owned) {
            let level = Level::parse(&text);
            is_valid = level.is_some();
            standard.level = level.unwrap_or(fallback);
            if !is_valid {
                let detail = "must be one of privileged, baseline, restricted";
                self.refuse(mode, text, detail);
            }
        }
        let name = format!("{mode}-version");
        if let Some(text) = self.get(&name).map(str::to_owned) {
            let version = Version::parse(&text);
            standard.version = version.unwrap_or(Version::Latest);
            if version.is_none() {
                self.refuse(&name, text, "must be \"latest\" or \"v1.x\"");
            }
        }
        is_valid
    }

    fn refuse(&mut self, name: &str, value: String, detail: &str) {
        let path = FieldPath::new("metadata").child("labels");
        let path = path.key(&format!("{PREFIX}{name}"));
        self.errors.push(StatusCause::invalid(path, value, detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(labels: &[(&str, &str)]) -> Policy {
        let labels = labels
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)));
        let labels: JsonObject = labels.collect();
        let namespace = json!({"metadata": {"labels": labels}});
        Policy::of(namespace.as_object().unwrap())
    }

    fn shown(policy: &Policy) -> [String; 3] {
        [policy.enforce, policy.audit, policy.warn].map(|standard| standard.to_string())
    }

    #[test]
    fn labels_are_standards() {
        for (labels, [enforce, audit, warn]) in [
            (&[][..], ["privileged:latest"; 3]),
            (
                &[("enforce", "baseline"), ("enforce-version", "v1.20")],
                ["baseline:v1.20", "privileged:latest", "baseline:v1.20"],
            ),
            (
                &[("enforce", "restricted"), ("warn", "baseline")],
                ["restricted:latest", "privileged:latest", "baseline:latest"],
            ),
            (
                &[
                    ("enforce", "baseline"),
                    ("enforce-version", "v1.20"),
                    ("warn-version", "v1.3"),
                ],
                ["baseline:v1.20", "privileged:latest", "baseline:v1.3"],
            ),
            (
                &[("audit", "restricted"), ("audit-version", "v1.0")],
                ["privileged:latest", "restricted:v1.0", "privileged:latest"],
            ),
        ] {
            let policy = policy(labels);
            assert_eq!(shown(&policy), [enforce, audit, warn], "{labels:?}");
            assert_eq!(policy.errors, []);
            assert_eq!(policy.is_privileged(), labels.is_empty());
        }
    }

    #[test]
    fn invalid_labels_are_strict_only_for_enforcement() {
        for mode in ["enforce", "audit", "warn"] {
            let policy = policy(&[(mode, "Baseline"), ("enforce-version", "1.20")]);
            let enforce = match mode {
                "enforce" => "restricted:latest",
                _ => "privileged:latest",
            };
            let none = "privileged:latest";
            assert_eq!(shown(&policy), [enforce, none, none]);
            assert_eq!(policy.errors.len(), 2);
            assert!(!policy.is_privileged());
        }
        let policy = policy(&[("warn", "")]);
        assert_eq!(
            policy.errors[0].to_string(),
            "metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"\": must be one of privileged, baseline, \
             restricted"
        );
    }

    #[test]
    fn versions_are_minor_versions_without_zeros_before_them() {
        let large = format!("v1.{}", i64::MAX);
        for text in ["latest", "v1.0", "v1.9", "v1.30", &large] {
            let version = Version::parse(text);
            assert_eq!(
                version.map(|version| version.to_string()).as_deref(),
                Some(text)
            );
        }
        let too_large = format!("v1.{}", u64::MAX);
        for text in [
            "", "v1", "v1.", "v1.01", "v1.00", "v1.+1", "v1.-1", "v2.0", "1.2", "v1.2 ", "Latest",
            &too_large,
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
