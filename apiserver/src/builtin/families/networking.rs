//! Ingresses, network policies and addresses.

use serde_json::json;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;

const GROUP: &str = "networking.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        validate: check_ingress,
        validate_status: super::service::check_balancer_status,
        ..Kind::new(GROUP, "Ingress").with_status().with_generation()
    },
    Kind {
        default: |class| {
            let parameters =
                edit::child_mut(class, "spec").and_then(|spec| edit::child_mut(spec, "parameters"));
            if let Some(parameters) = parameters {
                edit::set_unset(parameters, "scope", "Cluster");
            }
        },
        validate: |class, causes| {
            let controller = class.at(&["spec", "controller"]);
            if causes.check_required(&controller) && !controller.text().contains('/') {
                let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
                causes.invalid(&controller, detail);
            }
        },
        validate_update: |new, old, causes| {
            let path = ["spec", "controller"];
            causes.check_immutable(&new.at(&path), &old.at(&path));
        },
        ..Kind::new(GROUP, "IngressClass").with_generation()
    },
    Kind {
        default: default_policy,
        validate: check_policy,
        ..Kind::new(GROUP, "NetworkPolicy").with_generation()
    },
    Kind {
        name_error: names::ip_error,
        validate: |address, causes| {
            causes.check_required(&address.at(&["spec", "parentRef"]));
        },
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("spec"), &old.child("spec"));
        },
        ..Kind::new(GROUP, "IPAddress")
    },
    Kind {
        validate: |range, causes| {
            let list = range.at(&["spec", "cidrs"]);
            if list.len() == 0 {
                causes.required(&list, "at least one CIDR required");
            }
            for cidr in list.items() {
                if !names::is_cidr(cidr.text()) {
                    let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                    causes.invalid(&cidr, detail);
                }
            }
        },
        status_keeps_metadata: true,
        ..Kind::new(GROUP, "ServiceCIDR").with_status()
    },
];

fn check_ingress(ingress: &Field<'_>, causes: &mut Causes) {
    let spec = ingress.child("spec");
    let (backend, rules) = (spec.child("defaultBackend"), spec.child("rules"));
    if rules.len() == 0 && !backend.is_set() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        causes.invalid_at(spec.path(), rules.value(), detail);
    }
    if backend.is_set() {
        check_backend(&backend, causes);
    }
    for rule in rules.items() {
        check_host(&rule.child("host"), causes);
        let http = rule.child("http");
        if !http.is_set() {
            continue;
        }
        let paths = http.child("paths");
        causes.check_required(&paths);
        for path in paths.items() {
            check_path(&path, causes);
        }
    }
    for tls in spec.child("tls").items() {
        for host in tls.child("hosts").items() {
            if host.text().contains('*') {
                causes.check_text(&host, names::wildcard_subdomain_error);
            } else {
                causes.check_text(&host, names::subdomain_error);
            }
        }
        causes.check_text(&tls.child("secretName"), names::subdomain_error);
    }
    causes.check_text(&spec.child("ingressClassName"), names::subdomain_error);
}

fn check_host(host: &Field<'_>, causes: &mut Causes) {
    let text = host.text();
    if text.parse::<std::net::IpAddr>().is_ok() {
        causes.invalid(host, "must be a DNS name, not an IP address");
    }
    if text.contains('*') {
        causes.check_text(host, names::wildcard_subdomain_error);
    } else {
        causes.check_text(host, names::subdomain_error);
    }
}

/// The sequences that exact paths and prefixes cannot have, and their possible ends.
const INVALID_SEQUENCES: [&str; 6] = ["//", "/./", "/../", "%2f", "%2F", "\\"];
const INVALID_SUFFIXES: [&str; 2] = ["/..", "/."];

fn check_path(item: &Field<'_>, causes: &mut Causes) {
    let (kind, path) = (item.child("pathType"), item.child("path"));
    if !kind.is_set() {
        causes.required(&kind, "pathType must be specified");
        return;
    }
    match kind.text() {
        "Exact" | "Prefix" => {
            if !path.text().starts_with('/') {
                causes.invalid_at(path.path(), path.text(), "must be an absolute path");
            }
            for sequence in INVALID_SEQUENCES {
                if path.text().contains(sequence) {
                    causes.invalid(&path, &format!("must not contain '{sequence}'"));
                }
            }
            for suffix in INVALID_SUFFIXES {
                if path.text().ends_with(suffix) {
                    causes.invalid(&path, &format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.text().is_empty() && !path.text().starts_with('/') {
                causes.invalid(&path, "must be an absolute path");
            }
        }
        _ => causes.not_supported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    check_backend(&item.child("backend"), causes);
}

fn check_backend(backend: &Field<'_>, causes: &mut Causes) {
    let (resource, service) = (backend.child("resource"), backend.child("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            let detail = "cannot set both resource and service backends";
            causes.invalid_at(backend.path(), "", detail);
        }
        (true, false) => {
            for name in ["kind", "name"] {
                if causes.check_required(&resource.child(name)) {
                    causes.check_text(&resource.child(name), names::path_segment_error);
                }
            }
        }
        (false, true) => {
            causes.check_required_label(&service.child("name"));
            let (name, number) = (
                service.at(&["port", "name"]),
                service.at(&["port", "number"]),
            );
            match (name.text().is_empty(), number.is_zero()) {
                (false, false) => {
                    let detail = "cannot set both port name & port number";
                    causes.invalid_at(backend.path(), "", detail);
                }
                (false, true) => {
                    for detail in names::port_name_errors(name.text()) {
                        causes.invalid(&name, detail);
                    }
                }
                (true, false) => causes.check_port(&number),
                (true, true) => causes.required(backend, "port name or number is required"),
            }
        }
        (false, false) => {
            let detail = "resource or service backend is required";
            causes.invalid_at(backend.path(), "", detail);
        }
    }
}

fn default_policy(policy: &mut JsonObject) {
    let Some(spec) = edit::ensure(policy, "spec") else {
        return;
    };
    for direction in ["ingress", "egress"] {
        for rule in edit::items_mut(spec, direction) {
            for port in edit::items_mut(rule, "ports") {
                edit::set_unset(port, "protocol", "TCP");
            }
        }
    }
    let has_egress = Field::root(spec).child("egress").len() > 0;
    let types = if has_egress {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    edit::set_zero(spec, "policyTypes", types);
}

fn check_policy(policy: &Field<'_>, causes: &mut Causes) {
    let spec = policy.child("spec");
    causes.check_selector(&spec.child("podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.child(direction).items() {
            for port in rule.child("ports").items() {
                check_policy_port(&port, causes);
            }
            for peer in rule.child(peers).items() {
                check_peer(&peer, causes);
            }
        }
    }
    let types = spec.child("policyTypes");
    if types.len() > 2 {
        causes.invalid(&types, "may not specify more than two policyTypes");
        return;
    }
    for kind in types.items() {
        causes.check_one_of(&kind, &["Ingress", "Egress"]);
    }
}

fn check_policy_port(item: &Field<'_>, causes: &mut Causes) {
    causes.check_one_of(&item.child("protocol"), &["TCP", "UDP", "SCTP"]);
    let (port, end) = (item.child("port"), item.child("endPort"));
    if port.is_set() {
        causes.check_port_or_name(&port);
    }
    if !end.is_set() {
        return;
    }
    match port.int() {
        Some(number) => {
            if end.int().is_some_and(|end| end < number) {
                let detail = "must be greater than or equal to `port`";
                causes.invalid_at(end.path(), number, detail);
            }
            causes.check_port(&end);
        }
        None if port.is_set() => {
            causes.invalid(&end, "may not be specified when `port` is non-numeric");
        }
        None => causes.invalid(&end, "may not be specified when `port` is not specified"),
    }
}

fn check_peer(peer: &Field<'_>, causes: &mut Causes) {
    let (pods, namespaces) = (peer.child("podSelector"), peer.child("namespaceSelector"));
    let block = peer.child("ipBlock");
    causes.check_selector(&pods);
    causes.check_selector(&namespaces);
    if block.is_set() {
        let cidr = block.child("cidr");
        if causes.check_required(&cidr) && !names::is_cidr(cidr.text()) {
            causes.invalid(
                &cidr,
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            );
        }
        if pods.is_set() || namespaces.is_set() {
            causes.forbidden(peer, "may not specify both ipBlock and another peer");
        }
    } else if !pods.is_set() && !namespaces.is_set() {
        causes.push(StatusCause::required(peer.path(), "must specify a peer"));
    }
}
