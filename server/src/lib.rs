//! The revstore server: an etcd-compatible node in memory, as a binary and as a library.
//!
//! This crate alone knows flags, ports, TLS and signals. It is read in the order in which a process
//! runs: [`parse`] turns the arguments and the environment into an [`Invocation`], which is a text
//! to print or a [`Config`] to [`run`](fn@run). A program of your own, a test above all, starts a
//! [`Server`] instead.
//!
//! | module | noun |
//! |---|---|
//! | `invocation` | what a process is asked to do; the order of the sources |
//! | `arguments`, `environment`, `config_file` | the three sources |
//! | `flags` | the table of flags, shared by the three and by `help` |
//! | `draft` | what the sources say, before it is checked as a whole |
//! | `config` | what comes out: typed and checked |
//! | `url`, `listen_url`, `duration`, `byte_size`, `go_value`, `auth_token`, `auto_compaction` | values of flags |
//! | `identity` | member and cluster ids |
//! | `error`, `warning` | what is wrong, and what is odd |
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

mod arguments;
mod auth_token;
mod auto_compaction;
mod calls;
mod config;
mod config_file;
mod data_dir;
mod dispatch;
mod draft;
mod environment;
mod error;
mod flags;
mod go_value;
mod help;
mod http;
pub mod identity;
mod invocation;
mod node;
mod run;
mod server;
mod signal;
mod start_error;
mod version;
mod warning;

pub use auth_token::{AuthToken, AuthTokenError, JwtOptions};
pub use auto_compaction::{AutoCompaction, AutoCompactionError, DEFAULT_COMPACTION_INTERVAL};
pub use config::{Auth, Cluster, Config, Limits, Member};
pub use error::{ConfigError, ValueError};
pub use invocation::{Invocation, parse};
/// The engine, for programs that use the store directly.
pub use revstore_engine as engine;
pub use revstore_host::config::{
    ByteSizeError, Certificate, ClientAuth, DurationError, EndpointUrl, HostPortError,
    ListenAddress, ListenUrl, ListenUrlError, LogLevel, LogOptions, LogOutput, Scheme, TlsOptions,
    TlsVersion, UrlError,
};
pub use revstore_host::net::{BindError, BoundAddress, Keepalive, TlsError};
pub use run::run;
pub use server::{Server, ServerBuilder};
pub use signal::StopSignal;
pub use start_error::StartError;
pub use version::{ETCD_CLUSTER_VERSION, ETCD_VERSION, REVSTORE_VERSION};
pub use warning::Warning;

/// Keeps the examples of the README compiling.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
