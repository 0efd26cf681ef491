//! The server from outside: as a process, over its ports, and inside a program.
//!
//! One binary for all of it, because each costs a link of everything below.

#![expect(
    clippy::unwrap_used,
    reason = "a test panics for what it cannot do without"
)]

mod certificates;
mod command_line;
mod embedded;
mod http_endpoints;
mod ports;
mod process;
mod support;
