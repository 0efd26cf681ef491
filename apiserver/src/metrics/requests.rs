//! Requests by resource and verb.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use http::{Method, StatusCode};
use parking_lot::RwLock;
use revstore_host::metrics::Exposition;
use revstore_host::metrics::prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Result,
};

use crate::http::{RequestInfo, Target};

/// The buckets of durations in seconds: those of kube-apiserver, and the first of the indicator of its service level.
const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
const FIRST_SLI_DURATION: usize = 2;

/// The buckets of sizes in bytes.
const SIZES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// The maximum number of resources, subresources, scopes and verbs that have metrics of their own. The requests of
/// further ones, of many custom resources, are counted without names.
const SERIES_MAX: usize = 20_000;

/// The labels of all requests.
const LABELS: [&str; 7] = [
    "component",
    "group",
    "resource",
    "scope",
    "subresource",
    "verb",
    "version",
];

/// The metrics of requests. Counting one looks its labels up by their texts, which are not copied.
pub(crate) struct Requests {
    total: IntCounterVec,
    durations: HistogramVec,
    sli_durations: HistogramVec,
    sizes: HistogramVec,
    terminations: IntCounterVec,
    longrunning: IntGaugeVec,
    mutating: IntGauge,
    reading: IntGauge,
    inflight: IntGaugeVec,
    /// The hashes of the labels that have metrics. At most [`SERIES_MAX`].
    series: RwLock<HashSet<u64>>,
}

/// The values of the labels of a request.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub(crate) struct Labels<'a> {
    component: &'static str,
    dry_run: &'static str,
    group: &'a str,
    resource: &'a str,
    scope: &'static str,
    subresource: &'a str,
    verb: &'static str,
    version: &'a str,
}

impl<'a> Labels<'a> {
    /// Returns the labels of a request. Only a resource and a subresource that exist are labels, so that clients cannot
    /// make up more of them.
    pub(crate) fn new(
        info: &'a RequestInfo,
        method: &Method,
        is_known: bool,
        is_apply: bool,
        is_dry_run: bool,
    ) -> Self {
        let dry_run = if is_dry_run { "All" } else { "" };
        match &info.target {
            Some(target) if is_known => Self {
                component: "apiserver",
                dry_run,
                group: &target.group,
                resource: &target.resource,
                scope: scope(target, info.verb),
                subresource: &target.subresource,
                verb: resource_verb(info.verb, target, is_apply),
                version: &target.version,
            },
            _ => Self {
                subresource: path(&info.path),
                verb: method_verb(method),
                dry_run,
                ..Self::default()
            },
        }
    }

    fn values(&self) -> [&'a str; 7] {
        [
            self.component,
            self.group,
            self.resource,
            self.scope,
            self.subresource,
            self.verb,
            self.version,
        ]
    }

    /// Returns the values of [`LABELS`], and those of further labels.
    fn values_and<'b, const MORE: usize, const ALL: usize>(
        &self,
        more: [&'b str; MORE],
    ) -> [&'b str; ALL]
    where
        'a: 'b,
    {
        const { assert!(ALL == LABELS.len() + MORE, "each label has a value") };
        let mut values = self.values().into_iter().chain(more);
        std::array::from_fn(|_| values.next().unwrap_or_default())
    }
}

/// Returns the label of a path that is not one of a resource: the first words of those that the server has.
fn path(path: &str) -> &'static str {
    const PATHS: [&str; 11] = [
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
        "/apis",
        "/api",
        "/openid/v1/jwks",
        "/.well-known/openid-configuration",
    ];
    let is_below = |known: &&&str| {
        path.strip_prefix(**known)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match PATHS.iter().find(is_below).copied() {
        // Without the slash, as in kube-apiserver.
        Some("/openapi/v2") => "openapi/v2",
        Some("/openapi/v3") => "openapi/v3",
        known => known.unwrap_or_default(),
    }
}

fn scope(target: &Target, verb: &str) -> &'static str {
    if !target.name.is_empty() || !target.selected_name.is_empty() || verb == "create" {
        "resource"
    } else if target.namespace.is_empty() {
        "cluster"
    } else {
        "namespace"
    }
}

fn resource_verb(verb: &str, target: &Target, is_apply: bool) -> &'static str {
    if ["exec", "attach", "portforward", "proxy", "log"].contains(&&*target.subresource) {
        return "CONNECT";
    }
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" if is_apply => "APPLY",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

impl Requests {
    pub(crate) fn new() -> Result<Self> {
        let with = |more: &[&'static str]| {
            let mut names = LABELS.to_vec();
            names.extend(more);
            names
        };
        let counter = |name: &str, help: &str, more: &[&'static str]| {
            IntCounterVec::new(Opts::new(name, help), &with(more))
        };
        let histogram = |name: &str, help: &str, buckets: &[f64], more: &[&'static str]| {
            HistogramVec::new(
                HistogramOpts::new(name, help).buckets(buckets.to_vec()),
                &with(more),
            )
        };
        let inflight = IntGaugeVec::new(
            Opts::new(
                "apiserver_current_inflight_requests",
                "Requests that run, without watches.",
            ),
            &["request_kind"],
        )?;
        Ok(Self {
            total: counter(
                "apiserver_request_total",
                "Requests.",
                &["code", "dry_run", "system_client"],
            )?,
            durations: histogram(
                "apiserver_request_duration_seconds",
                "Duration of requests.",
                &DURATIONS,
                &["dry_run"],
            )?,
            sli_durations: histogram(
                "apiserver_request_sli_duration_seconds",
                "Duration of requests. Nothing in them is outside the server.",
                &DURATIONS[FIRST_SLI_DURATION..],
                &[],
            )?,
            sizes: histogram(
                "apiserver_response_sizes",
                "Sizes of responses in bytes.",
                &SIZES,
                &[],
            )?,
            terminations: counter(
                "apiserver_request_terminations_total",
                "Requests that the server gave up.",
                &["code"],
            )?,
            longrunning: IntGaugeVec::new(
                Opts::new("apiserver_longrunning_requests", "Watches."),
                &LABELS,
            )?,
            mutating: inflight.get_metric_with_label_values(&["mutating"])?,
            reading: inflight.get_metric_with_label_values(&["readOnly"])?,
            inflight,
            series: RwLock::default(),
        })
    }

    /// Returns the labels, or those without names if there are too many already.
    fn bounded<'a>(&self, labels: &Labels<'a>) -> Labels<'a> {
        let mut hasher = DefaultHasher::new();
        labels.hash(&mut hasher);
        let hash = hasher.finish();
        if self.series.read().contains(&hash) {
            return *labels;
        }
        let mut series = self.series.write();
        if series.len() < SERIES_MAX {
            series.insert(hash);
            return *labels;
        }
        Labels {
            group: "",
            resource: "",
            subresource: "",
            version: "",
            ..*labels
        }
    }

    /// Counts a request as running until the returned value is dropped.
    pub(crate) fn start(&self, is_mutating: bool) -> Running {
        Running::new(if is_mutating {
            &self.mutating
        } else {
            &self.reading
        })
    }

    /// Counts a watch as running until the returned value is dropped.
    pub(crate) fn start_watch(&self, labels: &Labels<'_>) -> Option<Running> {
        let labels = self.bounded(labels);
        let gauge = self
            .longrunning
            .get_metric_with_label_values(&labels.values());
        gauge.ok().map(|gauge| Running::new(&gauge))
    }

    /// Counts an answer. Its duration and its size are those at the time at which the returned value is dropped.
    pub(crate) fn answer(
        &self,
        labels: &Labels<'_>,
        status: StatusCode,
        started: Instant,
    ) -> Recording {
        let labels = self.bounded(labels);
        let dry_run = labels.dry_run;
        // kube-apiserver does not see the status of a WebSocket.
        let code = if status == StatusCode::SWITCHING_PROTOCOLS {
            "0"
        } else {
            status.as_str()
        };
        let values: [_; 10] = labels.values_and([code, dry_run, ""]);
        if let Ok(total) = self.total.get_metric_with_label_values(&values) {
            total.inc();
        }
        let with_dry_run: [_; 8] = labels.values_and([dry_run]);
        let values = labels.values();
        let of = |metrics: &HistogramVec| metrics.get_metric_with_label_values(&values).ok();
        Recording {
            started,
            bytes: 0,
            duration: self
                .durations
                .get_metric_with_label_values(&with_dry_run)
                .ok(),
            sli_duration: of(&self.sli_durations),
            size: ["GET", "LIST"]
                .contains(&labels.verb)
                .then(|| of(&self.sizes))
                .flatten(),
        }
    }

    /// Counts a request that was refused because of too many others. Its path is no label.
    pub(crate) fn dropped(&self, labels: &Labels<'_>) {
        let is_resource = !labels.resource.is_empty();
        let labels = self.bounded(&Labels {
            component: "apiserver",
            subresource: if is_resource { labels.subresource } else { "" },
            ..*labels
        });
        let code = StatusCode::TOO_MANY_REQUESTS;
        let values: [_; 10] = labels.values_and([code.as_str(), labels.dry_run, ""]);
        if let Ok(total) = self.total.get_metric_with_label_values(&values) {
            total.inc();
        }
    }

    /// Counts a request that has run into its time limit.
    pub(crate) fn terminated(&self, labels: &Labels<'_>, status: StatusCode) {
        let labels = self.bounded(labels);
        let values: [_; 8] = labels.values_and([status.as_str()]);
        if let Ok(total) = self.terminations.get_metric_with_label_values(&values) {
            total.inc();
        }
    }

    /// Adds the metrics to a page.
    pub(crate) fn add(&self, page: &mut Exposition) {
        page.add(&self.total);
        page.add(&self.durations);
        page.add(&self.sli_durations);
        page.add(&self.sizes);
        page.add(&self.terminations);
        page.add(&self.longrunning);
        page.add(&self.inflight);
    }
}

/// A request that runs.
#[derive(Debug)]
pub(crate) struct Running(IntGauge);

impl Running {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The answer to a request, which is recorded when it ends.
#[derive(Debug)]
pub(crate) struct Recording {
    started: Instant,
    /// The bytes of the body that were sent.
    pub(crate) bytes: usize,
    duration: Option<Histogram>,
    sli_duration: Option<Histogram>,
    size: Option<Histogram>,
}

impl Drop for Recording {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        for histogram in [&self.duration, &self.sli_duration].into_iter().flatten() {
            histogram.observe(seconds);
        }
        if let Some(size) = &self.size {
            #[expect(clippy::cast_precision_loss, reason = "sizes are below 2^53")]
            size.observe(self.bytes as f64);
        }
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}
