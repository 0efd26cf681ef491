//! Volumes, claims and storage classes.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use super::pod;
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::{Field, values_equal};
use crate::builtin::names;
use crate::builtin::quantity::{Quantity, compare};
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
        create: |claim, _| agree_data_sources(claim, None),
        update: |claim, old| agree_data_sources(claim, Some(old)),
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
            causes.check_immutable(&new.child("parameters"), &old.child("parameters"));
            causes.check_immutable_text(&new.child("provisioner"), &old.child("provisioner"));
            for name in ["reclaimPolicy", "volumeBindingMode"] {
                causes.check_immutable(&new.child(name), &old.child(name));
            }
        },
        ..Kind::new("storage.k8s.io", "StorageClass")
    },
    Kind {
        generation: Generation::CountsFromZero,
        default: default_driver,
        validate: check_driver,
        validate_update: |new, old, causes| {
            let (new, old) = (new.child("spec"), old.child("spec"));
            for (name, path) in [
                ("attachRequired", "attachedRequired"),
                ("volumeLifecycleModes", "volumeLifecycleModes"),
            ] {
                let field = new.child(name).placed(&new.child(path));
                causes.check_immutable(&field, &old.child(name));
            }
        },
        ..Kind::new("storage.k8s.io", "CSIDriver").conditional()
    },
    Kind {
        validate: check_node_drivers,
        validate_update: check_node_drivers_update,
        ..Kind::new("storage.k8s.io", "CSINode").conditional()
    },
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
            causes.check_immutable(&new.child("nodeTopology"), &old.child("nodeTopology"));
            let name = "storageClassName";
            causes.check_immutable_text(&new.child(name), &old.child(name));
        },
        ..Kind::new("storage.k8s.io", "CSIStorageCapacity").conditional()
    },
    Kind {
        validate: |attachment, causes| {
            check_attachment(&attachment.child("spec"), causes);
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
            let driver = class.child("driverName");
            if causes.check_required(&driver) {
                causes.check_qualified_text(&driver, &driver.text().to_lowercase());
            }
            let parameters = class.child("parameters");
            if check_parameters(&parameters, causes) && parameters.len() == 0 {
                let detail = "must contain at least one key/value pair";
                causes.required(&parameters, detail);
            }
        },
        validate_update: |new, old, causes| {
            for name in ["driverName", "parameters"] {
                if !new.child(name).equals(&old.child(name)) {
                    let detail = format!("updates to {name} are forbidden.");
                    causes.forbidden(&new.child(name), &detail);
                }
            }
        },
        ..Kind::new("storage.k8s.io", "VolumeAttributesClass")
    },
];

/// Checks what is attached to a node.
fn check_attachment(spec: &Field<'_>, causes: &mut Causes) {
    pod::check_csi_driver_name(&spec.child("attacher"), causes);
    let source = spec.child("source");
    let (inline, volume) = (
        source.child("inlineVolumeSpec"),
        source.child("persistentVolumeName"),
    );
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_set(), volume.is_set()) {
        (false, false) => causes.required(&source, detail),
        (true, true) => causes.forbidden(&source, detail),
        (false, true) if volume.text().is_empty() => {
            causes.required(&volume, "must specify non empty persistentVolumeName");
        }
        _ => {}
    }
    causes.check_present_text(&spec.child("nodeName"), names::subdomain_error);
    if volume.is_set() {
        causes.check_present_text(&volume, names::subdomain_error);
    }
}

/// Sets the defaults of a claim.
pub(super) fn default_claim(claim: &mut JsonObject) {
    if let Some(status) = edit::ensure(claim, "status") {
        edit::set_zero(status, "phase", "Pending");
    }
    let Some(spec) = edit::ensure(claim, "spec") else {
        return;
    };
    edit::set_unset(spec, "volumeMode", "Filesystem");
}

/// Gives both fields with the source of a claim the same value, if one of them is set. Sources that old
/// clients cannot name in the first field are dropped from it, unless the claim had one.
fn agree_data_sources(claim: &mut JsonObject, old: Option<&JsonObject>) {
    let is_set = |claim: &JsonObject, name| edit::at(claim, &["spec", name]).is_some();
    let had_reference = old.is_some_and(|old| is_set(old, "dataSourceRef"));
    let had_source = had_reference || old.is_some_and(|old| is_set(old, "dataSource"));
    let Some(spec) = edit::child_mut(claim, "spec") else {
        return;
    };
    // Sources in other namespaces need a feature that is off.
    let namespaced = !edit::text_at(spec, &["dataSourceRef", "namespace"]).is_empty();
    if namespaced && !had_reference {
        spec.remove("dataSourceRef");
    }
    let source = edit::at(spec, &["dataSource"]).cloned();
    let reference = edit::at(spec, &["dataSourceRef"]).cloned();
    match (source, reference) {
        (Some(source), None) if had_source || is_old_source(&source) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (Some(_), None) => {
            spec.remove("dataSource");
        }
        (None, Some(mut source)) if !namespaced => {
            source
                .as_object_mut()
                .map(|source| source.remove("namespace"));
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

/// Returns whether a source is a claim or a snapshot.
fn is_old_source(source: &Value) -> bool {
    let text = |name: &str| source[name].as_str().unwrap_or_default();
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
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
    causes.check_text(&spec.child("storageClassName"), names::subdomain_error);
    causes.check_one_of(&spec.child("volumeMode"), &VOLUME_MODES);
    check_data_sources(spec, causes);
    causes.check_text(
        &spec.child("volumeAttributesClassName"),
        names::subdomain_error,
    );
}

/// Checks the sources that a claim gets its data from.
fn check_data_sources(spec: &Field<'_>, causes: &mut Causes) {
    let (source, reference) = (spec.child("dataSource"), spec.child("dataSourceRef"));
    for field in [source, reference] {
        if !field.is_set() {
            continue;
        }
        let (kind, group) = (field.child("kind"), field.child("apiGroup"));
        causes.check_required(&field.child("name"));
        causes.check_required(&kind);
        if group.text().is_empty() && kind.text() != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            causes.invalid_at(field.path(), kind.text(), detail);
        }
        causes.check_text(&group, names::subdomain_error);
    }
    let same = ["apiGroup", "kind", "name"]
        .iter()
        .all(|name| source.child(name).value() == reference.child(name).value());
    if source.is_set() && reference.is_set() && !same {
        // The value is upstream's type of paths, which has no public fields.
        causes.invalid_at(spec.path(), json!({}), "must match dataSourceRef");
    }
}

fn check_access_modes(modes: &Field<'_>, causes: &mut Causes) {
    for mode in modes.items() {
        if !ACCESS_MODES.contains(&mode.text()) {
            let path = modes.path();
            causes.push(StatusCause::not_supported(path, mode.text(), &ACCESS_MODES));
        }
    }
    let has = |wanted: fn(&str) -> bool| modes.items().any(|mode| wanted(mode.text()));
    if has(|mode| mode == "ReadWriteOncePod")
        && has(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode))
    {
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
        let (path, value) = (capacity.path(), capacity.value());
        causes.push(StatusCause::not_supported(path, value, &["storage"]));
    }
    for (_, amount) in capacity.entries() {
        if let Some(quantity) = causes.check_quantity(&amount) {
            check_positive(&amount, quantity, causes);
        }
    }
    let reclaim = spec.child("persistentVolumeReclaimPolicy");
    causes.check_one_of(&reclaim, &["Delete", "Recycle", "Retain"]);
    let affinity = spec.child("nodeAffinity");
    if affinity.is_set() {
        let required = affinity.child("required");
        if required.is_set() {
            pod::check_node_selector(&required, causes);
        } else {
            causes.required(&required, "must specify required node constraints");
        }
    }
    check_sources(&spec, volume.at(&["metadata", "name"]).text(), causes);
    if is_root(spec.at(&["hostPath", "path"]).text()) && reclaim.text() == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        causes.forbidden(&reclaim, detail);
    }
    causes.check_text(&spec.child("storageClassName"), names::subdomain_error);
    causes.check_one_of(&spec.child("volumeMode"), &VOLUME_MODES);
    let class = spec.child("volumeAttributesClassName");
    if class.is_set() {
        if class.text().is_empty() {
            causes.required(&class, "an empty string is disallowed");
        }
        causes.check_text(&class, names::subdomain_error);
        if !spec.child("csi").is_set() {
            let detail = "has to be specified when using volumeAttributesClassName";
            causes.required(&spec.child("csi"), detail);
        }
    }
}

/// Checks that an amount is above 0. A negative one has two causes.
fn check_positive(amount: &Field<'_>, quantity: Quantity, causes: &mut Causes) {
    if quantity.is_negative() {
        let bytes = quantity.rounded_up().decimal_text();
        let shown = bytes.parse::<i64>().unwrap_or(i64::MIN);
        causes.invalid_at(amount.path(), shown, "must be a valid resource quantity");
    }
    if quantity.is_negative() || quantity.is_zero() {
        causes.invalid(amount, "must be greater than zero");
    }
}

/// Returns whether a path names the root of the host.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| ["", ".", ".."].contains(&part))
}

/// Checks the source of a persistent volume, of which there must be one.
fn check_sources(spec: &Field<'_>, volume: &str, causes: &mut Causes) {
    let mut found = 0;
    for name in VOLUME_SOURCES {
        let source = spec.child(name);
        if !source.is_set() {
            continue;
        }
        found += 1;
        if found > 1 && name != "flexVolume" {
            let path = if name == "cephfs" { "cephFS" } else { name };
            let detail = "may not specify more than 1 volume type";
            causes.forbidden(&spec.child(path), detail);
            continue;
        }
        let source = match name {
            "gcePersistentDisk" => source.placed(&spec.child("persistentDisk")),
            _ => source,
        };
        pod::check_volume_source(name, &source, volume, causes);
        if name == "local" && !spec.child("nodeAffinity").is_set() {
            causes.required(
                &spec.child("nodeAffinity"),
                "Local volume requires node affinity",
            );
        }
    }
    if found == 0 {
        causes.required(spec, "must specify a volume type");
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
    let previous = old.child("nodeAffinity");
    if previous.is_set() && !affinity.equals(&previous) {
        let detail = "field is immutable, except for updating from beta label to GA";
        causes.invalid_at("nodeAffinity", affinity.value(), detail);
    }
    let class = new.child("volumeAttributesClassName");
    if old.child("volumeAttributesClassName").is_set() && !class.is_set() {
        causes.forbidden(&class, "update from non-nil value to nil is forbidden");
    }
}

fn check_class(class: &Field<'_>, causes: &mut Causes) {
    let provisioner = class.child("provisioner");
    if causes.check_required(&provisioner) {
        causes.check_qualified_text(&provisioner, &provisioner.text().to_lowercase());
    }
    check_parameters(&class.child("parameters"), causes);
    let reclaim = class.child("reclaimPolicy");
    if !reclaim.text().is_empty() {
        causes.check_one_of(&reclaim, &["Delete", "Retain"]);
    }
    causes.check_one_of(
        &class.child("volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
    check_topologies(&class.child("allowedTopologies"), causes);
}

/// The maximum number of parameters of a class, and of their bytes.
const PARAMETERS_MAX: usize = 512;
const PARAMETER_BYTES_MAX: usize = 256 * 1024;

/// Checks the parameters of a class. Returns whether their number is allowed.
fn check_parameters(parameters: &Field<'_>, causes: &mut Causes) -> bool {
    if parameters.len() > PARAMETERS_MAX {
        causes.push(StatusCause::too_long(parameters.path(), PARAMETERS_MAX));
        return false;
    }
    let mut bytes = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            causes.invalid_at(parameters.path(), key, "field can not be empty.");
        }
        bytes += key.len() + value.text().len();
    }
    if bytes > PARAMETER_BYTES_MAX {
        let cause = StatusCause::too_long(parameters.path(), PARAMETER_BYTES_MAX);
        causes.push(cause);
    }
    true
}

/// Checks the parts of the cluster where volumes of a class can be.
fn check_topologies(topologies: &Field<'_>, causes: &mut Causes) {
    let mut terms: HashSet<Vec<(&str, Vec<&str>)>> = HashSet::new();
    for term in topologies.items() {
        let expressions = term.child("matchLabelExpressions");
        let mut values_by_key = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.child("key"), expression.child("values"));
            causes.check_required(&values);
            let mut seen = HashSet::new();
            for value in values.items() {
                if !seen.insert(value.text()) {
                    causes.push(StatusCause::duplicate(value.path(), value.text()));
                }
            }
            causes.check_qualified_name(&key);
            let mut values: Vec<&str> = seen.into_iter().collect();
            values.sort_unstable();
            if values_by_key.insert(key.text(), values).is_some() {
                causes.push(StatusCause::duplicate(key.path(), key.text()));
            }
        }
        let is_empty = values_by_key.is_empty();
        // Terms without expressions are equal to those that are not read yet.
        if !terms.insert(values_by_key.into_iter().collect()) || is_empty {
            causes.push(StatusCause::duplicate(expressions.path(), ""));
        }
    }
}

/// Checks the driver of a kind of volumes.
fn check_driver(driver: &Field<'_>, causes: &mut Causes) {
    let spec = driver.child("spec");
    causes.check_one_of(
        &spec.child("fsGroupPolicy"),
        &["File", "None", "ReadWriteOnceWithFSType"],
    );
    let requests = spec.child("tokenRequests");
    let mut audiences = HashSet::new();
    for request in requests.items() {
        let audience = request.child("audience");
        if !audiences.insert(audience.text()) {
            causes.push(StatusCause::duplicate(audience.path(), audience.text()));
            continue;
        }
        let seconds = request.child("expirationSeconds");
        causes.check_min(
            &seconds,
            600,
            "may not specify a duration less than 10 minutes",
        );
        causes.check_range(
            &seconds,
            i64::MIN,
            1 << 32,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    let modes = spec.child("volumeLifecycleModes");
    for mode in modes.items() {
        // The path has no index.
        causes.check_one_of(&mode.placed(&modes), &["Persistent", "Ephemeral"]);
    }
    causes.check_min(
        &spec.child("nodeAllocatableUpdatePeriodSeconds"),
        10,
        "must be greater than or equal to 10 seconds",
    );
    let in_secrets = spec.child("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && requests.len() == 0 {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        causes.invalid(&in_secrets, detail);
    }
}

/// The maximum length of what a driver calls a node.
const NODE_ID_CHARS_MAX: usize = 256;

/// Checks the drivers of a node.
fn check_node_drivers(node: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for driver in node.at(&["spec", "drivers"]).items() {
        let (name, id) = (driver.child("name"), driver.child("nodeID"));
        pod::check_csi_driver_name(&name, causes);
        causes.check_required(&id);
        if id.text().len() > NODE_ID_CHARS_MAX {
            let detail = format!("must be {NODE_ID_CHARS_MAX} characters or less");
            causes.invalid(&id, &detail);
        }
        causes.check_not_negative(&driver.at(&["allocatable", "count"]));
        if !seen.insert(name.text()) {
            causes.push(StatusCause::duplicate(name.path(), name.text()));
        }
        let mut keys = HashSet::new();
        for key in driver.child("topologyKeys").items() {
            if key.text().is_empty() {
                causes.required(&driver, "");
            }
            if !keys.insert(key.text()) {
                causes.push(StatusCause::duplicate(driver.path(), key.text()));
            }
            causes.check_qualified_text(&driver, key.text());
        }
    }
}

/// Checks that the drivers of a node keep all but what they can allocate.
fn check_node_drivers_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let path = ["spec", "drivers"];
    let (drivers, previous) = (new.at(&path), old.at(&path));
    let by_name: HashMap<&str, Field<'_>> = drivers
        .items()
        .map(|driver| (driver.child("name").text(), driver))
        .collect();
    for old in previous.items() {
        let Some(driver) = by_name.get(old.child("name").text()) else {
            continue;
        };
        let same = ["nodeID", "topologyKeys"]
            .iter()
            .all(|name| driver.child(name).equals(&old.child(name)));
        if !same {
            causes.invalid(&driver.placed(&drivers), names::IMMUTABLE);
        }
    }
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
