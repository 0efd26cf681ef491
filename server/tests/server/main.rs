//! Tests of configurations, and of the server as a process, over its ports and embedded in a program.
//!
//! All tests are in one binary, because every test binary links the whole server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certificates;
mod command_line;
mod config;
mod control;
mod ctl;
mod embedded;
mod full_disk;
mod host_whitelist;
mod http_endpoints;
mod learner;
mod log;
mod persist;
mod ports;
mod process;
mod raft_state;
mod stdin;
mod support;
mod systemd;
