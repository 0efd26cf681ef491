//! The revstore server: an etcd-compatible node in memory, as a binary and as a library.
//!
//! This crate alone knows flags, ports, TLS and signals. It is read in the order in which a process
//! runs: [`parse`] turns the arguments and the environment into an [`Invocation`], which is a text
//! to print or a [`Config`] to [`run`](fn@run). A program of your own, a test above all, starts a
//! [`Server`] instead.
//!
//! | module | noun |
//! |---|---|
//! | `config` | etcd's flags, and the configuration that they make |
//! | `identity` | member and cluster ids |
//! | `run`, `signal` | the life of the process |
//! | `server` | a server inside a program |
//! | `node` | both from here on: from a configuration to ports |
//! | `dispatch` | gRPC or HTTP |
//! | `calls` | counters of gRPC calls |
//! | `http` | health, version, metrics and the like |
//! | `start_error` | why a server does not start |
//!
//! # Differences from etcd
//! - A flag beats its variable, with a warning, where etcd refuses to start (FL-3).
//! - A data directory is created only if one is given, and nothing is stored in it.
//! - In revision mode a duration as retention is refused; etcd then never compacts (AC-3).
//! - `--auto-compaction-mode=size`, `--auto-compaction-interval` and `--start-revision` are ours.
//! - Without `--initial-cluster` the cluster is this member with its advertised URLs. etcd has
//!   `default=http://localhost:2380` and refuses to start if the URLs are others.
//! - `--client-cert-auth` needs `--trusted-ca-file`; etcd then trusts whom the system trusts.
//! - Watches and keep-alives end at once when the server stops (FL-15).
//! - Hosts are not resolved, nor is `0.0.0.0` replaced by an address of the machine, so that ids
//!   depend on the configuration alone.

mod calls;
mod config;
mod data_dir;
mod dispatch;
mod http;
pub mod identity;
mod node;
mod run;
mod server;
mod signal;
mod start_error;
mod version;

pub use config::{Auth, AuthToken, Cluster, Config, Invocation, JwtOptions, Member, parse};
/// The engine, for programs that use the store directly.
pub use revstore_engine as engine;
pub use revstore_grpc::Limits;
pub use revstore_host::config::{
    Certificate, ClientAuth, ConfigError, EndpointUrl, ListenAddress, ListenUrl, LogLevel,
    LogOptions, LogOutput, Scheme, TlsOptions, TlsVersion, ValueError, Warning,
};
pub use revstore_host::net::{BindError, BoundAddress, Keepalive, TlsError};
pub use run::run;
pub use server::{Server, ServerBuilder};
pub use signal::StopSignal;
pub use start_error::StartError;
pub use version::{ETCD_CLUSTER_VERSION, ETCD_VERSION, REVSTORE_VERSION};

/// Keeps the examples of the README compiling.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
