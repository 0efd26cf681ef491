//! Warnings about objects that are valid and yet probably not what their author means. Clients show them
//! from the `Warning` headers of a response.

mod addresses;
mod cluster;
mod key_pair;
mod network;
mod node_labels;
mod pod;
mod storage;
mod virtual_paths;
mod volume_sources;
mod workload;

use std::fmt::Display;

use revstore_watch_cache::registry::JsonObject;

use super::field::Field;

pub(crate) use cluster::ENFORCE_SECRETS;
pub use pod::creation_warnings;

/// The maximum number of warnings about an object, more than an answer has.
const WARNINGS_MAX: usize = 500;
/// The maximum number of comparisons that one check makes of parts of an object. Further parts are not compared with others:
/// nobody reads so many warnings.
const COMPARISONS_MAX: usize = 100_000;

/// The comparisons that a check may still make.
#[derive(Debug)]
struct Comparisons(usize);

impl Comparisons {
    fn new() -> Self {
        Self(COMPARISONS_MAX)
    }

    /// Counts comparisons that would be made. Returns whether they may be.
    fn may_make(&mut self, count: usize) -> bool {
        let left = self.0.checked_sub(count);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}

/// What clients are warned of, in the order of kube-apiserver.
#[derive(Debug, Default)]
struct Warnings {
    texts: Vec<String>,
}

impl Warnings {
    fn add(&mut self, text: impl Into<String>) {
        if self.texts.len() < WARNINGS_MAX {
            self.texts.push(text.into());
        }
    }

    /// Adds a warning about a field.
    fn at(&mut self, field: &Field<'_>, text: impl Display) {
        if self.texts.len() < WARNINGS_MAX {
            self.texts.push(format!("{}: {text}", field.path()));
        }
    }
}

/// A valid version of an object, and the version that it replaces.
#[derive(Clone, Copy, Debug)]
struct Change<'a> {
    new: Field<'a>,
    old: Option<Field<'a>>,
}

impl<'a> Change<'a> {
    fn is_new(&self) -> bool {
        self.old.is_none()
    }

    /// Returns whether a member differs from that of the old version. What has not changed was warned of before.
    fn changes(&self, member: &'a str) -> bool {
        let new = self.new.child(member);
        self.old.is_none_or(|old| !old.child(member).equals(&new))
    }
}

/// Returns the warnings about a new object, or about the version of an object that replaces `old`.
pub fn warnings(object: &JsonObject, old: Option<&JsonObject>) -> Vec<String> {
    let change = Change {
        new: Field::root(object),
        old: old.map(Field::root),
    };
    let check: fn(&Change<'_>, &mut Warnings) = match change.new.child("kind").text() {
        "CronJob" => workload::cron_job,
        "CSIDriver" => storage::driver,
        "CSIStorageCapacity" => storage::capacity,
        "DaemonSet" => workload::daemon_set,
        "Deployment" | "ReplicaSet" => workload::deployment,
        "Endpoints" => network::endpoints,
        "EndpointSlice" => network::endpoint_slice,
        "Ingress" => network::ingress,
        "Job" => workload::job,
        "MutatingAdmissionPolicy"
        | "MutatingAdmissionPolicyBinding"
        | "MutatingWebhookConfiguration"
        | "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding"
        | "ValidatingWebhookConfiguration" => cluster::admission,
        "NetworkPolicy" => network::policy,
        "Node" => cluster::node,
        "PersistentVolume" => storage::volume,
        "PersistentVolumeClaim" => storage::claim,
        "Pod" => pod::pod,
        "PodTemplate" => workload::pod_template,
        "ReplicationController" => workload::replication_controller,
        "ResourceQuota" => cluster::quota,
        "ResourceSlice" => cluster::resource_slice,
        "RuntimeClass" => cluster::runtime_class,
        "Secret" => key_pair::secret,
        "Service" => network::service,
        "ServiceAccount" => cluster::service_account,
        "StatefulSet" => workload::stateful_set,
        "StorageClass" => storage::class,
        _ => return Vec::new(),
    };
    let mut warnings = Warnings::default();
    check(&change, &mut warnings);
    warnings.texts
}

/// Returns the warnings about a status that is written by itself.
pub fn status_warnings(object: &JsonObject) -> Vec<String> {
    let root = Field::root(object);
    let status = root.child("status");
    let mut warnings = Warnings::default();
    match root.child("kind").text() {
        "Pod" => pod::status(&status, &mut warnings),
        "Ingress" | "Service" => network::balancer(&status, &mut warnings),
        _ => {}
    }
    warnings.texts
}

/// Returns the warning that every request for a kind gets, or `None`.
pub fn kind_warning(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    match (group, version, kind) {
        ("", "v1", "Endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        ("", "v1", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

/// Returns the warning of a deletion without a propagation policy, or `None`.
pub fn deletion_warning(group: &str, kind: &str) -> Option<&'static str> {
    (group == "batch" && kind == "Job").then_some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
         remove them or set propagationPolicy=Orphan to suppress this warning",
    )
}
