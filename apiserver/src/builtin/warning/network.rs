//! Warnings about services, what is behind them, and what leads to them.

use super::addresses::{check_cidr, check_ip};
use super::{Change, Warnings};
use crate::builtin::field::Field;

/// The annotation of services that came before the one with the mode.
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// The annotation of ingresses that came before the field.
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
/// The controllers that correct addresses themselves, by the labels of what they manage.
const SLICE_MANAGER: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_MANAGERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];
const ENDPOINTS_MANAGER: &str = "endpoints.kubernetes.io/managed-by";
const ENDPOINTS_CONTROLLER: &str = "endpoint-controller";

pub(super) fn service(change: &Change<'_>, warnings: &mut Warnings) {
    let spec = change.new.child("spec");
    let annotations = change.new.at(&["metadata", "annotations"]);
    if annotations.key(TOPOLOGY_HINTS).is_set() {
        warnings.add(format!(
            "annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"
        ));
    }
    let kind = spec.child("type").text();
    let is_external_name = kind == "ExternalName";
    let is_headless = spec.child("clusterIP").text() == "None";
    let external = spec.child("externalIPs");
    let balancer = spec.child("loadBalancerIP");
    if !is_headless {
        for ip in spec.child("clusterIPs").items() {
            check_ip(&ip, warnings);
        }
    }
    if is_headless {
        if !balancer.text().is_empty() {
            warnings.add("spec.loadBalancerIP is ignored for headless services");
        }
        if external.len() > 0 {
            warnings.add("spec.externalIPs is ignored for headless services");
        }
        if spec.child("sessionAffinity").text() == "ClientIP" {
            warnings.add("spec.SessionAffinity is ignored for headless services");
        }
    }
    for ip in external.items() {
        check_ip(&ip, warnings);
    }
    if external.len() > 0 && !is_headless && !is_external_name {
        warnings.add(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        );
    }
    check_ip(&balancer, warnings);
    for cidr in spec.child("loadBalancerSourceRanges").items() {
        check_cidr(&cidr, warnings);
    }
    if external.len() > 0 && is_external_name {
        warnings.add("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if !is_external_name && !spec.child("externalName").text().is_empty() {
        warnings.add("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    let distribution = spec.child("trafficDistribution");
    if distribution.text() == "PreferClose" {
        warnings.at(
            &distribution,
            "\"PreferClose\" is deprecated; use \"PreferSameZone\"",
        );
    }
}

/// The addresses in the status of a service or an ingress.
pub(super) fn balancer(status: &Field<'_>, warnings: &mut Warnings) {
    for ingress in status.at(&["loadBalancer", "ingress"]).items() {
        check_ip(&ingress.child("ip").placed(&ingress), warnings);
    }
}

pub(super) fn endpoints(change: &Change<'_>, warnings: &mut Warnings) {
    let labels = change.new.at(&["metadata", "labels"]);
    if labels.key(ENDPOINTS_MANAGER).text() == ENDPOINTS_CONTROLLER {
        return;
    }
    for subset in change.new.child("subsets").items() {
        for list in ["addresses", "notReadyAddresses"] {
            for address in subset.child(list).items() {
                check_ip(&address.child("ip"), warnings);
            }
        }
    }
}

pub(super) fn endpoint_slice(change: &Change<'_>, warnings: &mut Warnings) {
    let kind = change.new.child("addressType").text();
    if change.is_new() && kind == "FQDN" {
        warnings.add("spec.addressType: FQDN endpoints are deprecated");
    }
    let labels = change.new.at(&["metadata", "labels"]);
    if SLICE_MANAGERS.contains(&labels.key(SLICE_MANAGER).text()) {
        return;
    }
    for endpoint in change.new.child("endpoints").items() {
        for address in endpoint.child("addresses").items() {
            check_ip(&address, warnings);
        }
    }
}

pub(super) fn ingress(change: &Change<'_>, warnings: &mut Warnings) {
    let annotations = change.new.at(&["metadata", "annotations"]);
    if change.is_new()
        && annotations.key(INGRESS_CLASS).is_set()
        && !change.new.at(&["spec", "ingressClassName"]).is_set()
    {
        warnings.add(format!(
            "annotation \"{INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
}

pub(super) fn policy(change: &Change<'_>, warnings: &mut Warnings) {
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in change.new.at(&["spec", rules]).items() {
            for peer in rule.child(peers).items() {
                let block = peer.child("ipBlock");
                check_cidr(&block.child("cidr"), warnings);
                for except in block.child("except").items() {
                    check_cidr(&except, warnings);
                }
            }
        }
    }
}
