//! The plugins about pods: the accounts, classes, tolerations and labels that they get.

mod default_toleration_seconds;
mod priority;
mod resize;
mod runtime_class;
mod secret_references;
mod service_account;
mod token_volume;
pub(in crate::admission) mod tolerations;
mod topology_labels;

pub(super) use default_toleration_seconds::DefaultTolerationSeconds;
pub use default_toleration_seconds::TolerationSeconds;
pub(super) use priority::Priority;
pub(super) use resize::{NodeDeclaredFeatureValidator, PodResizeValidator};
pub(super) use runtime_class::RuntimeClass;
pub(super) use service_account::ServiceAccount;
pub(super) use topology_labels::PodTopologyLabels;
