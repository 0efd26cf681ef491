//! Ingresses, network policies and addresses.

use serde_json::json;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{FieldPath, StatusCause};

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;

const GROUP: &str = "networking.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        validate: check_ingress,
        validate_create: |ingress, causes| {
            let key = "kubernetes.io/ingress.class";
            let annotation = ingress.at(&["metadata", "annotations"]).key(key);
            let class = ingress.at(&["spec", "ingressClassName"]);
            if annotation.is_set() && class.is_set() && annotation.text() != class.text() {
                let detail = "must match `ingressClassName` when both are specified";
                let path = FieldPath::new("annotations").child(key);
                causes.invalid_at(path, annotation.text(), detail);
            }
        },
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
        validate: |class, causes| check_class(&class.child("spec"), causes),
        validate_update: |new, old, causes| {
            let path = ["spec", "controller"];
            causes.check_immutable_text(&new.at(&path), &old.at(&path));
        },
        ..Kind::new(GROUP, "IngressClass").with_generation()
    },
    Kind {
        default: default_policy,
        validate: check_policy,
        ..Kind::new(GROUP, "NetworkPolicy").with_generation()
    },
    Kind {
        name_error: names::canonical_ip_error,
        validate: |address, causes| check_parent(&address.at(&["spec", "parentRef"]), causes),
        validate_update: |new, old, causes| {
            let path = ["spec", "parentRef"];
            causes.check_immutable(&new.at(&path), &old.at(&path));
        },
        ..Kind::new(GROUP, "IPAddress")
    },
    Kind {
        validate_create: |range, causes| check_ranges(&range.at(&["spec", "cidrs"]), causes),
        validate_update: check_range_update,
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
    let class = spec.child("ingressClassName");
    if class.is_set() {
        causes.check_present_text(&class, names::subdomain_error);
    }
}

/// The maximum length of the name of a controller of ingresses.
const CONTROLLER_BYTES_MAX: usize = 250;

fn check_class(spec: &Field<'_>, causes: &mut Causes) {
    let controller = spec.child("controller");
    if controller.text().len() > CONTROLLER_BYTES_MAX {
        let cause = StatusCause::too_long(controller.path(), CONTROLLER_BYTES_MAX);
        causes.push(cause);
    }
    causes.check_domain_prefixed_path(&controller);
    let parameters = spec.child("parameters");
    if !parameters.is_set() {
        return;
    }
    check_typed_reference(&parameters, causes);
    let (scope, namespace) = (parameters.child("scope"), parameters.child("namespace"));
    match scope.text() {
        "Namespace" if !namespace.is_set() => {
            let detail = "`parameters.scope` is set to 'Namespace'";
            causes.required(&namespace, detail);
        }
        "Namespace" => causes.check_present_text(&namespace, names::dns_label_error),
        "Cluster" if namespace.is_set() => {
            causes.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
        }
        "Cluster" => {}
        _ => causes.not_supported(&scope, &["Cluster", "Namespace"]),
    }
}

/// Checks a reference to an object of a kind.
fn check_typed_reference(reference: &Field<'_>, causes: &mut Causes) {
    let group = reference.child("apiGroup");
    if group.is_set() {
        causes.check_present_text(&group, names::subdomain_error);
    }
    for name in ["kind", "name"] {
        if causes.check_required(&reference.child(name)) {
            causes.check_text(&reference.child(name), names::path_segment_error);
        }
    }
}

/// Checks the object that an address belongs to.
fn check_parent(parent: &Field<'_>, causes: &mut Causes) {
    if !parent.is_set() {
        causes.required(parent, "");
        return;
    }
    causes.check_text(&parent.child("group"), names::subdomain_error);
    for name in ["resource", "name"] {
        if causes.check_required(&parent.child(name)) {
            causes.check_text(&parent.child(name), names::path_segment_error);
        }
    }
    causes.check_text(&parent.child("namespace"), names::path_segment_error);
}

/// Checks the ranges of addresses of services: one of each family at most.
fn check_ranges(list: &Field<'_>, causes: &mut Causes) {
    if list.len() == 0 {
        causes.required(list, "at least one CIDR required");
        return;
    }
    if list.len() > 2 {
        let shown = json!({"CIDRs": list.value()});
        causes.invalid_at(list.path(), shown, "may only hold up to 2 values");
        return;
    }
    for cidr in list.items() {
        causes.check_present_text(&cidr, names::canonical_cidr_error);
    }
    let families: Vec<bool> = list
        .items()
        .filter_map(|cidr| Some(names::Cidr::parse(cidr.text())?.is_ipv4()))
        .collect();
    if let [one, two] = families[..]
        && one == two
    {
        causes.invalid(
            list,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}

/// Checks that a range keeps its blocks of addresses, to which one of the other family can be added.
fn check_range_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let path = ["spec", "cidrs"];
    let (list, previous) = (new.at(&path), old.at(&path));
    if list.len() != previous.len() && (previous.len(), list.len()) != (1, 2) {
        causes.invalid(&list, names::IMMUTABLE);
        return;
    }
    for (cidr, old) in list.items().zip(previous.items()) {
        if cidr.text() != old.text() {
            causes.invalid(&cidr, names::IMMUTABLE);
        }
    }
    if list.len() != previous.len() {
        check_ranges(&list, causes);
    }
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
        (true, false) => check_typed_reference(&resource, causes),
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
    if !end.is_set() {
        if port.is_set() {
            causes.check_port_or_name(&port);
        }
        return;
    }
    match port.int() {
        Some(number) => {
            causes.check_port(&port);
            if end.int().is_some_and(|end| end < number) {
                let detail = "must be greater than or equal to `port`";
                causes.invalid_at(end.path(), number, detail);
            }
            causes.check_port(&end);
        }
        None if port.is_set() => {
            causes.invalid(&end, "may not be specified when `port` is non-numeric");
            causes.check_port_or_name(&port);
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
        check_block(&block, causes);
        if pods.is_set() || namespaces.is_set() {
            causes.forbidden(peer, "may not specify both ipBlock and another peer");
        }
    } else if !pods.is_set() && !namespaces.is_set() {
        causes.push(StatusCause::required(peer.path(), "must specify a peer"));
    }
}

/// Checks a block of addresses, and the blocks that are left out of it.
fn check_block(block: &Field<'_>, causes: &mut Causes) {
    let cidr = block.child("cidr");
    if !causes.check_required(&cidr) {
        return;
    }
    causes.check_text(&cidr, names::cidr_error);
    let Some(whole) = names::Cidr::parse(cidr.text()) else {
        return;
    };
    for except in block.child("except").items() {
        causes.check_present_text(&except, names::cidr_error);
        if names::Cidr::parse(except.text()).is_some_and(|part| !whole.contains_strictly(part)) {
            causes.invalid(&except, "must be a strict subset of `cidr`");
        }
    }
}
