//! Warnings about sources of volumes that do not work any more.

use super::Warnings;
use crate::builtin::field::Field;

/// The sources of volumes of pods, in the order in which they are looked for.
pub(super) const VOLUMES: [&str; 9] = [
    "photonPersistentDisk",
    "gitRepo",
    "scaleIO",
    "flocker",
    "storageos",
    "quobyte",
    "glusterfs",
    "cephfs",
    "rbd",
];

/// Those of persistent volumes.
pub(super) const PERSISTENT: [&str; 6] = [
    "cephfs",
    "photonPersistentDisk",
    "scaleIO",
    "storageos",
    "glusterfs",
    "rbd",
];

/// Warns of the source of a volume, if it is one of some.
pub(super) fn check_sources<'a>(volume: &Field<'a>, sources: &[&'a str], warnings: &mut Warnings) {
    for name in sources {
        let source = volume.child(name);
        if source.is_set() {
            let shown = if *name == "storageos" {
                "storageOS"
            } else {
                name
            };
            warnings.at(&source.placed(&volume.child(shown)), deprecation(name));
        }
    }
}

fn deprecation(name: &str) -> &'static str {
    match name {
        "photonPersistentDisk" => "deprecated in v1.11, non-functional in v1.16+",
        "gitRepo" => "deprecated in v1.11, and disabled by default in v1.33+",
        "glusterfs" => "deprecated in v1.25, non-functional in v1.26+",
        "cephfs" | "rbd" => "deprecated in v1.28, non-functional in v1.31+",
        "scaleIO" => "deprecated in v1.16, non-functional in v1.22+",
        _ => "deprecated in v1.22, non-functional in v1.25+",
    }
}
