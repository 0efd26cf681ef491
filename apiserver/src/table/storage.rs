//! Rows of volumes, claims and classes, and of migrations of stored objects.

use serde_json::Value;

use super::{AGE, NAME, Printer, age, boolean, integer, or, shown, text};
use crate::builtin::field::Field;

const GROUP: &str = "storage.k8s.io";

pub(super) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "PersistentVolume",
        columns: &[
            NAME,
            text("Capacity", "The size of the volume."),
            text("Access Modes", "How the volume can be mounted."),
            text(
                "Reclaim Policy",
                "What happens to the volume after its claim.",
            ),
            text("Status", "The phase of the volume."),
            text("Claim", "The claim that has the volume."),
            text("StorageClass", "The class of the volume."),
            text(
                "VolumeAttributesClass",
                "The class of the volume's attributes.",
            ),
            text("Reason", "Why the volume is in its phase."),
            AGE,
            text(
                "VolumeMode",
                "Whether the volume is a file system or a device.",
            )
            .wide(),
        ],
        cells: |root, clock| {
            let (spec, status) = (root.child("spec"), root.child("status"));
            let claim = spec.child("claimRef");
            let bound = if claim.is_set() {
                let (namespace, name) = (claim.child("namespace"), claim.child("name"));
                format!("{}/{}", namespace.text(), name.text())
            } else {
                String::new()
            };
            vec![
                shown(&spec.child("capacity").key("storage")).into(),
                modes(&spec.child("accessModes")).into(),
                spec.child("persistentVolumeReclaimPolicy").text().into(),
                phase(root),
                bound.into(),
                storage_class(root),
                or(spec.child("volumeAttributesClassName").text(), "<unset>"),
                status.child("reason").text().into(),
                age(root, clock),
                or(spec.child("volumeMode").text(), "<unset>"),
            ]
        },
    },
    Printer {
        group: "",
        kind: "PersistentVolumeClaim",
        columns: &[
            NAME,
            text("Status", "The phase of the claim."),
            text("Volume", "The volume that the claim has."),
            text("Capacity", "The size of the volume."),
            text("Access Modes", "How the volume can be mounted."),
            text("StorageClass", "The class of the volume."),
            text(
                "VolumeAttributesClass",
                "The class of the volume's attributes.",
            ),
            AGE,
            text(
                "VolumeMode",
                "Whether the volume is a file system or a device.",
            )
            .wide(),
        ],
        cells: |root, clock| {
            let (spec, status) = (root.child("spec"), root.child("status"));
            let volume = spec.child("volumeName").text();
            let (mut capacity, mut access) = (String::new(), String::new());
            if !volume.is_empty() {
                capacity = shown(&status.child("capacity").key("storage"));
                access = modes(&status.child("accessModes"));
            }
            vec![
                phase(root),
                volume.into(),
                capacity.into(),
                access.into(),
                storage_class(root),
                or(spec.child("volumeAttributesClassName").text(), "<unset>"),
                age(root, clock),
                or(spec.child("volumeMode").text(), "<unset>"),
            ]
        },
    },
    Printer {
        group: GROUP,
        kind: "StorageClass",
        columns: &[
            NAME,
            text("Provisioner", "What makes the volumes."),
            text("ReclaimPolicy", "What happens to a volume after its claim."),
            text("VolumeBindingMode", "When a claim gets its volume."),
            text("AllowVolumeExpansion", "Whether volumes can grow."),
            AGE,
        ],
        cells: |root, clock| {
            let default = "storageclass.kubernetes.io/is-default-class";
            vec![
                class_name(root, default),
                root.child("provisioner").text().into(),
                or(root.child("reclaimPolicy").text(), "Delete"),
                or(root.child("volumeBindingMode").text(), "Immediate"),
                root.child("allowVolumeExpansion").flag().into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: GROUP,
        kind: "VolumeAttributesClass",
        columns: &[NAME, text("DriverName", "The driver of the volumes."), AGE],
        cells: |root, clock| {
            let default = "storageclass.kubernetes.io/is-default-class";
            vec![
                class_name(root, default),
                root.child("driverName").text().into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: GROUP,
        kind: "VolumeAttachment",
        columns: &[
            NAME,
            text("Attacher", "What attaches the volume.").with_format("name"),
            text("PV", "The volume."),
            text("Node", "The node."),
            boolean("Attached", "Whether the volume is attached."),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            vec![
                spec.child("attacher").text().into(),
                spec.at(&["source", "persistentVolumeName"]).text().into(),
                spec.child("nodeName").text().into(),
                root.at(&["status", "attached"]).flag().into(),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: GROUP,
        kind: "CSINode",
        columns: &[
            NAME,
            integer("Drivers", "The number of drivers on the node."),
            AGE,
        ],
        cells: |root, clock| vec![root.at(&["spec", "drivers"]).len().into(), age(root, clock)],
    },
    Printer {
        group: GROUP,
        kind: "CSIDriver",
        columns: &[
            NAME,
            boolean(
                "AttachRequired",
                "Whether volumes are attached before they are mounted.",
            ),
            boolean(
                "PodInfoOnMount",
                "Whether the driver gets facts about the pod.",
            ),
            boolean(
                "StorageCapacity",
                "Whether the driver reports its capacity.",
            ),
            text(
                "TokenRequests",
                "The audiences of the tokens that the driver gets.",
            ),
            boolean(
                "RequiresRepublish",
                "Whether volumes are published again and again.",
            ),
            text("Modes", "The lives that volumes can have."),
            AGE,
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let attach = spec.child("attachRequired");
            let join = |list: Field<'_>, of: fn(&Field<'_>) -> String| {
                list.items()
                    .map(|item| of(&item))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            let tokens = spec.child("tokenRequests");
            let audiences = join(tokens, |token| token.child("audience").text().to_owned());
            let modes = join(spec.child("volumeLifecycleModes"), |mode| {
                mode.text().to_owned()
            });
            vec![
                (!attach.is_set() || attach.flag()).into(),
                spec.child("podInfoOnMount").flag().into(),
                spec.child("storageCapacity").flag().into(),
                if tokens.is_set() {
                    audiences.into()
                } else {
                    "<unset>".into()
                },
                spec.child("requiresRepublish").flag().into(),
                or(&modes, "<none>"),
                age(root, clock),
            ]
        },
    },
    Printer {
        group: "storagemigration.k8s.io",
        kind: "StorageVersionMigration",
        columns: &[
            text("Name", "The name of the object."),
            text("Resource", "The resource whose objects are written again."),
            text("Status", "The state of the migration."),
        ],
        cells: |root, _| {
            let resource = root.at(&["spec", "resource"]);
            let (name, group) = (resource.child("resource"), resource.child("group"));
            let full = match group.text() {
                "" => name.text().to_owned(),
                group => format!("{}.{group}", name.text()),
            };
            vec![super::name(root), full.into(), migration_state(root).into()]
        },
    },
];

/// Returns the name of a class, and whether it is the default one.
pub(super) fn class_name(root: &Field<'_>, annotation: &'static str) -> Value {
    let name = root.at(&["metadata", "name"]).text();
    let annotations = root.at(&["metadata", "annotations"]);
    if annotations.key(annotation).text() == "true" {
        format!("{name} (default)").into()
    } else {
        name.into()
    }
}

fn storage_class(root: &Field<'_>) -> Value {
    let annotations = root.at(&["metadata", "annotations"]);
    let annotated = annotations.key("volume.beta.kubernetes.io/storage-class");
    if annotated.is_set() {
        return annotated.text().into();
    }
    root.at(&["spec", "storageClassName"]).text().into()
}

/// Returns the state of a migration: the last condition of these types that is true.
fn migration_state(root: &Field<'_>) -> &'static str {
    let conditions = root.at(&["status", "conditions"]).items();
    let states = conditions.filter_map(|condition| {
        let kind = condition.child("type").text();
        let mut states = ["Running", "Succeeded", "Failed"].into_iter();
        let state = states.find(|state| *state == kind)?;
        (condition.child("status").text() == "True").then_some(state)
    });
    states.last().unwrap_or("Unknown")
}

fn phase(root: &Field<'_>) -> Value {
    if root.at(&["metadata", "deletionTimestamp"]).is_set() {
        "Terminating".into()
    } else {
        root.at(&["status", "phase"]).text().into()
    }
}

/// Returns access modes in their short forms.
fn modes(list: &Field<'_>) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| list.items().any(|item| item.text() == mode);
    let found: Vec<&str> = SHORT
        .iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| *short)
        .collect();
    found.join(",")
}
