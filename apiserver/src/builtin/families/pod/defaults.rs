//! The defaults of pods and of pod templates.

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::edit::{child_mut, copy_missing, ensure, items_mut, set_unset, set_zero, text};
use crate::builtin::field::is_zero;

/// The lists of containers of a pod.
pub(super) const CONTAINER_LISTS: [&str; 3] =
    ["containers", "initContainers", "ephemeralContainers"];

/// Sets the defaults of a pod.
pub(super) fn default_pod(pod: &mut JsonObject) {
    let Some(spec) = ensure(pod, "spec") else {
        return;
    };
    default_spec(spec);
    let grace = "terminationGracePeriodSeconds";
    if spec
        .get(grace)
        .and_then(Value::as_i64)
        .is_some_and(|seconds| seconds < 0)
    {
        spec.insert(grace.to_owned(), json!(1));
    }
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            request_limits(container);
        }
    }
    request_pod_limits(spec);
    set_unset(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            for container in items_mut(spec, list) {
                for port in items_mut(container, "ports") {
                    if let Some(number) = port.get("containerPort").cloned() {
                        set_zero(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

/// Sets the defaults of the pod template that is a member of an object.
pub(in crate::builtin) fn default_template(owner: &mut JsonObject, name: &str) {
    let template = ensure(owner, name);
    if let Some(spec) = template.and_then(|template| ensure(template, "spec")) {
        default_spec(spec);
    }
}

/// Sets the pull policies of new containers.
fn set_image_pull_policies(spec: &mut JsonObject) {
    for list in CONTAINER_LISTS {
        for container in items_mut(spec, list) {
            let policy = pull_policy(text(container, "image"));
            set_zero(container, "imagePullPolicy", policy);
        }
    }
}

fn default_spec(spec: &mut JsonObject) {
    agree_accounts(spec);
    set_zero(spec, "dnsPolicy", "ClusterFirst");
    set_zero(spec, "restartPolicy", "Always");
    set_unset(spec, "securityContext", json!({}));
    set_unset(spec, "terminationGracePeriodSeconds", 30);
    set_zero(spec, "schedulerName", "default-scheduler");
    set_image_pull_policies(spec);
    for list in CONTAINER_LISTS {
        for container in items_mut(spec, list) {
            default_container(container);
        }
    }
    for volume in items_mut(spec, "volumes") {
        default_volume(volume);
    }
}

/// Gives both names of the field with the service account the same value: the newer one rules.
fn agree_accounts(spec: &mut JsonObject) {
    let [new, old] = ["serviceAccountName", "serviceAccount"];
    let names = [new, old].map(|name| text(spec, name));
    let Some(name) = names.into_iter().find(|name| !name.is_empty()) else {
        return;
    };
    let name = name.to_owned();
    spec.insert(old.to_owned(), name.as_str().into());
    spec.insert(new.to_owned(), name.into());
}

/// Requests the resources that are limited and not requested.
fn request_limits(container: &mut JsonObject) {
    let Some(resources) = child_mut(container, "resources") else {
        return;
    };
    let Some(limits) = child_mut(resources, "limits").cloned() else {
        return;
    };
    if let Some(requests) = ensure(resources, "requests") {
        copy_missing(&limits, requests);
    }
}

/// Requests the resources that are limited for the pod as a whole and that no container requests.
fn request_pod_limits(spec: &mut JsonObject) {
    let requested_by_containers: Vec<String> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec.get(*list)?.as_array())
        .flatten()
        .filter_map(|container| container.get("resources")?.get("requests")?.as_object())
        .flat_map(|requests| requests.keys().cloned())
        .collect();
    let Some(resources) = child_mut(spec, "resources") else {
        return;
    };
    let Some(mut limits) = child_mut(resources, "limits").cloned() else {
        return;
    };
    limits
        .retain(|name, _| super::spec::is_of_pods(name) && !requested_by_containers.contains(name));
    if limits.is_empty() {
        return;
    }
    if let Some(requests) = ensure(resources, "requests") {
        copy_missing(&limits, requests);
    }
}

/// Returns the pull policy of an image: images without a fixed version are always pulled.
fn pull_policy(image: &str) -> &'static str {
    if image.is_empty() || image.contains('@') {
        return if image
            .split('@')
            .next()
            .is_some_and(|name| tag(name) == "latest")
        {
            "Always"
        } else {
            "IfNotPresent"
        };
    }
    match tag(image) {
        "" | "latest" => "Always",
        _ => "IfNotPresent",
    }
}

/// Returns the tag of an image, which follows a colon after the last slash.
fn tag(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').map_or("", |(_, tag)| tag)
}

fn default_container(container: &mut JsonObject) {
    set_zero(container, "terminationMessagePath", "/dev/termination-log");
    set_zero(container, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        set_zero(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        let source = child_mut(variable, "valueFrom");
        let field = source.and_then(|source| child_mut(source, "fieldRef"));
        if let Some(field) = field {
            set_zero(field, "apiVersion", "v1");
        }
        let source = child_mut(variable, "valueFrom");
        if let Some(file) = source.and_then(|source| child_mut(source, "fileKeyRef")) {
            set_unset(file, "optional", false);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child_mut(container, name) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = child_mut(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = child_mut(lifecycle, name) {
                default_handler(handler);
            }
        }
    }
}

fn default_probe(probe: &mut JsonObject) {
    set_zero(probe, "timeoutSeconds", 1);
    set_zero(probe, "periodSeconds", 10);
    set_zero(probe, "successThreshold", 1);
    set_zero(probe, "failureThreshold", 3);
    default_handler(probe);
    if let Some(grpc) = child_mut(probe, "grpc") {
        set_unset(grpc, "service", "");
    }
}

fn default_handler(handler: &mut JsonObject) {
    if let Some(get) = child_mut(handler, "httpGet") {
        set_zero(get, "path", "/");
        set_zero(get, "scheme", "HTTP");
    }
}

/// The mode of the files of a volume: 0644.
const FILE_MODE: i64 = 0o644;

fn default_volume(volume: &mut JsonObject) {
    let has_source = volume
        .iter()
        .any(|(name, value)| name != "name" && !value.is_null());
    if !has_source {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child_mut(volume, name) {
            set_unset(source, "defaultMode", FILE_MODE);
            default_downward_items(source);
        }
    }
    if let Some(projected) = child_mut(volume, "projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = child_mut(source, "serviceAccountToken") {
                set_unset(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = child_mut(source, "downwardAPI") {
                default_downward_items(downward);
            }
        }
    }
    if let Some(image) = child_mut(volume, "image") {
        let policy = pull_policy(text(image, "reference"));
        set_zero(image, "pullPolicy", policy);
    }
    let claim = child_mut(volume, "ephemeral")
        .and_then(|source| child_mut(source, "volumeClaimTemplate"))
        .and_then(|template| child_mut(template, "spec"));
    if let Some(claim) = claim {
        set_unset(claim, "volumeMode", "Filesystem");
    }
    default_source(volume);
}

fn default_downward_items(source: &mut JsonObject) {
    for item in items_mut(source, "items") {
        if let Some(field) = child_mut(item, "fieldRef") {
            set_zero(field, "apiVersion", "v1");
        }
    }
}

/// Sets the defaults of the source of a volume, of a pod or a persistent one.
pub(in crate::builtin) fn default_source(source: &mut JsonObject) {
    const DEFAULTS: [(&str, &str, &str); 9] = [
        ("hostPath", "type", ""),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("iscsi", "iscsiInterface", "default"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "fsType", "ext4"),
        ("azureDisk", "kind", "Shared"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
    ];
    for (name, field, value) in DEFAULTS {
        let Some(source) = child_mut(source, name) else {
            continue;
        };
        if value.is_empty() {
            set_unset(source, field, value);
        } else if source.get(field).is_none_or(is_zero) {
            source.insert(field.to_owned(), value.into());
        }
    }
    if let Some(disk) = child_mut(source, "azureDisk") {
        set_unset(disk, "readOnly", false);
    }
    if let Some(scale_io) = child_mut(source, "scaleIO") {
        set_zero(scale_io, "fsType", "xfs");
    }
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

    #[test]
    fn images_without_a_version_are_always_pulled() {
        for (image, policy) in [
            ("img:1", "IfNotPresent"),
            ("img", "Always"),
            ("img:latest", "Always"),
            ("host:5000/img", "Always"),
            ("host:5000/img:2", "IfNotPresent"),
            ("img@sha256:abc", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
