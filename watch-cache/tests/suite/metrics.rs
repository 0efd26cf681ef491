//! Metrics of the cache (docs/watch-cache.md, section H).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use prometheus::{Registry, TextEncoder};
use revstore_engine::Engine;
use revstore_watch_cache::{
    EngineSource, JsonKind, ListOptions, ResourceConfig, Scope, WatchCache, WatchOptions,
};

use crate::support::{Fixture, at, from, namespace, pod, selector};

#[test]
fn wc_701_list_metrics_count_fetched_and_returned_objects() {
    let fixture = Fixture::new();
    for number in 0..10 {
        let node = format!("n{}", number % 5);
        let key = format!("ns{}/p{number}", number % 2);
        fixture.put(&key, pod(&key, "web", &node));
    }
    fixture.wait_until_fresh();
    let counted = |scope: &Scope, options: &ListOptions| {
        let before = fixture.pods.metrics();
        fixture.list(&fixture.pods, scope, options).unwrap();
        let after = fixture.pods.metrics();
        (
            after.lists_by_index - before.lists_by_index,
            after.list_objects_fetched - before.list_objects_fetched,
            after.list_objects_returned - before.list_objects_returned,
        )
    };
    let select = |labels: &str, fields: &str| at("0").selector(selector(labels, fields));
    assert_eq!(counted(&Scope::All, &at("0")), (0, 10, 10));
    assert_eq!(counted(&Scope::All, &select("app=db", "")), (0, 10, 0));
    let on_node = select("", "spec.nodeName=n3");
    assert_eq!(counted(&Scope::All, &on_node), (1, 2, 2));
    assert_eq!(
        counted(&namespace("ns0"), &on_node),
        (1, 1, 1),
        "only the objects of the namespace"
    );
    let page = ListOptions::default().limit(3);
    assert_eq!(counted(&Scope::All, &page), (0, 3, 3));
}

#[test]
fn wc_701_and_wc_702_metrics_report_delivered_events_their_sizes_and_delays_and_lagging_watchers() {
    let fixture = Fixture::new();
    let start = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let open = |options: &WatchOptions| block_on(fixture.pods.watch(&Scope::All, options)).unwrap();
    let (mut reader, _idle) = (open(&from(start)), open(&from(start)));
    for _ in 0..3 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    let lagging = fixture.pods.metrics();
    assert_eq!(lagging.watchers, 2);
    assert_eq!((lagging.watcher_lag_max, lagging.watcher_lag_p99), (3, 3));
    fixture.clock.advance(Duration::from_millis(2));
    let mut sizes = 0;
    for _ in 0..3 {
        let event = reader.try_next().unwrap();
        sizes += reader.encode(&event).len() as u64;
    }
    let mut watch_list = open(&from("0").allow_bookmarks(true));
    assert!(watch_list.try_next().is_some() && watch_list.try_next().is_some());
    let metrics = fixture.pods.metrics();
    assert_eq!((metrics.events_received, metrics.events_sent), (4, 3));
    assert_eq!(
        (metrics.init_events, metrics.watch_list_seconds.count),
        (1, 1)
    );
    assert_eq!(
        (metrics.event_bytes.count, metrics.event_bytes.sum),
        (3, f64::from(u32::try_from(sizes).unwrap()))
    );
    assert_eq!(metrics.bytes_written, sizes);
    assert_eq!(metrics.watcher_lag_max, 3, "the idle watcher has not read");
    // The watcher copied all events at once, 2 ms after their arrival.
    for stage in [
        metrics.cache_to_watcher_seconds,
        metrics.arrival_to_watcher_seconds,
    ] {
        assert_eq!((stage.count, stage.sum), (1, 0.002));
        assert_eq!(stage.buckets[3..5], [(0.001, 0), (0.005, 1)]);
    }
    assert!(metrics.storage_to_cache_seconds.count >= 1);
    assert_eq!(
        (
            metrics.initializations,
            metrics.initialization_seconds.count
        ),
        (1, 1)
    );
}

#[test]
fn wc_701_the_metrics_of_all_resources_leave_through_one_registry() {
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let registry = Registry::new();
    registry.register(Box::new(cache.collector())).unwrap();
    let text = || {
        let encoder = TextEncoder::new();
        encoder.encode_to_string(&registry.gather()).unwrap()
    };
    assert_eq!(text(), "", "no resources");
    let running = feeder.spawn();
    let pods = JsonKind::new("v1", "Pod");
    let pods = cache.add(ResourceConfig::namespaced(pods, "pods", "/pods"));
    let sets = JsonKind::new("apps/v1", "ReplicaSet");
    let sets = cache.add(ResourceConfig::namespaced(sets, "replicasets", "/sets"));
    let (pods, sets) = (pods.unwrap(), sets.unwrap());
    block_on(pods.wait_until_ready()).unwrap();
    block_on(sets.wait_until_ready()).unwrap();
    let mut watch = block_on(pods.watch(&Scope::All, &from("1"))).unwrap();
    engine.put("/pods/ns/a", r#"{"metadata":{}}"#).unwrap();
    let event = watch.next_blocking().unwrap();
    let size = watch.encode(&event).len();
    let listed = block_on(pods.list(&Scope::All, &at("0"))).unwrap();
    assert_eq!(listed.into_objects().unwrap().len(), 1);

    let exported = text();
    let labels = r#"group="",resource="pods""#;
    for line in [
        format!("apiserver_watch_cache_events_received_total{{{labels}}} 1"),
        format!("apiserver_watch_cache_events_dispatched_total{{{labels}}} 1"),
        format!("apiserver_watch_cache_initializations_total{{{labels}}} 1"),
        format!("apiserver_watch_cache_resource_version{{{labels}}} 2"),
        format!("apiserver_cache_list_total{{{labels},index=\"\"}} 1"),
        format!("apiserver_cache_list_returned_objects_total{{{labels}}} 1"),
        format!("apiserver_resource_objects{{{labels}}} 1"),
        format!(r#"apiserver_watch_events_total{{{labels},version="v1"}} 1"#),
        format!(r#"apiserver_watch_events_sizes_sum{{{labels},version="v1"}} {size}"#),
        format!(r#"apiserver_watch_events_sizes_bucket{{{labels},version="v1",le="1024"}} 1"#),
        format!(r#"apiserver_watch_events_sizes_bucket{{{labels},version="v1",le="+Inf"}} 1"#),
        format!(
            r#"apiserver_watch_events_dispatch_duration_seconds_count{{{labels},stage="total"}} 1"#
        ),
        format!(
            "apiserver_watch_cache_consistent_read_total\
             {{{labels},success=\"true\",fallback=\"false\"}} 0"
        ),
        format!("revstore_watch_cache_watchers{{{labels}}} 1"),
        r#"apiserver_resource_objects{group="apps",resource="replicasets"} 0"#.to_owned(),
    ] {
        assert!(
            exported.lines().any(|found| found == line),
            "{line}\n{exported}"
        );
    }
    let series = exported.lines().filter(|line| !line.starts_with('#'));
    let series: Vec<_> = series.filter_map(|line| line.rsplit_once(' ')).collect();
    let names: BTreeSet<_> = series.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), series.len(), "no series twice");

    assert!(block_on(cache.remove(&sets)));
    assert!(!text().contains("replicasets"));
    drop(running);
}
