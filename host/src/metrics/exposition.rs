//! A page of metrics.

use prometheus::{
    Counter, Gauge, IntCounter, IntGauge, IntGaugeVec, Opts, Result, TextEncoder, core::Collector,
    proto::MetricFamily,
};

use crate::metrics::process::Process;

/// The content type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics, sorted by name when it is [encoded](Self::encode).
///
/// ```
/// use revstore_host::metrics::Exposition;
///
/// let mut page = Exposition::new();
/// page.counter("requests_total", "Requests received.", 3)?;
/// assert!(page.encode()?.ends_with("requests_total 3\n"));
/// # Ok::<(), revstore_host::metrics::prometheus::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<MetricFamily>,
}

impl Exposition {
    /// Returns an empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the current values of metrics. Metrics with the same name and other labels become one family. A family
    /// without metrics is left out.
    pub fn add(&mut self, metrics: &impl Collector) {
        for mut family in metrics.collect() {
            let known = self.families.last_mut();
            match known.filter(|known| known.name() == family.name()) {
                Some(known) => known.mut_metric().append(family.mut_metric()),
                None if family.get_metric().is_empty() => {}
                None => self.families.push(family),
            }
        }
    }

    /// Adds a gauge without labels. A value above `i64::MAX` is written as `i64::MAX`.
    ///
    /// # Errors
    /// `name` is not a valid name.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl TryInto<i64>) -> Result<()> {
        let gauge = IntGauge::new(name, help)?;
        gauge.set(value.try_into().unwrap_or(i64::MAX));
        self.add(&gauge);
        Ok(())
    }

    /// Adds a counter without labels.
    ///
    /// # Errors
    /// `name` is not a valid name.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<()> {
        let counter = IntCounter::new(name, help)?;
        counter.inc_by(value);
        self.add(&counter);
        Ok(())
    }

    /// Adds an information metric: a gauge that is always 1 and has its text as a label.
    ///
    /// # Errors
    /// `name` or `label` is not a valid name.
    pub fn info(&mut self, name: &str, help: &str, label: &str, text: &str) -> Result<()> {
        let gauge = IntGaugeVec::new(Opts::new(name, help), &[label])?;
        gauge.get_metric_with_label_values(&[text])?.set(1);
        self.add(&gauge);
        Ok(())
    }

    /// Adds the standard process metrics of the Prometheus client libraries: `process_cpu_seconds_total`,
    /// `process_open_fds`, `process_max_fds`, `process_virtual_memory_bytes`, `process_virtual_memory_max_bytes`,
    /// `process_resident_memory_bytes`, `process_network_receive_bytes_total`,
    /// `process_network_transmit_bytes_total` and `process_start_time_seconds`. On systems other than Linux they are omitted.
    ///
    /// # Errors
    /// None in practice: the names are valid.
    pub fn process(&mut self) -> Result<()> {
        let process = Process::read();
        if let Some(seconds) = process.cpu_seconds {
            let total = Counter::new("process_cpu_seconds_total", "CPU time used, in seconds.")?;
            total.inc_by(seconds);
            self.add(&total);
        }
        if let Some(seconds) = process.start_time_seconds {
            let help = "Start time of the process, in seconds since 1970.";
            let start = Gauge::new("process_start_time_seconds", help)?;
            start.set(seconds);
            self.add(&start);
        }
        if let Some((received, sent)) = process.network_bytes {
            let help = "Bytes received by all programs of the network namespace.";
            self.counter("process_network_receive_bytes_total", help, received)?;
            let help = "Bytes sent by all programs of the network namespace.";
            self.counter("process_network_transmit_bytes_total", help, sent)?;
        }
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Resident memory in bytes.",
                process.resident_bytes,
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory in bytes.",
                process.virtual_bytes,
            ),
            (
                "process_virtual_memory_max_bytes",
                "Limit of virtual memory in bytes; the largest number if there is none.",
                process.virtual_bytes_max,
            ),
            (
                "process_open_fds",
                "Open file descriptors.",
                process.open_files,
            ),
            (
                "process_max_fds",
                "Limit of open file descriptors.",
                process.open_files_max,
            ),
        ] {
            if let Some(value) = value {
                self.gauge(name, help, value)?;
            }
        }
        Ok(())
    }

    /// Returns the page in the text format of Prometheus.
    ///
    /// # Errors
    /// A metric family has no metrics.
    pub fn encode(mut self) -> Result<String> {
        self.families.sort_by(|a, b| a.name().cmp(b.name()));
        TextEncoder::new().encode_to_string(&self.families)
    }
}
