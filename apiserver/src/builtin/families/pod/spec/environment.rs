//! Validation of environment variables and of what they, and files, show of a pod.

use revstore_watch_cache::status::StatusCause;

use super::container::check_no_backsteps;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// Checks the environment variables of a container.
pub(super) fn check(container: &Field<'_>, causes: &mut Causes) {
    for variable in container.child("env").items() {
        let name = variable.child("name");
        if causes.check_required(&name) {
            causes.check_text(&name, names::env_name_error);
        }
        check_value(&variable, causes);
    }
    check_lists(&container.child("envFrom"), causes);
}

/// The sources of the value of an environment variable.
const SOURCES: [&str; 5] = [
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];

fn check_value(variable: &Field<'_>, causes: &mut Causes) {
    let from = variable.child("valueFrom");
    if !from.is_set() {
        return;
    }
    check_source(&from, causes);
    let sources = SOURCES
        .iter()
        .filter(|name| from.child(name).is_set())
        .count();
    let detail = match sources {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
             `fileKeyRef`"
        }
        _ if !variable.child("value").text().is_empty() => {
            "may not be specified when `value` is not empty"
        }
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    causes.push(StatusCause::invalid(from.path(), "", detail));
}

/// The fields of a pod that an environment variable can have as its value.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields of a pod that a file can have as its content.
pub(super) const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

fn check_source(from: &Field<'_>, causes: &mut Causes) {
    let field = from.child("fieldRef");
    if field.is_set() {
        check_field_ref(&field, &VARIABLE_FIELDS, causes);
    }
    let resource = from.child("resourceFieldRef");
    if resource.is_set() {
        check_resource_ref(&resource, false, causes);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        let reference = from.child(name);
        if !reference.is_set() {
            continue;
        }
        causes.check_present_text(&reference.child("name"), names::subdomain_error);
        if causes.check_required(&reference.child("key")) {
            causes.check_text(&reference.child("key"), names::config_key_error);
        }
    }
    let file = from.child("fileKeyRef");
    if file.is_set() {
        if causes.check_required(&file.child("key")) {
            causes.check_text(&file.child("key"), names::env_name_error);
        }
        causes.check_required_label(&file.child("volumeName"));
        if causes.check_required(&file.child("path")) {
            check_no_backsteps(&file.child("path"), causes);
        }
    }
}

/// The fields of a pod that references can name at all.
const FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

/// Checks a reference to a field of the pod.
pub(super) fn check_field_ref(reference: &Field<'_>, supported: &[&str], causes: &mut Causes) {
    let (version, path) = (reference.child("apiVersion"), reference.child("fieldPath"));
    if !causes.check_required(&version) || !causes.check_required(&path) {
        return;
    }
    let subscript = path
        .text()
        .strip_suffix("']")
        .and_then(|text| text.split_once("['"))
        .filter(|(of, _)| !of.is_empty());
    let error = match subscript {
        _ if version.text() != "v1" => format!("unsupported pod version: {}", version.text()),
        Some(("metadata.labels", key)) => {
            causes.check_qualified_text(reference, key);
            return;
        }
        Some(("metadata.annotations", key)) => {
            causes.check_qualified_text(reference, &key.to_lowercase());
            return;
        }
        Some(_) => format!("field label does not support subscript: {}", path.text()),
        None if !FIELDS.contains(&path.text()) => {
            format!("field label not supported: {}", path.text())
        }
        None => {
            // An older name.
            let name = match path.text() {
                "spec.host" => "spec.nodeName",
                name => name,
            };
            if !supported.contains(&name) {
                causes.push(StatusCause::not_supported(path.path(), name, supported));
            }
            return;
        }
    };
    causes.invalid(&path, &format!("error converting fieldPath: {error}"));
}

/// The resources of a container that references can name.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// The numbers that amounts of bytes can be divided by.
const BYTE_DIVISORS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Checks a reference to a resource of a container, which a file must name.
pub(super) fn check_resource_ref(reference: &Field<'_>, is_file: bool, causes: &mut Causes) {
    let (container, resource) = (
        reference.child("containerName"),
        reference.child("resource"),
    );
    let name = resource.text();
    let is_huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if is_file && container.text().is_empty() {
        causes.required(&container, "");
    } else if name.is_empty() {
        causes.required(&resource, "");
    } else if !is_huge {
        causes.check_one_of(&resource, &RESOURCES);
    }
    let kind = match name {
        "limits.cpu" | "requests.cpu" => "cpu",
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if is_huge => "hugepages",
        _ => return,
    };
    let divisor = reference.child("divisor");
    let zero = causes
        .check_quantity(&divisor)
        .is_none_or(crate::builtin::quantity::Quantity::is_zero);
    let shown = match divisor.int() {
        Some(number) => number.to_string(),
        None => divisor.text().to_owned(),
    };
    let detail = if kind == "cpu" {
        if ["1m", "1"].contains(&shown.as_str()) {
            return;
        }
        "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
    } else {
        if BYTE_DIVISORS.contains(&shown.as_str()) {
            return;
        }
        let divisors = BYTE_DIVISORS.join(", ");
        format!("only divisor's values {divisors} are supported with the {kind} resource")
    };
    if !zero {
        causes.invalid_at(divisor.path(), name, &detail);
    }
}

fn check_lists(list: &Field<'_>, causes: &mut Causes) {
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
            if causes.check_required(&target) {
                causes.check_text(&target, names::subdomain_prefix_error);
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
