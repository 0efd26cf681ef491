//! One webhook of a configuration.

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use super::selector::Selector;
use crate::policy::{Compiler, Conditions};
use crate::webhook::{DEFAULT_TIMEOUT, Endpoint, EndpointError};

/// A webhook.
#[derive(Debug)]
pub(super) struct Hook {
    /// The name of its configuration.
    pub(super) configuration: String,
    /// What distinguishes it from all others: the name of its configuration and its number there.
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) endpoint: Result<Endpoint, EndpointError>,
    pub(super) rules: Vec<Rule>,
    /// Whether a request goes on if the webhook cannot be asked.
    pub(super) ignores_failures: bool,
    /// Whether it is asked about equivalent resources, too.
    pub(super) is_equivalent: bool,
    pub(super) namespaces: Result<Selector, String>,
    pub(super) objects: Result<Selector, String>,
    /// Whether it may be asked in a dry run; `None` if its configuration does not say so.
    pub(super) allows_dry_run: Option<bool>,
    pub(super) timeout: Duration,
    /// The versions of `AdmissionReview` that it accepts.
    pub(super) review_versions: Vec<String>,
    /// Whether it is asked again after later changes.
    pub(super) is_reinvocable: bool,
    /// Its match conditions.
    conditions: Vec<Value>,
    /// Compiled when they are first needed.
    compiled: OnceLock<Conditions>,
}

/// A rule, which says for which requests a webhook is called.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) operations: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) versions: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) scope: Scope,
}

/// The scope of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scope {
    #[default]
    All,
    Namespaced,
    Cluster,
    /// One that no request has.
    Unknown,
}

impl Hook {
    /// Reads all webhooks of a configuration.
    pub(super) fn all_of(configuration: &Value) -> Vec<Self> {
        let name = configuration["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
        let webhooks = webhooks.enumerate();
        webhooks
            .map(|(index, webhook)| Self::parse(name, index, webhook))
            .collect()
    }

    fn parse(configuration: &str, index: usize, webhook: &Value) -> Self {
        let text = |field: &str| webhook.get(field).and_then(Value::as_str);
        let seconds = webhook.get("timeoutSeconds").and_then(Value::as_u64);
        let rules = webhook["rules"].as_array().into_iter().flatten();
        Self {
            configuration: configuration.to_owned(),
            uid: format!("{configuration}/{index}"),
            name: text("name").unwrap_or_default().to_owned(),
            endpoint: Endpoint::parse(&webhook["clientConfig"]),
            rules: rules.map(Rule::parse).collect(),
            ignores_failures: text("failurePolicy") == Some("Ignore"),
            is_equivalent: text("matchPolicy") == Some("Equivalent"),
            namespaces: Selector::parse(webhook.get("namespaceSelector")),
            objects: Selector::parse(webhook.get("objectSelector")),
            allows_dry_run: text("sideEffects")
                .map(|effects| ["None", "NoneOnDryRun"].contains(&effects)),
            timeout: seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            review_versions: texts(webhook, "admissionReviewVersions"),
            is_reinvocable: text("reinvocationPolicy") == Some("IfNeeded"),
            conditions: webhook["matchConditions"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
            compiled: OnceLock::new(),
        }
    }

    /// Returns the compiled match conditions, or `None` if there are none.
    pub(super) fn conditions(&self) -> Option<&Conditions> {
        if self.conditions.is_empty() {
            return None;
        }
        Some(self.compiled.get_or_init(|| {
            let mut compiler = Compiler::new(false, false);
            Conditions::compile(&mut compiler, self.conditions.iter(), self.ignores_failures)
        }))
    }
}

impl Rule {
    fn parse(rule: &Value) -> Self {
        Self {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: texts(rule, "resources"),
            scope: match rule.get("scope").and_then(Value::as_str) {
                None | Some("*") => Scope::All,
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                Some(_) => Scope::Unknown,
            },
        }
    }
}

fn texts(object: &Value, field: &str) -> Vec<String> {
    let list = object.get(field).and_then(Value::as_array);
    let list = list.into_iter().flatten().filter_map(Value::as_str);
    list.map(str::to_owned).collect()
}
