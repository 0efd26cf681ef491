#![doc = include_str!("../README.md")]

#[allow(dead_code, reason = "plugins that are not there yet use it")]
mod admission;
mod allocation;
pub mod auth;
mod bootstrap;
pub mod builtin;
mod catalog;
mod config;
mod controllers;
pub mod custom;
pub mod decode;
mod discovery;
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

pub use admission::PluginNames;
pub use allocation::{AddressRange, PortRange, RangeError, ServiceRanges};
pub use config::{Chance, Config, EtcdServers, Invocation, parse, parse_in_place};
pub use controllers::{Controllers, ControllersError};
pub use load::LoadError;
pub use revstore_host::net::ListenUrl;
pub use run::{StopSignal, run};
pub use server::{ApiServer, ApiServerBuilder, StartError};
pub use storage::EtcdError;
pub use webhook::{RouteError, WebhookRoute};
