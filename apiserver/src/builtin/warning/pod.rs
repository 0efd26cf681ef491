//! Warnings about pods and pod templates.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::quoted;

use super::addresses::check_ip;
use super::node_labels::{
    check_expressions, check_expressions_and_values, check_name, deprecation,
};
use super::storage::check_claim;
use super::virtual_paths::check_volumes;
use super::volume_sources::{VOLUMES, check_sources};
use super::{Change, Comparisons, Warnings};
use crate::builtin::families::pod::{SECCOMP_CONTAINER, SECCOMP_POD, all_containers, old_profile};
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::quantity::Quantity;

/// The annotations that mean nothing any more.
const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const USE_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const USE_APP_ARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";

/// Returns the warnings about a new pod before its annotations with `AppArmor` profiles become fields.
pub fn creation_warnings(pod: &JsonObject) -> Vec<String> {
    let root = Field::root(pod);
    let mut warnings = Warnings::default();
    if root.child("kind").text() == "Pod" && root.at(&["spec", "os", "name"]).text() != "windows" {
        for container in all_containers(&root.child("spec")) {
            let profile = old_profile(&root, &container);
            if let Some(profile) = profile.filter(|profile| !profile.is_that_of_pod()) {
                warnings.at(&profile.annotation, USE_APP_ARMOR);
            }
        }
    }
    warnings.texts
}

/// A pod. Only new ones are warned of: programs and not people change them.
pub(super) fn pod(change: &Change<'_>, warnings: &mut Warnings) {
    if !change.is_new() {
        return;
    }
    let name = change.new.at(&["metadata", "name"]);
    let error = names::dns_label_error(name.text());
    if let Some(error) = error.filter(|_| !name.text().is_empty()) {
        warnings.at(
            &name,
            format!(
                "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
                 recommended: [{error}]"
            ),
        );
    }
    check(&change.new, false, warnings);
}

/// The status of a pod.
pub(super) fn status(status: &Field<'_>, warnings: &mut Warnings) {
    for list in ["podIPs", "hostIPs"] {
        for item in status.child(list).items() {
            check_ip(&item.child("ip"), warnings);
        }
    }
}

pub(super) fn check_template(template: &Field<'_>, warnings: &mut Warnings) {
    check(template, true, warnings);
}

/// Checks a pod or a template: an object with metadata and the spec of a pod.
fn check(object: &Field<'_>, is_template: bool, warnings: &mut Warnings) {
    let spec = object.child("spec");
    let annotations = object.at(&["metadata", "annotations"]);
    check_nodes(&spec, warnings);
    for (name, text) in ANNOTATIONS {
        let annotation = annotations.key(name);
        if annotation.is_set() {
            warnings.at(&annotation, text);
        }
    }
    for volume in spec.child("volumes").items() {
        check_sources(&volume, &VOLUMES, warnings);
        let claim = volume.at(&["ephemeral", "volumeClaimTemplate", "spec"]);
        check_claim(&claim, warnings);
    }
    check_volumes(&spec.child("volumes"), warnings);
    let aliases = spec.child("hostAliases");
    let mut seen = HashSet::new();
    for ip in aliases.items().map(|alias| alias.child("ip")) {
        if !seen.insert(ip.text()) {
            warnings.at(&ip, format!("duplicate ip {}", quoted(ip.text())));
        }
    }
    check_secrets(&spec.child("imagePullSecrets"), warnings);
    for name in ["memory", "ephemeral-storage"] {
        check_fraction(&spec.child("overhead").key(name), warnings);
    }
    let seccomp = annotations.key(SECCOMP_POD);
    if seccomp.is_set() && !spec.at(&["securityContext", "seccompProfile"]).is_set() {
        warnings.at(&seccomp, USE_SECCOMP);
    }
    for container in all_containers(&spec) {
        let name = container.child("name").text();
        let key = format!("{SECCOMP_CONTAINER}{name}");
        let seccomp = annotations.key(&key);
        let field = container.at(&["securityContext", "seccompProfile"]);
        if seccomp.is_set() && !field.is_set() {
            warnings.at(&seccomp, USE_SECCOMP);
        }
        // Those of pods are warned of before they become fields.
        let profile = old_profile(object, &container).filter(|_| is_template);
        if let Some(profile) = profile.filter(|profile| !profile.is_that_of_pod()) {
            warnings.at(&profile.annotation, USE_APP_ARMOR);
        }
        for resource in ["memory", "ephemeral-storage"] {
            for list in ["limits", "requests"] {
                let amount = container.at(&["resources", list]).key(resource);
                check_fraction(&amount, warnings);
            }
        }
        check_env(&container.child("env"), warnings);
    }
    check_ports(&spec, warnings);
    check_port_names(&spec, warnings);
    let grace = spec.child("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds < 0) {
        let text = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.at(&grace, text);
    }
    check_pod_affinity(&spec.child("affinity"), warnings);
    for server in spec.at(&["dnsConfig", "nameservers"]).items() {
        check_ip(&server, warnings);
    }
    for alias in aliases.items() {
        check_ip(&alias.child("ip"), warnings);
    }
}

/// Warns of labels of nodes, and of selectors that find no pod.
fn check_nodes(spec: &Field<'_>, warnings: &mut Warnings) {
    for (label, value) in spec.child("nodeSelector").entries() {
        if let Some(text) = deprecation(label) {
            warnings.at(&value, text);
        }
    }
    let affinity = spec.at(&["affinity", "nodeAffinity"]);
    let required = affinity.child("requiredDuringSchedulingIgnoredDuringExecution");
    for term in required.child("nodeSelectorTerms").items() {
        check_expressions(&term, warnings);
    }
    let preferred = affinity.child("preferredDuringSchedulingIgnoredDuringExecution");
    for term in preferred.items() {
        check_expressions_and_values(&term.child("preference"), warnings);
    }
    for constraint in spec.child("topologySpreadConstraints").items() {
        check_name(&constraint.child("topologyKey"), warnings);
        check_selector(&constraint, warnings);
    }
}

/// Warns of an object without the selector that it needs.
fn check_selector(object: &Field<'_>, warnings: &mut Warnings) {
    let selector = object.child("labelSelector");
    if !selector.is_set() {
        warnings.at(&selector, "a null labelSelector results in matching no pod");
    }
}

fn check_pod_affinity(affinity: &Field<'_>, warnings: &mut Warnings) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = affinity.child(kind);
        let required = affinity.child("requiredDuringSchedulingIgnoredDuringExecution");
        for term in required.items() {
            check_selector(&term, warnings);
        }
        let preferred = affinity.child("preferredDuringSchedulingIgnoredDuringExecution");
        for term in preferred.items() {
            check_selector(&term.child("podAffinityTerm"), warnings);
        }
    }
}

/// Warns of an amount of bytes that is not whole.
pub(super) fn check_fraction(amount: &Field<'_>, warnings: &mut Warnings) {
    let text = amount.text();
    let is_whole = |amount: Quantity| amount.thousandths() % 1_000 == 0;
    if !Quantity::parse(text).is_none_or(is_whole) {
        let shown = quoted(text);
        let text = format!("fractional byte value {shown} is invalid, must be an integer");
        warnings.at(amount, text);
    }
}

fn check_secrets(secrets: &Field<'_>, warnings: &mut Warnings) {
    let mut seen = HashSet::new();
    for name in secrets.items().map(|secret| secret.child("name")) {
        if !seen.insert(name.text()) {
            let shown = quoted(name.text());
            warnings.at(&name, format!("duplicate name {shown}"));
        }
    }
    for name in secrets.items().map(|secret| secret.child("name")) {
        if name.text().is_empty() {
            warnings.at(&name, "invalid empty name \"\"");
        }
    }
}

/// Warns of variables with the same name, unless the later one refers to the earlier.
fn check_env(env: &Field<'_>, warnings: &mut Warnings) {
    let mut seen = HashSet::new();
    for variable in env.items() {
        let name = variable.child("name").text();
        if seen.insert(name) {
            continue;
        }
        let (value, reference) = (variable.child("value").text(), format!("$({name})"));
        let hides = variable.child("valueFrom").is_set()
            || value == reference
            || !value.contains(&reference);
        if hides {
            let shown = quoted(name);
            let text = format!(
                "hides previous definition of {shown}, which may be dropped when using apply"
            );
            warnings.at(&variable, text);
        }
    }
}

/// The part of a port that is on the node.
#[derive(PartialEq, Eq)]
struct HostPort<'a> {
    ip: &'a str,
    number: i64,
}

impl<'a> HostPort<'a> {
    fn of(port: &Field<'a>) -> Self {
        Self {
            ip: port.child("hostIP").text(),
            number: port.child("hostPort").int().unwrap_or_default(),
        }
    }

    /// Returns what is wrong with two ports of containers that are equal but for these parts.
    fn conflict(&self, other: &Self) -> Option<&'static str> {
        if self == other {
            Some("duplicate")
        } else if self.number == 0 || other.number == 0 {
            Some("overlapping")
        } else if self.number == other.number && self.ip.is_empty() != other.ip.is_empty() {
            Some("dangerously ambiguous")
        } else {
            None
        }
    }
}

/// Warns of ports of all containers that may be the same.
fn check_ports(spec: &Field<'_>, warnings: &mut Warnings) {
    let mut seen: HashMap<(i64, &str), Vec<(HostPort<'_>, Field<'_>)>> = HashMap::new();
    let mut comparisons = Comparisons::new();
    for port in ports(spec) {
        let number = port.child("containerPort").int().unwrap_or_default();
        let protocol = port.child("protocol").text();
        let host = HostPort::of(&port);
        if !host.ip.is_empty() && host.number == 0 {
            let (name, ip) = (port.child("name").text(), host.ip);
            warnings.at(
                &port,
                format!(
                    "hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} \
                     Protocol:{protocol} HostIP:{ip}}}"
                ),
            );
        }
        let others = seen.entry((number, protocol)).or_default();
        if comparisons.may_make(others.len()) {
            for (other_host, other) in others.iter() {
                if let Some(conflict) = host.conflict(other_host) {
                    let other = other.path();
                    warnings.at(&port, format!("{conflict} port definition with {other}"));
                }
            }
        }
        others.push((host, port));
    }
}

/// Warns of names of ports that several containers have.
fn check_port_names(spec: &Field<'_>, warnings: &mut Warnings) {
    let mut seen: HashMap<&str, Field<'_>> = HashMap::new();
    for port in ports(spec) {
        let name = port.child("name").text();
        if name.is_empty() {
            continue;
        }
        match seen.get(name) {
            Some(other) => {
                let (shown, other) = (quoted(name), other.path());
                warnings.at(&port, duplicate_name(&shown, &other));
            }
            None => drop(seen.insert(name, port)),
        }
    }
}

fn duplicate_name(name: &str, other: &dyn Display) -> String {
    format!(
        "duplicate port name {name} with {other}, services and probes that select ports by name will use {other}"
    )
}

fn ports<'a>(spec: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    all_containers(spec).flat_map(|container| container.child("ports").items())
}
