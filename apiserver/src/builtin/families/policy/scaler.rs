//! Validation of horizontal pod autoscalers.

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// Checks an autoscaler.
pub(super) fn check(scaler: &Field<'_>, causes: &mut Causes) {
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
    check_reference(&spec.child("scaleTargetRef"), false, causes);
    for metric in spec.child("metrics").items() {
        check_metric(&metric, causes);
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

/// Checks the status of an autoscaler.
pub(super) fn check_status(new: &Field<'_>, _: &Field<'_>, causes: &mut Causes) {
    for name in ["currentReplicas", "desiredReplicas"] {
        causes.check_not_negative(&new.child("status").child(name));
    }
}

/// Checks a reference to an object, whose group may be that of the core.
fn check_reference(reference: &Field<'_>, allows_core: bool, causes: &mut Causes) {
    for name in ["kind", "name"] {
        if causes.check_required(&reference.child(name)) {
            causes.check_text(&reference.child(name), names::path_segment_error);
        }
    }
    let version = reference.child("apiVersion");
    let text = version.text();
    if text.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {text}");
        causes.invalid(&version, &detail);
    } else if !allows_core
        && text
            .split_once('/')
            .is_none_or(|(group, _)| group.is_empty())
    {
        let detail = "apiVersion must specify API group";
        causes.invalid_at(version.path(), text, detail);
    }
}

/// The types of metrics.
const TYPES: [&str; 5] = [
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];
/// The members that describe metrics, with the types, in the order in which they are checked.
const METRICS: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

fn check_metric(metric: &Field<'_>, causes: &mut Causes) {
    let kind = metric.child("type");
    if kind.text().is_empty() {
        causes.required(&kind, "must specify a metric source type");
    }
    let known = TYPES.contains(&kind.text());
    if !known {
        causes.not_supported(&kind, &TYPES);
    }
    let present: Vec<_> = METRICS
        .iter()
        .filter(|(member, _)| metric.child(member).is_set())
        .collect();
    // Only the first source is checked.
    if let Some((member, _)) = present.first() {
        check_source(member, &metric.child(member), causes);
    }
    let expected = METRICS.iter().find(|(_, name)| *name == kind.text());
    match expected {
        Some((member, _)) if !metric.child(member).is_set() => {
            let detail = "must populate information for the given metric source";
            causes.required(&metric.child(member), detail);
        }
        Some(_) => {}
        // The type is checked twice.
        None => causes.not_supported(&kind, &TYPES),
    }
    if present.len() != 1 {
        for (member, name) in present {
            if *name != kind.text() {
                let detail = "must populate the given metric source only";
                causes.forbidden(&metric.child(member), detail);
            }
        }
    }
}

fn check_source(member: &str, source: &Field<'_>, causes: &mut Causes) {
    let target = source.child("target");
    let [value, average, utilization] =
        ["value", "averageValue", "averageUtilization"].map(|name| target.child(name));
    match member {
        "object" => {
            check_reference(&source.child("describedObject"), true, causes);
            check_identifier(&source.child("metric"), causes);
            check_target(&target, causes);
            if !value.is_set() && !average.is_set() {
                let detail = "must set either a target value or averageValue";
                causes.required(&average, detail);
            }
        }
        "external" => {
            check_identifier(&source.child("metric"), causes);
            check_target(&target, causes);
            match (value.is_set(), average.is_set()) {
                (false, false) => causes.required(
                    &average,
                    "must set either a target value for metric or a per-pod target",
                ),
                (true, true) => causes.forbidden(
                    &value,
                    "may not set both a target value for metric and a per-pod target",
                ),
                _ => {}
            }
        }
        "pods" => {
            check_identifier(&source.child("metric"), causes);
            check_target(&target, causes);
            if !average.is_set() {
                causes.required(&average, "must specify a positive target averageValue");
            }
        }
        _ => {
            check_resource(source, member == "containerResource", causes);
            check_target(&target, causes);
            match (utilization.is_set(), average.is_set()) {
                (false, false) => causes.required(
                    &utilization,
                    "must set either a target raw value or a target utilization",
                ),
                (true, true) => causes.forbidden(
                    &average,
                    "may not set both a target raw value and a target utilization",
                ),
                _ => {}
            }
        }
    }
}

fn check_resource(source: &Field<'_>, of_container: bool, causes: &mut Causes) {
    let (name, container) = (source.child("name"), source.child("container"));
    if name.text().is_empty() {
        causes.required(&name, "must specify a resource name");
    } else if of_container {
        super::super::pod::check_container_resource(name.text(), &name, causes);
    }
    if !of_container {
        return;
    }
    if container.text().is_empty() {
        causes.required(&container, "must specify a container");
    }
    causes.check_text(&container, names::dns_label_error);
}

fn check_identifier(metric: &Field<'_>, causes: &mut Causes) {
    let name = metric.child("name");
    if name.text().is_empty() {
        causes.required(&name, "must specify a metric name");
    }
    causes.check_text(&name, names::path_segment_error);
}

fn check_target(target: &Field<'_>, causes: &mut Causes) {
    let kind = target.child("type");
    if kind.text().is_empty() {
        causes.required(&kind, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        let detail = "must be either Utilization, Value, or AverageValue";
        causes.invalid_at(kind.path(), kind.text(), detail);
    }
    for name in ["value", "averageValue"] {
        let amount = target.child(name);
        if let Some(quantity) = causes.check_quantity(&amount)
            && (quantity.is_negative() || quantity.is_zero())
        {
            causes.invalid(&amount, "must be positive");
        }
    }
    let utilization = target.child("averageUtilization");
    causes.check_min(&utilization, 1, "must be greater than 0");
}

/// The maximum length of the time in seconds from which recommendations count.
const WINDOW_SECONDS_MAX: i64 = 3600;
/// The maximum length of the time in seconds that a policy is about.
const PERIOD_SECONDS_MAX: i64 = 1800;

fn check_scaling(rules: &Field<'_>, causes: &mut Causes) {
    let window = rules.child("stabilizationWindowSeconds");
    causes.check_min(&window, 0, "must be greater than or equal to zero");
    let detail = format!("must be less than or equal to {WINDOW_SECONDS_MAX}");
    causes.check_range(&window, i64::MIN, WINDOW_SECONDS_MAX, &detail);
    causes.check_one_of(&rules.child("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = rules.child("policies");
    if policies.len() == 0 {
        causes.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        let kind = policy.child("type");
        if !["Percent", "Pods"].contains(&kind.text()) {
            causes.not_supported(&kind, &["Percent", "Pods"]);
        }
        let period = policy.child("periodSeconds");
        for field in [policy.child("value"), period] {
            let number = field.int().unwrap_or_default();
            if number <= 0 {
                causes.invalid_at(field.path(), number, "must be greater than zero");
            }
        }
        let detail = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
        causes.check_range(&period, i64::MIN, PERIOD_SECONDS_MAX, &detail);
    }
    causes.check_quantity_not_negative(&rules.child("tolerance"));
}
