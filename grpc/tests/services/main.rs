//! Tests of the services with the generated clients.
//!
//! Most tests call the services without a connection, so that all effects of a call are visible
//! when it returns. The tests in `connection` use HTTP/2.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows unwrap in tests only, not in their helpers"
)]

mod auth;
mod bad_input;
mod cluster;
mod connection;
mod deadline;
mod election;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod nested_txn;
mod support;
mod txn;
mod watch;
