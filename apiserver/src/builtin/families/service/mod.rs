//! Services, endpoints and endpoint slices.

mod endpoints;
mod families;
mod validation;

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::edit;
use crate::builtin::field::{Field, values_equal};
use crate::builtin::names;
use crate::builtin::rules::{Generation, Kind};

pub(super) use validation::check_status as check_balancer_status;

pub(crate) use families::prepare_allocation;

/// The seconds of a client's affinity: 3 hours.
const AFFINITY_SECONDS: i64 = 10_800;
/// The address of a service without a cluster IP.
const HEADLESS: &str = "None";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name_error: names::dns_label_error,
        default: default_service,
        create: |service, _| {
            agree_cluster_ips(service, None);
            set_ip_families(service);
        },
        update: update_service,
        validate: validation::check_service,
        validate_update: validation::check_update,
        validate_status: validation::check_status,
        ..Kind::new("", "Service").with_status().creates_on_update()
    },
    Kind {
        default: |endpoints| {
            for subset in edit::items_mut(endpoints, "subsets") {
                for port in edit::items_mut(subset, "ports") {
                    edit::set_zero(port, "protocol", "TCP");
                }
            }
        },
        validate: endpoints::check_endpoints,
        ..Kind::new("", "Endpoints").creates_on_update()
    },
    Kind {
        generation: Generation::Counts,
        default: |slice| {
            for port in edit::items_mut(slice, "ports") {
                edit::set_unset(port, "name", "");
                edit::set_unset(port, "protocol", "TCP");
            }
        },
        update: |new, old| {
            let labels = |object: &JsonObject| edit::at(object, &["metadata", "labels"]).cloned();
            let rest = |object: &JsonObject| {
                let mut object = object.clone();
                object.remove("metadata");
                Value::Object(object)
            };
            if labels(new) != labels(old) && values_equal(&rest(new), &rest(old)) {
                crate::builtin::rules::raise_generation(new, old);
            }
        },
        validate: endpoints::check_slice,
        validate_update: |new, old, causes| {
            causes.check_immutable_text(&new.child("addressType"), &old.child("addressType"));
        },
        ..Kind::new("discovery.k8s.io", "EndpointSlice")
    },
];

/// Returns whether a type has a port on each node.
fn has_node_ports(kind: &str) -> bool {
    ["NodePort", "LoadBalancer"].contains(&kind)
}

fn default_service(service: &mut JsonObject) {
    let Some(spec) = edit::ensure(service, "spec") else {
        return;
    };
    edit::set_zero(spec, "sessionAffinity", "None");
    match edit::text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let path = ["sessionAffinityConfig", "clientIP", "timeoutSeconds"];
            if edit::at(spec, &path).is_none() {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    edit::set_zero(spec, "type", "ClusterIP");
    for port in edit::items_mut(spec, "ports") {
        edit::set_zero(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            edit::set_zero(port, "targetPort", number);
        }
    }
    let kind = edit::text(spec, "type").to_owned();
    let is_external = has_node_ports(&kind)
        || kind == "ClusterIP" && Field::root(spec).child("externalIPs").len() > 0;
    if is_external {
        edit::set_zero(spec, "externalTrafficPolicy", "Cluster");
    }
    if has_node_ports(&kind) || kind == "ClusterIP" {
        edit::set_unset(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        edit::set_unset(spec, "allocateLoadBalancerNodePorts", true);
        let ingress = edit::child_mut(service, "status")
            .and_then(|status| edit::child_mut(status, "loadBalancer"));
        if let Some(balancer) = ingress {
            for address in edit::items_mut(balancer, "ingress") {
                if !edit::text(address, "ip").is_empty() {
                    edit::set_unset(address, "ipMode", "VIP");
                }
            }
        }
    }
}

/// Makes the list of cluster IPs begin with the single cluster IP, of which clients may set either.
fn agree_cluster_ips(service: &mut JsonObject, old: Option<&JsonObject>) {
    let Some(spec) = edit::child_mut(service, "spec") else {
        return;
    };
    let none = JsonObject::new();
    let old = old
        .and_then(|old| old.get("spec")?.as_object())
        .unwrap_or(&none);
    let single = edit::text(spec, "clusterIP").to_owned();
    let list = spec.get("clusterIPs").cloned().unwrap_or_default();
    let old_list = old.get("clusterIPs").cloned().unwrap_or_default();
    let list_is_unset = values_equal(&list, &Value::Null);
    let was_set = !values_equal(&old_list, &Value::Null);
    if !was_set {
        if list_is_unset && !single.is_empty() {
            spec.insert("clusterIPs".to_owned(), json!([single]));
        }
        return;
    }
    let single_changed = single != edit::text(old, "clusterIP");
    let list_changed = !values_equal(&list, &old_list);
    if single_changed && (!list_changed || list_is_unset) {
        if single.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".to_owned(), json!([single]));
        }
    } else if list_is_unset && !single_changed && !single.is_empty() {
        spec.insert("clusterIPs".to_owned(), old_list);
    }
}

/// Sets the families of the addresses of a service that has addresses.
fn set_ip_families(service: &mut JsonObject) {
    let Some(spec) = edit::child_mut(service, "spec") else {
        return;
    };
    if edit::text(spec, "type") == "ExternalName" {
        return;
    }
    let selects = Field::root(spec).child("selector").len() > 0;
    let manual = edit::text(spec, "clusterIP") == HEADLESS && !selects;
    let policy = if manual {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    edit::set_unset(spec, "ipFamilyPolicy", policy);
    let first = if edit::text(spec, "clusterIP").contains(':') {
        "IPv6"
    } else {
        "IPv4"
    };
    edit::set_zero(spec, "ipFamilies", json!([first]));
    let single = edit::text(spec, "ipFamilyPolicy") == "SingleStack";
    if manual
        && !single
        && let Some(Value::Array(families)) = spec.get_mut("ipFamilies")
        && families.len() == 1
    {
        let second = if families[0] == "IPv6" {
            "IPv4"
        } else {
            "IPv6"
        };
        families.push(second.into());
    }
}

/// Keeps what was allocated, and drops what the new type does not have.
fn update_service(new: &mut JsonObject, old: &JsonObject) {
    keep_allocated(new, old);
    agree_cluster_ips(new, Some(old));
    drop_dependent(new, old);
    set_ip_families(new);
}

/// Takes over allocated values that the client left out.
fn keep_allocated(new: &mut JsonObject, old: &JsonObject) {
    let (Some(spec), Some(old)) = (
        edit::child_mut(new, "spec"),
        old.get("spec").and_then(Value::as_object),
    ) else {
        return;
    };
    let (kind, old_kind) = (edit::text(spec, "type"), edit::text(old, "type"));
    if kind == "ExternalName" || old_kind == "ExternalName" {
        return;
    }
    let ports_kept = has_node_ports(kind) && has_node_ports(old_kind);
    let no_list = Field::root(spec).child("clusterIPs").len() == 0;
    if edit::text(spec, "clusterIP").is_empty()
        && (no_list || spec.get("clusterIPs") == old.get("clusterIPs"))
    {
        edit::restore(spec, old, "clusterIP");
        edit::restore(spec, old, "clusterIPs");
    }
    if !ports_kept {
        return;
    }
    let key = |port: &JsonObject| {
        (
            edit::text(port, "protocol").to_owned(),
            port.get("port").and_then(Value::as_i64),
        )
    };
    let allocated: Vec<_> = Field::root(old)
        .child("ports")
        .items()
        .filter_map(|port| port.object())
        .filter_map(|port| Some((key(port), port.get("nodePort")?.clone())))
        .collect();
    let mut used: Vec<Value> = Field::root(spec)
        .child("ports")
        .items()
        .map(|port| port.child("nodePort").value())
        .collect();
    for port in edit::items_mut(spec, "ports") {
        let own = key(port);
        let found = allocated.iter().find(|(of, _)| *of == own);
        if let Some((_, number)) = found
            && !used.contains(number)
            && port
                .get("nodePort")
                .is_none_or(crate::builtin::field::is_zero)
        {
            used.push(number.clone());
            port.insert("nodePort".to_owned(), number.clone());
        }
    }
    if edit::text(spec, "externalTrafficPolicy") == "Local" {
        let number = old.get("healthCheckNodePort").cloned();
        edit::set_zero(spec, "healthCheckNodePort", number.unwrap_or_default());
    }
}

/// Drops the fields that only the old type has, if the client has left them unchanged.
fn drop_dependent(new: &mut JsonObject, old: &JsonObject) {
    let Some(old_spec) = old.get("spec").and_then(Value::as_object) else {
        return;
    };
    let Some(spec) = edit::child_mut(new, "spec") else {
        return;
    };
    let kind = edit::text(spec, "type").to_owned();
    let old_kind = edit::text(old_spec, "type");
    let same = |spec: &JsonObject, name: &str| spec.get(name) == old_spec.get(name);
    let mut dropped: Vec<&str> = Vec::new();
    if old_kind != "ExternalName" && kind == "ExternalName" {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            dropped.extend(["clusterIP", "clusterIPs"]);
        }
        dropped.extend(
            ["ipFamilies", "ipFamilyPolicy"]
                .iter()
                .filter(|name| same(spec, name)),
        );
        if same(spec, "internalTrafficPolicy") {
            dropped.push("internalTrafficPolicy");
        }
    }
    if has_node_ports(old_kind) && !has_node_ports(&kind) {
        let old_ports: Vec<Value> = Field::root(old_spec)
            .child("ports")
            .items()
            .map(|port| port.child("nodePort").value())
            .collect();
        for port in edit::items_mut(spec, "ports") {
            if port
                .get("nodePort")
                .is_some_and(|port| old_ports.contains(port))
            {
                port.remove("nodePort");
            }
        }
        let keeps_policy = kind == "ClusterIP" && Field::root(spec).child("externalIPs").len() > 0;
        if same(spec, "externalTrafficPolicy") && !keeps_policy {
            dropped.push("externalTrafficPolicy");
        }
    }
    if old_kind == "LoadBalancer" && kind != "LoadBalancer" {
        dropped.extend(
            ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
                .iter()
                .filter(|name| same(spec, name)),
        );
    }
    let checks_health = |spec: &JsonObject| {
        edit::text(spec, "type") == "LoadBalancer"
            && edit::text(spec, "externalTrafficPolicy") == "Local"
    };
    if checks_health(old_spec) && !checks_health(spec) && same(spec, "healthCheckNodePort") {
        dropped.push("healthCheckNodePort");
    }
    for name in dropped {
        spec.remove(name);
    }
    if kind != "LoadBalancer"
        && let Some(status) = edit::child_mut(new, "status")
    {
        status.remove("loadBalancer");
    }
}
