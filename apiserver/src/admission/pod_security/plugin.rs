//! The decisions about pods, templates of pods, and namespaces.

use std::borrow::Cow;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};
use serde_json::Value;

use crate::admission::builtin::objects;
use crate::admission::pod_security::existing;
use crate::admission::pod_security::pod::Pod;
use crate::admission::pod_security::policy::{PREFIX, Policy, Standard, Version};
use crate::admission::pod_security::registry::{details, violations};
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::builtin::edit;
use crate::metrics::Evaluation;

/// The subresources of pods that do not change what the checks read.
const HARMLESS: [&str; 8] = [
    "attach",
    "binding",
    "eviction",
    "exec",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// The resources with templates of pods, and where the templates are.
const TEMPLATES: [(&str, &str, &[&str]); 8] = [
    ("", "podtemplates", &["template"]),
    ("", "replicationcontrollers", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    (
        "batch",
        "cronjobs",
        &["spec", "jobTemplate", "spec", "template"],
    ),
    ("batch", "jobs", &["spec", "template"]),
];

/// The minor version of Kubernetes 1 that this server has.
const LATEST_MINOR: u64 = 36;

/// The plugin `PodSecurity`.
#[derive(Debug)]
pub(in crate::admission) struct PodSecurity;

impl Plugin for PodSecurity {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        phase == Phase::Validate
            && writes
            && (is_pod(request)
                || template_path(request).is_some()
                || request.is_for("", "namespaces", ""))
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(object) = object else {
                return Ok(());
            };
            if is_pod(request) {
                check_pod(request, object).await
            } else if let Some(path) = template_path(request) {
                check_template(request, object, path).await;
                Ok(())
            } else {
                check_namespace(request, object).await
            }
        })
    }
}

fn is_pod(request: &Attributes<'_>) -> bool {
    let names = &request.resource.names;
    names.group.is_empty() && names.plural == "pods" && !HARMLESS.contains(&request.subresource)
}

fn template_path(request: &Attributes<'_>) -> Option<&'static [&'static str]> {
    let mut templates = TEMPLATES.iter();
    let found = templates.find(|(group, plural, _)| request.is_for(group, plural, ""));
    found.map(|(_, _, path)| *path)
}

/// Returns the policy of the namespace of a request.
async fn policy(request: &Attributes<'_>) -> Result<Policy, RequestError> {
    let namespace = request.namespace;
    let found = objects::get(request.front, ("", "namespaces"), namespace).await;
    if let Ok(Some(namespace)) = found {
        return Ok(Policy::of(&namespace));
    }
    let what = format!("failed to lookup namespace \"{namespace}\"");
    annotate(request, "error", &what);
    Err(Status::internal_error(what).into())
}

async fn check_pod(request: &Attributes<'_>, pod: &JsonObject) -> Result<(), RequestError> {
    let policy = policy(request).await?;
    if policy.is_privileged() {
        annotate(request, "enforce-policy", &Standard::NONE.to_string());
        count(request, "enforce", policy.enforce, true);
        return Ok(());
    }
    if request.old.is_some_and(|old| !is_significant(pod, old)) {
        return Ok(());
    }
    note_errors(request, &policy);
    annotate(request, "enforce-policy", &policy.enforce.to_string());
    let seen = Pod::of(pod);
    let found = violations(policy.enforce, seen);
    count(request, "enforce", policy.enforce, found.is_empty());
    audit(request, &policy, seen);
    if found.is_empty() {
        warn(request, &policy, seen);
        return Ok(());
    }
    let detail = format!(
        "violates PodSecurity \"{}\": {}",
        policy.enforce,
        details(&found)
    );
    Err(request.forbidden(Some(pod), &detail).into())
}

/// Reports what is wrong with a template. Its pods are refused, and not the template.
async fn check_template(request: &Attributes<'_>, object: &JsonObject, path: &[&str]) {
    let Ok(policy) = policy(request).await else {
        return;
    };
    if policy.errors.is_empty() && !policy.reports() {
        return;
    }
    let Some(template) = edit::at(object, path).and_then(Value::as_object) else {
        return;
    };
    note_errors(request, &policy);
    let seen = Pod::of(template);
    audit(request, &policy, seen);
    warn(request, &policy, seen);
}

fn audit(request: &Attributes<'_>, policy: &Policy, pod: Pod<'_>) {
    if let Some(text) = report(policy.audit, pod) {
        count(request, "audit", policy.audit, false);
        annotate(request, "audit-violations", &text);
    }
}

fn warn(request: &Attributes<'_>, policy: &Policy, pod: Pod<'_>) {
    if let Some(text) = report(policy.warn, pod) {
        count(request, "warn", policy.warn, false);
        request.exchange.warn(text);
    }
}

/// Counts an evaluation. Of those that are only reported, kube-apiserver counts the violations.
fn count(request: &Attributes<'_>, mode: &str, standard: Standard, is_allowed: bool) {
    let version = match standard.version {
        Version::Minor(minor) if !standard.is_privileged() => {
            if minor <= LATEST_MINOR {
                Cow::Owned(format!("v1.{minor}"))
            } else {
                "future".into()
            }
        }
        _ => "latest".into(),
    };
    request.front.metrics.evaluated(Evaluation {
        is_allowed,
        level: standard.level.name(),
        version: &version,
        mode,
        operation: match request.operation {
            Operation::Create => "create",
            _ => "update",
        },
        resource: if is_pod(request) { "pod" } else { "controller" },
        subresource: request.subresource,
    });
}

fn report(standard: Standard, pod: Pod<'_>) -> Option<String> {
    let found = violations(standard, pod);
    let detail = || details(&found);
    (!found.is_empty()).then(|| format!("would violate PodSecurity \"{standard}\": {}", detail()))
}

fn annotate(request: &Attributes<'_>, name: &str, value: &str) {
    request.exchange.annotate(format!("{PREFIX}{name}"), value);
}

fn note_errors(request: &Attributes<'_>, policy: &Policy) {
    let errors: Vec<String> = policy.errors.iter().map(StatusCause::to_string).collect();
    let text = match errors.as_slice() {
        [] => return,
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    };
    annotate(request, "error", &format!("Failed to parse policy: {text}"));
}

/// Returns whether an update changes a pod so that it is checked again: by other images or containers.
fn is_significant(pod: &JsonObject, old: &JsonObject) -> bool {
    let list = |pod, name| -> &[Value] {
        let list = edit::at(pod, &["spec", name]).and_then(Value::as_array);
        list.map_or(&[], Vec::as_slice)
    };
    let differ = |new: &Value, old: &Value| new["image"] != old["image"];
    let lists_differ = ["containers", "initContainers"].into_iter().any(|name| {
        let (new, old) = (list(pod, name), list(old, name));
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| differ(new, old))
    });
    let (new, old) = (
        list(pod, "ephemeralContainers"),
        list(old, "ephemeralContainers"),
    );
    lists_differ
        || new.iter().any(|new| {
            let found = old.iter().find(|old| old["name"] == new["name"]);
            found.is_none_or(|old| differ(new, old))
        })
}

async fn check_namespace(
    request: &Attributes<'_>,
    namespace: &JsonObject,
) -> Result<(), RequestError> {
    let policy = Policy::of(namespace);
    let old = request.old.map(Policy::of);
    let old_errors = old.as_ref().map(|old| &old.errors);
    // Labels that could not be read before do not stand in the way of other changes.
    if !policy.errors.is_empty() && old_errors != Some(&policy.errors) {
        let kind = ResourceName::new("", "Namespace");
        let name = edit::text_at(namespace, &["metadata", "name"]);
        return Err(Status::invalid(&kind, name, policy.errors).into());
    }
    let (new, Some(old)) = (policy.enforce, old.map(|old| old.enforce)) else {
        return Ok(());
    };
    let is_relaxed = new.version == old.version && new.level <= old.level;
    if !new.is_privileged() && !is_relaxed {
        let name = edit::text_at(namespace, &["metadata", "name"]);
        for warning in existing::warnings(request.front, name, new).await {
            request.exchange.warn(warning);
        }
    }
    Ok(())
}
