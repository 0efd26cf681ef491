//! What a pod uses.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Amount;
use crate::table::age::seconds;

/// The names of the limits of pods, besides those of huge pages and extended resources.
const NAMES: [&str; 10] = [
    "pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";

type Amounts = BTreeMap<String, Amount>;

pub(super) fn tracks(name: &str) -> bool {
    let requested = name.strip_prefix(REQUESTS);
    NAMES.contains(&name)
        || name.starts_with(HUGE_PAGES)
        || requested.is_some_and(|name| name.starts_with(HUGE_PAGES) || is_extended(name))
}

/// Returns whether a resource is one of a vendor.
fn is_extended(name: &str) -> bool {
    let domain = name.split_once('/');
    domain.is_some_and(|(domain, _)| {
        !domain.ends_with("kubernetes.io") && !domain.ends_with("storageclass.storage.k8s.io")
    })
}

/// Returns what a pod uses besides its number in the store: nothing at its end.
pub(super) fn usage(pod: &Value, now: i64) -> Vec<(String, Amount)> {
    if is_over(pod, now) {
        return Vec::new();
    }
    let mut used = vec![("pods".to_owned(), Amount::integer(1))];
    for (name, amount) in total(&pod["spec"], "requests") {
        let prefixed = format!("{REQUESTS}{name}");
        if ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str())
            || name.starts_with(HUGE_PAGES)
        {
            used.push((name, amount.clone()));
            used.push((prefixed, amount));
        } else if is_extended(&name) {
            used.push((prefixed, amount));
        }
    }
    for (name, amount) in total(&pod["spec"], "limits") {
        used.push((format!("limits.{name}"), amount));
    }
    used
}

/// Returns what the containers of a pod request together.
pub(crate) fn requests(spec: &Value) -> Amounts {
    total(spec, "requests")
}

/// Returns whether a pod has ended, or should have.
fn is_over(pod: &Value, now: i64) -> bool {
    let metadata = &pod["metadata"];
    let deleted = metadata["deletionTimestamp"].as_str().and_then(seconds);
    let grace = metadata["deletionGracePeriodSeconds"].as_i64();
    let is_late = deleted
        .zip(grace)
        .is_some_and(|(time, grace)| now > time + grace);
    is_late || pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded"
}

/// Returns the requests or limits of a pod: of its containers together, or of one that runs before them, whichever is
/// larger.
fn total(spec: &Value, which: &str) -> Amounts {
    let containers = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let of = |resources: &Value| amounts(resources[which].as_object());
    let (mut sum, mut before, mut sidecars) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in containers("containers") {
        add(&mut sum, &of(&container["resources"]));
    }
    for container in containers("initContainers") {
        let mut own = of(&container["resources"]);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut before, own);
    }
    raise(&mut sum, before);
    // What is set for the pod as a whole counts instead.
    for (name, amount) in of(&spec["resources"]) {
        sum.insert(name, amount);
    }
    for (name, amount) in amounts(spec["overhead"].as_object()) {
        match sum.get_mut(&name) {
            Some(known) if which == "requests" || !known.is_zero() => known.add(&amount),
            None if which == "requests" => drop(sum.insert(name, amount)),
            _ => {}
        }
    }
    sum
}

fn amounts(list: Option<&Map<String, Value>>) -> Amounts {
    let list = list.into_iter().flatten();
    list.filter_map(|(name, value)| Some((name.clone(), Amount::of(value)?)))
        .collect()
}

fn add(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        sum.entry(name.clone()).or_default().add(amount);
    }
}

fn raise(largest: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        largest.entry(name).or_default().raise_to(&amount);
    }
}
