//! Validation of the volumes of pods.

use std::collections::{HashMap, HashSet};

use super::container::{PULL_POLICIES, check_unreserved};
use super::environment::{FILE_FIELDS, check_field_ref, check_resource_ref};
use super::source;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// The valid volumes of a pod by their names.
pub(super) type Volumes<'a> = HashMap<&'a str, Field<'a>>;

/// The types of volumes.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks the volumes of a pod with a name, or of a template. Returns those that are valid.
pub(super) fn check_volumes<'a>(
    list: &Field<'a>,
    pod: Option<&str>,
    causes: &mut Causes,
) -> Volumes<'a> {
    let is_pod = pod.is_some();
    let pod = pod.filter(|name| !name.is_empty());
    let created: HashSet<String> = pod
        .into_iter()
        .flat_map(|pod| list.items().map(move |volume| (pod, volume)))
        .filter(|(_, volume)| volume.child("ephemeral").is_set())
        .map(|(pod, volume)| format!("{pod}-{}", volume.child("name").text()))
        .collect();
    let mut volumes = Volumes::new();
    for volume in list.items() {
        let before = causes.len();
        check_source(&volume, is_pod, pod, causes);
        let name = volume.child("name");
        causes.check_required_label(&name);
        if volumes.contains_key(name.text()) {
            causes.duplicate(&name);
        }
        if causes.len() == before {
            volumes.insert(name.text(), volume);
        }
        let claim = volume.at(&["persistentVolumeClaim", "claimName"]);
        if created.contains(claim.text()) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            causes.invalid(&claim, detail);
        }
    }
    volumes
}

fn check_source(volume: &Field<'_>, is_pod: bool, pod: Option<&str>, causes: &mut Causes) {
    let mut found = false;
    for name in SOURCES {
        let source = volume.child(name);
        if !source.is_set() {
            continue;
        }
        if found {
            let path = match name {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                name => name,
            };
            causes.forbidden(
                &volume.child(path),
                "may not specify more than 1 volume type",
            );
        } else {
            found = true;
            let source = match name {
                "gcePersistentDisk" => source.placed(&volume.child("persistentDisk")),
                _ => source,
            };
            check_one(name, &source, is_pod, causes);
        }
        let text = volume.child("name").text();
        if name == "iscsi" && source.child("initiatorName").is_set() {
            source::check_portal_length(&volume.child("name"), text, &source, causes);
        }
        if let ("ephemeral", Some(pod)) = (name, pod)
            && !text.is_empty()
        {
            let claim = format!("{pod}-{text}");
            if let Some(detail) = names::subdomain_error(&claim) {
                let detail = format!("PVC name \"{claim}\": {detail}");
                causes.invalid(&volume.child("name"), &detail);
            }
        }
    }
    if !found {
        causes.required(volume, "must specify a volume type");
    }
}

/// Checks one type of volume of a pod.
fn check_one(name: &str, source: &Field<'_>, is_pod: bool, causes: &mut Causes) {
    match name {
        "secret" => {
            causes.check_required(&source.child("secretName"));
            check_mode(&source.child("defaultMode"), causes);
            check_files(source, causes);
        }
        "configMap" => {
            causes.check_required(&source.child("name"));
            check_mode(&source.child("defaultMode"), causes);
            check_files(source, causes);
        }
        "persistentVolumeClaim" => {
            causes.check_required(&source.child("claimName"));
        }
        "downwardAPI" => {
            check_mode(&source.child("defaultMode"), causes);
            for item in source.child("items").items() {
                // The paths have no index.
                check_downward_file(&item.placed(source), causes);
            }
        }
        "projected" => {
            check_mode(&source.child("defaultMode"), causes);
            check_projections(source, causes);
        }
        "emptyDir" => {
            let limit = source.child("sizeLimit");
            if causes
                .check_quantity(&limit)
                .is_some_and(crate::builtin::quantity::Quantity::is_negative)
            {
                causes.forbidden(&limit, "SizeLimit field must be a valid resource quantity");
            }
        }
        "ephemeral" => check_claim_template(&source.child("volumeClaimTemplate"), causes),
        "image" => {
            if is_pod {
                causes.check_required(&source.child("reference"));
            }
            causes.check_required_one_of(&source.child("pullPolicy"), &PULL_POLICIES);
        }
        _ => source::check(name, source, causes),
    }
}

/// The members of the metadata of a claim that a template cannot have, with their names in paths.
const NOT_OF_TEMPLATES: [(&str, &str); 12] = [
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

fn check_claim_template(template: &Field<'_>, causes: &mut Causes) {
    if !template.is_set() {
        causes.required(template, "");
        return;
    }
    let metadata = template.child("metadata");
    causes.check_annotations(&metadata.child("annotations"));
    causes.check_labels(&metadata.child("labels"));
    for (name, shown) in NOT_OF_TEMPLATES {
        if !metadata.child(name).is_zero() {
            causes.forbidden(&metadata.child(shown), "cannot be set");
        }
    }
    crate::builtin::families::storage::check_claim_spec(&template.child("spec"), causes);
}

/// Checks the mode of files.
fn check_mode(mode: &Field<'_>, causes: &mut Causes) {
    causes.check_range(
        mode,
        0,
        0o777,
        "must be a number between 0 and 0777 (octal), both inclusive",
    );
}

fn check_files(source: &Field<'_>, causes: &mut Causes) {
    for item in source.child("items").items() {
        check_item(&item, causes);
    }
}

fn check_item(item: &Field<'_>, causes: &mut Causes) {
    causes.check_required(&item.child("key"));
    causes.check_required(&item.child("path"));
    check_unreserved(&item.child("path"), causes);
    check_mode(&item.child("mode"), causes);
}

fn check_downward_file(item: &Field<'_>, causes: &mut Causes) {
    causes.check_required(&item.child("path"));
    check_unreserved(&item.child("path"), causes);
    let (field, resource) = (item.child("fieldRef"), item.child("resourceFieldRef"));
    if field.is_set() {
        check_field_ref(&field, &FILE_FIELDS, causes);
        if resource.is_set() {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            causes.invalid_at(item.path(), "resource", detail);
        }
    } else if resource.is_set() {
        check_resource_ref(&resource, true, causes);
    } else {
        causes.required(item, "one of fieldRef and resourceFieldRef is required");
    }
    check_mode(&item.child("mode"), causes);
}

/// The bounds of the time in seconds that a token is valid for.
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

/// Checks the sources of a volume that has several.
fn check_projections(projected: &Field<'_>, causes: &mut Causes) {
    let mut paths = HashSet::new();
    for source in projected.child("sources").items() {
        let mut found = 0;
        for name in ["secret", "configMap", "downwardAPI"] {
            let projection = source.child(name);
            if !projection.is_set() {
                continue;
            }
            found += 1;
            let own = projection.child("name");
            if name != "downwardAPI" {
                causes.check_required(&own);
            }
            for item in projection.child("items").items() {
                if name == "downwardAPI" {
                    check_downward_file(&item.placed(&projection), causes);
                } else {
                    check_item(&item, causes);
                }
                let path = item.child("path").text();
                if !path.is_empty() && !paths.insert(path) {
                    let shown = if name == "downwardAPI" {
                        path
                    } else {
                        own.text()
                    };
                    causes.invalid_at(projected.path(), shown, "conflicting duplicate paths");
                }
            }
        }
        let token = source.child("serviceAccountToken");
        if token.is_set() {
            found += 1;
            check_token(&token, projected, causes);
        }
        for name in ["clusterTrustBundle", "podCertificate"] {
            found += usize::from(source.child(name).is_set());
        }
        if found > 1 {
            let detail = "may not specify more than 1 volume type per source";
            causes.forbidden(&source, detail);
        }
    }
}

fn check_token(token: &Field<'_>, projected: &Field<'_>, causes: &mut Causes) {
    let seconds = token.child("expirationSeconds");
    causes.check_min(
        &seconds,
        TOKEN_SECONDS_MIN,
        "may not specify a duration less than 10 minutes",
    );
    causes.check_range(
        &seconds,
        i64::MIN,
        TOKEN_SECONDS_MAX,
        "may not specify a duration larger than 2^32 seconds",
    );
    let path = token.child("path").placed(&projected.child("path"));
    if path.text().is_empty() {
        causes.required(&path, "");
    } else {
        check_unreserved(&path, causes);
    }
}
