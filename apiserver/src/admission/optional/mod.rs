//! The plugins that are off unless `--enable-admission-plugins` names them.

mod always;
mod always_pull_images;
mod extended_resource_toleration;
mod namespace_exists;
mod owner_references;
mod restrictions;

pub(super) use always::{AlwaysAdmit, AlwaysDeny};
pub(super) use always_pull_images::AlwaysPullImages;
pub(super) use extended_resource_toleration::ExtendedResourceToleration;
pub(super) use namespace_exists::NamespaceExists;
pub(super) use owner_references::OwnerReferencesPermissionEnforcement;
pub(super) use restrictions::{DenyServiceExternalIPs, LimitPodHardAntiAffinityTopology};
