//! All built-in kinds, by families. The families have the rules of their kinds.

pub(super) mod admission;
mod aggregation;
pub(super) mod certificates;
pub(super) mod cluster;
mod config;
pub(super) mod coordination;
mod device;
pub(crate) mod flow_objects;
mod flowcontrol;
mod networking;
pub(super) mod pod;
mod policy;
mod rbac;
pub(super) mod service;
mod storage;
pub(super) mod workload;

use std::collections::HashSet;

use super::names;
use super::rules::{Generation, Kind};
use crate::custom::text;

/// The families of kinds.
const FAMILIES: [&[Kind]; 16] = [
    pod::KINDS,
    workload::KINDS,
    service::KINDS,
    config::KINDS,
    cluster::KINDS,
    storage::KINDS,
    networking::KINDS,
    policy::KINDS,
    rbac::KINDS,
    coordination::KINDS,
    certificates::KINDS,
    admission::KINDS,
    flowcontrol::KINDS,
    aggregation::KINDS,
    device::KINDS,
    OTHERS,
];

/// The kinds whose rules are those of most kinds, with few exceptions.
const OTHERS: &[Kind] = &[
    Kind {
        validate: |class, causes| {
            causes.check_required_label(&class.child("handler"));
            let overhead = class.child("overhead");
            pod::check_overhead(&overhead.child("podFixed"), &overhead, causes);
            let scheduling = class.child("scheduling");
            causes.check_labels(&scheduling.child("nodeSelector"));
            let tolerations = scheduling.child("tolerations");
            pod::check_tolerations(&tolerations, causes);
            let mut seen = HashSet::new();
            for toleration in tolerations.items() {
                let key = ["key", "operator", "value", "effect"]
                    .map(|name| toleration.child(name).text());
                if !seen.insert(key) {
                    causes.duplicate(&toleration);
                }
            }
        },
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("handler"), &old.child("handler"));
        },
        ..Kind::new("node.k8s.io", "RuntimeClass")
            .conditional()
            .creates_on_update()
    },
    Kind::new("apiextensions.k8s.io", "CustomResourceDefinition")
        .conditional()
        .with_status()
        .with_generation(),
    Kind {
        status_keeps_metadata: true,
        ..Kind::new("scheduling.k8s.io", "PodGroup").with_status()
    },
    Kind::new("scheduling.k8s.io", "Workload"),
    Kind {
        status_keeps_metadata: true,
        validate: |migration, causes| {
            let target = migration.at(&["spec", "resource"]);
            let resource = target.child("resource");
            if resource.text().is_empty() {
                causes.required(&resource, "resource is required to be set");
            }
            causes.check_text(&resource, text::label_error);
            causes.check_text(&target.child("group"), names::subdomain_error);
        },
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("spec"), &old.child("spec"));
        },
        ..Kind::new("storagemigration.k8s.io", "StorageVersionMigration")
            .conditional()
            .with_status()
    },
    Kind {
        status_keeps_metadata: true,
        ..Kind::new("internal.apiserver.k8s.io", "StorageVersion")
            .conditional()
            .with_status()
    },
];

/// The rules of kinds that are not in the list.
const UNKNOWN: Kind = Kind {
    generation: Generation::Counts,
    ..Kind::new("", "").with_status()
};

/// Returns the rules of a kind. Those of one version come before those of all.
pub(super) fn find(group: &str, version: &str, kind: &str) -> &'static Kind {
    let mut kinds = FAMILIES.iter().flat_map(|family| family.iter());
    let found = kinds.find(|candidate| {
        candidate.name == kind
            && candidate.group == group
            && (candidate.version.is_empty() || candidate.version == version)
    });
    found.unwrap_or(&UNKNOWN)
}
