//! The rules of the built-in kinds: defaults, validation, what updates may change, and subresources.
//!
//! - [`Rules`] is the [`Strategy`](revstore_watch_cache::registry::Strategy) of a kind in a version;
//!   [`Rules::status`] that of its status subresource, and [`Rules::prepared`] that of the other
//!   subresources, whose new version a function computes: [`bind`], [`mark_evicted`],
//!   [`set_ephemeral_containers`], [`resize`], [`approve`], [`finalize_namespace`].
//! - [`scale_of`] and [`set_scale`] are the scale subresource.
//! - [`warnings`], [`creation_warnings`], [`status_warnings`], [`kind_warning`] and [`deletion_warning`] are what clients
//!   are warned of.
//! - [`selected_field`] and [`selectable_fields`] are the fields of field selectors.
//!
//! Objects are JSON objects whose fields have the types of the schema. Fields with other types are treated
//! as absent.

mod causes;
pub(crate) mod edit;
mod families;
pub(crate) mod field;
mod gates;
mod names;
mod pem;
pub(crate) mod quantity;
mod rules;
mod scale;
mod selectable;
pub(crate) mod selector;
mod warning;

use revstore_watch_cache::registry::{JsonObject, Propagation};

pub(crate) use causes::is_extended;
pub(crate) use families::certificates::CertificateRequest;
pub use families::certificates::{approve, set_requester};
pub use families::cluster::finalize_namespace;
pub(crate) use families::coordination::new_event_causes;
pub(crate) use families::flow_objects::FlowObject;
pub(crate) use families::pod::qos_class;
pub use families::pod::{
    EvictionCase, bind, binding_conditions, budget_of, check_binding, count_eviction,
    counts_eviction, mark_evicted, resize, set_ephemeral_containers, unprocessed_budget,
};
pub(crate) use families::service::prepare_allocation;
pub(crate) use names::domain_prefixed_path_errors;
pub use rules::{Now, Rules};
pub use scale::{scale_of, set_scale};
pub(crate) use selectable::field_source;
pub use selectable::{selectable_fields, selected_field};
pub(crate) use warning::ENFORCE_SECRETS;
pub use warning::{creation_warnings, deletion_warning, kind_warning, status_warnings, warnings};

/// Sets the defaults of a stored object, as those of requests: its API version and kind are in it.
pub(crate) fn set_defaults(object: &mut JsonObject) {
    let version = edit::text(object, "apiVersion").to_owned();
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = families::find(group, version, edit::text(object, "kind"));
    (kind.default)(object);
}

/// Returns the propagation policy of a deletion that does not name one, or `None` to leave the finalizers
/// as they are.
pub fn default_propagation(group: &str, kind: &str) -> Option<Propagation> {
    (group == "batch" && kind == "Job").then_some(Propagation::Orphan)
}

/// Returns why a request for one object cannot delete it, or `None`. Deletions of collections can.
pub fn undeletable(group: &str, name: &str) -> Option<&'static str> {
    let is_of_system = group == "scheduling.k8s.io"
        && ["system-node-critical", "system-cluster-critical"].contains(&name);
    is_of_system.then_some("this is a system priority class and cannot be deleted")
}

/// Returns whether the response to a deletion is the object and not a `Status`.
// WC-419.
pub fn deletion_returns_object(group: &str, kind: &str) -> bool {
    const CORE: [&str; 8] = [
        "Pod",
        "Service",
        "PodTemplate",
        "ServiceAccount",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "ResourceQuota",
        "Namespace",
    ];
    match group {
        "" => CORE.contains(&kind),
        "storage.k8s.io" => kind != "CSIStorageCapacity",
        "resource.k8s.io" => true,
        _ => false,
    }
}
