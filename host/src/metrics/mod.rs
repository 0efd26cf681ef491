//! Metrics in the text format of Prometheus.
//!
//! An [`Exposition`] is one page of metrics. A program creates it for each request from its own counters, so
//! counting costs only an atomic addition. [`Exposition::process`] adds the metrics of the process.

mod exposition;
mod process;

pub use exposition::{CONTENT_TYPE, Exposition};
/// The library whose metric types [`Exposition::add`] accepts.
pub use prometheus;
