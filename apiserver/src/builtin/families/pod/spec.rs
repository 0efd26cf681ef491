//! Validation of the spec of pods and of pod templates.

use std::collections::HashSet;

use revstore_watch_cache::status::StatusCause;

use super::{container, security, volume};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// The kind that a pod template belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::builtin) enum Owner {
    /// A kind that does not restrict the template.
    Any,
    /// A kind whose pods always run, with its name.
    Running(&'static str),
}

/// Checks a pod.
pub(super) fn check_pod(pod: &Field<'_>, causes: &mut Causes) {
    let spec = pod.child("spec");
    check_spec(&spec, true, causes);
    let list = spec.child("tolerations");
    check_tolerations(&list, causes);
    let annotations = pod.at(&["metadata", "annotations"]);
    let mirror = annotations.key("kubernetes.io/config.mirror");
    if mirror.is_set() && spec.child("nodeName").text().is_empty() {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        causes.invalid(&mirror, detail);
    }
    if spec.child("serviceAccountName").text().is_empty() {
        for volume in spec.child("volumes").items() {
            for source in volume.at(&["projected", "sources"]).items() {
                let token = source.child("serviceAccountToken");
                if token.is_set() {
                    let detail = "must not be specified when serviceAccountName is not set";
                    causes.forbidden(&token, detail);
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.child(list).items() {
            check_image_spaces(&container, causes);
        }
    }
}

/// Checks that the image of a container does not begin or end with a space.
pub(super) fn check_image_spaces(container: &Field<'_>, causes: &mut Causes) {
    let image = container.child("image");
    if image.text().trim() != image.text() {
        causes.invalid(&image, "must not have leading or trailing whitespace");
    }
}

/// Checks a pod template, and what its owner demands of it.
pub(in crate::builtin) fn check_template(template: &Field<'_>, owner: Owner, causes: &mut Causes) {
    let metadata = template.child("metadata");
    causes.check_labels(&metadata.child("labels"));
    causes.check_annotations(&metadata.child("annotations"));
    let spec = template.child("spec");
    check_spec(&spec, false, causes);
    check_tolerations(&spec.child("tolerations"), causes);
    if spec.child("ephemeralContainers").len() > 0 {
        causes.forbidden(
            &spec.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
    if let Owner::Running(kind) = owner {
        let policy = spec.child("restartPolicy");
        if policy.text() != "Always" {
            causes.not_supported(&policy, &["Always"]);
        }
        let deadline = spec.child("activeDeadlineSeconds");
        if deadline.is_set() {
            let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
            causes.forbidden(&deadline, &detail);
        }
    }
}

/// Checks the spec of a pod.
fn check_spec(spec: &Field<'_>, is_pod: bool, causes: &mut Causes) {
    let volumes = volume::check_volumes(&spec.child("volumes"), causes);
    container::check_containers(spec, &volumes, causes);
    if spec.child("hostNetwork").flag() {
        check_host_ports(spec, is_pod, causes);
    }
    causes.check_required_one_of(
        &spec.child("restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    causes.check_required_one_of(
        &spec.child("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    causes.check_labels(&spec.child("nodeSelector"));
    security::check_pod_context(spec, causes);
    check_affinity(&spec.child("affinity"), causes);
    check_dns_config(spec, causes);
    for gate in spec.child("readinessGates").items() {
        causes.check_qualified_name(&gate.child("conditionType"));
    }
    let mut gates = HashSet::new();
    for gate in spec.child("schedulingGates").items() {
        let name = gate.child("name");
        if let Some(detail) = names::qualified_name_error(name.text()) {
            causes.push(StatusCause::invalid(gate.path(), name.text(), &detail));
        }
        if !gates.insert(name.text()) {
            causes.push(StatusCause::duplicate(gate.path(), name.text()));
        }
    }
    check_spread(&spec.child("topologySpreadConstraints"), causes);
    for name in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        causes.check_text(&spec.child(name), names::subdomain_error);
    }
    causes.check_range(
        &spec.child("activeDeadlineSeconds"),
        1,
        i64::from(i32::MAX),
        "must be between 1 and 2147483647, inclusive",
    );
    for name in ["hostname", "subdomain"] {
        causes.check_text(&spec.child(name), names::dns_label_error);
    }
    for alias in spec.child("hostAliases").items() {
        let ip = alias.child("ip");
        if let Some(detail) = names::ip_error(ip.text()) {
            causes.push(StatusCause::invalid(ip.path(), ip.text(), &detail));
        }
        for name in alias.child("hostnames").items() {
            causes.check_text(&name, names::subdomain_error);
        }
    }
    causes.check_one_of(
        &spec.child("preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
    causes.check_one_of(&spec.at(&["os", "name"]), &["linux", "windows"]);
}

fn check_host_ports(spec: &Field<'_>, is_pod: bool, causes: &mut Causes) {
    for container in spec.child("containers").items() {
        for port in container.child("ports").items() {
            let host = port.child("hostPort");
            let number = host.int().unwrap_or_default();
            let own = port.child("containerPort").int().unwrap_or_default();
            if (is_pod || number != 0) && number != own {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                causes.push(StatusCause::invalid(host.path(), number, detail));
            }
        }
    }
}

/// The effects of taints and of tolerations.
pub(in crate::builtin) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks tolerations.
pub(super) fn check_tolerations(tolerations: &Field<'_>, causes: &mut Causes) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.child("key"), toleration.child("operator"));
        let (value, effect) = (toleration.child("value"), toleration.child("effect"));
        causes.check_text(&key, names::qualified_name_error);
        if key.text().is_empty() && operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values \
                          and all keys\"";
            causes.push(StatusCause::invalid(
                operator.path(),
                operator.text(),
                detail,
            ));
        }
        if toleration.child("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            causes.push(StatusCause::invalid(effect.path(), effect.text(), detail));
        }
        match operator.text() {
            "" | "Equal" => {
                if let Some(detail) = names::label_value_error(value.text()) {
                    causes.push(StatusCause::invalid(operator.path(), value.text(), &detail));
                }
            }
            "Exists" if !value.text().is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                causes.push(StatusCause::invalid(operator.path(), value.text(), detail));
            }
            "Exists" => {}
            _ => causes.not_supported(&operator, &["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            causes.check_one_of(&effect, &EFFECTS);
        }
    }
}

/// Checks the constraints on the spread of pods.
fn check_spread(constraints: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for constraint in constraints.items() {
        let skew = constraint.child("maxSkew");
        if skew.int().unwrap_or_default() <= 0 {
            let number = skew.int().unwrap_or_default();
            causes.push(StatusCause::invalid(
                skew.path(),
                number,
                "must be greater than zero",
            ));
        }
        let key = constraint.child("topologyKey");
        if key.text().is_empty() {
            causes.required(&key, "can not be empty");
        } else {
            causes.check_text(&key, names::qualified_name_error);
        }
        let action = constraint.child("whenUnsatisfiable");
        if action.text().is_empty() {
            causes.required(&action, "can not be empty");
        } else {
            causes.check_one_of(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        if !seen.insert((key.text(), action.text())) {
            let path = constraint.path().child("{topologyKey, whenUnsatisfiable}");
            let value = format!("{{{}, {}}}", key.text(), action.text());
            causes.push(StatusCause::duplicate(path, value));
        }
        causes.check_min(&constraint.child("minDomains"), 1, "must be greater than 0");
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            causes.check_one_of(&constraint.child(policy), &["Ignore", "Honor"]);
        }
        causes.check_selector(&constraint.child("labelSelector"));
    }
}

fn check_affinity(affinity: &Field<'_>, causes: &mut Causes) {
    let node = affinity.child("nodeAffinity");
    let required = node.child("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_set() {
        let terms = required.child("nodeSelectorTerms");
        if terms.len() == 0 {
            causes.required(&terms, "must have at least one node selector term");
        }
        for term in terms.items() {
            check_node_term(&term, causes);
        }
    }
    for term in node
        .child("preferredDuringSchedulingIgnoredDuringExecution")
        .items()
    {
        check_weight(&term, causes);
        check_node_term(&term.child("preference"), causes);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.child(kind);
        for term in pods
            .child("requiredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            check_pod_term(&term, causes);
        }
        for term in pods
            .child("preferredDuringSchedulingIgnoredDuringExecution")
            .items()
        {
            check_weight(&term, causes);
            check_pod_term(&term.child("podAffinityTerm"), causes);
        }
    }
}

fn check_weight(term: &Field<'_>, causes: &mut Causes) {
    let weight = term.child("weight");
    let number = weight.int().unwrap_or_default();
    if !(1..=100).contains(&number) {
        causes.push(StatusCause::invalid(
            weight.path(),
            number,
            "must be in the range 1-100",
        ));
    }
}

/// Checks a term that selects nodes.
pub(in crate::builtin) fn check_node_term(term: &Field<'_>, causes: &mut Causes) {
    for requirement in term.child("matchExpressions").items() {
        let values = requirement.child("values");
        let operator = requirement.child("operator");
        match operator.text() {
            "In" | "NotIn" if values.len() == 0 => causes.required(
                &values,
                "must be specified when `operator` is 'In' or 'NotIn'",
            ),
            "Exists" | "DoesNotExist" if values.len() > 0 => causes.forbidden(
                &values,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Gt" | "Lt" if values.len() != 1 => causes.required(
                &values,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            found => causes.push(StatusCause::invalid(
                operator.path(),
                found,
                "not a valid selector operator",
            )),
        }
        causes.check_text(&requirement.child("key"), names::qualified_name_error);
    }
}

fn check_pod_term(term: &Field<'_>, causes: &mut Causes) {
    causes.check_selector(&term.child("labelSelector"));
    causes.check_selector(&term.child("namespaceSelector"));
    let key = term.child("topologyKey");
    if key.text().is_empty() {
        causes.required(&key, "can not be empty");
    }
    causes.check_qualified_name(&key);
}

/// The maximum number of name servers of a pod.
const NAME_SERVERS_MAX: usize = 3;

fn check_dns_config(spec: &Field<'_>, causes: &mut Causes) {
    let config = spec.child("dnsConfig");
    let servers = config.child("nameservers");
    if spec.child("dnsPolicy").text() == "None" && servers.len() == 0 {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        if config.is_set() {
            causes.required(&servers, detail);
        } else {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            causes.required(&config, detail);
        }
    }
    if servers.len() > NAME_SERVERS_MAX {
        let detail = format!("must not have more than {NAME_SERVERS_MAX} nameservers");
        causes.invalid(&servers, &detail);
    }
    for server in servers.items() {
        causes.check_text(&server, names::ip_error);
    }
}
