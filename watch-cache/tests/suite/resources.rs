//! Resources that are added, removed and reconfigured while the cache runs, as those of custom
//! resource definitions (WC-117).

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use pollster::block_on;
use revstore_engine::Engine;
use revstore_tests::poll;
use revstore_watch_cache::api::{DeleteOptions, Storage, UpdateOptions};
use revstore_watch_cache::cache::Readiness;
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::encode::{Attributes, DecodeError, Form, JsonKind, Kind};
use revstore_watch_cache::{
    CacheWatcher, EngineSource, GetOptions, ListOptions, RequestError, ResourceCache,
    ResourceConfig, Revision, Scope, WatchCache, WatchOptions,
};

use crate::load::GatedSource;
use crate::support::{
    Fixture, PODS, after, at, config, describe, from, object, over_all, pod, poll_once,
    run_until_idle, selector,
};

const OBJECT: &str = "{\"metadata\":{}}";

/// Returns the error of each request of a resource.
fn errors(fixture: &Fixture, resource: &ResourceCache) -> Vec<Option<RequestError>> {
    let key = object("ns/a");
    let (get, cached) = (
        GetOptions::default(),
        GetOptions::default().resource_version("0"),
    );
    let list = |options: ListOptions| fixture.wait(resource.list(&Scope::All, &options)).err();
    let watch = |options: WatchOptions| fixture.wait(resource.watch(&Scope::All, &options)).err();
    let (update, delete) = (UpdateOptions::default(), DeleteOptions::default());
    vec![
        fixture.wait(resource.get(&key, &get)).err(),
        fixture.wait(resource.get(&key, &cached)).err(),
        list(ListOptions::default()),
        list(ListOptions::default().limit(1)),
        list(at("0")),
        watch(WatchOptions::default()),
        watch(from("1")),
        fixture.wait(resource.wait_until_ready()).err(),
        fixture
            .wait(resource.create(&key, OBJECT.into(), None))
            .err(),
        fixture
            .wait(resource.guaranteed_update(&key, &update, Box::new(|_| unreachable!())))
            .err(),
        fixture
            .wait(Storage::delete(
                resource,
                &key,
                &delete,
                Box::new(|_| unreachable!()),
            ))
            .err(),
        fixture.wait(resource.check_consistency()).err(),
    ]
}

#[test]
fn wc_117_watches_of_a_removed_resource_deliver_all_earlier_changes_and_end_and_requests_fail_with_404()
 {
    over_all(|fixture| {
        let start = fixture.put("ns/a", pod("ns/a", "web", "n1"));
        fixture.put("ns/b", pod("ns/b", "web", "n2"));
        fixture.wait_until_fresh();
        let pods = &fixture.pods;
        let mut all = fixture.watch(pods, &Scope::All, &from(start).allow_bookmarks(true));
        let on_node = from(start).selector(selector("", "spec.nodeName=n1"));
        let mut narrow = fixture.watch(pods, &Scope::All, &on_node);
        let mut initial = fixture.watch(pods, &Scope::All, &from("0"));
        assert_eq!(all.word(), format!("ADDED ns/b@{}", start + 1));
        assert_eq!(initial.word(), format!("ADDED ns/a@{start}"));

        // As when a custom resource definition is deleted: first its objects.
        let (a, b) = (fixture.delete("ns/a"), fixture.delete("ns/b"));
        assert!(fixture.wait(fixture.cache.remove(pods)));
        // Nothing of this reaches the watches.
        fixture.put_pod("ns/c");
        let deleted = [format!("DELETED ns/a@{a}"), format!("DELETED ns/b@{b}")];
        assert_eq!(all.words(2), deleted);
        assert_eq!(all.word(), "end", "without a bookmark");
        assert_eq!(narrow.words(2), [deleted[0].clone(), "end".into()]);
        assert_eq!(initial.words(3)[1..], deleted);
        assert_eq!(initial.word(), "end");

        assert_eq!(pods.readiness(), Readiness::Removed);
        for error in errors(fixture, pods) {
            assert_eq!(error, Some(RequestError::Removed));
        }
        let status = RequestError::Removed.status();
        assert_eq!(status.code, 404);
        assert_eq!(
            status.message,
            "the server could not find the requested resource"
        );
        let metrics = pods.metrics();
        assert_eq!((metrics.objects, metrics.object_bytes), (0, 0));
        assert_eq!((metrics.window_events, metrics.watchers), (0, 0));
        assert!(fixture.cache.resources().is_empty());
        assert!(!fixture.wait(fixture.cache.remove(pods)), "only once");

        // The resource comes back.
        let again = fixture.cache.add(config()).unwrap();
        fixture.wait(again.wait_until_ready()).unwrap();
        assert!(!fixture.wait(fixture.cache.remove(pods)));
        let list = fixture.list(&again, &Scope::All, &at("0")).unwrap();
        assert_eq!(list.items.len(), 1, "the object written meanwhile");
        let mut old = fixture.watch(&again, &Scope::All, &from(start));
        assert!(old.word().starts_with("ERROR 410"));
        assert_eq!(old.word(), "end");
        let mut new = fixture.watch(&again, &Scope::All, &from(list.revision));
        let put = fixture.put_pod("ns/d");
        assert_eq!(new.word(), format!("ADDED ns/d@{put}"));
    });
}

#[test]
fn wc_117_a_watch_that_has_not_read_keeps_the_events_of_a_removed_resource_until_it_ends() {
    let fixture = Fixture::new();
    let start = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let open = || block_on(fixture.pods.watch(&Scope::All, &from(start))).unwrap();
    let (mut slow, dropped) = (open(), open());
    // More than a watcher copies at once.
    for _ in 0..500 {
        fixture.put_pod("ns/a");
    }
    assert!(block_on(fixture.cache.remove(&fixture.pods)));
    assert_eq!(fixture.pods.metrics().objects, 0);
    drop(dropped);
    assert!(fixture.pods.metrics().window_events >= 500);
    let mut delivered = 0;
    while let Some(event) = slow.next_blocking() {
        delivered += 1;
        assert_eq!(event.revision(), Some(Revision(start + delivered)));
    }
    assert_eq!(delivered, 500);
    assert_eq!(fixture.pods.metrics().window_events, 0);
}

#[test]
fn wc_117_a_resource_can_be_removed_while_it_is_loaded_and_while_the_cache_lags() {
    let engine = Engine::builder().build();
    let clock = ManualClock::new();
    let source = GatedSource::new(&engine);
    let builder = WatchCache::builder(source.clone()).clock(Arc::new(clock.clone()));
    let (cache, feeder) = builder.consistency_interval(None).build();
    let mut feeder = Box::pin(feeder.run());
    let pods = cache.add(config()).unwrap();
    assert!(run_until_idle(&mut feeder).is_pending());
    let mut watch = block_on(pods.watch(&Scope::All, &from("1"))).unwrap();

    source.close(true);
    for number in 0..100 {
        engine.put(format!("/w/ns/{number}"), OBJECT).unwrap();
    }
    let widgets = || ResourceConfig::namespaced(JsonKind::new("e/v1", "Widget"), "widgets", "/w");
    let loading = cache.add(widgets()).unwrap();
    assert!(run_until_idle(&mut feeder).is_pending());
    let mut ready = pin!(loading.wait_until_ready());
    let mut context = Context::from_waker(Waker::noop());
    assert!(ready.as_mut().poll(&mut context).is_pending());
    assert_eq!(poll_once(cache.remove(&loading)), Poll::Ready(true));
    assert_eq!(
        ready.as_mut().poll(&mut context),
        Poll::Ready(Err(RequestError::Removed))
    );
    // The page of the load arrives when there is no such resource.
    source.close(false);
    assert!(run_until_idle(&mut feeder).is_pending());
    assert_eq!(loading.readiness(), Readiness::Removed);
    assert_eq!(loading.metrics().objects, 0);
    let again = cache.add(widgets()).unwrap();
    assert!(run_until_idle(&mut feeder).is_pending());
    assert_eq!(again.metrics().objects, 100);

    // The source reports a change that the feeder does not get in time.
    source.hold_watches(true);
    engine.put(format!("{PODS}/ns/a"), OBJECT).unwrap();
    assert!(run_until_idle(&mut feeder).is_pending());
    let removed = after(&clock, Duration::from_secs(3), cache.remove(&pods));
    assert!(removed);
    assert!(watch.next_blocking().is_none());
}

#[test]
fn wc_117_a_resource_whose_fields_and_indexes_change_is_reconfigured() {
    let fixture = Fixture::new();
    fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.wait_until_fresh();
    let by_node = at("0").selector(selector("", "spec.nodeName=n1"));
    let by_uid = at("0").selector(selector("", "metadata.uid=uid-a"));
    let mut watch = fixture.watch(&fixture.pods, &Scope::All, &WatchOptions::default());
    assert_eq!(watch.word(), "ADDED ns/a@2");
    let list = |pods: &ResourceCache, options| fixture.list(pods, &Scope::All, options);
    assert_eq!(list(&fixture.pods, &by_node).unwrap().items, ["ns/a@2"]);
    assert_eq!(list(&fixture.pods, &by_uid).unwrap_err().code(), 400);

    let kind = || JsonKind::new("v1", "Pod").with_fields(["metadata.uid"]);
    let elsewhere = ResourceConfig::namespaced(kind(), "pods", "/elsewhere");
    let refused = block_on(fixture.cache.reconfigure(&fixture.pods, elsewhere));
    assert_eq!(refused.unwrap_err().code(), 400);
    let cluster = ResourceConfig::cluster(kind(), "pods", PODS);
    let refused = block_on(fixture.cache.reconfigure(&fixture.pods, cluster));
    assert_eq!(refused.unwrap_err().code(), 400);
    assert_eq!(fixture.pods.readiness(), Readiness::Ready);

    let deleted = fixture.delete("ns/a");
    fixture.put("ns/a", pod("ns/a", "db", "n1"));
    let next = ResourceConfig::namespaced(kind(), "pods", PODS);
    let pods = block_on(fixture.cache.reconfigure(&fixture.pods, next.clone())).unwrap();
    assert_eq!(watch.word(), format!("DELETED ns/a@{deleted}"));
    assert_eq!(watch.word(), format!("ADDED ns/a@{}", deleted + 1));
    assert_eq!(watch.word(), "end");
    block_on(pods.wait_until_ready()).unwrap();
    assert_eq!(list(&pods, &by_node).unwrap_err().code(), 400);
    assert_eq!(
        list(&pods, &by_uid).unwrap().items,
        [format!("ns/a@{}", deleted + 1)]
    );
    let removed = block_on(fixture.cache.reconfigure(&fixture.pods, next));
    assert_eq!(removed.unwrap_err(), RequestError::Removed);
    let list = list(&fixture.pods, &at("0"));
    assert_eq!(list.unwrap_err(), RequestError::Removed);
}

#[test]
fn wc_118_the_watches_of_earlier_series_end_after_all_earlier_changes_and_others_go_on() {
    over_all(|fixture| {
        let start = fixture.put("ns/a", pod("ns/a", "web", "n1"));
        fixture.wait_until_fresh();
        let (first, next) = (&fixture.pods, fixture.pods.next_series());
        assert!(!first.is_same(&next));
        let mut idle = fixture.watch(first, &Scope::All, &WatchOptions::default());
        assert_eq!(idle.word(), format!("ADDED ns/a@{start}"));
        let mut lagging = fixture.watch(first, &Scope::All, &from(start).allow_bookmarks(true));
        let mut initial = fixture.watch(first, &Scope::All, &from("0"));
        let mut new = fixture.watch(&next, &Scope::All, &from(start));
        // More than a watcher copies at once.
        let puts: Vec<_> = (0..300).map(|_| fixture.put_pod("ns/b")).collect();
        fixture.wait_until_fresh();
        next.end_earlier_series();
        let after = fixture.put_pod("ns/c");
        fixture.wait_until_fresh();

        let words = |events: &mut dyn FnMut() -> String| {
            for (number, put) in puts.iter().enumerate() {
                let kind = if number == 0 { "ADDED" } else { "MODIFIED" };
                assert_eq!(events(), format!("{kind} ns/b@{put}"));
            }
        };
        words(&mut || lagging.word());
        assert_eq!(lagging.word(), "end", "without a bookmark");
        words(&mut || idle.word());
        assert_eq!(idle.word(), "end");
        assert_eq!(initial.word(), format!("ADDED ns/a@{start}"));
        words(&mut || initial.word());
        assert_eq!(initial.word(), "end");
        words(&mut || new.word());
        assert_eq!(new.word(), format!("ADDED ns/c@{after}"));

        let mut late = fixture.watch(first, &Scope::All, &from(after));
        assert_eq!(late.word(), "end");
        let last = *puts.last().unwrap();
        let mut old = fixture.watch(&next, &Scope::All, &from(last - 1));
        assert!(old.word().starts_with("ERROR 410"));
        let mut resumed = fixture.watch(&next, &Scope::All, &from(last));
        assert_eq!(resumed.word(), format!("ADDED ns/c@{after}"));
        assert!(fixture.list(first, &Scope::All, &at("0")).is_ok());
        // The series of a handle that is not new ends nothing.
        first.end_earlier_series();
        next.end_earlier_series();
        let put = fixture.put_pod("ns/d");
        assert_eq!(new.word(), format!("ADDED ns/d@{put}"));
    });
}

/// A kind of which a test can tell whether the cache still has it.
#[derive(Debug)]
struct Tracked {
    inner: JsonKind,
    _token: Arc<()>,
}

impl Kind for Tracked {
    fn api_version(&self) -> &str {
        self.inner.api_version()
    }
    fn kind(&self) -> &str {
        self.inner.kind()
    }
    fn extract(&self, value: &[u8]) -> Result<Attributes, DecodeError> {
        self.inner.extract(value)
    }
    fn form(&self) -> Arc<dyn Form> {
        self.inner.form()
    }
}

#[test]
fn wc_117_nothing_is_left_of_a_thousand_resources_that_were_added_and_removed() {
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let running = feeder.spawn();
    let pods = cache.add(config()).unwrap();
    block_on(pods.wait_until_ready()).unwrap();
    let mut watch = block_on(pods.watch(&Scope::All, &from("1"))).unwrap();
    let token = Arc::new(());
    for number in 0..100 {
        engine.put(format!("/w/ns/{number}"), OBJECT).unwrap();
    }
    let mut ended: Vec<CacheWatcher> = Vec::new();
    for round in 0..1_000 {
        let kind = Tracked {
            inner: JsonKind::new("example.org/v1", "Widget"),
            _token: token.clone(),
        };
        let widgets = cache
            .add(ResourceConfig::namespaced(kind, "widgets", "/w"))
            .unwrap();
        // Some are removed before or during their load.
        if round % 3 != 0 {
            block_on(widgets.wait_until_ready()).unwrap();
            let put = engine.put("/w/ns/1", OBJECT).unwrap().revision;
            let start = from(put.0 - 1);
            let mut watch = block_on(widgets.watch(&Scope::All, &start)).unwrap();
            assert!(block_on(cache.remove(&widgets)));
            assert!(watch.next_blocking().is_some());
            assert!(watch.next_blocking().is_none());
            ended.push(watch);
            ended.truncate(3);
        } else {
            assert!(block_on(cache.remove(&widgets)));
        }
    }
    drop(ended);
    let freed = poll::until(poll::LIMIT, || {
        (Arc::strong_count(&token) == 1).then_some(())
    });
    assert!(freed.is_some(), "all resources are freed");
    assert_eq!(cache.resources().len(), 1);
    // The others are as before.
    let put = engine.put(format!("{PODS}/ns/a"), OBJECT).unwrap().revision;
    let event = watch.next_blocking().unwrap();
    assert_eq!(describe(&event), format!("ADDED ns/a@{put}"));
    drop(running);
}

#[test]
fn wc_117_removals_beside_requests_and_writes_neither_hang_nor_lose_the_last_changes() {
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let _running = feeder.spawn();
    let widgets = || ResourceConfig::namespaced(JsonKind::new("e/v1", "Widget"), "widgets", "/w");
    for round in 0..50 {
        let resource = cache.add(widgets()).unwrap();
        block_on(resource.wait_until_ready()).unwrap();
        let start = engine.current_revision();
        let watches: Vec<_> = (0..4)
            .map(|_| {
                let mut watch = block_on(resource.watch(&Scope::All, &from(start))).unwrap();
                thread::spawn(move || {
                    let mut last = start;
                    while let Some(event) = watch.next_blocking() {
                        let revision = event.revision().expect("no error");
                        assert_eq!(revision, last.next(), "no gap");
                        last = revision;
                    }
                    last
                })
            })
            .collect();
        let lister = {
            let resource = resource.clone();
            thread::spawn(move || {
                loop {
                    let list = block_on(resource.list(&Scope::All, &ListOptions::default()));
                    match list {
                        Ok(list) => drop(list.into_objects().unwrap()),
                        Err(error) => return error,
                    }
                }
            })
        };
        for number in 0..20 {
            engine.put(format!("/w/ns/{number}"), OBJECT).unwrap();
        }
        let last = engine.current_revision();
        if round % 2 == 0 {
            assert!(block_on(cache.remove(&resource)));
        } else {
            let next = block_on(cache.reconfigure(&resource, widgets())).unwrap();
            assert!(block_on(cache.remove(&next)));
        }
        for watch in watches {
            assert_eq!(watch.join().unwrap(), last);
        }
        assert_eq!(lister.join().unwrap(), RequestError::Removed);
    }
}
