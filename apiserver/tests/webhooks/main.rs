//! Webhooks: their conversions and decisions, and what happens when they fail.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod admission;
#[path = "../client/mod.rs"]
mod client;
mod conversion;
mod hook_server;
mod pods;
