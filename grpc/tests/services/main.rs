//! The services as clients meet them. Most tests put generated clients right on top of the services,
//! where everything that follows from a call has happened when it returns; `connection` goes through
//! HTTP/2.

#![expect(
    clippy::unwrap_used,
    reason = "clippy only knows tests, and not what helps them"
)]

mod auth;
mod bad_input;
mod cluster;
mod connection;
mod election;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod support;
mod txn;
mod watch;
