//! The volumes of a pod.

use serde_json::Value;

use crate::admission::pod_security::pod::{
    Pod, Texts, Violation, items, named, plural, quoted, text, uses,
};

/// The volumes that any pod may have.
const ALLOWED: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// The other ones, in the order in which one is named if a volume has several.
const RESTRICTED: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// No directories of the node.
pub(in crate::admission::pod_security) fn host_path(pod: Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]);
    let volumes = volumes.filter(|volume| !volume["hostPath"].is_null());
    let names: Vec<&str> = volumes.map(|volume| text(&volume["name"])).collect();
    Violation::unless(&names, "hostPath volumes", || named("volume", &names))
}

/// Only volumes that the administrator of the cluster provides, or that are part of the pod.
pub(in crate::admission::pod_security) fn restricted(pod: Pod<'_>) -> Option<Violation> {
    let has = |volume: &Value, source: &str| !volume[source].is_null();
    let (mut names, mut types) = (Vec::new(), Texts::new());
    for volume in items(&pod.spec["volumes"]) {
        if ALLOWED.into_iter().any(|source| has(volume, source)) {
            continue;
        }
        names.push(text(&volume["name"]));
        let source = RESTRICTED.into_iter().find(|source| has(volume, source));
        types.insert(source.unwrap_or("unknown"));
    }
    Violation::unless(&names, "restricted volume types", || {
        format!(
            "{} {} {} {}",
            named("volume", &names),
            uses(names.len()),
            plural("restricted volume type", types.len()),
            quoted(types)
        )
    })
}
