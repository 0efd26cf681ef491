//! The services: one file for each gRPC service of etcd, which holds its methods and its streams.
//!
//! Each method hands its request to the checks that its row in the table of methods names, converts
//! it, calls the engine and returns a response message. etcd has the same services in package
//! `v3rpc`, and those of [`concurrency`] in `v3lock` and `v3election`.

pub(crate) mod auth;
pub(crate) mod cluster;
pub(crate) mod concurrency;
pub(crate) mod health;
pub(crate) mod kv;
pub(crate) mod lease;
pub(crate) mod maintenance;
pub(crate) mod range_stream;
pub(crate) mod watch;
