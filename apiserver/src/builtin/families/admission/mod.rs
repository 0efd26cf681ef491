//! Webhook configurations, admission policies and their bindings.

mod policy;

use std::collections::HashSet;

use revstore_cel::Type;
use serde_json::json;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;
use crate::custom::text::label_error;
use crate::policy::{Compiler, Purpose, Refusal};
use crate::webhook::place_errors;

const GROUP: &str = "admissionregistration.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        default: |config| default_webhooks(config, false),
        validate: |config, causes| check_webhooks(config, false, causes),
        ..config("ValidatingWebhookConfiguration")
    },
    Kind {
        default: |config| default_webhooks(config, true),
        validate: |config, causes| check_webhooks(config, true, causes),
        ..config("MutatingWebhookConfiguration")
    },
    Kind {
        default: default_policy,
        validate: policy::check_validating,
        status_keeps_metadata: true,
        ..config("ValidatingAdmissionPolicy").with_status()
    },
    Kind {
        default: |binding| default_match(binding, "matchResources"),
        validate: policy::check_validating_binding,
        ..config("ValidatingAdmissionPolicyBinding")
    },
    Kind {
        default: default_policy,
        validate: policy::check_mutating,
        ..config("MutatingAdmissionPolicy")
    },
    Kind {
        default: |binding| default_match(binding, "matchResources"),
        validate: policy::check_mutating_binding,
        ..config("MutatingAdmissionPolicyBinding")
    },
];

const fn config(kind: &'static str) -> Kind {
    Kind::new(GROUP, kind).with_generation().conditional()
}

/// The port of a webhook's service.
const PORT: i64 = 443;
/// The seconds that a webhook has to answer.
const TIMEOUT_SECONDS: i64 = 10;

fn default_webhooks(config: &mut JsonObject, mutating: bool) {
    for webhook in edit::items_mut(config, "webhooks") {
        edit::set_unset(webhook, "failurePolicy", "Fail");
        edit::set_unset(webhook, "matchPolicy", "Equivalent");
        edit::set_unset(webhook, "namespaceSelector", json!({}));
        edit::set_unset(webhook, "objectSelector", json!({}));
        edit::set_unset(webhook, "timeoutSeconds", TIMEOUT_SECONDS);
        if mutating {
            edit::set_unset(webhook, "reinvocationPolicy", "Never");
        }
        default_rules(webhook, "rules");
        let service = edit::child_mut(webhook, "clientConfig")
            .and_then(|config| edit::child_mut(config, "service"));
        if let Some(service) = service {
            edit::set_unset(service, "port", PORT);
        }
    }
}

fn default_rules(object: &mut JsonObject, name: &str) {
    for rule in edit::items_mut(object, name) {
        edit::set_unset(rule, "scope", "*");
    }
}

fn default_policy(policy: &mut JsonObject) {
    if let Some(spec) = edit::ensure(policy, "spec") {
        edit::set_unset(spec, "failurePolicy", "Fail");
    }
    default_match(policy, "matchConstraints");
}

fn default_match(object: &mut JsonObject, name: &str) {
    let matched = edit::child_mut(object, "spec").and_then(|spec| edit::child_mut(spec, name));
    let Some(matched) = matched else {
        return;
    };
    edit::set_unset(matched, "matchPolicy", "Equivalent");
    edit::set_unset(matched, "namespaceSelector", json!({}));
    edit::set_unset(matched, "objectSelector", json!({}));
    default_rules(matched, "resourceRules");
    default_rules(matched, "excludeResourceRules");
}

pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

fn check_webhooks(config: &Field<'_>, mutating: bool, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for webhook in config.child("webhooks").items() {
        let name = webhook.child("name");
        check_webhook_name(&name, causes);
        causes.check_unique(&name, &mut seen);
        for rule in webhook.child("rules").items() {
            check_rule(&rule, causes);
        }
        causes.check_one_of(&webhook.child("failurePolicy"), &FAILURE_POLICIES);
        causes.check_one_of(&webhook.child("matchPolicy"), &MATCH_POLICIES);
        let effects = webhook.child("sideEffects");
        if effects.is_set() {
            causes.check_one_of(&effects, &["None", "NoneOnDryRun"]);
        } else {
            causes.required(&effects, "must specify one of None, NoneOnDryRun");
        }
        causes.check_range(
            &webhook.child("timeoutSeconds"),
            1,
            30,
            "the timeout value must be between 1 and 30 seconds",
        );
        causes.check_selector(&webhook.child("namespaceSelector"));
        causes.check_selector(&webhook.child("objectSelector"));
        if mutating {
            let policy = webhook.child("reinvocationPolicy");
            causes.check_one_of(&policy, &["IfNeeded", "Never"]);
        }
        let client = webhook.child("clientConfig");
        for cause in place_errors(&client.path(), &client.value()) {
            causes.push(cause);
        }
        check_review_versions(&webhook.child("admissionReviewVersions"), causes);
        check_conditions(&webhook.child("matchConditions"), false, causes);
    }
}

fn check_webhook_name(name: &Field<'_>, causes: &mut Causes) {
    if !causes.check_required(name) {
        return;
    }
    causes.check_text(name, names::subdomain_error);
    if name.text().split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        causes.invalid(name, detail);
    }
}

fn check_review_versions(versions: &Field<'_>, causes: &mut Causes) {
    if versions.len() == 0 {
        causes.required(versions, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if !seen.insert(version.text()) {
            causes.invalid(&version, "duplicate version");
        } else if let Some(detail) = label_error(version.text()) {
            causes.invalid(&version, &detail);
        }
    }
    if !versions
        .items()
        .any(|version| ["v1", "v1beta1"].contains(&version.text()))
    {
        let detail = "must include at least one of v1, v1beta1";
        causes.invalid(versions, detail);
    }
}

fn check_rule(rule: &Field<'_>, causes: &mut Causes) {
    let operations = rule.child("operations");
    causes.check_required(&operations);
    check_wildcard(&operations, "operations", causes);
    for operation in operations.items() {
        causes.check_one_of(&operation, &OPERATIONS);
    }
    for (name, text) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = rule.child(name);
        causes.check_required(&list);
        check_wildcard(&list, text, causes);
    }
    for version in rule.child("apiVersions").items() {
        causes.check_required(&version);
    }
    check_resources(&rule.child("resources"), causes);
    causes.check_one_of(&rule.child("scope"), &["*", "Cluster", "Namespaced"]);
}

fn check_resources(resources: &Field<'_>, causes: &mut Causes) {
    causes.check_required(resources);
    let (mut any_subresource_of, mut of_any_resource) = (HashSet::new(), HashSet::new());
    // Whether the last resource without a subresource has a name.
    let mut is_named = false;
    for item in resources.items() {
        let text = item.text();
        if text.is_empty() {
            causes.required(&item, "");
            continue;
        }
        let Some((resource, subresource)) = text.split_once('/') else {
            is_named = text != "*";
            continue;
        };
        if any_subresource_of.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {text}");
            causes.invalid(&item, &detail);
        }
        if of_any_resource.contains(subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {text}");
            causes.invalid(&item, &detail);
        }
        if subresource == "*" {
            any_subresource_of.insert(resource);
        }
        if resource == "*" {
            of_any_resource.insert(subresource);
        }
    }
    let has = |text: &str| resources.items().any(|item| item.text() == text);
    if resources.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        causes.invalid(resources, detail);
    }
    if has("*") && is_named {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.invalid(resources, detail);
    }
}

fn check_wildcard(list: &Field<'_>, text: &str, causes: &mut Causes) {
    if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        let detail = format!("if '*' is present, must not specify other {text}");
        causes.invalid(list, &detail);
    }
}

/// The maximum number of match conditions of a webhook or a policy.
const CONDITIONS_MAX: usize = 64;

/// Checks match conditions. `has_params`: they can use the parameters of a policy.
pub(super) fn check_conditions(conditions: &Field<'_>, has_params: bool, causes: &mut Causes) {
    if conditions.len() > CONDITIONS_MAX {
        causes.push(StatusCause::too_many(
            conditions.path(),
            conditions.len(),
            CONDITIONS_MAX,
        ));
    }
    let mut seen = HashSet::new();
    let mut compiler = Compiler::new(has_params, false);
    for condition in conditions.items() {
        let expression = condition.child("expression");
        let source = expression.text().trim();
        if source.is_empty() {
            causes.required(&expression, "");
        } else if let Err(refusal) = compiler.compile(source, Purpose::Decision, &[Type::Bool]) {
            refused(&expression, source, &refusal, causes);
        }
        let name = condition.child("name");
        if causes.check_required(&name) {
            causes.check_text(&name, names::qualified_name_error);
            causes.check_unique(&name, &mut seen);
        }
    }
}

/// Adds the cause of an expression that cannot be used.
pub(super) fn refused(field: &Field<'_>, source: &str, refusal: &Refusal, causes: &mut Causes) {
    causes.push(match refusal {
        Refusal::Invalid(detail) => StatusCause::invalid(field.path(), source, detail),
        Refusal::Internal(detail) => StatusCause::internal(field.path(), detail),
    });
}

pub(super) fn check_match(matched: &Field<'_>, causes: &mut Causes) {
    causes.check_one_of(&matched.child("matchPolicy"), &MATCH_POLICIES);
    causes.check_selector(&matched.child("namespaceSelector"));
    causes.check_selector(&matched.child("objectSelector"));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in matched.child(list).items() {
            let mut seen = HashSet::new();
            for name in rule.child("resourceNames").items() {
                causes.check_text(&name, names::path_segment_error);
                causes.check_unique(&name, &mut seen);
            }
            check_rule(&rule, causes);
        }
    }
}
