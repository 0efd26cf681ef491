//! Validation of containers.

use std::collections::{HashMap, HashSet};

use revstore_watch_cache::status::StatusCause;

use super::volume::Volumes;
use super::{probe, security};
use crate::builtin::causes::{Causes, is_extended};
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::quantity::compare;

/// The protocols of ports.
pub(in crate::builtin) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Checks the containers of a pod.
pub(super) fn check_containers(spec: &Field<'_>, volumes: &Volumes<'_>, causes: &mut Causes) {
    let containers = spec.child("containers");
    if containers.len() == 0 {
        causes.required(&containers, "");
    }
    let mut seen = HashSet::new();
    let mut host_ports = HashSet::new();
    for container in containers.items() {
        check_container(&container, volumes, causes);
        causes.check_unique(&container.child("name"), &mut seen);
        probe::check_lifecycle(&container.child("lifecycle"), causes);
        probe::check_probes(&container, causes);
        check_host_ports(&container, &mut host_ports, causes);
    }
    check_init_containers(spec, &mut seen.clone(), volumes, causes);
    for container in spec.child("initContainers").items() {
        seen.insert(container.child("name").text());
    }
    check_ephemeral(spec, &seen, volumes, causes);
}

fn check_init_containers<'a>(
    spec: &Field<'a>,
    seen: &mut HashSet<&'a str>,
    volumes: &Volumes<'_>,
    causes: &mut Causes,
) {
    for container in spec.child("initContainers").items() {
        check_container(&container, volumes, causes);
        let policy = container.child("restartPolicy");
        causes.check_one_of(&policy, &["Always", "OnFailure", "Never"]);
        causes.check_unique(&container.child("name"), seen);
        check_host_ports(&container, &mut HashSet::new(), causes);
        if policy.text() == "Always" {
            probe::check_lifecycle(&container.child("lifecycle"), causes);
            probe::check_probes(&container, causes);
            continue;
        }
        for name in [
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
        ] {
            let field = container.child(name);
            if field.is_set() {
                causes.forbidden(
                    &field,
                    "may not be set for init containers without restartPolicy=Always",
                );
            }
        }
    }
}

/// The fields that ephemeral containers cannot have.
const NOT_EPHEMERAL: [&str; 8] = [
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];

fn check_ephemeral<'a>(
    spec: &Field<'a>,
    others: &HashSet<&'a str>,
    volumes: &Volumes<'_>,
    causes: &mut Causes,
) {
    let mut seen = others.clone();
    for container in spec.child("ephemeralContainers").items() {
        check_container(&container, volumes, causes);
        causes.check_unique(&container.child("name"), &mut seen);
        let target = container.child("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            causes.push(StatusCause::not_found(target.path(), target.text()));
        }
        for name in NOT_EPHEMERAL {
            let field = container.child(name);
            if !field.is_zero() {
                causes.forbidden(&field, "cannot be set for an Ephemeral Container");
            }
        }
        if container.child("resources").len() > 0 {
            let field = container.child("resources");
            causes.forbidden(&field, "cannot be set for an Ephemeral Container");
        }
        for mount in container.child("volumeMounts").items() {
            for name in ["subPath", "subPathExpr"] {
                let field = mount.child(name);
                if !field.text().is_empty() {
                    causes.forbidden(&field, "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

/// Checks what all containers have in common.
fn check_container(container: &Field<'_>, volumes: &Volumes<'_>, causes: &mut Causes) {
    causes.check_required_label(&container.child("name"));
    causes.check_required(&container.child("image"));
    causes.check_required_one_of(
        &container.child("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    check_ports(&container.child("ports"), causes);
    check_env(&container.child("env"), causes);
    check_env_from(&container.child("envFrom"), causes);
    check_mounts(container, volumes, causes);
    causes.check_required_one_of(
        &container.child("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
    );
    check_resources(&container.child("resources"), causes);
    security::check_context(&container.child("securityContext"), causes);
}

fn check_ports(ports: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for port in ports.items() {
        let name = port.child("name");
        if !name.text().is_empty() {
            let errors = names::port_name_errors(name.text());
            if errors.is_empty() {
                causes.check_unique(&name, &mut seen);
            }
            for detail in errors {
                causes.invalid(&name, detail);
            }
        }
        if causes.check_required(&port.child("containerPort")) {
            causes.check_port(&port.child("containerPort"));
        }
        if !port.child("hostPort").is_zero() {
            causes.check_port(&port.child("hostPort"));
        }
        causes.check_required_one_of(&port.child("protocol"), &PROTOCOLS);
    }
}

fn check_host_ports(container: &Field<'_>, seen: &mut HashSet<String>, causes: &mut Causes) {
    for port in container.child("ports").items() {
        let host = port.child("hostPort");
        let Some(number) = host.int().filter(|number| *number != 0) else {
            continue;
        };
        let (protocol, ip) = (port.child("protocol"), port.child("hostIP"));
        let binding = format!("{}/{}/{number}", protocol.text(), ip.text());
        if !seen.insert(binding.clone()) {
            causes.push(StatusCause::duplicate(host.path(), binding));
        }
    }
}

/// The sources of the value of an environment variable.
const ENV_SOURCES: [&str; 5] = [
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];

fn check_env(env: &Field<'_>, causes: &mut Causes) {
    for variable in env.items() {
        let name = variable.child("name");
        if causes.check_required(&name) {
            causes.check_text(&name, names::env_name_error);
        }
        let from = variable.child("valueFrom");
        if !from.is_set() {
            continue;
        }
        check_env_source(&from, causes);
        let sources = ENV_SOURCES
            .iter()
            .filter(|name| from.child(name).is_set())
            .count();
        let detail = match sources {
            0 => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
                 `secretKeyRef` or `fileKeyRef`"
            }
            _ if !variable.child("value").text().is_empty() => {
                "may not be specified when `value` is not empty"
            }
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        causes.push(StatusCause::invalid(from.path(), "", detail));
    }
}

/// The fields of a pod that an environment variable can have as its value.
const ENV_FIELDS: [&str; 10] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "metadata.generateName",
];

fn check_env_source(from: &Field<'_>, causes: &mut Causes) {
    let field = from.child("fieldRef");
    if field.is_set() {
        check_field_ref(&field, &ENV_FIELDS[..9], causes);
    }
    let resource = from.child("resourceFieldRef");
    if resource.is_set() {
        causes.check_required(&resource.child("resource"));
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        let reference = from.child(name);
        if !reference.is_set() {
            continue;
        }
        let target = reference.child("name");
        if let Some(detail) = names::subdomain_error(target.text()) {
            causes.push(StatusCause::invalid(target.path(), target.text(), &detail));
        }
        if causes.check_required(&reference.child("key")) {
            causes.check_text(&reference.child("key"), names::config_key_error);
        }
    }
}

/// Checks a reference to a field of the pod.
pub(super) fn check_field_ref(reference: &Field<'_>, supported: &[&str], causes: &mut Causes) {
    let path = reference.child("fieldPath");
    if !causes.check_required(&path) {
        return;
    }
    let subscript = path
        .text()
        .split_once("['")
        .and_then(|(of, rest)| Some((of, rest.strip_suffix("']")?)));
    match subscript {
        Some(("metadata.labels" | "metadata.annotations", key)) => {
            if let Some(detail) = names::qualified_name_error(&key.to_lowercase()) {
                causes.push(StatusCause::invalid(reference.path(), key, &detail));
            }
        }
        Some((of, _)) => {
            let detail = "does not support subscript";
            causes.push(StatusCause::invalid(reference.path(), of, detail));
        }
        None if !supported.contains(&path.text()) => {
            let detail = format!(
                "error converting fieldPath: field label not supported: {}",
                path.text()
            );
            causes.invalid(&path, &detail);
        }
        None => {}
    }
}

fn check_env_from(list: &Field<'_>, causes: &mut Causes) {
    for source in list.items() {
        causes.check_text(&source.child("prefix"), names::env_name_error);
        let mut sources = 0;
        for name in ["configMapRef", "secretRef"] {
            let reference = source.child(name);
            if !reference.is_set() {
                continue;
            }
            sources += 1;
            let target = reference.child("name");
            if let Some(detail) = names::subdomain_error(target.text()) {
                causes.push(StatusCause::invalid(target.path(), target.text(), &detail));
            }
        }
        let detail = match sources {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        causes.push(StatusCause::invalid(list.path(), "", detail));
    }
}

fn check_mounts(container: &Field<'_>, volumes: &Volumes<'_>, causes: &mut Causes) {
    let devices: HashMap<&str, &str> = container
        .child("volumeDevices")
        .items()
        .map(|device| {
            (
                device.child("name").text(),
                device.child("devicePath").text(),
            )
        })
        .collect();
    let mut points = HashSet::new();
    let mounts = container.child("volumeMounts");
    for mount in mounts.items() {
        let (name, path) = (mount.child("name"), mount.child("mountPath"));
        causes.check_required(&name);
        if !volumes.contains_key(name.text()) {
            causes.push(StatusCause::not_found(name.path(), name.text()));
        }
        causes.check_required(&path);
        if !points.insert(path.text()) {
            causes.invalid(&path, "must be unique");
        }
        if devices.contains_key(name.text()) {
            causes.invalid(&name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|device| *device == path.text()) {
            causes.invalid(&path, "must not already exist as a path in volumeDevices");
        }
        let (sub, expression) = (mount.child("subPath"), mount.child("subPathExpr"));
        for (field, name) in [(sub, "subPath"), (expression, "subPathExpr")] {
            // The path has no index.
            check_relative(&field.placed(&mounts.named(name)), causes);
        }
        if !sub.text().is_empty() && !expression.text().is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            causes.invalid(&expression, detail);
        }
        causes.check_one_of(
            &mount.child("mountPropagation"),
            &["Bidirectional", "HostToContainer", "None"],
        );
    }
    let mut paths = HashSet::new();
    for device in container.child("volumeDevices").items() {
        let (name, path) = (device.child("name"), device.child("devicePath"));
        causes.check_required(&name);
        match volumes.get(name.text()) {
            None => causes.push(StatusCause::not_found(name.path(), name.text())),
            Some(volume)
                if !volume.child("persistentVolumeClaim").is_set()
                    && !volume.child("ephemeral").is_set() =>
            {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for \
                              block mode";
                causes.invalid(&name, detail);
            }
            Some(_) => {}
        }
        if causes.check_required(&path) && !paths.insert(path.text()) {
            causes.invalid(&path, "must be unique");
        }
    }
}

/// Checks that a text is a relative path that stays below its base.
pub(super) fn check_relative(field: &Field<'_>, causes: &mut Causes) {
    if field.text().starts_with('/') {
        causes.invalid(field, "must be a relative path");
    }
    check_no_backsteps(field, causes);
}

/// Checks that a path has no `..`.
pub(super) fn check_no_backsteps(field: &Field<'_>, causes: &mut Causes) {
    if field.text().split('/').any(|part| part == "..") {
        causes.invalid(field, "must not contain '..'");
    }
}

/// The resources of containers without a domain.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Checks the requests and the limits of a container.
pub(super) fn check_resources(resources: &Field<'_>, causes: &mut Causes) {
    let (limits, requests) = (resources.child("limits"), resources.child("requests"));
    for (name, limit) in limits.entries() {
        check_resource_name(name, &limit, causes);
        causes.check_resource_quantity(name, &limit);
    }
    for (name, request) in requests.entries() {
        check_resource_name(name, &request, causes);
        causes.check_resource_quantity(name, &request);
        let limit = limits.key(name);
        let overcommits = !is_extended(name) && !name.starts_with("hugepages-");
        if !limit.is_set() {
            if !overcommits {
                causes.required(
                    &limits,
                    "Limit must be set for non overcommitable resources",
                );
            }
            continue;
        }
        let order = compare(&request.value(), &limit.value());
        let relation = if !overcommits && order.is_ne() {
            "equal to"
        } else if order.is_gt() {
            "less than or equal to"
        } else {
            continue;
        };
        let shown = match limit.value() {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        let detail = format!("must be {relation} {name} limit of {shown}");
        causes.push(StatusCause::invalid(
            requests.path(),
            request.value(),
            &detail,
        ));
    }
}

fn check_resource_name(name: &str, field: &Field<'_>, causes: &mut Causes) {
    if let Some(detail) = names::qualified_name_error(name) {
        causes.push(StatusCause::invalid(field.path(), name, &detail));
    } else if !name.contains('/')
        && !STANDARD_RESOURCES.contains(&name)
        && !name.starts_with("hugepages-")
    {
        if !crate::builtin::causes::is_standard(name) {
            let detail = "must be a standard resource type or fully qualified";
            causes.push(StatusCause::invalid(field.path(), name, detail));
        }
        let detail = "must be a standard resource for containers";
        causes.push(StatusCause::invalid(field.path(), name, detail));
    }
}
