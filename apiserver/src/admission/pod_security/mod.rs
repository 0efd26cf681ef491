//! The plugin `PodSecurity`: the standards for the security of pods that the labels of a namespace demand.
//!
//! `policy.rs` reads the labels, `registry.rs` says which checks a level and a version have, `checks/` has the checks, one
//! file for what they are about, and `pod.rs` what they read. `plugin.rs` decides about requests, `existing.rs` looks
//! at the pods that a namespace has when its labels change.

mod checks;
mod existing;
mod plugin;
mod pod;
mod policy;
mod registry;

pub(super) use plugin::PodSecurity;
