//! Metrics in the text format of Prometheus.
//!
//! An [`Exposition`] is one page of metrics. A program fills it when the page is requested, from
//! counters that it keeps itself, so that counting costs no more than an atomic addition.
//! [`Exposition::process`] adds what the operating system knows about the process.

mod exposition;
mod process;

pub use exposition::{CONTENT_TYPE, Exposition};
/// The library whose metric types [`Exposition::add`] accepts.
pub use prometheus;
