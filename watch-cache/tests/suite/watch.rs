//! T-24 to T-36, T-43, T-45, T-53, T-55: watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;
use std::time::Duration;

use futures_core::future::BoxFuture;
use pollster::block_on;
use revstore_watch_cache::api::DeleteOptions;
use revstore_watch_cache::cache::WindowLimits;
use revstore_watch_cache::source::{
    Batch, BatchStream, Change, ConditionalWrite, ListPage, ListRequest, RawStore, Source,
    SourceError, StoredKeyValue, WatchRequest, WriteOutcome,
};
use revstore_watch_cache::{EventType, ListOptions, Revision, Scope, WatchEvent, WatchOptions};

use crate::support::{
    Fixture, PODS, Side, config, from, namespace, object, on_both, pod, selector, short_window,
};

fn select(options: WatchOptions, labels: &str, fields: &str) -> WatchOptions {
    options.selector(selector(labels, fields))
}

#[test]
fn t_24_an_object_that_enters_a_selector_is_added_and_one_that_leaves_is_deleted() {
    on_both(|fixture, store, _| {
        fixture.put_elsewhere();
        for scope in [namespace("ns"), Scope::Object(object("ns/a"))] {
            fixture.wait_until_fresh();
            let start = fixture.current();
            let mut events = fixture.watch(store, &scope, &select(from(start), "app=web", ""));
            let write = |app: &str| fixture.put("ns/a", pod("ns/a", app, ""));
            write("db");
            let into = write("web");
            let change = fixture.put("ns/a", pod("ns/a", "web", "n1"));
            let out = write("db");
            write("other");
            let again = write("web");
            fixture.put("ns2/a", pod("ns2/a", "web", ""));
            let deleted = fixture.delete("ns/a");
            let created = write("web");
            assert_eq!(
                events.words(6),
                [
                    format!("ADDED ns/a@{into}"),
                    format!("MODIFIED ns/a@{change}"),
                    format!("DELETED ns/a@{out}"),
                    format!("ADDED ns/a@{again}"),
                    format!("DELETED ns/a@{deleted}"),
                    // WC-352
                    format!("ADDED ns/a@{created}"),
                ]
            );
            fixture.delete("ns/a");
            events.word();
        }
    });
}

// Shows WC-106.
#[test]
fn t_24_an_object_that_leaves_the_selector_is_sent_with_its_previous_content() {
    on_both(|fixture, store, _| {
        let start = fixture.put("ns/a", pod("ns/a", "web", "n1"));
        fixture.wait_until_fresh();
        let mut events = fixture.watch(store, &Scope::All, &select(from(start), "app=web", ""));
        let out = fixture.put("ns/a", pod("ns/a", "db", "n2"));
        let Some(WatchEvent::Object { event, object, .. }) = events.next() else {
            panic!("expected an event of an object")
        };
        assert_eq!((event, object.revision().0), (EventType::Deleted, out));
        assert_eq!(
            object.label("app"),
            Some("web"),
            "previous content (WC-350)"
        );
        let line = fixture.pods.encode(&WatchEvent::Object {
            event,
            object,
            shared: revstore_watch_cache::api::SharedEncoding::default(),
        });
        let line = std::str::from_utf8(&line).unwrap();
        assert!(
            line.contains(&format!("\"resourceVersion\":\"{out}\"")),
            "{line}"
        );
    });
}

#[test]
fn t_25_watches_of_cluster_scoped_resources_select_by_name() {
    use bytes::Bytes;
    use revstore_watch_cache::api::{Storage, Update, UpdateOptions};
    use revstore_watch_cache::source::RawStore;
    use revstore_watch_cache::{JsonKind, Object, ObjectRef, ResourceConfig, WatchCache};
    let fixture = Fixture::new();
    let nodes = ResourceConfig::cluster(JsonKind::new("v1", "Node"), "nodes", "/registry/nodes");
    let clock = std::sync::Arc::new(fixture.clock.clone());
    let raw = RawStore::new(fixture.source.clone(), nodes.clone(), clock);
    let (cache, feeder) = WatchCache::builder(fixture.source.clone()).build();
    let cached = cache.add(nodes).unwrap();
    let _running = feeder.spawn();
    block_on(cached.wait_until_ready()).unwrap();
    let write = |name: &str, value: &str| {
        let (object, value) = (ObjectRef::cluster(name), Bytes::from(value.to_owned()));
        let options = UpdateOptions::default().create_if_missing(true);
        let update = Box::new(move |_: Option<&Object>| Ok(Update::new(value.clone())));
        let written = raw.guaranteed_update(&object, &options, update);
        fixture.wait(written).unwrap().revision().0
    };
    let stores: [&dyn Storage; 2] = [&raw, &cached];
    let mut watches: Vec<_> = stores
        .iter()
        .flat_map(|store| {
            let named = select(from(1), "", "metadata.name=b");
            [
                fixture.watch(*store, &Scope::All, &named),
                fixture.watch(*store, &Scope::All, &from(1)),
            ]
        })
        .collect();
    let plain = "{\"metadata\":{}}";
    let (a, b) = (write("a", plain), write("b", plain));
    let changed = "{\"metadata\":{},\"spec\":{}}";
    let (a2, b2) = (write("a", changed), write("b", changed));
    for pair in watches.chunks_mut(2) {
        assert_eq!(
            pair[0].words(2),
            [format!("ADDED b@{b}"), format!("MODIFIED b@{b2}")]
        );
        assert_eq!(
            pair[1].words(4),
            [
                format!("ADDED a@{a}"),
                format!("ADDED b@{b}"),
                format!("MODIFIED a@{a2}"),
                format!("MODIFIED b@{b2}")
            ]
        );
    }
}

// Shows WC-102 and WC-122.
#[test]
fn t_26_every_combination_of_scope_and_selectors_gets_its_events() {
    on_both(|fixture, store, side| {
        let start = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        let scopes = [Scope::All, namespace("ns1"), Scope::Object(object("ns1/a"))];
        let fields = [
            "",
            "metadata.name=a",
            "metadata.namespace=ns1",
            "metadata.namespace=ns2",
            "metadata.namespace=ns1,metadata.name=a",
            "spec.nodeName=n1",
            "spec.nodeName!=n1",
            "spec.nodeName=n1,metadata.name=a",
            "spec.nodeName!=n1,metadata.namespace=ns1",
        ];
        let mut watches = Vec::new();
        for scope in &scopes {
            for fields in fields {
                let watch = fixture.watch(store, scope, &select(from(start), "", fields));
                watches.push((scope.clone(), fields, watch));
            }
        }
        let made: Vec<_> = [
            ("ns1/a", "n1"),
            ("ns1/b", "n1"),
            ("ns1/c", "n2"),
            ("ns2/a", "n1"),
            ("ns2/b", "n2"),
        ]
        .map(|(key, node)| (key, node, fixture.put(key, pod(key, "", node))))
        .into();
        for (scope, fields, watch) in &mut watches {
            let wanted = made.iter().filter(|(key, node, _)| {
                let in_scope = match scope {
                    Scope::All => true,
                    Scope::Namespace(namespace) => key.starts_with(&format!("{namespace}/")),
                    Scope::Object(_) => *key == "ns1/a",
                };
                in_scope
                    && fields.split(',').all(|term| match term {
                        "" => true,
                        "metadata.name=a" => key.ends_with("/a"),
                        "metadata.namespace=ns1" => key.starts_with("ns1/"),
                        "metadata.namespace=ns2" => key.starts_with("ns2/"),
                        "spec.nodeName=n1" => *node == "n1",
                        "spec.nodeName!=n1" => *node != "n1",
                        other => panic!("unknown term {other:?}"),
                    })
            });
            let expected: Vec<_> = wanted
                .map(|(key, _, revision)| format!("ADDED {key}@{revision}"))
                .collect();
            assert_eq!(watch.words(expected.len()), expected, "{scope:?} {fields}");
            fixture.wait_until_fresh();
            // Over a network, more events may still arrive after this poll.
            let is_complete = side == Side::Cached || fixture.is_in_process();
            assert!(!is_complete || watch.is_silent(), "{scope:?} {fields}");
        }
    });
}

// Shows WC-121.
#[test]
fn t_27_a_pod_that_moves_is_deleted_for_one_node_and_added_for_the_other() {
    on_both(|fixture, store, _| {
        let start = fixture.put("ns/a", pod("ns/a", "", "n1"));
        fixture.wait_until_fresh();
        let on = |node: &str| {
            let fields = format!("spec.nodeName={node}");
            fixture.watch(store, &Scope::All, &select(from(start), "", &fields))
        };
        let (mut one, mut two) = (on("n1"), on("n2"));
        let moved = fixture.put("ns/a", pod("ns/a", "", "n2"));
        assert_eq!(one.word(), format!("DELETED ns/a@{moved}"));
        assert_eq!(two.word(), format!("ADDED ns/a@{moved}"));
    });
}

// Shows WC-305.
#[test]
fn t_28_after_a_compaction_a_watch_from_0_starts_and_one_from_before_needs_the_window() {
    on_both(|fixture, store, side| {
        let a = fixture.put_pod("ns/a");
        let b = fixture.put_pod("ns/b");
        fixture.wait_until_fresh();
        let from_zero = || fixture.watch(store, &Scope::All, &from("0")).words(2);
        let expected = [format!("ADDED ns/a@{a}"), format!("ADDED ns/b@{b}")];
        assert_eq!(from_zero(), expected);
        let newest = fixture.put_elsewhere();
        fixture.compact(newest);
        assert_eq!(from_zero(), expected);
        if side == Side::Raw {
            let mut gone = fixture.watch(store, &Scope::All, &from(a));
            assert_eq!(
                gone.words(2),
                [
                    "ERROR 410 The resourceVersion for the provided watch is too old.",
                    "end"
                ]
            );
        } else {
            // WC-314: the window still contains the events.
            let mut resumed = fixture.watch(store, &Scope::All, &from(a));
            assert_eq!(resumed.word(), format!("ADDED ns/b@{b}"));
        }
    });
}

// Shows WC-106 and WC-311.
#[test]
fn t_28_a_watch_that_needs_a_compacted_previous_version_is_410() {
    on_both(|fixture, store, side| {
        if side == Side::Cached {
            // The window contains the previous versions.
            return;
        }
        let too_old = [
            "ERROR 410 The resourceVersion for the provided watch is too old.",
            "end",
        ];
        // Each change is exactly at the compacted revision, so the watch itself can start.
        let from_before = |changed: i64, labels: &str| {
            fixture.compact(changed);
            let options = select(from(changed - 1), labels, "");
            fixture.watch(store, &Scope::All, &options)
        };
        fixture.put("ns/a", pod("ns/a", "web", ""));
        let left = fixture.put("ns/a", pod("ns/a", "db", ""));
        let mut selected = from_before(left, "app=web");
        assert_eq!(selected.words(2), too_old, "it leaves the selector");
        let updated = fixture.put("ns/a", pod("ns/a", "db", "n1"));
        assert_eq!(from_before(updated, "").words(2), too_old, "it is updated");
        let deleted = fixture.delete("ns/a");
        assert_eq!(from_before(deleted, "").words(2), too_old, "it is deleted");
        // A new object has no previous version.
        let created = fixture.put("ns/a", pod("ns/a", "web", ""));
        let mut events = from_before(created, "app=web");
        assert_eq!(events.word(), format!("ADDED ns/a@{created}"));
    });
}

// Shows WC-352.
#[test]
fn t_55_an_object_that_is_replaced_in_one_revision_is_deleted_and_added() {
    use revstore_engine::{KeyRange, Op, Put, Txn};
    on_both(|fixture, store, _| {
        let Some(engine) = &fixture.engine else {
            return;
        };
        let start = fixture.put("ns/a", pod("ns/a", "web", ""));
        fixture.wait_until_fresh();
        let mut events = fixture.watch(store, &Scope::All, &from(start));
        let key = format!("{PODS}/ns/a");
        let ops = [
            Op::Delete(KeyRange::one(key.clone())),
            Op::Put(Put::new(key, pod("ns/a", "db", ""))),
        ];
        let made = engine.txn(&Txn::new().and_then(ops)).unwrap().revision.0;
        assert_eq!(
            events.words(2),
            [format!("DELETED ns/a@{made}"), format!("ADDED ns/a@{made}")]
        );
    });
}

// Shows WC-114.
#[test]
fn t_28_and_t_54_a_start_before_the_window_is_410_with_both_revisions() {
    let config = config().window(short_window(3));
    let fixture = Fixture::with(config, |builder| builder);
    let start = fixture.put_pod("ns/a");
    let mut slow = fixture.watch(&fixture.pods, &Scope::All, &from(start));
    let mut elsewhere = fixture.watch(&fixture.pods, &namespace("other"), &from(start));
    for _ in 0..10 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    let oldest = fixture.current() - 3;
    let too_old =
        |requested: i64| format!("ERROR 410 too old resource version: {requested} ({oldest})");
    let mut early = fixture.watch(&fixture.pods, &Scope::All, &from(start));
    assert_eq!(early.words(2), [too_old(start), "end".into()]);
    assert_eq!(slow.words(2), [too_old(start), "end".into()], "WC-124");
    let mut just = fixture.watch(&fixture.pods, &Scope::All, &from(oldest));
    assert_eq!(
        just.word(),
        format!("MODIFIED ns/a@{}", oldest + 1),
        "WC-313"
    );
    // No event that matches the other watch was evicted, so that watch continues.
    let made = fixture.put_pod("other/x");
    assert_eq!(elsewhere.word(), format!("ADDED other/x@{made}"));
    let metrics = fixture.pods.metrics();
    assert_eq!(
        (metrics.terminated_watchers, metrics.expired_window),
        (1, 2)
    );
}

// Shows WC-311.
#[test]
fn t_29_starts_are_exclusive() {
    on_both(|fixture, store, _| {
        let first = fixture.put_pod("ns/a");
        let elsewhere = fixture.put_elsewhere();
        let third = fixture.put_pod("ns/a");
        fixture.wait_until_fresh();
        for (start, expected) in [
            (
                first - 1,
                vec![
                    format!("ADDED ns/a@{first}"),
                    format!("MODIFIED ns/a@{third}"),
                ],
            ),
            (first, vec![format!("MODIFIED ns/a@{third}")]),
            (elsewhere, vec![format!("MODIFIED ns/a@{third}")]),
        ] {
            let mut events = fixture.watch(store, &Scope::All, &from(start));
            assert_eq!(events.words(expected.len()), expected, "after {start}");
        }
        let mut none = fixture.watch(store, &Scope::All, &from(third));
        let fourth = fixture.put_pod("ns/b");
        assert_eq!(none.word(), format!("ADDED ns/b@{fourth}"));
    });
}

#[test]
fn t_30_deletions_show_the_last_content_at_the_revision_of_the_deletion() {
    on_both(|fixture, store, _| {
        let start = fixture.put("ns/a", pod("ns/a", "web", ""));
        fixture.wait_until_fresh();
        let mut events = fixture.watch(store, &Scope::All, &from(start));
        let terminating =
            pod("ns/a", "web", "").replace("\"labels\"", "\"deletionTimestamp\":\"t\",\"labels\"");
        let modified = fixture.put("ns/a", terminating.clone());
        let deleted = fixture.delete("ns/a");
        assert_eq!(events.word(), format!("MODIFIED ns/a@{modified}"));
        let Some(WatchEvent::Object { event, object, .. }) = events.next() else {
            panic!("expected an event of an object")
        };
        assert_eq!((event, object.revision().0), (EventType::Deleted, deleted));
        assert_eq!(object.value(), terminating.as_bytes());
    });
}

// Shows WC-125.
#[test]
fn t_31_and_t_33_delayed_readers_get_a_gapless_prefix_and_can_stop_at_any_event() {
    on_both(|fixture, store, _| {
        let start = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        drop(fixture.watch(store, &Scope::All, &from(start)));
        drop(fixture.watch(store, &Scope::All, &from("0")));
        let mut events = fixture.watch(store, &Scope::All, &from(start));
        let made: Vec<_> = (0..25)
            .map(|n| fixture.put_pod(&format!("ns/p{n:02}")))
            .collect();
        let expected: Vec<_> = made
            .iter()
            .take(12)
            .enumerate()
            .map(|(n, revision)| format!("ADDED ns/p{n:02}@{revision}"))
            .collect();
        assert_eq!(events.words(12), expected);
        drop(events);
        fixture.put_pod("ns/after");
        fixture.wait_until_fresh();
        assert_eq!(
            fixture.pods.metrics().watchers,
            0,
            "the watch is unregistered"
        );
    });
}

// Shows WC-303.
#[test]
fn t_33_a_watch_can_be_dropped_at_any_time() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        fixture.put_pod(&format!("ns/{name}"));
    }
    fixture.wait_until_fresh();
    let current = fixture.current();
    let watchers = || fixture.pods.metrics().watchers;
    // Before it starts: it waits for a future state.
    let later = from(current + 1)
        .resource_version_match("NotOlderThan")
        .send_initial_events(true);
    let mut start = fixture.watch(&fixture.pods, &Scope::All, &later);
    assert!(start.is_silent());
    drop(start);
    assert_eq!(watchers(), 0);
    // Between its initial objects, and between later events.
    for read in [1, 4] {
        let mut events = fixture.watch(&fixture.pods, &Scope::All, &from("0"));
        assert_eq!(watchers(), 1);
        fixture.put_pod("ns/a");
        fixture.put_pod("ns/b");
        fixture.wait_until_fresh();
        assert!(events.words(read).iter().all(|word| word != "end"));
        drop(events);
        assert_eq!(watchers(), 0);
    }
    // The feeder wakes no dropped watcher.
    let woken = fixture.pods.metrics().watchers_woken;
    fixture.put_pod("ns/c");
    fixture.wait_until_fresh();
    assert_eq!(fixture.pods.metrics().watchers_woken, woken);
}

/// A source whose watch delivers a thousand new pods at once.
#[derive(Debug)]
struct BusySource {
    inner: Arc<dyn Source>,
}

impl Source for BusySource {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        self.inner.current_revision()
    }
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        self.inner.list(request)
    }
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        use futures_util::{StreamExt as _, stream};
        let batch = move |number| {
            let revision = Revision(request.after.0 + 1 + number);
            let stored = StoredKeyValue {
                key: format!("{PODS}/ns/a").into(),
                value: pod("ns/a", "", "").into(),
                create_revision: revision,
                mod_revision: revision,
            };
            let change = Change {
                key: stored.key.clone(),
                revision,
                new: Some(stored),
                previous: None,
            };
            Ok(Batch {
                through: revision,
                changes: vec![change],
            })
        };
        let batches = stream::iter((0..1000).map(batch)).chain(stream::pending());
        Box::pin(std::future::ready(Ok(Box::pin(batches) as BatchStream)))
    }
    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        self.inner.write(write)
    }
}

#[test]
fn a_raw_watch_without_matches_yields_to_other_tasks() {
    let fixture = Fixture::new();
    let source = Arc::new(BusySource {
        inner: fixture.source.clone(),
    });
    let raw = RawStore::new(source, config(), Arc::new(fixture.clock.clone()));
    let options = select(from(1), "app=none", "");
    let mut watch = fixture.watch(&raw, &Scope::All, &options);
    let wake_ups = Arc::new(CountingWaker::default());
    let waker = std::task::Waker::from(wake_ups.clone());
    let mut context = std::task::Context::from_waker(&waker);
    let mut yields = 0;
    loop {
        assert!(watch.stream.as_mut().poll_next(&mut context).is_pending());
        let woken = wake_ups.0.load(Ordering::Relaxed);
        assert!(woken <= yields + 1);
        if woken == yields {
            break;
        }
        yields = woken;
    }
    assert!(yields >= 10, "yielded {yields} times for 1000 batches");
}

#[test]
fn a_watch_without_matching_initial_objects_yields_to_other_tasks() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    for number in 0..5000 {
        let key = format!("{PODS}/ns/p{number:04}");
        engine.put(key, "{\"metadata\":{}}").unwrap();
    }
    fixture.wait_until_fresh();
    let options = select(from("0"), "app=none", "").allow_bookmarks(true);
    let mut watch = fixture.watch(&fixture.pods, &Scope::All, &options);
    let wake_ups = Arc::new(CountingWaker::default());
    let waker = std::task::Waker::from(wake_ups.clone());
    let mut context = std::task::Context::from_waker(&waker);
    let mut yields = 0;
    let event = loop {
        match watch.stream.as_mut().poll_next(&mut context) {
            std::task::Poll::Ready(event) => break event.unwrap(),
            std::task::Poll::Pending => yields += 1,
        }
        assert_eq!(wake_ups.0.load(Ordering::Relaxed), yields);
    };
    assert!(yields >= 4, "yielded {yields} times for 5000 objects");
    let end = format!("BOOKMARK@{} end", fixture.current());
    assert_eq!(crate::support::describe(&event), end);
    let mut watch = block_on(fixture.pods.watch(&Scope::All, &options)).unwrap();
    assert!(
        watch.try_next().is_some(),
        "`try_next` continues until an event is ready"
    );
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct CountingWaker(AtomicU64);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// Shows WC-123 and WC-146.
#[test]
fn t_32_watchers_that_are_never_read_do_not_delay_others() {
    let fixture = Fixture::new();
    let idle: Vec<_> = (0..50)
        .map(|_| fixture.watch(&fixture.pods, &Scope::All, &from(1)))
        .collect();
    let mut reader = fixture.watch(&fixture.pods, &Scope::All, &from(1));
    for number in 0..22 {
        let revision = fixture.put_pod(&format!("ns/p{number:02}"));
        assert_eq!(reader.word(), format!("ADDED ns/p{number:02}@{revision}"));
    }
    let metrics = fixture.pods.metrics();
    // A watcher that never reads is woken once only.
    assert!(
        metrics.watchers_woken <= 50 + 22,
        "{}",
        metrics.watchers_woken
    );
    assert_eq!(metrics.terminated_watchers, 0);
    drop(idle);
}

// Shows WC-335.
#[test]
fn t_34_an_undecodable_object_ends_the_watches_that_match_its_key_and_no_others() {
    on_both(|fixture, store, _| {
        let start = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        let mut watches: Vec<_> = (0..10)
            .map(|_| fixture.watch(store, &Scope::All, &from(start)))
            .collect();
        let mut elsewhere = fixture.watch(store, &namespace("other"), &from(start));
        let good = fixture.put_pod("ns/a");
        fixture.put("ns/b", "no JSON".into());
        fixture.put_pod("ns/c");
        for watch in &mut watches {
            assert_eq!(watch.word(), format!("ADDED ns/a@{good}"));
            assert!(watch.word().starts_with("ERROR 500 "));
            assert_eq!(watch.word(), "end", "nothing follows the error");
        }
        let other = fixture.put_pod("other/a");
        assert_eq!(elsewhere.word(), format!("ADDED other/a@{other}"));
        assert_eq!(
            fixture
                .list(store, &Scope::All, &Default::default())
                .unwrap_err()
                .code(),
            500
        );
    });
}

#[test]
fn t_34_an_index_hides_no_undecodable_object() {
    // WC-126: an index must not change the result of a list, and the node of such an object is
    // unknown.
    on_both(|fixture, store, _| {
        let start = fixture.put("ns/a", pod("ns/a", "", "n1"));
        fixture.wait_until_fresh();
        let on = |node: &str| select(from(start), "", &format!("spec.nodeName={node}"));
        let mut one = fixture.watch(store, &Scope::All, &on("n1"));
        let mut two = fixture.watch(store, &Scope::All, &on("n2"));
        fixture.put("ns/b", "no JSON".into());
        fixture.wait_until_fresh();
        let list = ListOptions::default().selector(selector("", "spec.nodeName=n1"));
        let listed = || fixture.list(store, &Scope::All, &list);
        assert_eq!(listed().unwrap_err().code(), 500);
        for watch in [&mut one, &mut two] {
            assert!(watch.word().starts_with("ERROR 500 "));
        }
        // All objects can be decoded again, so the index is used again.
        let (corrupt, options) = (object("ns/b"), DeleteOptions::default());
        let options = options.ignore_store_read_error(true);
        let deleted = store.delete(&corrupt, &options, Box::new(|_| Ok(())));
        fixture.wait(deleted).unwrap();
        fixture.put("ns/b", pod("ns/b", "", "n2"));
        fixture.wait_until_fresh();
        assert_eq!(listed().unwrap().items, [format!("ns/a@{start}")]);
        let by_index = fixture.pods.metrics().lists_by_index;
        let cached = fixture.list(&fixture.pods, &Scope::All, &list);
        assert_eq!(cached.unwrap().items.len(), 1);
        assert_eq!(fixture.pods.metrics().lists_by_index, by_index + 1);
    });
}

// Shows WC-301, WC-310, WC-312 and WC-326.
#[test]
fn t_35_and_t_36_each_row_of_the_watch_table_starts_with_its_state() {
    on_both(|fixture, store, _| {
        for bookmarks in [false, true] {
            for (version, initial) in [
                ("", Some(true)),
                ("", Some(false)),
                ("", None),
                ("0", Some(true)),
                ("0", Some(false)),
                ("0", None),
                ("before", Some(true)),
                ("before", Some(false)),
                ("before", None),
                ("current", Some(true)),
                ("current", Some(false)),
                ("current", None),
            ] {
                // Each row uses its own namespace.
                let name = format!("ns{}", fixture.current());
                let [key_a, key_b] = ["a", "b"].map(|pod| format!("{name}/{pod}"));
                let before = fixture.current();
                let (a, b) = (fixture.put_pod(&key_a), fixture.put_pod(&key_b));
                let current = fixture.put_elsewhere();
                fixture.wait_until_fresh();
                let version = match version {
                    "before" => before.to_string(),
                    "current" => current.to_string(),
                    other => other.to_owned(),
                };
                let state = [format!("ADDED {key_a}@{a}"), format!("ADDED {key_b}@{b}")];
                let legacy = initial.is_none() && matches!(version.as_str(), "" | "0");
                let has_state = initial == Some(true) || legacy;
                let replays = !has_state && version == before.to_string();
                let expected = if has_state || replays {
                    &state[..]
                } else {
                    &[]
                };
                let options = from(&version)
                    .resource_version_match(initial.map_or("", |_| "NotOlderThan"))
                    .send_initial_events(initial)
                    .allow_bookmarks(bookmarks);
                let row = format!("{version:?} {initial:?} bookmarks {bookmarks}");
                let mut events = fixture.watch(store, &namespace(&name), &options);
                assert_eq!(events.words(expected.len()), expected, "{row}");
                if bookmarks && has_state {
                    // T-36: the revision of the store, which a write of another resource created.
                    assert_eq!(
                        events.word(),
                        format!("BOOKMARK@{} end", fixture.current()),
                        "{row}"
                    );
                }
                let next = fixture.put_pod(&key_a);
                let mut word = events.word();
                while word.starts_with("BOOKMARK") {
                    assert!(
                        !word.ends_with("end"),
                        "there is one such bookmark (WC-325)"
                    );
                    word = events.word();
                }
                assert_eq!(word, format!("MODIFIED {key_a}@{next}"), "{row}");
            }
        }
    });
}

#[test]
fn t_36_named_watch_lists_end_with_the_global_revision() {
    on_both(|fixture, store, _| {
        let a = fixture.put_pod("ns/a");
        fixture.put_pod("ns/b");
        let elsewhere = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        let options = select(WatchOptions::default(), "", "metadata.name=a")
            .resource_version_match("NotOlderThan")
            .send_initial_events(true)
            .allow_bookmarks(true);
        let mut events = fixture.watch(store, &Scope::All, &options);
        assert_eq!(
            events.words(2),
            [
                format!("ADDED ns/a@{a}"),
                format!("BOOKMARK@{elsewhere} end")
            ]
        );
    });
}

// Shows WC-113 and WC-340.
#[test]
fn t_45_watchers_that_start_during_writes_get_each_event_once() {
    let fixture = Fixture::new();
    let engine = fixture.engine().clone();
    let writer = std::thread::spawn(move || {
        for number in 0..3000 {
            let key = format!("{}/ns/p{}", crate::support::PODS, number % 7);
            engine.put(key, "{\"metadata\":{}}").unwrap();
        }
    });
    let mut watches = Vec::new();
    for round in 0..1000_i64 {
        let newest = fixture.cache.revision().0;
        let start = (newest - round % 50).max(1);
        let options = if round % 3 == 0 {
            from("0")
        } else {
            from(start)
        };
        let watch = block_on(fixture.pods.watch(&Scope::All, &options)).unwrap();
        watches.push((watch, (round % 3 != 0).then_some(start)));
    }
    writer.join().unwrap();
    fixture.wait_until_fresh();
    let end = fixture.current();
    for (mut watch, start) in watches {
        let mut seen: Vec<i64> = Vec::new();
        // Initial objects are in key order. The changes continue after the newest of them.
        let mut state = 0;
        while let Some(event) = watch.try_next() {
            let revision = event.revision().unwrap().0;
            if start.is_none() && event.type_name() == "ADDED" && seen.is_empty() {
                state = state.max(revision);
            } else {
                seen.push(revision);
            }
        }
        // Each write created one revision, so the revisions are consecutive.
        if let Some(first) = start.map(|start| start + 1).or(seen.first().copied()) {
            assert!(
                first > state,
                "no event is older than the initial state (WC-341)"
            );
            assert_eq!(
                seen,
                (first..=end).collect::<Vec<_>>(),
                "started after {start:?}"
            );
            assert!(
                start.is_some() || first == state + 1 || state == 0,
                "{state} {first}"
            );
        }
    }
}

// Shows WC-142 and WC-351.
#[test]
fn t_53_an_event_is_encoded_once_and_a_deletion_changes_no_shared_bytes() {
    let fixture = Fixture::new();
    let start = fixture.put("ns/a", pod("ns/a", "web", ""));
    let watch = |labels: &str| {
        let options = select(from(start), labels, "");
        block_on(fixture.pods.watch(&Scope::All, &options)).unwrap()
    };
    let mut web: Vec<_> = (0..5).map(|_| watch("app=web")).collect();
    let mut all: Vec<_> = (0..5).map(|_| watch("")).collect();
    let moved = fixture.put("ns/a", pod("ns/a", "db", ""));
    let mut frames = Vec::new();
    for watch in web.iter_mut().chain(&mut all) {
        let event = watch.next_blocking().unwrap();
        frames.push(watch.encode(&event));
    }
    assert!(
        frames[..5]
            .iter()
            .all(|frame| frame.as_ptr() == frames[0].as_ptr())
    );
    assert!(
        frames[5..]
            .iter()
            .all(|frame| frame.as_ptr() == frames[5].as_ptr())
    );
    let text = |frame: &[u8]| String::from_utf8(frame.to_vec()).unwrap();
    let version = format!("\"resourceVersion\":\"{moved}\"");
    assert!(text(&frames[0]).starts_with("{\"type\":\"DELETED\""));
    assert!(text(&frames[0]).contains("web") && text(&frames[0]).contains(&version));
    assert!(text(&frames[5]).starts_with("{\"type\":\"MODIFIED\""));
    assert!(text(&frames[5]).contains("db") && text(&frames[5]).contains(&version));
    assert_eq!(fixture.pods.metrics().events_encoded, 2);
}

#[test]
fn t_55_changes_of_one_revision_are_delivered_together() {
    use revstore_engine::{Op, Put, Txn};
    on_both(|fixture, store, _| {
        // A `Storage` writes neither transactions nor shared leases, so this needs the engine.
        if fixture.engine.is_none() {
            return;
        }
        let engine = fixture.engine();
        fixture.wait_until_fresh();
        let options = from(1).allow_bookmarks(true);
        let mut events = fixture.watch(store, &Scope::All, &options);
        let put = |name: &str| {
            let key = format!("{}/ns/{name}", crate::support::PODS);
            Op::Put(Put::new(key, pod(&format!("ns/{name}"), "", "")))
        };
        let txn = Txn::new().and_then(vec![put("b"), put("a"), put("c")]);
        let made = engine.txn(&txn).unwrap().revision.0;
        let expected = ["b", "a", "c"].map(|name| format!("ADDED ns/{name}@{made}"));
        assert_eq!(events.words(3), expected, "in the order of the transaction");
        // A resume after the revision skips all of its events.
        fixture.wait_until_fresh();
        let mut later = fixture.watch(store, &Scope::All, &from(made));
        // The expiry of a lease deletes many objects in one revision.
        let lease = engine.grant(None, 5).unwrap().id;
        for name in ["x", "y"] {
            let key = format!("{}/ns/{name}", crate::support::PODS);
            let put = Put::new(key, pod(&format!("ns/{name}"), "", "")).attached_to(lease);
            engine.put_with(&put).unwrap();
        }
        let (x, y) = (made + 1, made + 2);
        assert_eq!(
            later.words(2),
            [format!("ADDED ns/x@{x}"), format!("ADDED ns/y@{y}")]
        );
        fixture.clock.advance(Duration::from_secs(6));
        let ended = y + 1;
        assert_eq!(
            later.words(2),
            [
                format!("DELETED ns/x@{ended}"),
                format!("DELETED ns/y@{ended}")
            ]
        );
    });
}

// Shows WC-111.
#[test]
fn wc_110_the_byte_limit_evicts_events() {
    let limits = WindowLimits::default().bytes_max(10_000);
    let fixture = Fixture::with(config().window(limits), |builder| builder);
    for _ in 0..100 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    let metrics = fixture.pods.metrics();
    assert!(metrics.window_bytes <= 10_000, "{metrics:?}");
    assert!(metrics.window_events > 3, "{metrics:?}");
    assert_eq!(metrics.objects, 1);
}

#[test]
fn wc_144_a_new_cache_has_the_history_that_the_engine_has() {
    let fixture = Fixture::new();
    let first = fixture.put_pod("ns/a");
    fixture.put_pod("ns/b");
    fixture.delete("ns/a");
    let clock = std::sync::Arc::new(fixture.clock.clone());
    let builder = revstore_watch_cache::WatchCache::builder(fixture.source.clone()).clock(clock);
    let (cache, feeder) = builder.build();
    let pods = cache.add(config()).unwrap();
    let _running = feeder.spawn();
    block_on(pods.wait_until_ready()).unwrap();
    let mut events = fixture.watch(&pods, &Scope::All, &from(first));
    assert_eq!(
        events.words(2),
        [
            format!("ADDED ns/b@{}", first + 1),
            format!("DELETED ns/a@{}", first + 2)
        ]
    );
    assert_eq!(
        pods.metrics().resource_version,
        Revision(first + 2).0.unsigned_abs()
    );
}
