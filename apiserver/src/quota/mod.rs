//! What objects use of resource quotas.

mod amount;
mod grants;
mod pod;
mod scopes;

use serde_json::Value;

pub(crate) use amount::Amount;
pub(crate) use grants::{Grant, Grants};
pub(crate) use pod::requests as pod_requests;
pub(crate) use scopes::Scopes;

/// The part of names between a storage class and what is counted of it.
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// The annotation that named the class of a claim before the field did.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Resources that are also counted under their own name.
const COUNTED: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "pods",
];

/// Returns whether objects of a resource may use something of a limit with this name.
pub(crate) fn tracks(group: &str, plural: &str, name: &str) -> bool {
    if let Some(counted) = name.strip_prefix("count/") {
        return match group {
            "" => counted == plural,
            group => counted
                .strip_prefix(plural)
                .is_some_and(|rest| rest.strip_prefix('.') == Some(group)),
        };
    }
    if !group.is_empty() {
        return false;
    }
    match plural {
        "pods" => pod::tracks(name),
        "services" => ["services", "services.loadbalancers", "services.nodeports"].contains(&name),
        "persistentvolumeclaims" => {
            ["persistentvolumeclaims", "requests.storage"].contains(&name)
                || name.contains(STORAGE_CLASS)
        }
        _ => COUNTED.contains(&plural) && name == plural,
    }
}

/// Returns what an object uses, by the names of limits. `now` is the time in seconds since 1970.
pub(crate) fn usage(group: &str, plural: &str, object: &Value, now: i64) -> Vec<(String, Amount)> {
    let one = Amount::integer(1);
    let count = match group {
        "" => format!("count/{plural}"),
        group => format!("count/{plural}.{group}"),
    };
    let mut used = vec![(count, one.clone())];
    if !group.is_empty() {
        return used;
    }
    match plural {
        "pods" => used.extend(pod::usage(object, now)),
        "services" => used.extend(service_usage(object)),
        "persistentvolumeclaims" => used.extend(claim_usage(object)),
        _ if COUNTED.contains(&plural) => used.push((plural.to_owned(), one)),
        _ => {}
    }
    used
}

fn service_usage(service: &Value) -> Vec<(String, Amount)> {
    let spec = &service["spec"];
    let ports = spec["ports"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let is_balanced = spec["type"] == "LoadBalancer";
    let suppresses = is_balanced && spec["allocateLoadBalancerNodePorts"] == false;
    let counted = ports
        .iter()
        .filter(|port| !suppresses || port["nodePort"].as_i64().unwrap_or_default() != 0);
    let ports = if is_balanced || spec["type"] == "NodePort" {
        counted.count()
    } else {
        0
    };
    let amount = |number: usize| Amount::integer(i64::try_from(number).unwrap_or(i64::MAX));
    vec![
        ("services".to_owned(), amount(1)),
        (
            "services.loadbalancers".to_owned(),
            amount(usize::from(is_balanced)),
        ),
        ("services.nodeports".to_owned(), amount(ports)),
    ]
}

fn claim_usage(claim: &Value) -> Vec<(String, Amount)> {
    const CLAIMS: &str = "persistentvolumeclaims";
    const STORAGE: &str = "requests.storage";
    let class = claim["metadata"]["annotations"][CLASS_ANNOTATION].as_str();
    let class = class.or_else(|| claim["spec"]["storageClassName"].as_str());
    let class = class.filter(|class| !class.is_empty());
    let mut used = vec![(CLAIMS.to_owned(), Amount::integer(1))];
    used.extend(class.map(|class| {
        (
            format!("{class}{STORAGE_CLASS}{CLAIMS}"),
            Amount::integer(1),
        )
    }));
    if let Some(mut storage) = Amount::of(&claim["spec"]["resources"]["requests"]["storage"]) {
        // A claim that is being enlarged uses the larger of both.
        let allocated = Amount::of(&claim["status"]["allocatedResources"]["storage"]);
        if let Some(allocated) = allocated {
            storage.raise_to(&allocated);
        }
        used.extend(
            class.map(|class| (format!("{class}{STORAGE_CLASS}{STORAGE}"), storage.clone())),
        );
        used.push((STORAGE.to_owned(), storage));
    }
    used
}
