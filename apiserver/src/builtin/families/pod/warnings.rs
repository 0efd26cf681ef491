//! Warnings about pods and pod templates that are valid and yet probably not what their author means.

use std::collections::HashMap;

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::field::Field;
use crate::builtin::names;

/// Returns the warnings about a pod.
pub(in crate::builtin) fn warnings(pod: &JsonObject) -> Vec<String> {
    let root = Field::root(pod);
    let mut warnings = Vec::new();
    let name = root.at(&["metadata", "name"]).text();
    if let Some(error) = names::dns_label_error(name).filter(|_| !name.is_empty()) {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising \
             behavior; a DNS label is recommended: [{error}]"
        ));
    }
    warnings.extend(template_warnings(&root));
    warnings
}

/// The labels of nodes with new names, and where their old names are used.
const NODE_LABELS: [(&str, &str); 6] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

/// The types of volumes that do not work any more.
const VOLUMES: [(&str, &str); 9] = [
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Returns the warnings about an object with the spec of a pod: a pod or a pod template.
pub(in crate::builtin) fn template_warnings(template: &Field<'_>) -> Vec<String> {
    let spec = template.child("spec");
    let mut warnings = Vec::new();
    for (label, _) in spec.child("nodeSelector").entries() {
        if let Some((_, text)) = NODE_LABELS.iter().find(|(name, _)| *name == label) {
            let path = spec.child("nodeSelector").key(label).path();
            warnings.push(format!("{path}: {text}"));
        }
    }
    for constraint in spec.child("topologySpreadConstraints").items() {
        let selector = constraint.child("labelSelector");
        if !selector.is_set() {
            let path = selector.path();
            warnings.push(format!(
                "{path}: a null labelSelector results in matching no pod"
            ));
        }
    }
    for volume in spec.child("volumes").items() {
        for (name, text) in VOLUMES {
            let source = volume.child(name);
            if source.is_set() {
                warnings.push(format!("{}: {text}", source.path()));
            }
        }
    }
    check_secrets(&spec.child("imagePullSecrets"), &mut warnings);
    for list in ["initContainers", "containers"] {
        for container in spec.child(list).items() {
            check_env(&container.child("env"), &mut warnings);
        }
    }
    check_ports(&spec, &mut warnings);
    let grace = spec.child("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            grace.path()
        ));
    }
    warnings
}

fn check_secrets(secrets: &Field<'_>, warnings: &mut Vec<String>) {
    let mut seen = Vec::new();
    for secret in secrets.items() {
        let name = secret.child("name");
        if name.text().is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", name.path()));
        } else if seen.contains(&name.text()) {
            warnings.push(format!("{}: duplicate name {:?}", name.path(), name.text()));
        }
        seen.push(name.text());
    }
}

/// Warns of variables with the same name, unless the later one refers to the earlier.
fn check_env(env: &Field<'_>, warnings: &mut Vec<String>) {
    let mut values: HashMap<&str, &str> = HashMap::new();
    for variable in env.items() {
        let (name, value) = (
            variable.child("name").text(),
            variable.child("value").text(),
        );
        let hides = values
            .get(name)
            .is_some_and(|_| !value.contains(&format!("$({name})")));
        if hides && !name.is_empty() {
            warnings.push(format!(
                "{}: hides previous definition of {name:?}, which may be dropped when using apply",
                variable.path()
            ));
        }
        values.insert(name, value);
    }
}

fn check_ports(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for container in spec.child("containers").items() {
        let mut seen: Vec<Field<'_>> = Vec::new();
        for port in container.child("ports").items() {
            let same = |other: &&Field<'_>| {
                let of = |port: &Field<'_>, name| port.child(name).value();
                of(other, "containerPort") == of(&port, "containerPort")
                    && of(other, "protocol") == of(&port, "protocol")
            };
            if let Some(other) = seen.iter().find(same) {
                let host = |port: &Field<'_>| {
                    let number = port.child("hostPort").int().unwrap_or_default();
                    (port.child("hostIP").text().to_owned(), number)
                };
                let ((ip, number), (other_ip, other_number)) = (host(&port), host(other));
                let kind = if (&ip, number) == (&other_ip, other_number) {
                    "duplicate"
                } else if number == 0 || other_number == 0 {
                    "overlapping"
                } else {
                    ""
                };
                if !kind.is_empty() {
                    let (path, other) = (port.path(), other.path());
                    warnings.push(format!("{path}: {kind} port definition with {other}"));
                }
            }
            seen.push(port);
        }
    }
}
