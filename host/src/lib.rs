//! Listeners, TLS, flags, logging and metrics for servers: the parts that know neither etcd nor Kubernetes.

pub mod config;
pub mod logging;
pub mod metrics;
pub mod net;
