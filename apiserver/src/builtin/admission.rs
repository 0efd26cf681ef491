//! Webhook configurations, admission policies and their bindings.

use std::collections::HashSet;

use serde_json::json;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use super::causes::Causes;
use super::edit;
use super::field::Field;
use super::names;
use super::rules::Kind;

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
        validate: check_policy,
        status_keeps_metadata: true,
        ..config("ValidatingAdmissionPolicy").with_status()
    },
    Kind {
        default: |binding| default_match(binding, "matchResources"),
        validate: check_binding,
        ..config("ValidatingAdmissionPolicyBinding")
    },
    Kind {
        default: default_policy,
        validate: check_mutating_policy,
        ..config("MutatingAdmissionPolicy")
    },
    Kind {
        default: |binding| default_match(binding, "matchResources"),
        validate: |binding, causes| {
            causes.check_required(&binding.at(&["spec", "policyName"]));
        },
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

const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
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
        check_client(&webhook.child("clientConfig"), causes);
        check_review_versions(&webhook.child("admissionReviewVersions"), causes);
        check_conditions(&webhook.child("matchConditions"), causes);
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
    if !versions
        .items()
        .any(|version| ["v1", "v1beta1"].contains(&version.text()))
    {
        let detail = "must include at least one of v1, v1beta1";
        causes.invalid(versions, detail);
    }
}

fn check_client(client: &Field<'_>, causes: &mut Causes) {
    let (url, service) = (client.child("url"), client.child("service"));
    if url.is_set() == service.is_set() {
        let detail = "exactly one of url or service is required";
        causes.required(client, detail);
        return;
    }
    if service.is_set() {
        causes.check_required(&service.child("name"));
        causes.check_required(&service.child("namespace"));
        if service.child("port").is_set() {
            causes.check_port(&service.child("port"));
        }
        return;
    }
    let form = "; desired format: https://host[/path]";
    let Some((scheme, rest)) = url.text().split_once("://") else {
        let detail = format!("url must be a valid URL{form}");
        causes.required(&url, &detail);
        return;
    };
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{form}");
        causes.invalid_at(url.path(), scheme, &detail);
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        let detail = format!("host must be specified{form}");
        causes.invalid_at(url.path(), "", &detail);
    }
    if host.contains('@') {
        let detail = "user information is not permitted in the URL";
        causes.invalid_at(url.path(), host, detail);
    }
    if rest.contains('?') {
        causes.invalid_at(
            url.path(),
            rest,
            "query parameters are not permitted in the URL",
        );
    }
    if rest.contains('#') {
        causes.invalid_at(url.path(), rest, "fragments are not permitted in the URL");
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
    let resources = rule.child("resources");
    causes.check_required(&resources);
    let has = |text: &str| resources.items().any(|item| item.text() == text);
    if has("*/*") && resources.len() > 1 {
        let detail = "if '*/*' is present, must not specify other resources";
        causes.invalid(&resources, detail);
    } else if has("*")
        && resources
            .items()
            .any(|item| item.text() != "*" && !item.text().contains('/'))
    {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.invalid(&resources, detail);
    }
    causes.check_one_of(&rule.child("scope"), &["*", "Cluster", "Namespaced"]);
}

fn check_wildcard(list: &Field<'_>, text: &str, causes: &mut Causes) {
    if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        let detail = format!("if '*' is present, must not specify other {text}");
        causes.invalid(list, &detail);
    }
}

fn check_conditions(conditions: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        causes.check_required(&condition.child("expression"));
        let name = condition.child("name");
        if causes.check_required(&name) {
            causes.check_text(&name, names::qualified_name_error);
            causes.check_unique(&name, &mut seen);
        }
    }
}

fn check_match(matched: &Field<'_>, causes: &mut Causes) {
    causes.check_one_of(&matched.child("matchPolicy"), &MATCH_POLICIES);
    causes.check_selector(&matched.child("namespaceSelector"));
    causes.check_selector(&matched.child("objectSelector"));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in matched.child(list).items() {
            check_rule(&rule, causes);
        }
    }
}

/// Checks the parts that validating and mutating policies have in common.
fn check_constraints(spec: &Field<'_>, causes: &mut Causes) {
    causes.check_one_of(&spec.child("failurePolicy"), &FAILURE_POLICIES);
    let matched = spec.child("matchConstraints");
    if matched.is_set() {
        check_match(&matched, causes);
        causes.check_required(&matched.child("resourceRules"));
    } else {
        causes.required(&matched, "");
    }
    let kind = spec.child("paramKind");
    if kind.is_set() {
        causes.check_required(&kind.child("apiVersion"));
        causes.check_required(&kind.child("kind"));
    }
    check_conditions(&spec.child("matchConditions"), causes);
}

fn check_policy(policy: &Field<'_>, causes: &mut Causes) {
    let spec = policy.child("spec");
    check_constraints(&spec, causes);
    let (validations, audits) = (spec.child("validations"), spec.child("auditAnnotations"));
    if validations.len() + audits.len() == 0 {
        for field in [validations, audits] {
            let detail = "validations or auditAnnotations must contain at least one item";
            causes.required(&field, detail);
        }
    }
    for validation in validations.items() {
        let expression = validation.child("expression");
        if expression.text().trim().is_empty() {
            causes.required(&expression, "expression is not specified");
        }
        let message = validation.child("message");
        if message.is_set() && message.text().trim().is_empty() {
            causes.invalid(&message, "must be non-empty if specified");
        } else if message.text().trim().contains('\n') {
            causes.invalid(&message, "must not contain line breaks");
        }
        let supported = [
            "Forbidden",
            "Invalid",
            "RequestEntityTooLarge",
            "Unauthorized",
        ];
        causes.check_one_of(&validation.child("reason"), &supported);
    }
    for variable in spec.child("variables").items() {
        for (name, detail) in [
            ("name", "name is not specified"),
            ("expression", "expression is not specified"),
        ] {
            let field = variable.child(name);
            if field.text().trim().is_empty() {
                causes.required(&field, detail);
            }
        }
    }
}

fn check_mutating_policy(policy: &Field<'_>, causes: &mut Causes) {
    let spec = policy.child("spec");
    check_constraints(&spec, causes);
    let mutations = spec.child("mutations");
    if mutations.len() == 0 {
        let detail = "mutations must contain at least one item";
        causes.required(&mutations, detail);
    }
    let reinvocation = spec.child("reinvocationPolicy");
    causes.check_required_one_of(&reinvocation, &["IfNeeded", "Never"]);
    for mutation in mutations.items() {
        let kind = mutation.child("patchType");
        causes.check_required_one_of(&kind, &["ApplyConfiguration", "JSONPatch"]);
    }
}

fn check_binding(binding: &Field<'_>, causes: &mut Causes) {
    let spec = binding.child("spec");
    let name = spec.child("policyName");
    if causes.check_required(&name) {
        causes.check_text(&name, names::subdomain_error);
    }
    let matched = spec.child("matchResources");
    if matched.is_set() {
        check_match(&matched, causes);
    }
    let parameter = spec.child("paramRef");
    if parameter.is_set() {
        let (name, selector) = (parameter.child("name"), parameter.child("selector"));
        if name.text().is_empty() != selector.is_set() {
            let detail = "one of name or selector must be specified";
            causes.required(&parameter, detail);
        }
    }
    let actions = spec.child("validationActions");
    let mut seen = HashSet::new();
    for action in actions.items() {
        causes.check_one_of(&action, &["Audit", "Deny", "Warn"]);
        causes.check_unique(&action, &mut seen);
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        causes.push(StatusCause::invalid(
            actions.path(),
            actions.value(),
            "must not contain both Deny and Warn (repeating the same validation failure information in \
             the API response and headers serves no purpose)",
        ));
    }
    if actions.len() == 0 {
        causes.required(&actions, "at least one validation action is required");
    }
}
