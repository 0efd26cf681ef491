//! Validation of the volumes of pods.

use std::collections::{HashMap, HashSet};

use super::container::{check_field_ref, check_no_backsteps, check_relative};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// The valid volumes of a pod by their names.
pub(super) type Volumes<'a> = HashMap<&'a str, Field<'a>>;

/// The types of volumes.
const SOURCES: [&str; 31] = [
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
    "podCertificate",
];

/// Checks the volumes of a pod. Returns those that are valid.
pub(super) fn check_volumes<'a>(list: &Field<'a>, causes: &mut Causes) -> Volumes<'a> {
    let mut volumes = Volumes::new();
    for volume in list.items() {
        let before = causes.len();
        check_source(&volume, causes);
        let name = volume.child("name");
        causes.check_required_label(&name);
        if volumes.contains_key(name.text()) {
            causes.duplicate(&name);
        }
        if causes.len() == before {
            volumes.insert(name.text(), volume);
        }
    }
    volumes
}

fn check_source(volume: &Field<'_>, causes: &mut Causes) {
    let mut found = false;
    for name in SOURCES {
        let source = volume.child(name);
        if !source.is_set() {
            continue;
        }
        if found {
            causes.forbidden(&source, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        check_one(name, &source, causes);
    }
    if !found {
        causes.required(volume, "must specify a volume type");
    }
}

/// Checks one type of volume, of a pod or a persistent one.
pub(in crate::builtin) fn check_one(name: &str, source: &Field<'_>, causes: &mut Causes) {
    match name {
        "hostPath" => {
            causes.check_required(&source.child("path"));
            check_no_backsteps(&source.child("path"), causes);
            check_host_path_type(&source.child("type"), causes);
        }
        "secret" => {
            causes.check_required(&source.child("secretName"));
            check_files(source, causes);
        }
        "configMap" => {
            causes.check_required(&source.child("name"));
            check_files(source, causes);
        }
        "persistentVolumeClaim" => {
            causes.check_required(&source.child("claimName"));
        }
        "nfs" => {
            causes.check_required(&source.child("server"));
            causes.check_required(&source.child("path"));
            if !source.child("path").text().starts_with('/') {
                causes.invalid_at(
                    source.child("path").path(),
                    source.child("path").text(),
                    "must be an absolute path",
                );
            }
        }
        "downwardAPI" => {
            check_mode(&source.child("defaultMode"), causes);
            check_downward_files(&source.child("items"), causes);
        }
        "projected" => {
            check_mode(&source.child("defaultMode"), causes);
            check_projections(&source.child("sources"), causes);
        }
        "csi" => {
            causes.check_required(&source.child("driver"));
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
        "ephemeral" => {
            let template = source.child("volumeClaimTemplate");
            if causes.check_required(&template) {
                super::super::storage::check_claim_spec(&template.child("spec"), causes);
            }
        }
        "image" => {
            causes.check_required(&source.child("reference"));
            causes.check_one_of(
                &source.child("pullPolicy"),
                &["Always", "IfNotPresent", "Never"],
            );
        }
        "iscsi" => {
            causes.check_required(&source.child("targetPortal"));
            causes.check_required(&source.child("iqn"));
        }
        "cephfs" | "rbd" => {
            causes.check_required(&source.child("monitors"));
        }
        "gitRepo" => {
            causes.check_required(&source.child("repository"));
        }
        _ => {}
    }
}

fn check_host_path_type(kind: &Field<'_>, causes: &mut Causes) {
    causes.check_one_of(
        kind,
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
    );
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
    check_mode(&source.child("defaultMode"), causes);
    for item in source.child("items").items() {
        causes.check_required(&item.child("key"));
        check_file_path(&item, causes);
    }
}

fn check_file_path(item: &Field<'_>, causes: &mut Causes) {
    let path = item.child("path");
    if causes.check_required(&path) {
        check_relative(&path, causes);
    }
    check_mode(&item.child("mode"), causes);
}

/// The fields of a pod that a file can have as its content.
const FILE_FIELDS: [&str; 6] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
    "metadata.generateName",
];

fn check_downward_files(items: &Field<'_>, causes: &mut Causes) {
    for item in items.items() {
        check_file_path(&item, causes);
        let (field, resource) = (item.child("fieldRef"), item.child("resourceFieldRef"));
        match (field.is_set(), resource.is_set()) {
            (true, true) => causes.invalid(
                &item,
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            ),
            (true, false) => check_field_ref(&field, &FILE_FIELDS[..5], causes),
            (false, true) => {
                causes.check_required(&resource.child("containerName"));
                causes.check_required(&resource.child("resource"));
            }
            (false, false) => {
                causes.required(&item, "one of fieldRef and resourceFieldRef is required");
            }
        }
    }
}

fn check_projections(sources: &Field<'_>, causes: &mut Causes) {
    let mut paths = HashSet::new();
    for source in sources.items() {
        let mut found = 0;
        for name in [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ] {
            let projection = source.child(name);
            if !projection.is_set() {
                continue;
            }
            found += 1;
            if found > 1 {
                causes.forbidden(
                    &projection,
                    "may not specify more than 1 volume type per source",
                );
                continue;
            }
            match name {
                "secret" | "configMap" => {
                    causes.check_required(&projection.child("name"));
                    check_files(&projection, causes);
                }
                "downwardAPI" => check_downward_files(&projection.child("items"), causes),
                "serviceAccountToken" => {
                    causes.check_range(
                        &projection.child("expirationSeconds"),
                        600,
                        1 << 32,
                        "may not specify a duration less than 10 minutes",
                    );
                    causes.check_required(&projection.child("path"));
                }
                _ => {}
            }
            for item in projection.child("items").items() {
                let path = item.child("path");
                if !path.text().is_empty() && !paths.insert(path.text()) {
                    causes.invalid(&path, "conflicting duplicate paths");
                }
            }
        }
    }
}
