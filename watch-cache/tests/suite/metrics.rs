//! Metrics of the cache (docs/watch-cache.md, section H).

use std::time::Duration;

use pollster::block_on;
use revstore_watch_cache::{ListOptions, Scope, WatchOptions};

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
