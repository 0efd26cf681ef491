//! Validation of services.

use std::collections::HashSet;

use revstore_watch_cache::status::StatusCause;

use super::super::pod::PROTOCOLS;
use super::{HEADLESS, has_node_ports};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

fn is_headless(spec: &Field<'_>) -> bool {
    let list = spec.child("clusterIPs");
    list.len() == 1 && list.items().all(|ip| ip.text() == HEADLESS)
}

/// Checks a service.
pub(super) fn check_service(service: &Field<'_>, causes: &mut Causes) {
    let spec = service.child("spec");
    let kind = spec.child("type").text();
    let headless = is_headless(&spec);
    let ports = spec.child("ports");
    if ports.len() == 0 && !headless && kind != "ExternalName" {
        causes.required(&ports, "");
    }
    if has_node_ports(kind) && headless {
        let path = spec.child("clusterIPs").path().index(0);
        let detail = format!("may not be set to 'None' for {kind} services");
        causes.push(StatusCause::invalid(path, HEADLESS, &detail));
    }
    if kind == "ExternalName" {
        check_external_name(&spec, causes);
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        check_port(&port, ports.len() > 1, &mut seen, causes);
    }
    causes.check_labels(&spec.child("selector"));
    check_affinity(&spec, causes);
    if kind != "ExternalName" {
        check_cluster_ips(&spec, causes);
    }
    for ip in spec.child("externalIPs").items() {
        if names::ip_error(ip.text()).is_some() {
            causes.check_present_text(&ip, names::ip_error);
        } else {
            super::endpoints::check_special(&ip, causes);
        }
    }
    causes.check_required_one_of(
        &spec.child("type"),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    check_port_numbers(&ports, kind, causes);
    check_balancer(&spec, kind, causes);
    check_policies(&spec, kind, causes);
}

fn check_external_name(spec: &Field<'_>, causes: &mut Causes) {
    for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let field = spec.child(name);
        if !field.is_zero() {
            causes.forbidden(&field, "may not be set for ExternalName services");
        }
    }
    let name = spec.child("externalName");
    let text = name.text().strip_suffix('.').unwrap_or(name.text());
    if text.is_empty() {
        causes.required(&name, "");
    } else if let Some(detail) = names::subdomain_error(text) {
        causes.push(StatusCause::invalid(name.path(), text, &detail));
    }
}

fn check_port<'a>(
    port: &Field<'a>,
    needs_name: bool,
    seen: &mut HashSet<&'a str>,
    causes: &mut Causes,
) {
    let name = port.child("name");
    if !name.text().is_empty() {
        causes.check_text(&name, names::dns_label_error);
        causes.check_unique(&name, seen);
    } else if needs_name {
        causes.required(&name, "");
    }
    causes.check_port(&port.child("port"));
    causes.check_required_one_of(&port.child("protocol"), &PROTOCOLS);
    causes.check_port_or_name(&port.child("targetPort"));
    causes.check_text(&port.child("appProtocol"), names::qualified_name_error);
}

fn check_affinity(spec: &Field<'_>, causes: &mut Causes) {
    let affinity = spec.child("sessionAffinity");
    causes.check_required_one_of(&affinity, &["ClientIP", "None"]);
    let config = spec.child("sessionAffinityConfig");
    if affinity.text() == "ClientIP" {
        let seconds = config.at(&["clientIP", "timeoutSeconds"]);
        let number = seconds.int().unwrap_or_default();
        if !(1..=86400).contains(&number) {
            let detail = "must be greater than 0 and less than 86400";
            causes.push(StatusCause::invalid(seconds.path(), number, detail));
        }
    }
}

pub(super) fn check_cluster_ips(spec: &Field<'_>, causes: &mut Causes) {
    let (single, list) = (spec.child("clusterIP"), spec.child("clusterIPs"));
    let first = list.items().next().map(|first| first.text());
    match (single.text(), first) {
        ("", None) => {}
        ("", Some(_)) => {
            causes.invalid(&list, "must be empty when `clusterIP` is not specified");
        }
        (_, None) => causes.required(&list, ""),
        (single, Some(first)) if single != first => {
            causes.invalid(&list, "first value must match `clusterIP`");
        }
        _ => {}
    }
    let mut seen = HashSet::new();
    for family in spec.child("ipFamilies").items() {
        causes.check_one_of(&family, &["IPv4", "IPv6"]);
        causes.check_unique(&family, &mut seen);
    }
    causes.check_one_of(
        &spec.child("ipFamilyPolicy"),
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    let mut valid = true;
    for (index, ip) in list.items().enumerate() {
        if index == 0 && ip.text() == HEADLESS {
            if list.len() > 1 {
                valid = false;
                causes.invalid(&list, "'None' must be the first and only value");
            }
        } else if let Some(detail) = names::ip_error(ip.text()) {
            valid = false;
            causes.invalid(&ip, &detail);
        }
    }
    if list.len() > 2 {
        causes.invalid(&list, "may only hold up to 2 values");
    }
    if valid && !is_headless(spec) {
        check_families(spec, causes);
    }
}

fn check_families(spec: &Field<'_>, causes: &mut Causes) {
    let list = spec.child("clusterIPs");
    let of = |ip: &str| if ip.contains(':') { "IPv6" } else { "IPv4" };
    let families: HashSet<&str> = list.items().map(|ip| of(ip.text())).collect();
    if families.len() < list.len() {
        causes.invalid(&list, "may specify no more than one IP for each IP family");
    }
    let expected = spec.child("ipFamilies").items();
    for (index, (ip, family)) in list.items().zip(expected).enumerate() {
        if of(ip.text()) != family.text() {
            let family = family.text();
            let detail =
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            causes.invalid(&ip, &detail);
        }
    }
}

fn check_port_numbers(ports: &Field<'_>, kind: &str, causes: &mut Causes) {
    let (mut numbers, mut node_numbers) = (HashSet::new(), HashSet::new());
    for port in ports.items() {
        let node = port.child("nodePort");
        let protocol = port.child("protocol").text();
        let number = node.int().filter(|number| *number != 0);
        if number.is_some() && kind == "ClusterIP" {
            causes.forbidden(&node, "may not be used when `type` is 'ClusterIP'");
        }
        if number.is_some_and(|number| !node_numbers.insert((protocol, number))) {
            causes.duplicate(&node);
        }
    }
    for port in ports.items() {
        let (protocol, number) = (port.child("protocol"), port.child("port"));
        if !numbers.insert((protocol.text(), number.int())) {
            let key = serde_json::json!({
                "port": number.value(), "protocol": protocol.text(), "targetPort": 0,
            });
            causes.push(StatusCause::duplicate(port.path(), key));
        }
    }
}

fn check_balancer(spec: &Field<'_>, kind: &str, causes: &mut Causes) {
    let ranges = spec.child("loadBalancerSourceRanges");
    // Upstream's path has a capital letter.
    let path = spec.named("LoadBalancerSourceRanges");
    if ranges.len() > 0 && kind != "LoadBalancer" {
        causes.forbidden(&path, "may only be used when `type` is 'LoadBalancer'");
    }
    for (index, range) in ranges.items().enumerate() {
        let text = range.text().trim();
        if let Some(detail) = names::cidr_error(text) {
            causes.invalid_at(path.path().index(index), text, &detail);
        }
    }
    for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        let field = spec.child(name);
        if field.is_set() && kind != "LoadBalancer" {
            causes.forbidden(&field, "may only be used when `type` is 'LoadBalancer'");
        }
    }
    let class = spec.child("loadBalancerClass");
    if class.is_set() {
        causes.check_qualified_name(&class);
    }
}

fn check_policies(spec: &Field<'_>, kind: &str, causes: &mut Causes) {
    let external = spec.child("externalTrafficPolicy");
    let is_external =
        has_node_ports(kind) || kind == "ClusterIP" && spec.child("externalIPs").len() > 0;
    if is_external {
        if external.text().is_empty() {
            let detail = "may only be set for externally-accessible services";
            causes.required(&external, detail);
        }
        causes.check_one_of(&external, &["Cluster", "Local"]);
    } else if !external.text().is_empty() {
        let detail = "may only be set for externally-accessible services";
        causes.invalid(&external, detail);
    }
    let health = spec.child("healthCheckNodePort");
    let checks_health = kind == "LoadBalancer" && external.text() == "Local";
    if health.int().is_some_and(|port| port != 0) && !checks_health {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is \
                      'Local'";
        causes.invalid(&health, detail);
    } else if checks_health && !health.is_zero() {
        causes.check_port(&health);
    }
    causes.check_one_of(&spec.child("internalTrafficPolicy"), &["Cluster", "Local"]);
    causes.check_one_of(
        &spec.child("trafficDistribution"),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

/// Checks a new version of a service as the successor of an old one.
pub(super) fn check_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (new, old) = (new.child("spec"), old.child("spec"));
    if [new, old]
        .iter()
        .any(|spec| spec.child("type").text() == "ExternalName")
    {
        return;
    }
    let (ips, old_ips) = (new.child("clusterIPs"), old.child("clusterIPs"));
    if !(is_headless(&new) && is_headless(&old)) {
        check_list(&ips, &old_ips, "primary clusterIP can not be unset", causes);
    }
    let mismatched = ips
        .items()
        .zip(new.child("ipFamilies").items())
        .any(|(ip, family)| {
            ip.text() != HEADLESS && ip.text().contains(':') != (family.text() == "IPv6")
        });
    if mismatched {
        // It has been reported.
        return;
    }
    let (families, old_families) = (new.child("ipFamilies"), old.child("ipFamilies"));
    if !is_headless(&new) && !is_headless(&old) {
        let detail = "primary ipFamily can not be unset";
        check_list(&families, &old_families, detail, causes);
    }
    let class = new.child("loadBalancerClass");
    let balances = |spec: &Field<'_>| spec.child("type").text() == "LoadBalancer";
    if balances(&new) && balances(&old) && !class.equals(&old.child("loadBalancerClass")) {
        causes.invalid(&class, "may not change once set");
    }
    let health = new.child("healthCheckNodePort");
    let local =
        |spec: &Field<'_>| balances(spec) && spec.child("externalTrafficPolicy").text() == "Local";
    if local(&new) && local(&old) && !health.equals(&old.child("healthCheckNodePort")) {
        causes.forbidden(&health, names::IMMUTABLE);
    }
}

/// Checks that the values of a list stay, and that others may only follow.
fn check_list(new: &Field<'_>, old: &Field<'_>, unset: &str, causes: &mut Causes) {
    if old.len() > 0 && new.len() == 0 {
        causes.invalid_at(new.path().index(0), new.value(), unset);
        return;
    }
    for (index, (new_item, old_item)) in new.items().zip(old.items()).enumerate() {
        if new_item.text() != old_item.text() {
            causes.invalid_at(
                new.path().index(index),
                new.value(),
                "may not change once set",
            );
        }
    }
}

/// Checks the status of a service.
pub(in crate::builtin) fn check_status(new: &Field<'_>, _: &Field<'_>, causes: &mut Causes) {
    for ingress in new.at(&["status", "loadBalancer", "ingress"]).items() {
        causes.check_text(&ingress.child("ip"), names::ip_error);
        causes.check_text(&ingress.child("hostname"), names::subdomain_error);
        causes.check_one_of(&ingress.child("ipMode"), &["VIP", "Proxy"]);
    }
}
