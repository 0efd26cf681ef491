//! The tests of the behaviour specification's sections F and G that are about the client side, each
//! named by its id. They run over the engine, through the raw store and through the cache.

#![expect(
    clippy::unwrap_used,
    clippy::items_after_statements,
    clippy::needless_pass_by_value,
    reason = "helpers of tests are test code too, and a table is best read in one piece"
)]

mod delta_queue;
mod informer;
mod model;
mod reflector;
mod support;
