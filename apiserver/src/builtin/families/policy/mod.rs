//! Kinds that limit and scale workloads: disruption budgets, autoscalers, quotas, limit ranges, priority
//! classes.

mod limits;
mod quota;
mod scaler;

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
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
        validate: scaler::check,
        validate_status: scaler::check_status,
        ..Kind::new("autoscaling", "HorizontalPodAutoscaler").with_status()
    },
    Kind {
        default: default_scaler,
        validate: scaler::check,
        validate_status: scaler::check_status,
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
        validate: limits::check,
        ..Kind::new("", "LimitRange").creates_on_update()
    },
    Kind {
        generation: Generation::One,
        default: |class| edit::set_unset(class, "preemptionPolicy", "PreemptLowerPriority"),
        validate_create: check_priority,
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
    super::pod::check_resource_name(name, field, causes);
    let is_huge = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !QUOTA_RESOURCES.contains(&name) && !is_huge {
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
    let policy = class.child("preemptionPolicy");
    if policy.is_set() {
        causes.check_required_one_of(&policy, &["PreemptLowerPriority", "Never"]);
    }
}
