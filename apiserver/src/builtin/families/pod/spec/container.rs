//! Validation of containers.

use std::collections::{HashMap, HashSet};

use revstore_watch_cache::status::{FieldPath, StatusCause};

use super::{Pod, check_image_spaces};
use super::{environment, probe, resources, security};
use crate::builtin::causes::Causes;
use crate::builtin::families::pod::restart;
use crate::builtin::field::Field;
use crate::builtin::names;

/// The protocols of ports.
pub(in crate::builtin) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// The policies of pulling images.
pub(super) const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Checks the containers of a pod.
pub(super) fn check_containers(spec: &Field<'_>, pod: &Pod<'_>, causes: &mut Causes) {
    let containers = spec.child("containers");
    if containers.len() == 0 {
        causes.required(&containers, "");
    }
    let mut seen = HashSet::new();
    for container in containers.items() {
        check_container(&container, pod, causes);
        let name = container.child("name");
        if !seen.insert(name.text()) {
            causes.push(StatusCause::duplicate(name.path(), name.text()));
        }
        let grace = pod.grace_seconds();
        probe::check_lifecycle(&container.child("lifecycle"), grace, causes);
        probe::check_probes(&container, grace, causes);
        restart::check_policy(&container, false, causes);
    }
    let mut host_ports = HashSet::new();
    for container in containers.items() {
        check_host_ports(&container, &container.path(), &mut host_ports, causes);
    }
    check_init_containers(spec, &mut seen.clone(), pod, causes);
    for container in spec.child("initContainers").items() {
        seen.insert(container.child("name").text());
    }
    check_ephemeral(spec, &seen, pod, causes);
}

fn check_init_containers<'a>(
    spec: &Field<'a>,
    seen: &mut HashSet<&'a str>,
    pod: &Pod<'_>,
    causes: &mut Causes,
) {
    let containers = spec.child("initContainers");
    for container in containers.items() {
        check_container(&container, pod, causes);
        restart::check_policy(&container, true, causes);
        causes.check_unique(&container.child("name"), seen);
        // Containers that run after one another may have the same ports. The path is that of the first.
        let path = containers.path().index(0);
        check_host_ports(&container, &path, &mut HashSet::new(), causes);
        if restart::is_sidecar(&container) {
            let grace = pod.grace_seconds();
            probe::check_lifecycle(&container.child("lifecycle"), grace, causes);
            probe::check_probes(&container, grace, causes);
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
        for policy in container.child("resizePolicy").items() {
            let restart = policy.child("restartPolicy");
            if restart.text() == "RestartContainer" {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                causes.invalid(&restart, detail);
            }
        }
    }
}

/// The fields that ephemeral containers cannot have.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

fn check_ephemeral<'a>(
    spec: &Field<'a>,
    others: &HashSet<&'a str>,
    pod: &Pod<'_>,
    causes: &mut Causes,
) {
    let mut seen = others.clone();
    for container in spec.child("ephemeralContainers").items() {
        check_container(&container, pod, causes);
        check_image_spaces(&container, causes);
        let name = container.child("name");
        if !seen.insert(name.text()) {
            causes.push(StatusCause::duplicate(name.path(), name.text()));
        }
        let target = container.child("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            causes.push(StatusCause::not_found(target.path(), target.text()));
        }
        for name in NOT_EPHEMERAL {
            let field = container.child(name);
            let is_set = if name == "resources" {
                !field.is_zero()
            } else {
                field.is_set()
            };
            if is_set {
                causes.forbidden(&field, "cannot be set for an Ephemeral Container");
            }
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
fn check_container(container: &Field<'_>, pod: &Pod<'_>, causes: &mut Causes) {
    causes.check_required_label(&container.child("name"));
    causes.check_required(&container.child("image"));
    causes.check_required_one_of(
        &container.child("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    check_ports(&container.child("ports"), causes);
    environment::check(container, causes);
    check_mounts(container, pod, causes);
    check_devices(container, pod, causes);
    causes.check_required_one_of(&container.child("imagePullPolicy"), &PULL_POLICIES);
    resources::check_container(&container.child("resources"), &pod.claims, causes);
    resources::check_resize_policies(container, pod.restart_policy(), causes);
    security::check_context(container, pod.uses_host_users(), causes);
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

fn check_host_ports(
    container: &Field<'_>,
    path: &FieldPath,
    seen: &mut HashSet<String>,
    causes: &mut Causes,
) {
    for (index, port) in container.child("ports").items().enumerate() {
        let host = port.child("hostPort");
        let Some(number) = host.int().filter(|number| *number != 0) else {
            continue;
        };
        let (protocol, ip) = (port.child("protocol"), port.child("hostIP"));
        let binding = format!("{}/{}/{number}", protocol.text(), ip.text());
        if !seen.insert(binding.clone()) {
            let path = path.clone().child("ports").index(index).child("hostPort");
            causes.push(StatusCause::duplicate(path, binding));
        }
    }
}

fn check_mounts(container: &Field<'_>, pod: &Pod<'_>, causes: &mut Causes) {
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
    let device_paths: HashSet<&str> = devices.values().copied().collect();
    let mut points = HashSet::new();
    let mounts = container.child("volumeMounts");
    // The paths of some causes have no index.
    for mount in mounts.items() {
        let (name, path) = (mount.child("name"), mount.child("mountPath"));
        causes.check_required(&name);
        if !pod.volumes.contains_key(name.text()) {
            causes.push(StatusCause::not_found(name.path(), name.text()));
        }
        causes.check_required(&path);
        if !points.insert(path.text()) {
            causes.push(StatusCause::invalid(
                path.path(),
                path.text(),
                "must be unique",
            ));
        }
        if devices.contains_key(name.text()) {
            causes.invalid(&name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            causes.invalid(&path, "must not already exist as a path in volumeDevices");
        }
        let (sub, expression) = (mount.child("subPath"), mount.child("subPathExpr"));
        check_relative(&sub.placed(&mounts.named("subPath")), causes);
        if !sub.text().is_empty() && !expression.text().is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            causes.invalid(&expression, detail);
        }
        check_relative(&expression.placed(&mounts.named("subPathExpr")), causes);
        let propagation = mount.child("mountPropagation");
        let placed = propagation.placed(&mounts.named("mountPropagation"));
        causes.check_one_of(&placed, &["Bidirectional", "HostToContainer", "None"]);
        let privileged = container.at(&["securityContext", "privileged"]).flag();
        if propagation.text() == "Bidirectional" && !privileged {
            let detail =
                "Bidirectional mount propagation is available only to privileged containers";
            causes.forbidden(&placed, detail);
        }
        check_recursion(&mount, &mounts.named("recursiveReadOnly"), causes);
    }
}

/// Checks whether all that is mounted below a mount is read-only. `place` has the path of the causes.
fn check_recursion(mount: &Field<'_>, place: &Field<'_>, causes: &mut Causes) {
    let mode = mount.child("recursiveReadOnly").placed(place);
    causes.check_one_of(&mode, &["Disabled", "Enabled", "IfPossible"]);
    if !["Enabled", "IfPossible"].contains(&mode.text()) {
        return;
    }
    if !mount.child("readOnly").flag() {
        causes.forbidden(&mode, "may only be specified when readOnly is true");
    }
    if !["", "None"].contains(&mount.child("mountPropagation").text()) {
        let detail = "may only be specified when mountPropagation is None or not specified";
        causes.forbidden(&mode, detail);
    }
}

fn check_devices(container: &Field<'_>, pod: &Pod<'_>, causes: &mut Causes) {
    let mounts: HashMap<&str, &str> = container
        .child("volumeMounts")
        .items()
        .map(|mount| (mount.child("name").text(), mount.child("mountPath").text()))
        .collect();
    let mount_paths: HashSet<&str> = mounts.values().copied().collect();
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in container.child("volumeDevices").items() {
        let (name, path) = (device.child("name"), device.child("devicePath"));
        if causes.check_required(&name) && !names.insert(name.text()) {
            causes.invalid(&name, "must be unique");
        }
        match pod.volumes.get(name.text()) {
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
        causes.check_required(&path);
        if paths.contains(path.text()) {
            causes.push(StatusCause::invalid(
                path.path(),
                path.text(),
                "must be unique",
            ));
        }
        if backstep_error(path.text()).is_some() {
            causes.invalid(&path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mounts.contains_key(name.text()) {
            causes.invalid(&name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            causes.invalid(&path, "must not already exist as a path in volumeMounts");
        }
    }
}

/// Returns what is wrong with a text that must be a relative path that stays below its base.
pub(in crate::builtin::families::pod) fn relative_errors(
    path: &str,
) -> impl Iterator<Item = &'static str> {
    let absolute = path.starts_with('/').then_some("must be a relative path");
    absolute.into_iter().chain(backstep_error(path))
}

/// Checks that a text is a relative path that stays below its base.
pub(super) fn check_relative(field: &Field<'_>, causes: &mut Causes) {
    for detail in relative_errors(field.text()) {
        causes.invalid(field, detail);
    }
}

/// Checks that a text is a relative path below its base, whose names the node does not reserve.
pub(super) fn check_unreserved(field: &Field<'_>, causes: &mut Causes) {
    check_relative(field, causes);
    if field.text().starts_with("..") && !field.text().starts_with("../") {
        causes.invalid(field, "must not start with '..'");
    }
}

fn backstep_error(path: &str) -> Option<&'static str> {
    let found = path.split('/').any(|part| part == "..");
    found.then_some("must not contain '..'")
}

/// Checks that a path has no `..`.
pub(super) fn check_no_backsteps(field: &Field<'_>, causes: &mut Causes) {
    if let Some(detail) = backstep_error(field.text()) {
        causes.invalid(field, detail);
    }
}
