//! Calls of admission webhooks.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::RwLock;
use revstore_host::metrics::Exposition;
use revstore_host::metrics::prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, Opts, Result,
};

/// The buckets of durations in seconds: those of kube-apiserver.
const DURATIONS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// The maximum number of names of webhooks that have metrics of their own. The calls of further ones, of
/// configurations that come and go, are counted without names.
const NAMES_MAX: usize = 2_000;
/// The highest code of an answer that is a label. Higher ones count as this one.
const CODE_MAX: u16 = 600;

/// The metrics of the calls of admission webhooks.
pub(crate) struct WebhookMetrics {
    durations: HistogramVec,
    requests: IntCounterVec,
    rejections: IntCounterVec,
    ignored: IntCounterVec,
    /// At most [`NAMES_MAX`]. A leaf lock, held for one look or change.
    names: RwLock<HashSet<String>>,
}

/// How a call of a webhook has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    /// The webhook has denied the request, with a code.
    Denied(u16),
    /// The webhook could not be asked; the code says why.
    Failed {
        code: u16,
        ignored: bool,
    },
    /// The server has failed to do what the webhook wants.
    Internal,
}

/// One call of a webhook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebhookCall<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_mutating: bool,
    pub(crate) operation: &'a str,
}

impl WebhookMetrics {
    pub(crate) fn new() -> Result<Self> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels)
        };
        let durations = HistogramOpts::new(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Duration of calls of admission webhooks.",
        );
        Ok(Self {
            durations: HistogramVec::new(
                durations.buckets(DURATIONS.to_vec()),
                &["name", "operation", "rejected", "type"],
            )?,
            requests: counter(
                "apiserver_admission_webhook_request_total",
                "Calls of admission webhooks.",
                &["code", "name", "operation", "rejected", "type"],
            )?,
            rejections: counter(
                "apiserver_admission_webhook_rejection_count",
                "Calls of admission webhooks that have refused a request.",
                &["error_type", "name", "operation", "rejection_code", "type"],
            )?,
            ignored: counter(
                "apiserver_admission_webhook_fail_open_count",
                "Calls of admission webhooks that failed and were ignored.",
                &["name", "type"],
            )?,
            names: RwLock::default(),
        })
    }

    /// Counts a call.
    pub(crate) fn observe(&self, call: WebhookCall<'_>, elapsed: Duration, outcome: Outcome) {
        let name = self.bounded(call.name);
        let kind = if call.is_mutating {
            "admit"
        } else {
            "validating"
        };
        let (code, error) = match outcome {
            Outcome::Allowed => (200, None),
            Outcome::Denied(code) => (code, Some("no_error")),
            Outcome::Failed { code, ignored } => {
                (code, (!ignored).then_some("calling_webhook_error"))
            }
            Outcome::Internal => (0, Some("apiserver_internal_error")),
        };
        let code = code.min(CODE_MAX).to_string();
        let rejected = if error.is_some() { "true" } else { "false" };
        // The labels are those of the declarations.
        if let Some(error) = error {
            let values = [error, name, call.operation, &code, kind];
            self.rejections.with_label_values(&values).inc();
        }
        if matches!(outcome, Outcome::Failed { ignored: true, .. }) {
            self.ignored.with_label_values(&[name, kind]).inc();
        }
        let values = [&code, name, call.operation, rejected, kind];
        self.requests.with_label_values(&values).inc();
        let values = [name, call.operation, rejected, kind];
        let histogram = self.durations.with_label_values(&values);
        histogram.observe(elapsed.as_secs_f64());
    }

    fn bounded<'a>(&self, name: &'a str) -> &'a str {
        if self.names.read().contains(name) {
            return name;
        }
        let mut names = self.names.write();
        if names.len() >= NAMES_MAX && !names.contains(name) {
            return "";
        }
        names.insert(name.to_owned());
        name
    }

    pub(crate) fn add(&self, page: &mut Exposition) {
        page.add(&self.durations);
        page.add(&self.requests);
        page.add(&self.rejections);
        page.add(&self.ignored);
    }
}

impl std::fmt::Debug for WebhookMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookMetrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_bounded_names() {
        let metrics = WebhookMetrics::new().unwrap();
        let call = |name| WebhookCall {
            name,
            is_mutating: true,
            operation: "CREATE",
        };
        let names: Vec<String> = (0..NAMES_MAX + 5).map(|name| name.to_string()).collect();
        for name in &names {
            metrics.observe(call(name), Duration::ZERO, Outcome::Allowed);
        }
        metrics.observe(call("0"), Duration::ZERO, Outcome::Denied(900));
        metrics.observe(call("0"), Duration::ZERO, Outcome::Internal);
        let failed = |ignored| Outcome::Failed { code: 503, ignored };
        metrics.observe(call("0"), Duration::ZERO, failed(true));
        metrics.observe(call("0"), Duration::ZERO, failed(false));
        let requests = |code, name, rejected| {
            let labels = [code, name, "CREATE", rejected, "admit"];
            metrics.requests.with_label_values(&labels).get()
        };
        assert_eq!(requests("200", "", "false"), 5);
        assert_eq!(requests("600", "0", "true"), 1);
        assert_eq!(requests("503", "0", "false"), 1);
        let rejections = |error, code| {
            let labels = [error, "0", "CREATE", code, "admit"];
            metrics.rejections.with_label_values(&labels).get()
        };
        assert_eq!(rejections("no_error", "600"), 1);
        assert_eq!(rejections("calling_webhook_error", "503"), 1);
        assert_eq!(rejections("apiserver_internal_error", "0"), 1);
        assert_eq!(metrics.ignored.with_label_values(&["0", "admit"]).get(), 1);
    }
}
