//! The metrics of gRPC calls that `--metrics=extensive` adds: the times of calls and executions, and the versions of
//! clients.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderMap;
use parking_lot::Mutex;
use revstore_grpc::{ApplyObserver, ApplyOp, RpcMethod};
use revstore_host::metrics::prometheus::{
    Histogram, HistogramOpts, HistogramVec, Result, exponential_buckets,
};

/// The number of versions of clients that are counted apart. Clients can send any text.
const CLIENT_VERSIONS_MAX: usize = 64;

/// The length of a version that is counted apart.
const VERSION_BYTES_MAX: usize = 64;

/// The version of a client that sends none, and of further ones.
const UNKNOWN: &str = "unknown";

/// The name of the versions beyond the limits.
const OTHER: &str = "other";

/// The calls by the version in their metadata `client-api-version`.
#[derive(Debug, Default)]
pub(crate) struct ClientVersions {
    /// The numbers of unary and other calls. A leaf lock, held for one look-up.
    counts: Mutex<BTreeMap<Box<str>, [u64; 2]>>,
}

impl ClientVersions {
    /// Counts a call.
    pub(super) fn count(&self, headers: &HeaderMap, is_unary: bool) {
        let version = headers.get("client-api-version");
        let version = version.map_or(Some(UNKNOWN), |version| version.to_str().ok());
        let version = version.filter(|version| version.len() <= VERSION_BYTES_MAX);
        let mut counts = self.counts.lock();
        let known = version
            .filter(|version| counts.contains_key(*version) || counts.len() < CLIENT_VERSIONS_MAX);
        let version = known.unwrap_or(OTHER);
        let kind = usize::from(!is_unary);
        if let Some(count) = counts.get_mut(version) {
            count[kind] += 1;
        } else {
            let mut count = [0; 2];
            count[kind] = 1;
            counts.insert(version.into(), count);
        }
    }

    /// Returns the versions, each with the numbers of unary and other calls.
    pub(crate) fn counts(&self) -> Vec<(Box<str>, [u64; 2])> {
        let counts = self.counts.lock();
        counts
            .iter()
            .map(|(version, count)| (version.clone(), *count))
            .collect()
    }
}

/// Returns the histogram of the times of a method, with the buckets and labels of grpc-go's library.
pub(super) fn handling(method: &RpcMethod) -> Result<Histogram> {
    let options = HistogramOpts::new(
        "grpc_server_handling_seconds",
        "Time from the start of a call to its end, in seconds.",
    );
    Histogram::with_opts(
        options
            .const_label("grpc_type", method.kind().as_str())
            .const_label("grpc_service", method.service())
            .const_label("grpc_method", method.name()),
    )
}

/// The times of executions.
#[derive(Clone, Debug)]
pub(crate) struct ApplyTimes {
    /// By kind, of failures and of successes, in the order of [`ApplyOp::ALL`].
    histograms: Vec<[Histogram; 2]>,
    family: HistogramVec,
}

impl ApplyTimes {
    pub(crate) fn new() -> Result<Self> {
        let options = HistogramOpts::new(
            "etcd_server_apply_duration_seconds",
            "Time of the execution of writes, in seconds.",
        );
        let options = options.buckets(exponential_buckets(0.0001, 2.0, 20)?);
        let family = HistogramVec::new(options, &["version", "op", "success"])?;
        let of = |op: ApplyOp, success: &str| {
            family.get_metric_with_label_values(&["v3", op.as_str(), success])
        };
        let histograms = ApplyOp::ALL.map(|op| Ok([of(op, "false")?, of(op, "true")?]));
        Ok(Self {
            histograms: histograms.into_iter().collect::<Result<_>>()?,
            family,
        })
    }

    /// Returns all histograms.
    pub(crate) fn family(&self) -> &HistogramVec {
        &self.family
    }
}

impl ApplyObserver for ApplyTimes {
    fn observe(&self, op: ApplyOp, succeeded: bool, took: Duration) {
        let position = ApplyOp::ALL.iter().position(|it| *it == op);
        if let Some(histograms) = position.and_then(|position| self.histograms.get(position)) {
            histograms[usize::from(succeeded)].observe(took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_add_any_number_of_versions() {
        let versions = ClientVersions::default();
        let count = |version: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("client-api-version", version.parse().unwrap());
            versions.count(&headers, true);
        };
        versions.count(&HeaderMap::new(), false);
        for number in 0..1_000 {
            count(&format!("3.5.{number}"));
        }
        count(&"x".repeat(10_000));
        let counts = versions.counts();
        assert_eq!(counts.len(), CLIENT_VERSIONS_MAX + 1);
        let sum: u64 = counts.iter().map(|(_, count)| count[0] + count[1]).sum();
        assert_eq!(sum, 1_002);
        assert!(counts.contains(&(UNKNOWN.into(), [0, 1])));
    }
}
