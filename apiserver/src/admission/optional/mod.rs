//! The plugins that are off unless `--enable-admission-plugins` names them.

mod always;
mod always_pull_images;
mod extended_resource_toleration;
mod namespace_auto_provision;
mod namespace_exists;
mod owner_references;
mod pod_node_selector;
mod pod_toleration_restriction;
mod restrictions;

pub(super) use always::{AlwaysAdmit, AlwaysDeny};
pub(super) use always_pull_images::AlwaysPullImages;
pub(super) use extended_resource_toleration::ExtendedResourceToleration;
pub(super) use namespace_auto_provision::NamespaceAutoProvision;
pub(super) use namespace_exists::NamespaceExists;
pub(super) use owner_references::OwnerReferencesPermissionEnforcement;
pub(super) use pod_node_selector::PodNodeSelector;
pub(super) use pod_toleration_restriction::PodTolerationRestriction;
pub(super) use restrictions::{DenyServiceExternalIPs, LimitPodHardAntiAffinityTopology};
