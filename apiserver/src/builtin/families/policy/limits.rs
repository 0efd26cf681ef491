//! Validation of limit ranges.

use std::collections::{BTreeSet, HashSet};

use revstore_watch_cache::status::StatusCause;
use serde_json::Value;

use super::super::pod::{check_container_resource, check_resource_name};
use crate::builtin::causes::{Causes, is_native};
use crate::builtin::field::Field;
use crate::builtin::quantity::{Quantity, compare};

/// Checks a limit range.
pub(super) fn check(range: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for item in range.at(&["spec", "limits"]).items() {
        let kind = item.child("type");
        check_type(&kind, causes);
        if !seen.insert(kind.text()) {
            causes.push(StatusCause::duplicate(kind.path(), kind.text()));
        }
        check_item(&item, kind.text(), causes);
    }
}

fn check_type(kind: &Field<'_>, causes: &mut Causes) {
    let before = causes.len();
    causes.check_qualified_name(kind);
    let known = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
    if causes.len() == before && !kind.text().contains('/') && !known {
        let detail = "must be a standard limit type or fully qualified";
        causes.invalid(kind, detail);
    }
}

fn check_item(item: &Field<'_>, kind: &str, causes: &mut Causes) {
    let mut resources = BTreeSet::new();
    let mut check_names = |list: &'static str, causes: &mut Causes| {
        for (resource, amount) in item.child(list).entries() {
            if ["Pod", "Container"].contains(&kind) {
                check_container_resource(resource, &amount, causes);
            } else {
                check_resource_name(resource, &amount, causes);
            }
            resources.insert(resource);
        }
    };
    check_names("max", causes);
    check_names("min", causes);
    for list in ["default", "defaultRequest"] {
        if kind != "Pod" {
            check_names(list, causes);
        } else if item.child(list).len() > 0 {
            let detail = "may not be specified when `type` is 'Pod'";
            causes.forbidden(&item.child(list), detail);
        }
    }
    let limits_storage = ["min", "max"]
        .iter()
        .any(|list| item.child(list).key("storage").is_set());
    if kind == "PersistentVolumeClaim" && !limits_storage {
        let detail =
            "either minimum or maximum storage value is required, but neither was provided";
        causes.required(&item.child("limits"), detail);
    }
    check_names("maxLimitRequestRatio", causes);
    for resource in resources {
        check_resource(item, resource, kind == "Pod", causes);
    }
}

/// Checks that the amounts of a resource do not contradict each other. Limits of pods have no defaults.
fn check_resource(item: &Field<'_>, resource: &str, of_pods: bool, causes: &mut Causes) {
    let [min, max, ratio] =
        ["min", "max", "maxLimitRequestRatio"].map(|list| item.child(list).key(resource));
    let [default, request] = ["default", "defaultRequest"].map(|list| {
        // A list that does not exist.
        let list = if of_pods { "" } else { list };
        item.child(list).key(resource)
    });
    for (low, low_name, high, high_name, at, found) in [
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
        if low.is_set() && high.is_set() && compare(&low.value(), &high.value()).is_gt() {
            let (low, high) = (shown(&low), shown(&high));
            let detail = format!("{low_name} value {low} is greater than {high_name} value {high}");
            causes.invalid_at(at.path(), found.value(), &detail);
        }
    }
    check_ratio(&ratio, &min, &max, causes);
    let overcommits = is_native(resource) && !resource.starts_with("hugepages-");
    if !overcommits
        && default.is_set()
        && request.is_set()
        && compare(&default.value(), &request.value()).is_ne()
    {
        let (default, shown) = (shown(&default), shown(&request));
        let detail = format!(
            "default value {default} must equal to defaultRequest value {shown} in {resource}"
        );
        causes.invalid(&request, &detail);
    }
}

fn check_ratio(ratio: &Field<'_>, min: &Field<'_>, max: &Field<'_>, causes: &mut Causes) {
    let quantity = |field: &Field<'_>| Quantity::of(&field.value());
    let Some(value) = quantity(ratio) else {
        return;
    };
    if value < Quantity::integer(1) {
        let detail = format!("ratio {} is less than 1", shown(ratio));
        causes.invalid(ratio, &detail);
    }
    if let (Some(min), Some(max)) = (quantity(min), quantity(max)) {
        let limit = max.to_float() / min.to_float();
        if value.to_float() > limit {
            let detail = format!(
                "ratio {} is greater than max/min = {limit:.6}",
                shown(ratio)
            );
            causes.invalid(ratio, &detail);
        }
    }
}

fn shown(field: &Field<'_>) -> String {
    match field.value() {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
