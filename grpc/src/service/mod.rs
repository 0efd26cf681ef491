//! The services: one file for each gRPC service of etcd, with its methods and its streams.
//!
//! Each method runs the checks in its row of the table of methods, converts the request, calls the
//! engine and returns a response message. In etcd, these services are in package `v3rpc`, and those
//! of [`concurrency`] in `v3lock` and `v3election`.

pub(crate) mod auth;
pub(crate) mod cluster;
pub(crate) mod concurrency;
pub(crate) mod health;
pub(crate) mod kv;
mod kv_log;
pub(crate) mod lease;
pub(crate) mod maintenance;
pub(crate) mod range_stream;
pub(crate) mod watch;
