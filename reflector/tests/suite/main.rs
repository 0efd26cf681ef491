//! Tests of the client side (docs/watch-cache.md, sections F and G), each named by its clause.
//!
//! The reflector runs against a server with scripted responses. Reflector and informer also run over
//! the engine, through the raw store and through the watch cache.

#![expect(
    clippy::unwrap_used,
    clippy::items_after_statements,
    reason = "the helpers of tests are test code"
)]

mod controller;
mod delta_queue;
mod examples;
mod factory;
mod handler;
mod informer;
mod kube;
mod list_watch;
mod lister;
mod model;
mod reflector;
mod support;
mod work_queue;
