//! T-32 to T-34: watches that cost others nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

use futures_core::future::BoxFuture;
use pollster::block_on;
use revstore_watch_cache::api::DeleteOptions;
use revstore_watch_cache::source::{
    Batch, BatchStream, Change, ConditionalWrite, ListPage, ListRequest, RawStore, Source,
    SourceError, StoredKeyValue, WatchRequest, WriteOutcome,
};
use revstore_watch_cache::{ListOptions, Revision, Scope};

use super::select;
use crate::support::{Fixture, PODS, config, from, namespace, object, on_both, pod, selector};

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

// Shows WC-121 and WC-146.
#[test]
fn an_event_looks_at_the_watchers_that_it_concerns_and_at_no_others() {
    const EVENTS: u64 = 1_000;
    const OTHERS: u64 = 1_000;
    let fixture = Fixture::new();
    let watch = |scope: &Scope, labels: &str, fields: &str| {
        let options = select(from(1), labels, fields);
        fixture.watch(&fixture.pods, scope, &options)
    };
    let (all, ns) = (Scope::All, namespace("ns"));
    // One for each way in which watchers are found, and one that is found by its namespace and filters by labels.
    let mut concerned = [
        watch(&all, "", ""),
        watch(&ns, "", ""),
        watch(&ns, "", "metadata.name=a"),
        watch(&all, "", "metadata.name=a"),
        watch(&all, "", "spec.nodeName=n1"),
        watch(&ns, "app=web", ""),
    ];
    let others: Vec<_> = (0..OTHERS)
        .map(|number| match number % 5 {
            0 => watch(&namespace(&format!("ns{number}")), "", ""),
            1 => watch(&namespace(&format!("ns{number}")), "app=web", ""),
            2 => watch(&ns, "", &format!("metadata.name=a{number}")),
            3 => watch(&all, "", &format!("metadata.name=a{number}")),
            _ => watch(&all, "", &format!("spec.nodeName=n1{number}")),
        })
        .collect();
    for number in 0..EVENTS {
        let pod = pod("ns/a", "web", "n1");
        let pod = pod.replace("\"spec\":{", &format!("\"spec\":{{\"n\":{number},"));
        let revision = fixture.put("ns/a", pod);
        let event = if number == 0 { "ADDED" } else { "MODIFIED" };
        for watch in &mut concerned {
            assert_eq!(watch.word(), format!("{event} ns/a@{revision}"));
        }
    }
    // The last event is published, and so counted.
    fixture.wait_until_fresh();
    let metrics = fixture.pods.metrics();
    assert_eq!(metrics.watchers, OTHERS + concerned.len() as u64);
    let expected = EVENTS * concerned.len() as u64;
    assert_eq!(metrics.watchers_examined, expected);
    assert_eq!(metrics.watchers_woken, expected);
    assert_eq!(metrics.events_sent, expected);
    assert_eq!(metrics.events_filtered_out, 0);
    assert_eq!(metrics.events_encoded, 0, "nobody has encoded one");
    drop(others);
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
