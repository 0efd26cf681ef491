//! Warnings about objects that configure the cluster and its users.

use revstore_watch_cache::status::quoted;

use super::addresses::check_cidr;
use super::node_labels::deprecation;
use super::{Change, Warnings};
use crate::builtin::field::Field;
use crate::builtin::quantity::Quantity;

/// The annotation of service accounts whose pods may use no other secrets.
pub(crate) const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// The end of the names that files with admission configuration have for themselves.
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// Webhook configurations, policies and their bindings.
pub(super) fn admission(change: &Change<'_>, warnings: &mut Warnings) {
    let name = change.new.at(&["metadata", "name"]);
    if name.text().ends_with(STATIC_SUFFIX) {
        warnings.at(
            &name,
            format!(
                "names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and \
                 cannot be managed via the API"
            ),
        );
    }
}

pub(super) fn node(change: &Change<'_>, warnings: &mut Warnings) {
    let spec = change.new.child("spec");
    let source = spec.child("configSource");
    if source.is_set() {
        warnings.at(&source, "the feature is removed");
    }
    let id = spec.child("externalID");
    if !id.text().is_empty() {
        warnings.at(&id, "this field is deprecated, and is unused by Kubernetes");
    }
    for cidr in spec.child("podCIDRs").items() {
        check_cidr(&cidr, warnings);
    }
}

/// Warns of a request that is larger than the limit.
pub(super) fn quota(change: &Change<'_>, warnings: &mut Warnings) {
    if !change.is_new() {
        return;
    }
    let hard = change.new.at(&["spec", "hard"]);
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut request = format!("requests.{name}");
        if !hard.child(&request).is_set() && ["cpu", "memory"].contains(&name) {
            name.clone_into(&mut request);
        }
        let limit = format!("limits.{name}");
        let (requested, limited) = (hard.child(&request).text(), hard.child(&limit).text());
        let exceeds = Quantity::parse(requested)
            .zip(Quantity::parse(limited))
            .is_some_and(|(one, two)| one > two);
        if exceeds {
            warnings.add(format!(
                "ResourceQuota {request} ({requested}) should be less than {limit} ({limited})"
            ));
        }
    }
}

pub(super) fn resource_slice(change: &Change<'_>, warnings: &mut Warnings) {
    let driver = change.new.at(&["spec", "driver"]);
    if driver.text().to_lowercase() != driver.text() {
        let shown = quoted(driver.text());
        warnings.at(
            &driver,
            format!("driver names should be lowercase; {shown} contains uppercase characters"),
        );
    }
}

pub(super) fn runtime_class(change: &Change<'_>, warnings: &mut Warnings) {
    let selector = change.new.at(&["scheduling", "nodeSelector"]);
    for (label, _) in selector.entries() {
        if let Some(text) = deprecation(label) {
            warnings.at(&selector, text);
        }
    }
}

pub(super) fn service_account(change: &Change<'_>, warnings: &mut Warnings) {
    let annotation = |object: &Field<'_>| {
        let annotations = object.at(&["metadata", "annotations"]);
        annotations.key(ENFORCE_SECRETS).is_set()
    };
    if annotation(&change.new) && !change.old.as_ref().is_some_and(annotation) {
        warnings.at(
            &change
                .new
                .at(&["metadata", "annotations"])
                .key(ENFORCE_SECRETS),
            "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
        );
    }
}
