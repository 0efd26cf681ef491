//! Warnings about volumes and where they come from.

use super::node_labels::{check_expressions, deprecation};
use super::pod::check_fraction;
use super::volume_sources::{PERSISTENT, check_sources};
use super::{Change, Warnings};
use crate::builtin::field::Field;

/// The annotation with the storage class that came before the field.
const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const USE_STORAGE_CLASS: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

pub(super) fn volume(change: &Change<'_>, warnings: &mut Warnings) {
    let spec = change.new.child("spec");
    let annotations = change.new.at(&["metadata", "annotations"]);
    for (name, text) in [
        (STORAGE_CLASS, USE_STORAGE_CLASS),
        (
            MOUNT_OPTIONS,
            "deprecated since v1.31; use \"mountOptions\" attribute instead",
        ),
    ] {
        let annotation = annotations.key(name);
        if annotation.is_set() {
            warnings.at(&annotation, text);
        }
    }
    let policy = spec.child("persistentVolumeReclaimPolicy");
    if policy.text() == "Recycle" {
        warnings.at(
            &policy,
            "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic \
             provisioning.",
        );
    }
    let terms = spec.at(&["nodeAffinity", "required", "nodeSelectorTerms"]);
    for term in terms.items() {
        check_expressions(&term, warnings);
    }
    check_sources(&spec, &PERSISTENT, warnings);
}

pub(super) fn claim(change: &Change<'_>, warnings: &mut Warnings) {
    let annotation = change
        .new
        .at(&["metadata", "annotations"])
        .key(STORAGE_CLASS);
    if annotation.is_set() {
        warnings.at(&annotation, USE_STORAGE_CLASS);
    }
    check_claim(&change.new.child("spec"), warnings);
}

/// Warns of sizes of a claim that are no whole numbers of bytes.
pub(super) fn check_claim(spec: &Field<'_>, warnings: &mut Warnings) {
    for list in ["requests", "limits"] {
        check_fraction(&spec.at(&["resources", list]).key("storage"), warnings);
    }
}

pub(super) fn class(change: &Change<'_>, warnings: &mut Warnings) {
    for topology in change.new.child("allowedTopologies").items() {
        for expression in topology.child("matchLabelExpressions").items() {
            let key = expression.child("key");
            if let Some(text) = deprecation(key.text()) {
                warnings.at(&key, text);
            }
        }
    }
}

pub(super) fn capacity(change: &Change<'_>, warnings: &mut Warnings) {
    let topology = change.new.child("nodeTopology");
    check_expressions(&topology, warnings);
    let labels = topology.child("matchLabels");
    for (label, _) in labels.entries() {
        if let Some(text) = deprecation(label) {
            warnings.at(&labels.child(label), text);
        }
    }
}

pub(super) fn driver(change: &Change<'_>, warnings: &mut Warnings) {
    let spec = change.new.child("spec");
    let requests = spec.child("tokenRequests");
    let is_same = change
        .old
        .is_some_and(|old| old.at(&["spec", "tokenRequests"]).equals(&requests));
    let in_secrets = spec.child("serviceAccountTokenInSecrets");
    if requests.len() > 0 && !is_same && !in_secrets.is_set() {
        warnings.add(
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
             possible logging of tokens in volume attributes",
        );
    }
}
