//! Helpers for tests that use several crates.
//!
//! | module | contains |
//! |---|---|
//! | [`server`] | the kinds of servers that a test case runs against: a real etcd and revstore; [`on_every_server!`] |
//! | [`tools`] | the search for the programs `etcd` and `etcdctl` |
//! | [`process`] | child processes with captured output |
//! | [`poll`] | polling, for conditions of other processes |
//! | [`http`] | single HTTP requests |
//! | [`raw_call`] | gRPC calls with their headers, flags and resets |
//! | [`etcdctl`] | etcd's command line client |
//! | [`transcript`] | recorded sessions with `etcdctl` |
//! | [`gateway`] | recorded sessions with the JSON gateway |
//! | [`scenario`] | gRPC requests with the responses that were recorded from a real etcd |
//! | [`differential`] | random gRPC requests, sent to a real etcd and to revstore |
//! | [`clauses`] | the clauses of the specifications and the tests that cite them |
//!
//! No test uses a fixed port or depends on the order of tests. Every wait has a time limit. Servers listen on
//! the loopback interface only.

pub mod clauses;
pub mod differential;
pub mod etcdctl;
pub mod gateway;
pub mod http;
pub mod poll;
pub mod process;
pub mod raw_call;
pub mod scenario;
pub mod server;
pub mod tools;
pub mod transcript;

/// Compiles the Rust examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
