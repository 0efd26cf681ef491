//! Metrics of a server beside those of its requests: users, admission, controllers and health checks.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use revstore_host::metrics::Exposition;
use revstore_host::metrics::prometheus::core::{Collector, Desc};
use revstore_host::metrics::prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramValue, LabelPair, Metric, MetricFamily,
    MetricType,
};
use revstore_host::metrics::prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Result,
};
use revstore_reflector::metrics::HistogramSnapshot;
use revstore_reflector::work_queue::WorkQueueMetrics;

/// The buckets of the durations of authentication and authorization in seconds: those of kube-apiserver.
const ACCESS_DURATIONS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];
/// The buckets of the durations of admission in seconds, likewise.
const ADMISSION_DURATIONS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// The users with metrics of their own. Others are counted together.
const USERS: [&str; 5] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
];

/// The metrics of a server.
pub(crate) struct ServerMetrics {
    /// With a user, and without a valid one.
    authenticated: [Attempts; 2],
    /// Those in [`USERS`], those with an address of mail, and others.
    users: [IntCounter; USERS.len() + 2],
    /// Allowed, and not.
    authorized: [Attempts; 2],
    decisions: [IntCounter; 2],
    steps: HistogramVec,
    plugins: HistogramVec,
    pod_security: IntCounterVec,
    checks: IntGaugeVec,
    checks_total: IntCounterVec,
    families: Families,
    /// The queues of the controllers that run, by their names. A leaf lock, held to add one or to read all.
    queues: Mutex<Vec<(String, ReadQueue)>>,
}

type ReadQueue = Box<dyn Fn() -> WorkQueueMetrics + Send>;

/// What the counters of attempts and users belong to.
struct Families {
    attempts: [IntCounterVec; 2],
    durations: [HistogramVec; 2],
    users: IntCounterVec,
    decisions: IntCounterVec,
}

/// The attempts with one result.
struct Attempts {
    count: IntCounter,
    duration: Histogram,
}

impl Attempts {
    fn observe(&self, elapsed: Duration) {
        self.count.inc();
        self.duration.observe(elapsed.as_secs_f64());
    }
}

/// How an evaluation of a policy for pods is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evaluation<'a> {
    pub(crate) is_allowed: bool,
    pub(crate) level: &'a str,
    pub(crate) version: &'a str,
    pub(crate) mode: &'a str,
    pub(crate) operation: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
}

impl ServerMetrics {
    pub(crate) fn new() -> Result<Self> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            HistogramVec::new(options, labels)
        };
        let of_results =
            |name: &str, help: &str| histogram(name, help, &ACCESS_DURATIONS, &["result"]);
        let families = Families {
            attempts: [
                counter("authentication_attempts", "Authentications.", &["result"])?,
                counter(
                    "authorization_attempts_total",
                    "Authorizations.",
                    &["result"],
                )?,
            ],
            durations: [
                of_results(
                    "authentication_duration_seconds",
                    "Duration of authentications.",
                )?,
                of_results(
                    "authorization_duration_seconds",
                    "Duration of authorizations.",
                )?,
            ],
            users: counter(
                "authenticated_user_requests",
                "Requests of authenticated users.",
                &["username"],
            )?,
            decisions: counter(
                "apiserver_authorization_decisions_total",
                "Requests that an authorizer has allowed.",
                &["decision", "name", "type"],
            )?,
        };
        let attempts = |family: usize, result: &str| Attempts {
            count: families.attempts[family].with_label_values(&[result]),
            duration: families.durations[family].with_label_values(&[result]),
        };
        let mut users = USERS.into_iter().chain(["email_id", "other"]);
        let users = std::array::from_fn(|_| {
            let user = users.next().unwrap_or_default();
            families.users.with_label_values(&[user])
        });
        Ok(Self {
            authenticated: [attempts(0, "success"), attempts(0, "error")],
            users,
            authorized: [attempts(1, "allowed"), attempts(1, "no-opinion")],
            decisions: [("rbac", "RBAC"), ("alwaysallow", "AlwaysAllow")].map(|(name, mode)| {
                let values = ["allowed", name, mode];
                families.decisions.with_label_values(&values)
            }),
            families,
            steps: histogram(
                "apiserver_admission_step_admission_duration_seconds",
                "Duration of the phases of admission.",
                &ADMISSION_DURATIONS,
                &["operation", "rejected", "type"],
            )?,
            plugins: histogram(
                "apiserver_admission_controller_admission_duration_seconds",
                "Duration of admission plugins.",
                &ADMISSION_DURATIONS,
                &["name", "operation", "rejected", "type"],
            )?,
            pod_security: counter(
                "pod_security_evaluations_total",
                "Evaluations of policies for pods.",
                &[
                    "decision",
                    "mode",
                    "policy_level",
                    "policy_version",
                    "request_operation",
                    "resource",
                    "subresource",
                ],
            )?,
            checks: IntGaugeVec::new(
                Opts::new(
                    "kubernetes_healthcheck",
                    "Whether a health check has succeeded.",
                ),
                &["name", "type"],
            )?,
            checks_total: counter(
                "kubernetes_healthchecks_total",
                "Health checks.",
                &["name", "status", "type"],
            )?,
            queues: Mutex::default(),
        })
    }

    /// Counts an authentication; `user` is the name of the user, if there is one.
    pub(crate) fn authenticated(&self, user: Option<&str>, elapsed: Duration) {
        self.authenticated[usize::from(user.is_none())].observe(elapsed);
        if let Some(user) = user {
            let known = USERS.iter().position(|known| *known == user);
            let other = USERS.len() + usize::from(!user.contains('@'));
            self.users[known.unwrap_or(other)].inc();
        }
    }

    /// Counts an authorization. `by_roles` says whether roles have decided, if an authorizer has.
    pub(crate) fn authorized(&self, is_allowed: bool, by_roles: Option<bool>, elapsed: Duration) {
        self.authorized[usize::from(!is_allowed)].observe(elapsed);
        if let Some(by_roles) = by_roles.filter(|_| is_allowed) {
            self.decisions[usize::from(!by_roles)].inc();
        }
    }

    /// Counts a phase of admission: of a plugin, or of all of them.
    pub(crate) fn admitted(
        &self,
        plugin: Option<&str>,
        (operation, kind): (&str, &str),
        is_rejected: bool,
        elapsed: Duration,
    ) {
        let rejected = if is_rejected { "true" } else { "false" };
        let histogram = match plugin {
            Some(name) => self
                .plugins
                .with_label_values(&[name, operation, rejected, kind]),
            None => self.steps.with_label_values(&[operation, rejected, kind]),
        };
        histogram.observe(elapsed.as_secs_f64());
    }

    /// Counts an evaluation of a policy for pods.
    pub(crate) fn evaluated(&self, evaluation: Evaluation<'_>) {
        let decision = if evaluation.is_allowed {
            "allow"
        } else {
            "deny"
        };
        let values = [
            decision,
            evaluation.mode,
            evaluation.level,
            evaluation.version,
            evaluation.operation,
            evaluation.resource,
            evaluation.subresource,
        ];
        self.pod_security.with_label_values(&values).inc();
    }

    /// Counts a health check.
    pub(crate) fn checked(&self, path: &str, name: &str, is_healthy: bool) {
        let status = if is_healthy { "success" } else { "error" };
        let gauge = self.checks.with_label_values(&[name, path]);
        gauge.set(is_healthy.into());
        self.checks_total
            .with_label_values(&[name, status, path])
            .inc();
    }

    /// Adds the queue of a controller.
    pub(crate) fn add_queue(
        &self,
        name: &str,
        read: impl Fn() -> WorkQueueMetrics + Send + 'static,
    ) {
        self.queues.lock().push((name.to_owned(), Box::new(read)));
    }

    /// Adds the metrics to a page.
    pub(crate) fn add(&self, page: &mut Exposition) {
        let families = &self.families;
        for attempts in &families.attempts {
            page.add(attempts);
        }
        for durations in &families.durations {
            page.add(durations);
        }
        page.add(&families.users);
        page.add(&families.decisions);
        page.add(&self.steps);
        page.add(&self.plugins);
        page.add(&self.pod_security);
        page.add(&Queues(self.queues()));
    }

    /// Adds the metrics of health checks to a page.
    pub(crate) fn add_checks(&self, page: &mut Exposition) {
        page.add(&self.checks);
        page.add(&self.checks_total);
    }

    fn queues(&self) -> Vec<(String, WorkQueueMetrics)> {
        let queues = self.queues.lock();
        let read = queues.iter().map(|(name, read)| (name.clone(), read()));
        read.collect()
    }
}

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMetrics").finish_non_exhaustive()
    }
}

/// The metrics of work queues, under the names of client-go.
struct Queues(Vec<(String, WorkQueueMetrics)>);

impl Queues {
    fn family(
        &self,
        (name, help, kind): (&str, &str, MetricType),
        write: impl Fn(&WorkQueueMetrics, &mut Metric),
    ) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        let metrics = self.0.iter().map(|(name, queue)| {
            let mut label = LabelPair::default();
            label.set_name("name".to_owned());
            label.set_value(name.clone());
            let mut metric = Metric::default();
            metric.set_label(vec![label]);
            write(queue, &mut metric);
            metric
        });
        family.set_metric(metrics.collect());
        family
    }
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are below 2^53")]
fn counter(metric: &mut Metric, value: u64) {
    let mut counter = Counter::default();
    counter.set_value(value as f64);
    metric.set_counter(counter);
}

fn gauge(metric: &mut Metric, value: f64) {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    metric.set_gauge(gauge);
}

fn histogram(metric: &mut Metric, snapshot: &HistogramSnapshot) {
    let mut histogram = HistogramValue::default();
    histogram.set_sample_count(snapshot.count);
    histogram.set_sample_sum(snapshot.sum);
    let buckets = snapshot.buckets.iter().map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(*count);
        bucket
    });
    histogram.set_bucket(buckets.collect());
    metric.set_histogram(histogram);
}

impl Collector for Queues {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    #[expect(clippy::cast_precision_loss, reason = "the numbers are below 2^53")]
    fn collect(&self) -> Vec<MetricFamily> {
        use MetricType::{COUNTER, GAUGE, HISTOGRAM};
        vec![
            self.family(
                ("workqueue_adds_total", "Keys that were added.", COUNTER),
                |queue, metric| counter(metric, queue.adds),
            ),
            self.family(
                ("workqueue_depth", "Keys in the queue.", GAUGE),
                |queue, metric| gauge(metric, queue.depth as f64),
            ),
            self.family(
                (
                    "workqueue_longest_running_processor_seconds",
                    "The longest time for which a key is being processed.",
                    GAUGE,
                ),
                |queue, metric| gauge(metric, queue.longest_running.as_secs_f64()),
            ),
            self.family(
                (
                    "workqueue_queue_duration_seconds",
                    "Time of keys in the queue.",
                    HISTOGRAM,
                ),
                |queue, metric| histogram(metric, &queue.queue_seconds),
            ),
            self.family(
                (
                    "workqueue_retries_total",
                    "Keys that were added after a pause.",
                    COUNTER,
                ),
                |queue, metric| counter(metric, queue.retries),
            ),
            self.family(
                (
                    "workqueue_unfinished_work_seconds",
                    "The time for which keys are being processed, in total.",
                    GAUGE,
                ),
                |queue, metric| gauge(metric, queue.unfinished.as_secs_f64()),
            ),
            self.family(
                (
                    "workqueue_work_duration_seconds",
                    "Time of the processing of keys.",
                    HISTOGRAM,
                ),
                |queue, metric| histogram(metric, &queue.work_seconds),
            ),
        ]
    }
}
