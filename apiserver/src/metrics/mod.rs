//! `/metrics`: the metrics of kube-apiserver, so that its dashboards and tools work.
//!
//! `requests` counts requests, `webhooks` the calls of admission webhooks, `server` users, admission, controllers and health checks, the watch cache counts watches, events and objects, and [`Exposition`] adds the process.
//! A test compares the names with those of a real server, and names what is left out.

mod requests;
mod server;
mod webhooks;

use revstore_host::metrics::{Exposition, prometheus};
use revstore_watch_cache::WatchCache;

pub(crate) use requests::{Labels, Recording, Requests, Running};
pub(crate) use server::{Evaluation, ServerMetrics};
pub(crate) use webhooks::{Outcome, WebhookCall, WebhookMetrics};

use crate::version;

/// The labels of `kubernetes_build_info`, and the fields of the answer at `/version` with their values.
const BUILD_INFO: [(&str, &str); 9] = [
    ("build_date", "buildDate"),
    ("compiler", "compiler"),
    ("git_commit", "gitCommit"),
    ("git_tree_state", "gitTreeState"),
    ("git_version", "gitVersion"),
    ("go_version", "goVersion"),
    ("major", "major"),
    ("minor", "minor"),
    ("platform", "platform"),
];

/// Returns the page.
pub(crate) fn page(
    requests: &Requests,
    webhooks: &WebhookMetrics,
    server: &ServerMetrics,
    waiting: [(&str, usize); 2],
    cache: &WatchCache,
) -> prometheus::Result<String> {
    let mut page = Exposition::new();
    requests.add(&mut page);
    webhooks.add(&mut page);
    server.add(&mut page);
    let help = "Requests that wait because of too many others.";
    let options = prometheus::Opts::new("apiserver_current_inqueue_requests", help);
    let queued = prometheus::IntGaugeVec::new(options, &["request_kind"])?;
    for (kind, count) in waiting {
        let gauge = queued.get_metric_with_label_values(&[kind])?;
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    page.add(&queued);
    page.add(&cache.collector());
    let info = version::info();
    let labels = BUILD_INFO.map(|(label, _)| label);
    let values = BUILD_INFO.map(|(_, field)| info[field].as_str().unwrap_or_default());
    let help = "The version of Kubernetes whose API the server has; always 1.";
    let options = prometheus::Opts::new("kubernetes_build_info", help);
    let build = prometheus::IntGaugeVec::new(options, &labels)?;
    build.get_metric_with_label_values(&values)?.set(1);
    page.add(&build);
    page.process()?;
    page.encode()
}

/// Returns the page of health checks.
pub(crate) fn checks_page(server: &ServerMetrics) -> prometheus::Result<String> {
    let mut page = Exposition::new();
    server.add_checks(&mut page);
    page.process()?;
    page.encode()
}
