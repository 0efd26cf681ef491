//! A Kubernetes API server over the watch cache of revstore.

pub mod builtin;
pub mod custom;
pub mod decode;
pub mod patch;
pub mod table;
