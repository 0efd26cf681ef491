//! Tests of the client side (sections F and G of the specification), each named by its clause.
//!
//! The reflector runs against a scripted server; reflector and informer also run over the engine,
//! through the raw store and through the watch cache.

#![expect(
    clippy::unwrap_used,
    clippy::items_after_statements,
    reason = "helpers of tests are test code too"
)]

mod delta_queue;
mod informer;
mod model;
mod reflector;
mod support;
