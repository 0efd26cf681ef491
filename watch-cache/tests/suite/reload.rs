//! T-43, T-45, T-51, and caches whose source disconnects, compacts, or is replaced.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use pollster::block_on;
use revstore_engine::{Engine, Jump};
use revstore_watch_cache::cache::Readiness;
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::source::{
    Batch, BatchStream, ConditionalWrite, ListPage, ListRequest, Source, SourceError, WatchRequest,
    WriteOutcome,
};
use revstore_watch_cache::{
    CacheWatcher, EngineSource, ListOptions, RequestError, ResourceCache, Revision, Scope,
    WatchCache, WatchOptions,
};

use crate::support::{
    Fixture, InterruptibleSource, PODS, at, config, describe, exact, from, pod, poll_once,
    run_until_idle, short_window,
};

const SECOND: Duration = Duration::from_secs(1);

/// A cache whose feeder runs only when a test polls it.
struct PolledCache {
    clock: ManualClock,
    pods: ResourceCache,
    feeder: Pin<Box<dyn Future<Output = ()>>>,
}

impl PolledCache {
    fn over(source: Arc<dyn Source>) -> Self {
        let clock = ManualClock::new();
        let (cache, feeder) = WatchCache::builder(source)
            .clock(Arc::new(clock.clone()))
            .build();
        let pods = cache.add(config()).unwrap();
        Self {
            clock,
            pods,
            feeder: Box::pin(feeder.run()),
        }
    }

    fn step(&mut self) {
        assert!(run_until_idle(&mut self.feeder).is_pending());
    }

    fn watch(&self, options: &WatchOptions) -> CacheWatcher {
        block_on(self.pods.watch(&Scope::All, options)).unwrap()
    }

    fn keys(&self, options: &ListOptions) -> Result<Vec<String>, RequestError> {
        let list = block_on(self.pods.list(&Scope::All, options))?;
        let objects = list.into_objects()?;
        Ok(objects.iter().map(|pod| pod.name().to_owned()).collect())
    }
}

fn put(engine: &Engine, name: &str) -> i64 {
    let put = engine.put(format!("{PODS}/ns/{name}"), pod("ns/x", "", ""));
    put.unwrap().revision.0
}

/// Returns an engine with the given pods at a revision.
fn engine_at(revision: i64, names: &[&str]) -> Engine {
    let engine = Engine::builder()
        .start_revision(Revision(revision - names.len() as i64))
        .unwrap()
        .build();
    for name in names {
        put(&engine, name);
    }
    assert_eq!(engine.current_revision().0, revision);
    engine
}

/// Returns the events that are ready, and "end" if the watch has ended.
fn ready_events(watch: &mut CacheWatcher) -> Vec<String> {
    let mut events: Vec<String> = std::iter::from_fn(|| watch.try_next())
        .map(|event| describe(&event))
        .collect();
    if let Poll::Ready(None) = poll_once(std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(Pin::new(&mut *watch), context)
    })) {
        events.push("end".into());
    }
    events
}

#[test]
fn wc_115_the_feeder_resumes_after_a_disconnect_and_loads_again_after_a_compaction() {
    let engine = engine_at(10, &["a"]);
    let source = InterruptibleSource::new(engine.clone());
    let mut polled = PolledCache::over(source.clone());
    polled.step();
    let mut open = polled.watch(&from(10));

    source.interrupt(&SourceError::Unavailable("no route".into()));
    polled.step();
    put(&engine, "b");
    assert_eq!(
        polled.pods.readiness(),
        Readiness::Ready,
        "the cached objects remain readable"
    );
    polled.clock.advance(SECOND);
    polled.step();
    assert_eq!(
        ready_events(&mut open),
        ["ADDED ns/b@11"],
        "the watch delivers all events"
    );
    assert_eq!(polled.pods.metrics().initializations, 1);

    put(&engine, "c");
    source.interrupt(&SourceError::Compacted);
    polled.step();
    assert_eq!(polled.pods.metrics().initializations, 2);
    assert_eq!(ready_events(&mut open), ["end"], "there is no error event");
    assert_eq!(polled.keys(&at("")).unwrap(), ["a", "b", "c"]);
    // The window is empty after the load.
    assert_eq!(
        ready_events(&mut polled.watch(&from(11))),
        ["ERROR 410 too old resource version: 11 (12)", "end"]
    );
    assert!(ready_events(&mut polled.watch(&from(12))).is_empty());
}

#[test]
fn wc_316_a_store_at_a_lower_revision_is_loaded_and_old_versions_are_410() {
    let source = InterruptibleSource::new(engine_at(1000, &["a", "b"]));
    let mut polled = PolledCache::over(source.clone());
    polled.step();
    let bookmarks = from(1000).allow_bookmarks(true);
    let mut open = polled.watch(&bookmarks);

    // The store is replaced by one that was restored from a backup.
    let restored = engine_at(500, &["a", "z"]);
    source.replace(restored.clone(), false);
    // A request for the most recent state fails before the feeder has detected the replacement.
    let error = polled.keys(&at("")).unwrap_err();
    let text = "storage is (re)initializing: the store was replaced: it was at revision 1000 and is \
                at 500";
    assert_eq!((error.code(), error.to_string().as_str()), (429, text));
    polled.step();
    polled.clock.advance(SECOND);
    polled.step();
    assert_eq!(
        ready_events(&mut open),
        [
            "ERROR 410 the store was replaced: it was at revision 1000 and is at 500",
            "end"
        ]
    );
    assert_eq!(polled.pods.readiness(), Readiness::Ready);
    assert_eq!(polled.keys(&at("")).unwrap(), ["a", "z"]);
    let list = block_on(polled.pods.list(&Scope::All, &at("0"))).unwrap();
    assert_eq!(
        list.revision.0, 500,
        "the list has the lower revision of the new store"
    );
    for (requested, expected) in [
        (400, "ERROR 410 too old resource version: 400 (500)"),
        (
            999,
            "ERROR 410 the store was replaced: it was at revision 1000 and is at 500",
        ),
    ] {
        assert_eq!(
            ready_events(&mut polled.watch(&from(requested))),
            [expected, "end"]
        );
    }
    // A revision above the known ones may still be reached (WC-315).
    assert!(ready_events(&mut polled.watch(&from(1001))).is_empty());
    let mut fresh = polled.watch(&from(500));
    put(&restored, "new");
    polled.step();
    assert_eq!(ready_events(&mut fresh), ["ADDED ns/new@501"]);
    let metrics = polled.pods.metrics();
    assert_eq!((metrics.replacements, metrics.expired_replaced), (1, 2));
    assert_eq!(metrics.resource_version, 501);
}

#[test]
fn wc_316_a_replaced_store_at_a_higher_revision_is_loaded_too() {
    let source = InterruptibleSource::new(engine_at(100, &["a"]));
    let mut polled = PolledCache::over(source.clone());
    polled.step();
    let mut open = polled.watch(&from(100));
    source.replace(engine_at(200, &["z"]), true);
    polled.step();
    polled.clock.advance(SECOND);
    polled.step();
    assert_eq!(
        ready_events(&mut open),
        [
            "ERROR 410 the store was replaced: it was at revision 100 and is at 200",
            "end"
        ]
    );
    assert_eq!(polled.keys(&at("0")).unwrap(), ["z"]);
    assert_eq!(
        ready_events(&mut polled.watch(&from(150))),
        ["ERROR 410 too old resource version: 150 (200)", "end"]
    );
}

/// A source whose watches do not deliver changes of one key while a flag is set.
#[derive(Debug)]
struct LossySource {
    inner: EngineSource,
    loses_changes: Arc<AtomicBool>,
}

impl Source for LossySource {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        self.inner.current_revision()
    }
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        self.inner.list(request)
    }
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(async move {
            use futures_util::StreamExt as _;
            let batches = self.inner.watch(request).await?;
            let loses_changes = self.loses_changes.clone();
            let filter = move |batch: Result<Batch, SourceError>| {
                let mut batch = batch?;
                if loses_changes.load(Ordering::Relaxed) {
                    batch
                        .changes
                        .retain(|change| !change.key.ends_with(b"/lost"));
                }
                Ok(batch)
            };
            Ok(Box::pin(batches.map(filter)) as BatchStream)
        })
    }
    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        self.inner.write(write)
    }
}

#[test]
fn t_51_an_inconsistent_cache_answers_from_its_source_until_it_is_loaded_again() {
    let engine = engine_at(10, &["a"]);
    let loses_changes = Arc::new(AtomicBool::new(true));
    let mut polled = PolledCache::over(Arc::new(LossySource {
        inner: EngineSource::new(engine.clone()),
        loses_changes: loses_changes.clone(),
    }));
    polled.step();
    let check = |polled: &PolledCache| block_on(polled.pods.check_consistency()).unwrap();
    assert!(check(&polled).is_consistent());
    put(&engine, "lost");
    let last = put(&engine, "b");
    polled.step();
    assert_eq!(
        polled.keys(&at("0")).unwrap(),
        ["a", "b"],
        "the difference is not detected yet"
    );
    let mut open = polled.watch(&from(last));
    let report = check(&polled);
    assert!(!report.is_consistent());
    assert_eq!(report.revision.0, last);

    // WC-135: from now on the source answers all gets and lists.
    assert_eq!(polled.pods.readiness(), Readiness::Inconsistent);
    for options in [at(""), at("0"), at(last), exact(last)] {
        assert_eq!(
            polled.keys(&options).unwrap(),
            ["a", "b", "lost"],
            "{options:?}"
        );
    }
    // WC-224: a client that gets a page at version 0 requests pages from then on.
    let limited = at("0").limit(1);
    assert_eq!(polled.keys(&limited).unwrap(), ["a", "b", "lost"]);
    let error = block_on(polled.pods.watch(&Scope::All, &from(last))).unwrap_err();
    let text = "storage is (re)initializing: the cache differs from its source";
    assert_eq!((error.code(), error.to_string().as_str()), (429, text));

    polled.step();
    assert_eq!(polled.pods.readiness(), Readiness::Ready);
    assert_eq!(polled.keys(&at("0")).unwrap(), ["a", "b", "lost"]);
    assert_eq!(ready_events(&mut open), ["end"], "WC-115");
    loses_changes.store(false, Ordering::Relaxed);
    put(&engine, "c");
    polled.step();
    assert!(check(&polled).is_consistent());
    let metrics = polled.pods.metrics();
    assert_eq!(
        (
            metrics.consistency_checks_passed,
            metrics.consistency_checks_failed,
            metrics.consistency_checks_aborted,
        ),
        (2, 1, 0)
    );
    assert_eq!((metrics.initializations, metrics.lists_from_source), (2, 5));
}

#[test]
fn t_51_a_check_of_objects_that_were_replaced_meanwhile_has_no_effect() {
    let engine = engine_at(10, &["a"]);
    // A check pauses after each 1000 keys.
    for number in 0..2500 {
        put(&engine, &format!("p{number}"));
    }
    let loses_changes = Arc::new(AtomicBool::new(true));
    let mut polled = PolledCache::over(Arc::new(LossySource {
        inner: EngineSource::new(engine.clone()),
        loses_changes: loses_changes.clone(),
    }));
    let run_feeder = |polled: &mut PolledCache| (0..100).for_each(|_| polled.step());
    run_feeder(&mut polled);
    put(&engine, "lost");
    put(&engine, "b");
    run_feeder(&mut polled);
    let pods = polled.pods.clone();
    let mut late = Box::pin(pods.check_consistency());
    assert!(poll_once(&mut late).is_pending());
    // Another check has the cache loaded again.
    assert!(!block_on(pods.check_consistency()).unwrap().is_consistent());
    run_feeder(&mut polled);
    assert_eq!(pods.readiness(), Readiness::Ready);
    let error = block_on(late).unwrap_err();
    let text = "storage is (re)initializing: the cache was loaded again during the check";
    assert_eq!((error.code(), error.to_string().as_str()), (429, text));
    assert_eq!(pods.readiness(), Readiness::Ready);
    let metrics = pods.metrics();
    assert_eq!(
        (
            metrics.consistency_checks_failed,
            metrics.consistency_checks_aborted,
            metrics.initializations
        ),
        (1, 1, 2)
    );
}

#[test]
fn t_51_the_feeder_checks_consistency_every_5_to_7_and_a_half_minutes() {
    let engine = engine_at(10, &["a"]);
    // More keys than one page of the check.
    for number in 0..2500 {
        put(&engine, &format!("p{number}"));
    }
    let loses_changes = Arc::new(AtomicBool::new(false));
    let mut polled = PolledCache::over(Arc::new(LossySource {
        inner: EngineSource::new(engine.clone()),
        loses_changes: loses_changes.clone(),
    }));
    let run_feeder = |polled: &mut PolledCache| (0..100).for_each(|_| polled.step());
    run_feeder(&mut polled);
    polled.clock.advance(299 * SECOND);
    run_feeder(&mut polled);
    assert_eq!(polled.pods.metrics().consistency_checks_passed, 0);
    polled.clock.advance(152 * SECOND);
    run_feeder(&mut polled);
    assert_eq!(polled.pods.metrics().consistency_checks_passed, 1);
    loses_changes.store(true, Ordering::Relaxed);
    put(&engine, "lost");
    put(&engine, "b");
    run_feeder(&mut polled);
    polled.clock.advance(451 * SECOND);
    run_feeder(&mut polled);
    assert_eq!(polled.pods.metrics().consistency_checks_failed, 1);
    assert_eq!(
        polled.keys(&at("0")).unwrap().len(),
        2503,
        "the cache is loaded again"
    );
    assert_eq!(polled.pods.readiness(), Readiness::Ready);
}

// Shows INV-1 and WC-341.
#[test]
fn t_45_reloads_during_reads_lose_no_event_and_revisions_never_decrease() {
    let engine = engine_at(10, &["a"]);
    let source = InterruptibleSource::new(engine.clone());
    let (cache, feeder) = WatchCache::builder(source.clone()).build();
    let pods = cache.add(config()).unwrap();
    let running = feeder.spawn();
    block_on(pods.wait_until_ready()).unwrap();
    let is_done = AtomicBool::new(false);
    let (closed, expired) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (mut closed, mut expired) = (0, 0);
                    // Each change creates one revision and one pod, so the number of pods at a
                    // revision is known.
                    let mut known = 10;
                    while !is_done.load(Ordering::Acquire) {
                        let Ok(mut watch) = block_on(pods.watch(&Scope::All, &from(known))) else {
                            // The cache is not ready: try again from the same revision.
                            std::thread::yield_now();
                            continue;
                        };
                        let error = loop {
                            match watch.next_blocking() {
                                None => break None,
                                Some(event) => match event.revision() {
                                    None => break Some(event),
                                    Some(revision) => {
                                        assert_eq!(revision.0, known + 1, "no gap, no repetition");
                                        known = revision.0;
                                    }
                                },
                            }
                        };
                        closed += u64::from(error.is_none());
                        if error.is_some() {
                            expired += 1;
                            // The client lists again.
                            let Ok(list) = block_on(pods.list(&Scope::All, &at(known))) else {
                                continue;
                            };
                            assert!(list.revision.0 >= known, "the revision must not decrease");
                            known = list.revision.0;
                            assert_eq!(list.items.count() as i64, known - 9);
                        }
                    }
                    (closed, expired)
                })
            })
            .collect();
        for round in 0..50 {
            for number in 0..40 {
                put(&engine, &format!("p{round}-{number}"));
            }
            let loads = pods.metrics().initializations;
            source.interrupt(&SourceError::Compacted);
            while pods.metrics().initializations == loads {
                std::thread::yield_now();
            }
            block_on(pods.wait_until_ready()).unwrap();
        }
        is_done.store(true, Ordering::Release);
        // Ends the open watches.
        drop(running);
        let sums = readers.into_iter().map(|reader| reader.join().unwrap());
        sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    assert!(
        closed >= 3,
        "{closed} watches ended without an error, {expired} with one"
    );
    assert_eq!(pods.metrics().initializations, 51);
}

// Shows WC-140.
#[test]
fn t_43_a_watch_that_reads_too_slowly_ends_after_a_gapless_prefix() {
    let fixture = Fixture::with(config().window(short_window(1000)), |builder| builder);
    let start = fixture.current();
    let mut watch = block_on(fixture.pods.watch(&Scope::All, &from(start))).unwrap();
    for _ in 0..1000 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    // The watcher copies a chunk of 128 events, and 60 of them are read.
    let revision = |watch: &mut CacheWatcher| watch.try_next().unwrap().revision();
    for expected in 1..=60 {
        assert_eq!(revision(&mut watch).unwrap().0, start + expected);
    }
    // The watcher still delivers the copied events; the others are evicted.
    for _ in 0..1000 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    let mut next = start + 61;
    let error = loop {
        match watch.try_next().unwrap() {
            revstore_watch_cache::WatchEvent::Error(error) => break error,
            event => {
                assert_eq!(event.revision().unwrap().0, next, "nothing is skipped");
                next += 1;
            }
        }
    };
    let (sent, oldest) = (next - 1, start + 1000);
    assert!(sent < oldest);
    assert_eq!(
        error.to_string(),
        format!("too old resource version: {sent} ({oldest})")
    );
    assert!(watch.try_next().is_none());
    assert_eq!(fixture.pods.metrics().terminated_watchers, 1);
}

#[test]
fn t_42_the_window_grows_and_shrinks_while_watchers_read() {
    let fixture = Fixture::with(config().window(short_window(5000)), |builder| builder);
    let engine = fixture.engine().clone();
    let start = fixture.current();
    let reader = |count: i64| {
        let mut watch = block_on(fixture.pods.watch(&Scope::All, &from(start))).unwrap();
        move || {
            for expected in 1..=count {
                let event = watch.next_blocking().unwrap();
                assert_eq!(event.revision().unwrap().0, start + expected);
            }
        }
    };
    let readers = [reader(4000), reader(4000)];
    std::thread::scope(|scope| {
        for reader in readers {
            scope.spawn(reader);
        }
        for _ in 0..4000 {
            put(&engine, "a");
        }
    });
    fixture.wait_until_fresh();
    let grown = fixture.pods.metrics();
    assert!(
        grown.window_capacity >= 4000 && grown.capacity_increases >= 1,
        "{grown:?}"
    );
    assert_eq!(grown.capacity_decreases, 0);
    let mut lagging = block_on(fixture.pods.watch(&Scope::All, &from(start))).unwrap();
    assert_eq!(lagging.try_next().unwrap().revision().unwrap().0, start + 1);
    // All events are too old; the capacity shrinks as further events arrive.
    fixture.clock.advance(301 * SECOND);
    for _ in 0..10 {
        put(&engine, "a");
        fixture.wait_until_fresh();
    }
    let shrunk = fixture.pods.metrics();
    assert!(
        shrunk.capacity_decreases > 1 && shrunk.window_capacity < 1000,
        "{shrunk:?}"
    );
    assert_eq!(shrunk.window_events, 10);
    let mut newest = block_on(fixture.pods.watch(&Scope::All, &from(start + 4000))).unwrap();
    for expected in 1..=10 {
        let event = newest.try_next().unwrap();
        assert_eq!(event.revision().unwrap().0, start + 4000 + expected);
    }
}

#[test]
fn a_store_whose_revision_was_raised_keeps_its_history() {
    let engine = engine_at(10, &["a", "b", "c"]);
    let jump = Jump {
        current: Revision(1_000),
        mark_compacted: false,
    };
    let raised = engine.to_builder().fork_at(&engine, jump).unwrap();
    let mut polled = PolledCache::over(Arc::new(EngineSource::new(raised.clone())));
    polled.step();
    // The cache is as new as the store, although no event has this revision.
    assert_eq!(polled.pods.readiness(), Readiness::Ready);
    assert_eq!(polled.keys(&at("")).unwrap(), ["a", "b", "c"]);
    assert_eq!(polled.keys(&at("1000")).unwrap(), ["a", "b", "c"]);
    let future = polled.keys(&exact(1_001)).unwrap_err();
    assert!(matches!(future, RequestError::TooLarge { .. }), "{future}");
    // Before the raise, within it, and after it.
    assert_eq!(polled.keys(&exact(9)).unwrap(), ["a", "b"]);
    assert_eq!(polled.keys(&exact(500)).unwrap(), ["a", "b", "c"]);
    let mut resumed = polled.watch(&from(8));
    let mut within = polled.watch(&from(500));
    assert_eq!(
        ready_events(&mut resumed),
        ["ADDED ns/b@9", "ADDED ns/c@10"]
    );
    assert_eq!(put(&raised, "d"), 1_001);
    polled.step();
    assert_eq!(ready_events(&mut resumed), ["ADDED ns/d@1001"]);
    assert_eq!(ready_events(&mut within), ["ADDED ns/d@1001"]);
    assert_eq!(polled.keys(&exact(999)).unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_store_without_events_whose_revision_was_raised_is_ready() {
    let engine = Engine::builder().build();
    let jump = Jump {
        current: Revision(7),
        mark_compacted: false,
    };
    let raised = engine.to_builder().fork_at(&engine, jump).unwrap();
    let mut polled = PolledCache::over(Arc::new(EngineSource::new(raised.clone())));
    polled.step();
    assert_eq!(polled.keys(&at("")).unwrap(), Vec::<String>::new());
    let mut watch = polled.watch(&from(3));
    assert_eq!(put(&raised, "a"), 8);
    polled.step();
    assert_eq!(ready_events(&mut watch), ["ADDED ns/a@8"]);
}
