//! Volumes, claims and storage classes.

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use super::pod;
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::{Field, values_equal};
use crate::builtin::names;
use crate::builtin::quantity::compare;
use crate::builtin::rules::{Generation, Kind};

/// The access modes of volumes.
const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

pub(super) const KINDS: &[Kind] = &[
    Kind {
        default: default_claim,
        validate: |claim, causes| check_claim_spec(&claim.child("spec"), causes),
        validate_update: check_claim_update,
        validate_status: |new, _, causes| {
            for (name, quantity) in new.at(&["status", "capacity"]).entries() {
                causes.check_resource_quantity(name, &quantity);
            }
        },
        ..Kind::new("", "PersistentVolumeClaim").with_status()
    },
    Kind {
        default: default_volume,
        create: |volume, now| {
            let status = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
            volume.insert("status".to_owned(), status);
        },
        update_status: |new, old, now| {
            let phase =
                |volume: &JsonObject| edit::text_at(volume, &["status", "phase"]).to_owned();
            let time = |volume: &JsonObject| {
                let time = edit::text_at(volume, &["status", "lastPhaseTransitionTime"]);
                time.to_owned()
            };
            let same = phase(new) == phase(old);
            let (set, previous) = (time(new), time(old));
            let next = if same && set.is_empty() {
                previous
            } else if !same && (set.is_empty() || set == previous) {
                now.to_owned()
            } else {
                set
            };
            if let Some(status) = edit::ensure(new, "status")
                && !next.is_empty()
            {
                status.insert("lastPhaseTransitionTime".to_owned(), next.into());
            }
        },
        validate: check_volume,
        validate_update: check_volume_update,
        ..Kind::new("", "PersistentVolume").with_status()
    },
    Kind {
        default: |class| {
            edit::set_unset(class, "reclaimPolicy", "Delete");
            edit::set_unset(class, "volumeBindingMode", "Immediate");
        },
        validate: check_class,
        validate_update: |new, old, causes| {
            for name in [
                "parameters",
                "provisioner",
                "reclaimPolicy",
                "volumeBindingMode",
            ] {
                causes.check_immutable(&new.child(name), &old.child(name));
            }
        },
        ..Kind::new("storage.k8s.io", "StorageClass")
    },
    Kind {
        generation: Generation::CountsFromZero,
        default: default_driver,
        validate_update: |new, old, causes| {
            let (new, old) = (new.child("spec"), old.child("spec"));
            for (name, path) in [
                ("attachRequired", "attachedRequired"),
                ("fsGroupPolicy", "fsGroupPolicy"),
                ("volumeLifecycleModes", "volumeLifecycleModes"),
            ] {
                let field = new.child(name).placed(&new.child(path));
                causes.check_immutable(&field, &old.child(name));
            }
        },
        ..Kind::new("storage.k8s.io", "CSIDriver").conditional()
    },
    Kind::new("storage.k8s.io", "CSINode").conditional(),
    Kind {
        validate: |capacity, causes| {
            causes.check_selector(&capacity.child("nodeTopology"));
            let class = capacity.child("storageClassName");
            if let Some(detail) = names::subdomain_error(class.text()) {
                causes.invalid_at(class.path(), class.text(), &detail);
            }
            causes.check_quantity_not_negative(&capacity.child("capacity"));
        },
        validate_update: |new, old, causes| {
            for name in ["nodeTopology", "storageClassName"] {
                causes.check_immutable(&new.child(name), &old.child(name));
            }
        },
        ..Kind::new("storage.k8s.io", "CSIStorageCapacity").conditional()
    },
    Kind {
        validate: |attachment, causes| {
            let spec = attachment.child("spec");
            causes.check_required(&spec.child("attacher"));
            let node = spec.child("nodeName");
            if let Some(detail) = names::subdomain_error(node.text()) {
                causes.invalid_at(node.path(), node.text(), &detail);
            }
            let source = spec.child("source");
            let volume = source.child("persistentVolumeName").text();
            if volume.is_empty() != source.child("inlineVolumeSpec").is_set() {
                let detail =
                    "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                causes.required(&source, detail);
            }
        },
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("spec"), &old.child("spec"));
        },
        status_keeps_metadata: true,
        ..Kind::new("storage.k8s.io", "VolumeAttachment")
            .conditional()
            .with_status()
    },
    Kind {
        validate: |class, causes| {
            causes.check_required(&class.child("driverName"));
            if class.child("parameters").len() == 0 {
                causes.required(
                    &class.child("parameters"),
                    "must contain at least one key/value pair",
                );
            }
        },
        validate_update: |new, old, causes| {
            for name in ["driverName", "parameters"] {
                causes.check_immutable(&new.child(name), &old.child(name));
            }
        },
        ..Kind::new("storage.k8s.io", "VolumeAttributesClass")
    },
];

/// Sets the defaults of a claim.
pub(super) fn default_claim(claim: &mut JsonObject) {
    if let Some(status) = edit::ensure(claim, "status") {
        edit::set_zero(status, "phase", "Pending");
    }
    let Some(spec) = edit::ensure(claim, "spec") else {
        return;
    };
    edit::set_unset(spec, "volumeMode", "Filesystem");
    // The two fields name the same source.
    let namespaced = !edit::text_at(spec, &["dataSourceRef", "namespace"]).is_empty();
    if let (Some(source), None) = (
        edit::at(spec, &["dataSource"]).cloned(),
        edit::at(spec, &["dataSourceRef"]),
    ) {
        spec.insert("dataSourceRef".to_owned(), source);
    } else if let (None, Some(source), false) = (
        edit::at(spec, &["dataSource"]),
        edit::at(spec, &["dataSourceRef"]).cloned(),
        namespaced,
    ) {
        let kind = source["kind"].as_str().unwrap_or_default();
        if ["PersistentVolumeClaim", "VolumeSnapshot"].contains(&kind) {
            spec.insert("dataSource".to_owned(), source);
        }
    }
}

/// Checks the spec of a claim.
pub(super) fn check_claim_spec(spec: &Field<'_>, causes: &mut Causes) {
    let modes = spec.child("accessModes");
    if modes.len() == 0 {
        causes.required(&modes, "at least 1 access mode is required");
    }
    causes.check_selector(&spec.child("selector"));
    check_access_modes(&modes, causes);
    let storage = spec.at(&["resources", "requests"]).key("storage");
    let path = spec.child("resources").path().key("storage");
    if !storage.is_set() {
        causes.push(StatusCause::required(path, ""));
    } else if let Some(quantity) = causes.check_quantity(&storage)
        && (quantity.is_negative() || quantity.is_zero())
    {
        causes.invalid_at(path, storage.value(), "must be greater than zero");
    }
    for name in ["storageClassName", "volumeAttributesClassName"] {
        causes.check_text(&spec.child(name), names::subdomain_error);
    }
    causes.check_one_of(&spec.child("volumeMode"), &VOLUME_MODES);
}

fn check_access_modes(modes: &Field<'_>, causes: &mut Causes) {
    for mode in modes.items() {
        if !ACCESS_MODES.contains(&mode.text()) {
            let path = modes.path();
            causes.push(StatusCause::not_supported(path, mode.text(), &ACCESS_MODES));
        }
    }
    let single = modes.items().any(|mode| mode.text() == "ReadWriteOncePod");
    if single && modes.len() > 1 {
        let detail = "may not use ReadWriteOncePod with other access modes";
        causes.forbidden(modes, detail);
    }
}

fn check_claim_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let bound = new.at(&["status", "phase"]).text() == "Bound";
    let capacity = old.at(&["status", "capacity"]).key("storage").value();
    let (new_spec, old_spec) = (new.child("spec"), old.child("spec"));
    let (Some(mut rest), Some(old_map)) = (new_spec.object().cloned(), old_spec.object()) else {
        return;
    };
    if old_spec.child("volumeName").text().is_empty() {
        edit::restore(&mut rest, old_map, "volumeName");
    }
    let size = |spec: &Field<'_>| spec.at(&["resources", "requests"]).key("storage").value();
    let (new_size, old_size) = (size(&new_spec), size(&old_spec));
    if bound {
        edit::restore(&mut rest, old_map, "volumeAttributesClassName");
        let requests = edit::child_mut(&mut rest, "resources")
            .and_then(|resources| edit::child_mut(resources, "requests"));
        if let Some(requests) = requests {
            requests.insert("storage".to_owned(), old_size.clone());
        }
    }
    let beta_class = "volume.beta.kubernetes.io/storage-class";
    let annotated = old
        .at(&["metadata", "annotations"])
        .key(beta_class)
        .is_set();
    if !old_spec.child("storageClassName").is_set() && !annotated {
        // A claim without a class may get the default one later.
        edit::restore(&mut rest, old_map, "storageClassName");
    }
    if !values_equal(&Value::Object(rest), &Value::Object(old_map.clone())) {
        causes.forbidden(
            &new_spec,
            "spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims\n",
        );
    }
    if compare(&new_size, &old_size).is_lt() && compare(&new_size, &capacity).is_le() {
        let field = new.at(&["spec", "resources", "requests", "storage"]);
        causes.forbidden(&field, "field can not be less than status.capacity");
    }
    if !new_spec
        .child("volumeMode")
        .equals(&old_spec.child("volumeMode"))
    {
        let value = new_spec.child("volumeMode").value();
        causes.invalid_at("volumeMode", value, names::IMMUTABLE);
    }
}

fn default_volume(volume: &mut JsonObject) {
    if let Some(status) = edit::ensure(volume, "status") {
        edit::set_zero(status, "phase", "Pending");
    }
    if let Some(spec) = edit::ensure(volume, "spec") {
        edit::set_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
        edit::set_unset(spec, "volumeMode", "Filesystem");
        pod::default_source(spec);
    }
}

/// The members of the spec of a persistent volume that are sources.
const VOLUME_SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

fn check_volume(volume: &Field<'_>, causes: &mut Causes) {
    let spec = volume.child("spec");
    let modes = spec.child("accessModes");
    causes.check_required(&modes);
    check_access_modes(&modes, causes);
    let capacity = spec.child("capacity");
    causes.check_required(&capacity);
    let storage = capacity.key("storage");
    if !storage.is_set() || capacity.len() > 1 {
        let value = Value::Object(capacity.object().cloned().unwrap_or_default());
        causes.push(StatusCause::not_supported(
            capacity.path(),
            value,
            &["storage"],
        ));
    }
    if let Some(quantity) = causes.check_quantity(&storage)
        && (quantity.is_negative() || quantity.is_zero())
    {
        causes.invalid(&storage, "must be greater than zero");
    }
    causes.check_one_of(
        &spec.child("persistentVolumeReclaimPolicy"),
        &["Delete", "Recycle", "Retain"],
    );
    let mut found = 0;
    for name in VOLUME_SOURCES {
        let source = spec.child(name);
        if !source.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            causes.forbidden(&source, "may not specify more than 1 volume type");
            continue;
        }
        pod::check_volume_source(name, &source, causes);
        if name == "local" {
            causes.check_required(&source.child("path"));
            if !spec.child("nodeAffinity").is_set() {
                causes.required(
                    &spec.child("nodeAffinity"),
                    "Local volume requires node affinity",
                );
            }
        }
    }
    if found == 0 {
        causes.required(&spec, "must specify a volume type");
    }
    causes.check_text(&spec.child("storageClassName"), names::subdomain_error);
    causes.check_one_of(&spec.child("volumeMode"), &VOLUME_MODES);
    for term in spec
        .at(&["nodeAffinity", "required", "nodeSelectorTerms"])
        .items()
    {
        pod::check_node_term(&term, causes);
    }
}

fn check_volume_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (new, old) = (new.child("spec"), old.child("spec"));
    let changed = VOLUME_SOURCES
        .iter()
        .any(|name| !new.child(name).equals(&old.child(name)));
    if changed {
        let path = new.path().child("persistentvolumesource");
        causes.push(StatusCause::forbidden(
            path,
            "spec.persistentvolumesource is immutable after creation\n",
        ));
    }
    if !new.child("volumeMode").equals(&old.child("volumeMode")) {
        causes.invalid_at(
            "volumeMode",
            new.child("volumeMode").value(),
            names::IMMUTABLE,
        );
    }
    let affinity = new.child("nodeAffinity");
    if old.child("nodeAffinity").is_set() && !affinity.equals(&old.child("nodeAffinity")) {
        causes.invalid_at("nodeAffinity", affinity.value(), names::IMMUTABLE);
    }
}

fn check_class(class: &Field<'_>, causes: &mut Causes) {
    let provisioner = class.child("provisioner");
    if causes.check_required(&provisioner)
        && let Some(detail) = names::qualified_name_error(&provisioner.text().to_lowercase())
    {
        causes.invalid(&provisioner, &detail);
    }
    causes.check_one_of(&class.child("reclaimPolicy"), &["Delete", "Retain"]);
    causes.check_one_of(
        &class.child("volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
}

fn default_driver(driver: &mut JsonObject) {
    let Some(spec) = edit::ensure(driver, "spec") else {
        return;
    };
    edit::set_unset(spec, "attachRequired", true);
    for name in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
    ] {
        edit::set_unset(spec, name, false);
    }
    edit::set_unset(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    edit::set_zero(spec, "volumeLifecycleModes", json!(["Persistent"]));
}
