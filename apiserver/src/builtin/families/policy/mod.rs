//! Kinds that limit and scale workloads: disruption budgets, autoscalers, quotas, limit ranges, priority
//! classes.

mod quota;

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::quantity::compare;
use crate::builtin::rules::{Generation, Kind};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        validate: check_budget,
        validate_status: |new, _, causes| {
            let status = new.child("status");
            for name in [
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ] {
                causes.check_not_negative(&status.child(name));
            }
        },
        ..Kind::new("policy", "PodDisruptionBudget")
            .with_status()
            .with_generation()
            .conditional()
    },
    Kind {
        version: "v1",
        default: |scaler| {
            let annotated = edit::at(
                scaler,
                &[
                    "metadata",
                    "annotations",
                    "autoscaling.alpha.kubernetes.io/metrics",
                ],
            )
            .is_some();
            if let Some(spec) = edit::ensure(scaler, "spec") {
                edit::set_unset(spec, "minReplicas", 1);
                if !annotated {
                    edit::set_unset(spec, "targetCPUUtilizationPercentage", CPU_UTILIZATION);
                }
            }
        },
        validate: check_scaler,
        ..Kind::new("autoscaling", "HorizontalPodAutoscaler").with_status()
    },
    Kind {
        default: default_scaler,
        validate: check_scaler,
        ..Kind::new("autoscaling", "HorizontalPodAutoscaler").with_status()
    },
    Kind {
        validate: |quota, causes| {
            for (name, quantity) in quota.at(&["spec", "hard"]).entries() {
                check_quota_name(name, &quantity, causes);
                causes.check_resource_quantity(name, &quantity);
            }
            quota::check_scopes(&quota.child("spec"), causes);
        },
        validate_update: |new, old, causes| {
            for name in ["scopes", "scopeSelector"] {
                let (new, old) = (new.child("spec").child(name), old.child("spec").child(name));
                causes.check_immutable(&new, &old);
            }
        },
        ..Kind::new("", "ResourceQuota").with_status()
    },
    Kind {
        default: default_limits,
        validate: check_limits,
        ..Kind::new("", "LimitRange").creates_on_update()
    },
    Kind {
        generation: Generation::One,
        default: |class| edit::set_unset(class, "preemptionPolicy", "PreemptLowerPriority"),
        validate: check_priority,
        validate_update: |new, old, causes| {
            if new.child("value").int().unwrap_or_default()
                != old.child("value").int().unwrap_or_default()
            {
                causes.forbidden(&new.child("value"), "may not be changed in an update.");
            }
            let name = "preemptionPolicy";
            causes.check_immutable(&new.child(name), &old.child(name));
        },
        ..Kind::new("scheduling.k8s.io", "PriorityClass")
    },
];

/// The utilization in percent that an autoscaler without metrics aims at.
const CPU_UTILIZATION: i64 = 80;
/// The highest priority of a class that is not the system's.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

fn check_budget(budget: &Field<'_>, causes: &mut Causes) {
    let spec = budget.child("spec");
    let (min, max) = (spec.child("minAvailable"), spec.child("maxUnavailable"));
    if min.is_set() && max.is_set() {
        causes.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
    }
    for field in [min, max] {
        causes.check_int_or_percent(&field);
        causes.check_percent_max(&field);
    }
    causes.check_selector(&spec.child("selector"));
    causes.check_one_of(
        &spec.child("unhealthyPodEvictionPolicy"),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

fn default_scaler(scaler: &mut JsonObject) {
    let Some(spec) = edit::ensure(scaler, "spec") else {
        return;
    };
    edit::set_unset(spec, "minReplicas", 1);
    edit::set_zero(
        spec,
        "metrics",
        json!([{
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": CPU_UTILIZATION},
            },
        }]),
    );
    let Some(behavior) = edit::child_mut(spec, "behavior") else {
        return;
    };
    if let Some(rules) = edit::ensure(behavior, "scaleUp") {
        edit::set_unset(rules, "stabilizationWindowSeconds", 0);
        edit::set_unset(rules, "selectPolicy", "Max");
        let policies = json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]);
        edit::set_unset(rules, "policies", policies);
    }
    if let Some(rules) = edit::ensure(behavior, "scaleDown") {
        edit::set_unset(rules, "selectPolicy", "Max");
        let policies = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        edit::set_unset(rules, "policies", policies);
    }
}

/// The types of metrics, and the members that describe them.
const METRICS: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

fn check_scaler(scaler: &Field<'_>, causes: &mut Causes) {
    let spec = scaler.child("spec");
    let (min, max) = (spec.child("minReplicas"), spec.child("maxReplicas"));
    causes.check_min(&min, 1, "must be greater than or equal to 1");
    let maximum = max.int().unwrap_or_default();
    if maximum == 0 {
        causes.required(&max, "must be set and greater than 0");
    } else {
        causes.check_min(&max, 1, "must be greater than or equal to 1");
    }
    if min.int().is_some_and(|min| maximum < min) {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.invalid_at(max.path(), maximum, detail);
    }
    let target = spec.child("scaleTargetRef");
    for name in ["kind", "name"] {
        if causes.check_required(&target.child(name)) {
            causes.check_text(&target.child(name), names::path_segment_error);
        }
    }
    let version = target.child("apiVersion");
    if !version.text().contains('/') {
        let detail = "apiVersion must specify API group";
        causes.invalid_at(version.path(), version.text(), detail);
    }
    let utilization = spec.child("targetCPUUtilizationPercentage");
    causes.check_min(&utilization, 1, "must be greater than 0");
    for metric in spec.child("metrics").items() {
        let kind = metric.child("type");
        let known = METRICS.iter().find(|(name, _)| *name == kind.text());
        let Some((_, member)) = known else {
            let names: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
            causes.check_required_one_of(&kind, &names);
            // The type is checked twice.
            causes.not_supported(&kind, &names);
            continue;
        };
        if !metric.child(member).is_set() {
            let detail = "must populate information for the given metric source";
            causes.required(&metric.child(member), detail);
        }
        for (_, other) in METRICS {
            if other != *member && metric.child(other).is_set() {
                let detail = "must populate the given metric source only";
                causes.forbidden(&metric.child(other), detail);
            }
        }
    }
    let scales_to_zero = min.int() == Some(0);
    let mut metrics = spec.child("metrics").items();
    let by_others =
        metrics.any(|metric| ["External", "Object"].contains(&metric.child("type").text()));
    if scales_to_zero && !by_others {
        let detail = "must specify at least one Object or External metric to support scaling to zero \
                      replicas";
        causes.forbidden(&spec.child("metrics"), detail);
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.child("behavior").child(direction);
        if rules.is_set() {
            check_scaling(&rules, causes);
        }
    }
}

fn check_scaling(rules: &Field<'_>, causes: &mut Causes) {
    let window = rules.child("stabilizationWindowSeconds");
    causes.check_min(&window, 0, "must be greater than or equal to zero");
    causes.check_range(
        &window,
        i64::MIN,
        3600,
        "must be less than or equal to 3600",
    );
    causes.check_one_of(&rules.child("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = rules.child("policies");
    if policies.len() == 0 {
        causes.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        causes.check_required_one_of(&policy.child("type"), &["Percent", "Pods"]);
        causes.check_min(&policy.child("value"), 1, "must be greater than zero");
        let period = policy.child("periodSeconds");
        causes.check_min(&period, 1, "must be greater than zero");
        causes.check_range(
            &period,
            i64::MIN,
            1800,
            "must be less than or equal to 1800",
        );
    }
}

/// The resources without a domain that quotas limit.
const QUOTA_RESOURCES: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn check_quota_name(name: &str, field: &Field<'_>, causes: &mut Causes) {
    if let Some(detail) = names::qualified_name_error(name) {
        causes.invalid_at(field.path(), name, &detail);
    } else if !name.contains('/')
        && !QUOTA_RESOURCES.contains(&name)
        && !name.contains("hugepages-")
    {
        if !crate::builtin::causes::is_standard(name) {
            let detail = "must be a standard resource type or fully qualified";
            causes.invalid_at(field.path(), name, detail);
        }
        causes.invalid_at(field.path(), name, "must be a standard resource for quota");
    }
}

fn default_limits(range: &mut JsonObject) {
    let Some(spec) = edit::ensure(range, "spec") else {
        return;
    };
    for item in edit::items_mut(spec, "limits") {
        if edit::text(item, "type") != "Container" {
            continue;
        }
        let amounts = |item: &JsonObject, name: &str| {
            let amounts = item.get(name).and_then(Value::as_object);
            amounts.cloned().unwrap_or_default()
        };
        let mut limits = amounts(item, "default");
        edit::copy_missing(&amounts(item, "max"), &mut limits);
        let mut requests = amounts(item, "defaultRequest");
        edit::copy_missing(&limits, &mut requests);
        edit::copy_missing(&amounts(item, "min"), &mut requests);
        for (name, amounts) in [("default", limits), ("defaultRequest", requests)] {
            if !amounts.is_empty() {
                item.insert(name.to_owned(), Value::Object(amounts));
            }
        }
    }
}

fn check_limits(range: &Field<'_>, causes: &mut Causes) {
    let mut seen = Vec::new();
    for item in range.at(&["spec", "limits"]).items() {
        let kind = item.child("type");
        if seen.contains(&kind.text()) {
            causes.duplicate(&kind);
        }
        seen.push(kind.text());
        let (min, max) = (item.child("min"), item.child("max"));
        if kind.text() == "Pod" {
            for name in ["default", "defaultRequest"] {
                if item.child(name).len() > 0 {
                    let detail = "may not be specified when `type` is 'Pod'";
                    causes.forbidden(&item.child(name), detail);
                }
            }
        }
        for name in [
            "min",
            "max",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ] {
            for (resource, quantity) in item.child(name).entries() {
                causes.check_resource_quantity(resource, &quantity);
            }
        }
        let (default, request) = (item.child("default"), item.child("defaultRequest"));
        for (low, low_name, high, high_name, at, value_of) in [
            (min, "min", max, "max", min, min),
            (min, "min", request, "default request", request, request),
            (request, "default request", max, "max", request, request),
            (
                request,
                "default request",
                default,
                "default limit",
                request,
                request,
            ),
            (min, "min", default, "default", default, min),
            (default, "default", max, "max", default, max),
        ] {
            for (resource, value) in low.entries() {
                let bound = high.key(resource);
                if bound.is_set() && compare(&value.value(), &bound.value()).is_gt() {
                    let (value, bound) = (shown(&value), shown(&bound));
                    let detail = format!(
                        "{low_name} value {value} is greater than {high_name} value {bound}"
                    );
                    let found = value_of.key(resource).value();
                    causes.invalid_at(at.key(resource).path(), found, &detail);
                }
            }
        }
    }
}

fn shown(field: &Field<'_>) -> String {
    match field.value() {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn check_priority(class: &Field<'_>, causes: &mut Causes) {
    let (name, value) = (class.at(&["metadata", "name"]), class.child("value"));
    let number = value.int().unwrap_or_default();
    if name.text().starts_with("system-") {
        let known = [
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ];
        if !known.contains(&(name.text(), number)) {
            causes.forbidden(
                &name,
                &format!(
                    "priority class names with 'system-' prefix are reserved for system use only. \
                     error: {} is not a known system priority class",
                    name.text()
                ),
            );
        }
    } else if number > USER_PRIORITY_MAX {
        let detail =
            format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
        causes.forbidden(&value, &detail);
    }
    causes.check_one_of(
        &class.child("preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
}
