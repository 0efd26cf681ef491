#![doc = include_str!("../README.md")]

pub mod config;
pub mod logging;
pub mod metrics;
pub mod net;
pub mod panics;
pub mod stdin;
mod sync;
