#![doc = include_str!("../README.md")]

mod admission;
mod allocation;
pub mod auth;
mod bootstrap;
pub mod builtin;
mod catalog;
mod config;
mod control;
mod controllers;
pub mod custom;
pub mod decode;
mod discovery;
mod evaluation;
mod flow_control;
mod http;
mod load;
pub mod managed_fields;
mod metrics;
mod openapi;
pub mod patch;
mod policy;
mod quota;
mod run;
mod server;
mod storage;
mod stream;
pub mod table;
mod verbs;
mod version;
mod webhook;

pub use admission::{PluginNames, TolerationSeconds};
pub use allocation::{AddressRange, PortRange, RangeError, ServiceRanges};
pub use catalog::RuntimeConfig;
pub use config::{Chance, Config, EtcdServers, Invocation, parse, parse_in_place};
pub use controllers::{Controllers, ControllersError};
pub use load::LoadError;
pub use revstore::ClockMode;
pub use revstore::ControlConfig;
/// The control of servers by tests.
pub use revstore_control as control_api;
pub use revstore_host::net::ListenUrl;
pub use run::{StopSignal, run};
pub use server::{ApiServer, ApiServerBuilder, StartError};
pub use storage::EtcdError;
pub use webhook::{RouteError, WebhookRoute};
