#![doc = include_str!("../README.md")]
//!
//! # Items
//! [`Server`] is a server inside a program. The binary uses [`parse`], which converts arguments and
//! environment to an [`Invocation`] with a [`Config`], and [`run`](fn@run), which runs a server with a
//! configuration until a signal arrives.

// `run` (the binary) and `server` (the embedded server) both build a `node`: an engine with its services on
// sockets. `http` receives the requests, `config` declares the flags.
mod config;
pub mod control;
mod http;
pub mod identity;
mod in_process;
mod local_store;
mod node;
mod persist;
mod run;
mod save_on_panic;
mod server;
mod start_error;
mod systemd;
mod version;

pub use config::{
    AllowList, AuthConfig, AuthToken, Cluster, Config, ControlConfig, Invocation, JwtOptions, parse,
};
#[cfg(feature = "channel")]
pub use in_process::Connector;
pub use in_process::{InProcess, TokioClock};
pub use local_store::LocalStore;
pub use revstore_control::clock::ClockMode;
/// The engine, for programs that use the store directly.
pub use revstore_engine as engine;
pub use revstore_grpc::{JwtKeyError, JwtMethod, Limits};
pub use revstore_host::config::ConfigError;
pub use revstore_host::logging::{LogLevel, LogOptions, LogOutput, LogRotation};
pub use revstore_host::net::{
    BindError, BoundAddress, Certificate, ClientAuth, EndpointUrl, Keepalive, ListenAddress,
    ListenUrl, TlsError, TlsOptions, TlsVersion, UrlError,
};
pub use revstore_persist::{Fsync, Options as PersistOptions, Persist};
pub use run::{StopSignal, run, run_with};
pub use save_on_panic::SaveOnPanic;
pub use server::{Server, ServerBuilder};
pub use start_error::StartError;
pub use version::{ETCD_CLUSTER_VERSION, ETCD_VERSION, REVSTORE_VERSION};
