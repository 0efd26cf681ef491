//! The metrics of a cache for Prometheus, under the names of kube-apiserver.

use std::collections::HashMap;
use std::fmt;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use super::{HistogramSnapshot, ResourceMetrics};
use crate::cache::WatchCache;

/// The metrics of all resources of a cache, to register in a `prometheus::Registry`. Created by
/// [`WatchCache::collector`].
///
/// Metrics that kube-apiserver has too have its names; their labels are `group` and `resource`, and
/// sometimes `version` or others. Further ones begin with `revstore_watch_cache_`. The metrics of a
/// resource end when it is removed. Metrics of requests, such as `apiserver_request_total` and
/// `apiserver_longrunning_requests`, are left to the server that receives them.
///
/// ```
/// use std::sync::Arc;
/// use prometheus::{Registry, TextEncoder};
/// use revstore_engine::Engine;
/// use revstore_watch_cache::{EngineSource, JsonKind, ResourceConfig, WatchCache};
///
/// let source = EngineSource::new(Engine::builder().build());
/// let (cache, _feeder) = WatchCache::builder(Arc::new(source)).build();
/// cache.add(ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/pods"))?;
/// let registry = Registry::new();
/// registry.register(Box::new(cache.collector()))?;
/// let text = TextEncoder::new().encode_to_string(&registry.gather())?;
/// assert!(text.contains("apiserver_init_events_total{group=\"\",resource=\"pods\"} 0"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// WC-701, WC-702.
#[derive(Clone)]
pub struct MetricsCollector {
    cache: WatchCache,
    descriptions: Vec<Desc>,
}

impl fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsCollector").finish_non_exhaustive()
    }
}

/// A metric: its name, its description, its labels besides group and resource, and its values, each with
/// a value of the further label.
struct Definition {
    name: &'static str,
    help: &'static str,
    /// `version`, or nothing.
    version: &'static [&'static str],
    /// The further label, or nothing.
    label: &'static [&'static str],
    read: fn(&ResourceMetrics) -> Vec<(&'static str, Sample)>,
}

/// A value of a metric.
enum Sample {
    Counter(u64),
    Gauge(f64),
    Histogram(HistogramSnapshot),
}

impl Sample {
    fn metric_type(&self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::COUNTER,
            Self::Gauge(_) => MetricType::GAUGE,
            Self::Histogram(_) => MetricType::HISTOGRAM,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "f64 is exact below 2^53")]
    fn gauge(value: u64) -> Self {
        Self::Gauge(value as f64)
    }
}

/// Defines metrics, one on each line: type, name, description, value.
macro_rules! definitions {
    ($($kind:ident $name:literal $($version:ident)? $([$label:literal])?: $help:literal,
        |$metrics:ident| { $($value:literal => $read:expr),+ $(,)? };)*) => {
        &[$(Definition {
            name: $name,
            help: $help,
            version: &[$(stringify!($version))?],
            label: &[$($label)?],
            read: |$metrics| vec![$(($value, definitions!(@$kind $read))),+],
        }),*]
    };
    (@counter $read:expr) => { Sample::Counter($read) };
    (@gauge $read:expr) => { Sample::gauge($read) };
    (@histogram $read:expr) => { Sample::Histogram($read.clone()) };
}

static DEFINITIONS: &[Definition] = definitions! {
    counter "apiserver_cache_list_fetched_objects_total": "Objects examined for lists.",
        |m| { "" => m.list_objects_fetched };
    counter "apiserver_cache_list_returned_objects_total": "Objects returned by lists.",
        |m| { "" => m.list_objects_returned };
    counter "apiserver_cache_list_total" ["index"]: "Lists answered from the cache.",
        |m| { "" => m.lists.saturating_sub(m.lists_by_index), "indexed" => m.lists_by_index };
    counter "apiserver_init_events_total": "Current objects sent at the start of watches.",
        |m| { "" => m.init_events };
    gauge "apiserver_resource_objects": "Objects.",
        |m| { "" => m.objects };
    gauge "apiserver_resource_size_estimate_bytes": "Size of the keys and values of the objects.",
        |m| { "" => m.object_bytes };
    counter "apiserver_storage_consistency_checks_total" ["status"]:
        "Comparisons of the cache with its source.",
        |m| {
            "success" => m.consistency_checks_passed,
            "failure" => m.consistency_checks_failed,
            "error" => m.consistency_checks_aborted,
        };
    counter "apiserver_terminated_watchers_total": "Watches that ended because they were too slow.",
        |m| { "" => m.terminated_watchers };
    counter "apiserver_watch_cache_consistent_read_total" ["fallback"]:
        "Consistent lists, by whether the source had to answer.",
        |m| { "false" => m.consistent_reads, "true" => m.consistent_read_fallbacks };
    counter "apiserver_watch_cache_events_dispatched_total": "Events that have woken a watch.",
        |m| { "" => m.events_dispatched };
    counter "apiserver_watch_cache_events_received_total": "Changes received from the source.",
        |m| { "" => m.events_received };
    histogram "apiserver_watch_cache_initialization_duration_seconds": "Duration of loads.",
        |m| { "" => m.initialization_seconds };
    counter "apiserver_watch_cache_initialization_errors_total": "Failed loads.",
        |m| { "" => m.initialization_errors };
    counter "apiserver_watch_cache_initializations_total": "Completed loads.",
        |m| { "" => m.initializations };
    histogram "apiserver_watch_cache_read_wait_seconds": "Time that requests waited for a revision.",
        |m| { "" => m.read_wait_seconds };
    gauge "apiserver_watch_cache_resource_version": "Revision up to which the cache is complete.",
        |m| { "" => m.resource_version };
    histogram "apiserver_watch_events_dispatch_duration_seconds" ["stage"]:
        "Time from the arrival of events to watches.",
        |m| {
            "storage_to_cache" => m.storage_to_cache_seconds,
            "cache_to_watcher" => m.cache_to_watcher_seconds,
            "total" => m.arrival_to_watcher_seconds,
        };
    histogram "apiserver_watch_events_sizes" version: "Sizes of encoded events in bytes.",
        |m| { "" => m.event_bytes };
    counter "apiserver_watch_events_total" version: "Events sent to watches, without bookmarks.",
        |m| { "" => m.events_sent };
    histogram "apiserver_watch_list_duration_seconds" version:
        "Time until all current objects of a watch were sent.",
        |m| { "" => m.watch_list_seconds };
    counter "revstore_watch_cache_bookmarks_sent_total": "Bookmarks sent to watches.",
        |m| { "" => m.bookmarks_sent };
    gauge "revstore_watch_cache_checkpoints": "Checkpoints for lists at older revisions.",
        |m| { "" => m.checkpoints };
    counter "revstore_watch_cache_events_encoded_total": "Events encoded.",
        |m| { "" => m.events_encoded };
    counter "revstore_watch_cache_events_filtered_out_total":
        "Events that a woken watch examined and that did not match.",
        |m| { "" => m.events_filtered_out };
    counter "revstore_watch_cache_expired_total" ["cause"]: "Errors 410.",
        |m| {
            "compaction" => m.expired_compaction,
            "future" => m.expired_future,
            "replaced" => m.expired_replaced,
            "window" => m.expired_window,
        };
    counter "revstore_watch_cache_lists_from_source_total": "Lists answered by the source.",
        |m| { "" => m.lists_from_source };
    gauge "revstore_watch_cache_oldest_event_age_milliseconds": "Age of the oldest event kept.",
        |m| { "" => m.oldest_event_age_ms };
    gauge "revstore_watch_cache_oldest_watchable_resource_version":
        "Oldest revision of which a new watch gets the events.",
        |m| { "" => m.oldest_watchable };
    counter "revstore_watch_cache_replacements_total": "Detected replacements of the store.",
        |m| { "" => m.replacements };
    gauge "revstore_watch_cache_watcher_lag_events" ["quantile"]: "Events by which watches lag.",
        |m| { "0.99" => m.watcher_lag_p99, "1" => m.watcher_lag_max };
    gauge "revstore_watch_cache_watchers": "Open watches.",
        |m| { "" => m.watchers };
    counter "revstore_watch_cache_watchers_examined_total":
        "Sum over all events of the watches that were looked at to find those to wake.",
        |m| { "" => m.watchers_examined };
    counter "revstore_watch_cache_watchers_woken_total":
        "Sum over all events of the watches that were woken.",
        |m| { "" => m.watchers_woken };
    gauge "revstore_watch_cache_window_bytes": "Size of the events kept, with their encodings.",
        |m| { "" => m.window_bytes };
    gauge "revstore_watch_cache_window_events": "Events kept.",
        |m| { "" => m.window_events };
    counter "revstore_watch_cache_written_bytes_total": "Bytes encoded for clients.",
        |m| { "" => m.bytes_written };
    gauge "watch_cache_capacity": "Events that fit without a reallocation.",
        |m| { "" => m.window_capacity };
    counter "watch_cache_capacity_decrease_total": "Reductions of the capacity.",
        |m| { "" => m.capacity_decreases };
    counter "watch_cache_capacity_increase_total": "Increases of the capacity.",
        |m| { "" => m.capacity_increases };
};

impl Definition {
    fn labels(&self) -> impl Iterator<Item = &'static str> {
        // A label of `consistent_read_total` that has one value only.
        let success = self.label.contains(&"fallback").then_some("success");
        let labels = ["group", "resource"].into_iter();
        let labels = labels.chain(self.version.iter().copied());
        labels.chain(success).chain(self.label.iter().copied())
    }
}

impl MetricsCollector {
    pub(crate) fn new(cache: WatchCache) -> Self {
        let describe = |definition: &Definition| {
            let labels = definition.labels().map(str::to_owned).collect();
            let (name, help) = (definition.name.to_owned(), definition.help.to_owned());
            Desc::new(name, help, labels, HashMap::new()).expect("names and labels are valid")
        };
        Self {
            cache,
            descriptions: DEFINITIONS.iter().map(describe).collect(),
        }
    }
}

impl Collector for MetricsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let resources = self.cache.resources();
        let resources: Vec<_> = resources
            .iter()
            .map(|resource| (resource, resource.metrics()))
            .collect();
        let family = |definition: &Definition| {
            let mut metrics = Vec::new();
            let mut metric_type = MetricType::UNTYPED;
            for (resource, read) in &resources {
                for (value, sample) in (definition.read)(read) {
                    let name = resource.name();
                    let labels = definition.labels().map(|label| {
                        let value = match label {
                            "group" => &name.group,
                            "resource" => &name.plural,
                            "version" => resource.version(),
                            "success" => "true",
                            _ => value,
                        };
                        label_pair(label, value)
                    });
                    metric_type = sample.metric_type();
                    metrics.push(metric(labels.collect(), sample));
                }
            }
            let mut family = MetricFamily::default();
            family.set_name(definition.name.to_owned());
            family.set_help(definition.help.to_owned());
            family.set_field_type(metric_type);
            family.set_metric(metrics);
            family
        };
        let families = DEFINITIONS.iter().map(family);
        // A family without metrics cannot be encoded.
        families
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

fn label_pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

#[expect(clippy::cast_precision_loss, reason = "f64 is exact below 2^53")]
fn metric(labels: Vec<LabelPair>, sample: Sample) -> Metric {
    let mut metric = Metric::from_label(labels);
    match sample {
        Sample::Counter(value) => {
            let mut counter = Counter::default();
            counter.set_value(value as f64);
            metric.set_counter(counter);
        }
        Sample::Gauge(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        Sample::Histogram(snapshot) => {
            let mut histogram = Histogram::default();
            histogram.set_sample_count(snapshot.count);
            histogram.set_sample_sum(snapshot.sum);
            let bucket = |(bound, count): (f64, u64)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                bucket
            };
            histogram.set_bucket(snapshot.buckets.into_iter().map(bucket).collect());
            metric.set_histogram(histogram);
        }
    }
    metric
}
