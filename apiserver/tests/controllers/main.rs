//! The controllers of a server.

#[path = "../client/mod.rs"]
mod client;
mod defaults;
mod garbage;
mod namespaces;
mod policies;
mod several;
mod support;
