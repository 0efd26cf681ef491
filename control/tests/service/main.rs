//! The service through its HTTP interface, without sockets: JSON and gRPC, access, errors, bounds.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test may panic as the test itself"
)]

mod access;
mod files;
mod fixture;
mod grpc;
mod journal;
mod refusals;
mod store;
mod time;
mod wait;
