//! The plugins that are part of kube-apiserver and ask nobody else.

mod default_class;
mod limit_ranger;
mod limits;
mod namespace_lifecycle;
mod node_taint;
pub(super) mod objects;
mod persistent_volume_claim_resize;
mod resource_quota;
mod storage_protection;

pub(super) use default_class::{DefaultIngressClass, DefaultStorageClass};
pub(super) use limit_ranger::LimitRanger;
pub(super) use namespace_lifecycle::NamespaceLifecycle;
pub(super) use node_taint::TaintNodesByCondition;
pub(super) use persistent_volume_claim_resize::PersistentVolumeClaimResize;
pub(super) use resource_quota::ResourceQuota;
pub(super) use storage_protection::StorageObjectInUseProtection;
