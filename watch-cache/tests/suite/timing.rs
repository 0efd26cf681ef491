//! T-37 to T-41, T-44, T-46, T-48, T-50: bookmarks, timeouts, readiness, and lagging caches.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream as _;
use futures_core::future::BoxFuture;
use revstore_engine::Engine;
use revstore_watch_cache::cache::{Readiness, WindowLimits};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::source::{
    BatchStream, ConditionalWrite, ListPage, ListRequest, Source, SourceError, WatchRequest,
    WriteOutcome,
};
use revstore_watch_cache::{
    CacheWatcher, EngineSource, GetOptions, JsonKind, ListOptions, RequestError, ResourceCache,
    ResourceConfig, Revision, Scope, WatchCache, WatchOptions,
};

use crate::support::{
    Events, Fixture, after, at, config, from, namespace, object, poll_once, run_until_idle,
    selector, short_window,
};

const SECOND: Duration = Duration::from_secs(1);

fn bookmarked(options: WatchOptions, timeout: Option<u64>) -> WatchOptions {
    options
        .allow_bookmarks(true)
        .timeout(timeout.map(Duration::from_secs))
}

/// Returns the events of a watch while the clock advances second by second, each with its second.
fn events_by_second(
    fixture: &Fixture,
    events: &mut Events<'_>,
    seconds: u64,
) -> Vec<(u64, String)> {
    let mut received = Vec::new();
    for second in 1..=seconds {
        // The first poll sets the timers; the clock advances before the next one.
        assert!(events.is_silent(), "an event arrived before its time");
        fixture.clock.advance(SECOND);
        loop {
            let stream = &mut events.stream;
            let next = std::future::poll_fn(|context| {
                futures_core::Stream::poll_next(stream.as_mut(), context)
            });
            match poll_once(next) {
                std::task::Poll::Ready(Some(event)) => {
                    received.push((second, crate::support::describe(&event)));
                }
                std::task::Poll::Ready(None) => {
                    received.push((second, "end".into()));
                    return received;
                }
                std::task::Poll::Pending => break,
            }
        }
    }
    received
}

// Shows WC-304.
#[test]
fn t_37_and_t_39_bookmarks_come_every_minute_and_each_second_before_the_deadline() {
    let fixture = Fixture::new();
    let current = fixture.put_pod("ns/a");
    let newest = fixture.put_elsewhere();
    fixture.wait_until_fresh();
    let watch = |timeout, bookmarks, seconds| {
        let options = bookmarked(from(current), timeout).allow_bookmarks(bookmarks);
        let mut events = fixture.watch(&fixture.pods, &Scope::All, &options);
        events_by_second(&fixture, &mut events, seconds)
    };
    let bookmark = |second| (second, format!("BOOKMARK@{newest}"));
    let end = |second| (second, "end".to_owned());
    assert_eq!(watch(Some(3), false, 5), [end(3)]);
    assert_eq!(watch(Some(1), true, 5), [end(1)]);
    assert_eq!(watch(Some(3), true, 5), [bookmark(1), bookmark(2), end(3)]);
    assert_eq!(
        watch(Some(130), true, 140),
        [
            bookmark(60),
            bookmark(120),
            bookmark(128),
            bookmark(129),
            end(130)
        ]
    );
    assert_eq!(watch(None, true, 125), [bookmark(60), bookmark(120)]);
}

#[test]
fn wc_322_a_bookmark_period_of_zero_is_one_second() {
    let fixture = Fixture::with(config(), |builder| builder.bookmark_period(Duration::ZERO));
    let current = fixture.put_pod("ns/a");
    let newest = fixture.put_elsewhere();
    fixture.wait_until_fresh();
    let bookmark = |second| (second, format!("BOOKMARK@{newest}"));
    let mut events = fixture.watch(&fixture.pods, &Scope::All, &bookmarked(from(current), None));
    let received = events_by_second(&fixture, &mut events, 3);
    assert_eq!(received, [bookmark(1), bookmark(2), bookmark(3)]);
}

#[test]
fn wc_322_a_watch_gets_no_bookmark_at_the_version_of_its_start() {
    let fixture = Fixture::new();
    let current = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let watch = |options: WatchOptions| {
        let options = bookmarked(options, Some(70));
        fixture.watch(&fixture.pods, &Scope::All, &options)
    };
    let end = [(70, "end".to_owned())];
    let mut resumed = watch(from(current));
    assert_eq!(events_by_second(&fixture, &mut resumed, 80), end);
    let mut listed = watch(from("0"));
    let initial = [
        format!("ADDED ns/a@{current}"),
        format!("BOOKMARK@{current} end"),
    ];
    assert_eq!(listed.words(2), initial);
    assert_eq!(events_by_second(&fixture, &mut listed, 80), end);
    // Nor does a stop make one.
    let mut stopped = watch(from(current));
    assert!(stopped.is_silent());
    fixture.cache.stop();
    assert_eq!(stopped.word(), "end");
}

#[test]
fn t_38_and_t_40_revisions_of_bookmarks_rise_without_matching_events() {
    let fixture = Fixture::new();
    let start = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let options = bookmarked(from(start), None).selector(selector("app=none", ""));
    let mut filtered = fixture.watch(&fixture.pods, &Scope::All, &options);
    let mut last = start;
    for round in 0..5 {
        for number in 0..20 {
            fixture.put_pod(&format!("ns/p{round}{number}"));
        }
        let newest = fixture.put_elsewhere();
        fixture.wait_until_fresh();
        assert!(filtered.is_silent());
        fixture.clock.advance(60 * SECOND);
        assert_eq!(
            filtered.word(),
            format!("BOOKMARK@{newest}"),
            "the global revision (WC-324)"
        );
        assert!(newest > last);
        last = newest;
    }
}

// Shows WC-321.
#[test]
fn t_38_a_bookmark_follows_all_events_up_to_its_revision() {
    let fixture = Fixture::new();
    let mut events = fixture.watch(&fixture.pods, &Scope::All, &bookmarked(from(1), None));
    for round in 0..20 {
        for number in 0..10 {
            fixture.put_pod(&format!("ns/p{round}-{number}"));
        }
        fixture.clock.advance(10 * SECOND);
    }
    fixture.wait_until_fresh();
    let (mut last, mut bookmarks) = (0, 0);
    let mut count = 0;
    while count < 200 {
        let event = events.next().unwrap();
        let revision = event.revision().unwrap().0;
        if event.object().is_some() {
            assert!(
                revision > last,
                "an event follows a bookmark of its revision or a later one"
            );
            count += 1;
        } else {
            assert!(revision >= last);
            bookmarks += 1;
        }
        last = revision;
    }
    assert!(
        bookmarks >= 1,
        "bookmarks are sent between events too (WC-322)"
    );
}

#[test]
fn t_41_watches_can_be_dropped_while_events_and_bookmarks_are_due() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..100_u64 {
                    let options = bookmarked(from(1), Some(round % 4 + 1));
                    let mut watch = fixture
                        .wait(fixture.pods.watch(&Scope::All, &options))
                        .unwrap();
                    for _ in 0..round % 5 {
                        let _ = watch.try_next();
                    }
                }
            });
        }
        scope.spawn(|| {
            for number in 0..300 {
                fixture.put_pod(&format!("ns/p{}", number % 9));
                fixture.clock.advance(SECOND);
            }
        });
    });
    assert_eq!(fixture.pods.metrics().watchers, 0);
}

/// A cache whose feeder runs only when a test polls it.
struct PolledCache {
    engine: Engine,
    clock: ManualClock,
    cache: WatchCache,
    pods: ResourceCache,
    feeder: Pin<Box<dyn Future<Output = ()>>>,
}

impl PolledCache {
    fn over(wrap: impl FnOnce(EngineSource) -> Arc<dyn Source>) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let source = wrap(EngineSource::new(engine.clone()));
        let (cache, feeder) = WatchCache::builder(source)
            .clock(Arc::new(clock.clone()))
            .build();
        let pods = cache.add(config()).unwrap();
        Self {
            engine,
            clock,
            cache,
            pods,
            feeder: Box::pin(feeder.run()),
        }
    }

    fn put(&self, key: &str) -> i64 {
        let key = format!("{}/{key}", crate::support::PODS);
        self.engine
            .put(key, "{\"metadata\":{}}")
            .unwrap()
            .revision
            .0
    }

    fn step(&mut self) {
        assert!(run_until_idle(&mut self.feeder).is_pending());
    }

    /// Returns a watch that starts at the current revision.
    fn watch_from_now(&self) -> CacheWatcher {
        let (scope, options) = (Scope::All, from(self.cache.revision()));
        match poll_once(self.pods.watch(&scope, &options)) {
            Poll::Ready(Ok(watch)) => watch,
            other => panic!("expected a started watch, got {other:?}"),
        }
    }
}

fn engine(source: EngineSource) -> Arc<dyn Source> {
    Arc::new(source)
}

// Shows WC-131 and WC-232.
#[test]
fn t_44_waits_end_at_once_later_or_after_three_seconds() {
    let mut polled = PolledCache::over(engine);
    polled.step();
    let first = polled.put("ns/a");
    polled.step();
    let fresh = |revision: i64| polled.pods.wait_until_fresh(Revision(revision));
    assert!(poll_once(fresh(first)).is_ready(), "at once");
    let second = polled.put("ns/b");
    let mut later = Box::pin(fresh(second));
    assert!(poll_once(&mut later).is_pending());
    drop(later);
    let timeout = after(&polled.clock, 3 * SECOND, fresh(second)).unwrap_err();
    assert_eq!(timeout.code(), 504);
    let waits = polled.pods.metrics().read_wait_seconds;
    // The first wait took no time and the last one 3 s. The dropped one is not counted.
    assert_eq!((waits.count, waits.sum), (2, 3.0));
    let (pods, key) = (polled.pods.clone(), object("ns/b"));
    let wanted = GetOptions::default().resource_version(second.to_string());
    let mut get = Box::pin(pods.get(&key, &wanted));
    assert!(poll_once(&mut get).is_pending());
    polled.step();
    let std::task::Poll::Ready(found) = poll_once(&mut get) else {
        panic!("expected the get to complete, because the cache has reached the revision")
    };
    assert_eq!(found.unwrap().unwrap().revision().0, second);
}

// Shows WC-104 and WC-236.
#[test]
fn t_46_and_t_48_requests_depend_on_the_readiness_of_the_cache() {
    let mut polled = PolledCache::over(engine);
    let written = polled.put("ns/a");
    let poll = crate::support::poll_once::<BoxFuture<'_, Result<_, _>>>;
    let list = |pods: &ResourceCache, options: ListOptions| {
        let pods = pods.clone();
        match poll(Box::pin(async move {
            pods.list(&Scope::All, &options)
                .await
                .map(|list| list.revision.0)
        })) {
            std::task::Poll::Ready(result) => result,
            std::task::Poll::Pending => panic!("expected the list to complete at once"),
        }
    };
    let limited = || ListOptions::default().limit(5);
    let selected = || limited().selector(selector("a=b", ""));
    for (options, code) in [(at(""), 429), (at("0"), 429), (selected(), 429)] {
        let error = list(&polled.pods, options).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (code, "storage is (re)initializing")
        );
        assert!(error.status().retry_after_seconds().is_some());
    }
    assert_eq!(
        list(&polled.pods, limited()).unwrap(),
        written,
        "the source answers a page without a selector"
    );
    let (key, any) = (object("ns/a"), GetOptions::default().resource_version("0"));
    assert!(
        matches!(
            poll_once(polled.pods.get(&key, &any)),
            std::task::Poll::Ready(Ok(Some(_)))
        ),
        "the source answers a get"
    );
    let (scope, options) = (Scope::All, WatchOptions::default());
    let watch = poll_once(polled.pods.watch(&scope, &options));
    let std::task::Poll::Ready(Err(error)) = watch else {
        panic!("expected an error, because the cache is loading")
    };
    assert_eq!(error.code(), 429);
    polled.step();
    assert_eq!(polled.pods.readiness(), Readiness::Ready);
    assert_eq!(list(&polled.pods, at("0")).unwrap(), written);

    // WC-145: watches deliver their remaining events and a last bookmark, then end.
    let options = bookmarked(from(written), None);
    let std::task::Poll::Ready(Ok(mut open)) = poll_once(polled.pods.watch(&scope, &options))
    else {
        panic!("expected the watch to start at once, because the cache is ready")
    };
    let second = polled.put("ns/b");
    polled.step();
    polled.cache.stop();
    assert!(poll_once(&mut polled.feeder).is_ready());
    let events: Vec<_> = std::iter::from_fn(|| open.next_blocking())
        .map(|event| crate::support::describe(&event))
        .collect();
    assert_eq!(
        events,
        [format!("ADDED ns/b@{second}"), format!("BOOKMARK@{second}")]
    );
    let error = list(&polled.pods, limited()).unwrap_err();
    assert_eq!(error, RequestError::Stopped);
    assert_eq!(error.to_string(), "apiserver cacher is stopped");
    polled.cache.stop();
}

// Shows WC-233.
#[test]
fn t_50_a_consistent_list_of_a_lagging_cache_comes_from_the_source() {
    let mut polled = PolledCache::over(engine);
    polled.step();
    let newest = polled.put("ns/a");
    let (scope, options) = (Scope::All, ListOptions::default());
    let list = after(
        &polled.clock,
        3 * SECOND,
        polled.pods.list(&scope, &options),
    )
    .unwrap();
    assert_eq!(
        (list.revision.0, list.into_objects().unwrap().len()),
        (newest, 1)
    );
    assert_eq!(polled.pods.metrics().consistent_read_fallbacks, 1);
}

#[test]
fn wc_315_and_wc_316_a_watch_from_a_future_revision_waits_until_its_timeout_or_the_grace_period() {
    let default = Fixture::new();
    let limited = Fixture::with(config(), |builder| {
        builder.future_rv_grace(Some(10 * SECOND))
    });
    for (fixture, has_grace) in [(&default, false), (&limited, true)] {
        let current = fixture.put_pod("ns/a");
        fixture.wait_until_fresh();
        let future = |after: i64| {
            let options = bookmarked(from(current + after), Some(300));
            fixture.watch(&fixture.pods, &Scope::All, &options)
        };
        let (mut reached, mut never) = (future(2), future(1000));
        assert!(reached.is_silent() && never.is_silent());
        for _ in 0..3 {
            fixture.put_pod("ns/b");
        }
        fixture.wait_until_fresh();
        assert_eq!(
            reached.word(),
            format!("MODIFIED ns/b@{}", current + 3),
            "the start is exclusive"
        );
        assert!(never.is_silent());
        fixture.clock.advance(10 * SECOND);
        let now = fixture.current();
        if has_grace {
            let requested = current + 1000;
            let error = format!("ERROR 410 too large resource version: {requested} ({now})");
            assert_eq!(never.words(2), [error, "end".into()]);
        } else {
            assert!(never.is_silent());
            fixture.clock.advance(290 * SECOND);
            assert_eq!(never.word(), "end");
        }
    }
}

#[test]
fn t_45_a_feeder_whose_events_are_compacted_loads_again_and_ends_its_watches() {
    let mut polled = PolledCache::over(engine);
    polled.step();
    polled.put("ns/a");
    polled.step();
    let (scope, options) = (Scope::All, from("0"));
    let std::task::Poll::Ready(Ok(mut open)) = poll_once(polled.pods.watch(&scope, &options))
    else {
        panic!("expected the watch to start at once, because the cache is ready")
    };
    assert!(open.try_next().is_some());
    // More events than the engine queues for a watcher, so that the feeder must read the history.
    for _ in 0..20_000 {
        polled.put("ns/b");
    }
    let newest = polled.put("ns/c");
    polled.engine.compact(Revision(newest)).unwrap().run();
    for _ in 0..1000 {
        polled.step();
        if polled.cache.revision().0 == newest {
            break;
        }
    }
    assert_eq!(polled.cache.revision().0, newest);
    let list = match poll_once(polled.pods.list(&namespace("ns"), &at(""))) {
        std::task::Poll::Ready(list) => list.unwrap().into_objects().unwrap(),
        std::task::Poll::Pending => panic!("expected the list to complete at once"),
    };
    assert_eq!(list.len(), 3);
    if polled.pods.metrics().initializations > 1 {
        assert!(
            open.try_next().is_none(),
            "the watch ends without an error (WC-115)"
        );
    }
}

#[test]
fn t_48_a_resource_that_is_added_to_a_stopped_cache_is_stopped() {
    let polled = PolledCache::over(engine);
    polled.cache.stop();
    let secrets = ResourceConfig::namespaced(
        JsonKind::new("v1", "Secret"),
        "secrets",
        "/registry/secrets",
    );
    let secrets = polled.cache.add(secrets).unwrap();
    assert_eq!(secrets.readiness(), Readiness::Stopped);
    let wait = poll_once(secrets.wait_until_ready());
    assert_eq!(wait, Poll::Ready(Err(RequestError::Stopped)));
}

#[test]
fn t_48_a_cache_whose_feeder_was_dropped_is_stopped() {
    let mut polled = PolledCache::over(engine);
    polled.step();
    let mut open = polled.watch_from_now();
    assert!(open.try_next().is_none());
    // The same happens when the task of the feeder is aborted, or when a kind panics.
    polled.feeder = Box::pin(std::future::pending());
    assert_eq!(polled.pods.readiness(), Readiness::Stopped);
    let next = poll_once(std::future::poll_fn(|context| {
        Pin::new(&mut open).poll_next(context)
    }));
    assert!(
        matches!(next, Poll::Ready(None)),
        "expected the end of the watch, got {next:?}"
    );
}

#[test]
fn t_48_stopping_a_cache_that_cannot_load_ends_waits_for_readiness() {
    #[derive(Debug)]
    struct Unreachable;
    fn unreachable<T: Send + 'static>() -> BoxFuture<'static, Result<T, SourceError>> {
        Box::pin(std::future::ready(Err(SourceError::Unavailable(
            "no route".into(),
        ))))
    }
    impl Source for Unreachable {
        fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
            unreachable()
        }
        fn list(&self, _: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
            unreachable()
        }
        fn watch(&self, _: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
            unreachable()
        }
        fn write(&self, _: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
            unreachable()
        }
    }
    let mut polled = PolledCache::over(|_| Arc::new(Unreachable));
    polled.step();
    let pods = polled.pods.clone();
    let mut wait = Box::pin(pods.wait_until_ready());
    assert!(poll_once(&mut wait).is_pending());
    let scope = Scope::All;
    let options = WatchOptions::default();
    let Poll::Ready(Err(error)) = poll_once(pods.watch(&scope, &options)) else {
        panic!("expected the watch to fail at once")
    };
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        (429, "storage is (re)initializing: no route")
    );
    polled.cache.stop();
    assert_eq!(
        poll_once(&mut wait),
        Poll::Ready(Err(RequestError::Stopped))
    );
    assert!(poll_once(&mut polled.feeder).is_ready());
}

#[test]
fn wc_315_a_watch_from_a_future_revision_survives_the_eviction_of_earlier_events() {
    let fixture = Fixture::with(config().window(short_window(3)), |builder| builder);
    let current = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let mut reached = fixture.watch(&fixture.pods, &Scope::All, &from(current + 8));
    assert!(reached.is_silent());
    // More events than the window keeps, all of them before the start of the watch.
    for _ in 0..8 {
        fixture.put_pod("ns/a");
    }
    fixture.wait_until_fresh();
    assert!(reached.is_silent());
    let wanted = fixture.put_pod("ns/a");
    assert_eq!(reached.word(), format!("MODIFIED ns/a@{wanted}"));
}

#[test]
fn maximal_durations_never_elapse() {
    let endless = Duration::MAX;
    let limits = WindowLimits::default().age(endless);
    let fixture = Fixture::with(config().window(limits), |builder| {
        builder
            .freshness_wait(endless)
            .bookmark_period(endless)
            .future_rv_grace(Some(endless))
            .consistency_interval(Some(endless))
    });
    fixture.clock.advance(SECOND);
    let current = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let future = Revision(current + 1);
    let mut fresh = Box::pin(fixture.pods.wait_until_fresh(future));
    assert!(poll_once(&mut fresh).is_pending());
    let options = bookmarked(from(current + 1), None).timeout(endless);
    let mut watches = [
        fixture.watch(&fixture.pods, &Scope::All, &options),
        fixture.watch(&fixture.raw, &Scope::All, &options),
    ];
    fixture.clock.advance(1_000_000 * SECOND);
    assert!(watches.iter_mut().all(Events::is_silent));
    fixture.put_pod("ns/a");
    assert_eq!(fixture.wait(fresh), Ok(()));
    let wanted = fixture.put_pod("ns/a");
    for watch in &mut watches {
        let mut word = watch.word();
        while word.starts_with("BOOKMARK") {
            word = watch.word();
        }
        assert_eq!(word, format!("MODIFIED ns/a@{wanted}"));
    }
}

// Shows WC-232.
#[test]
fn wc_310_a_watch_with_the_objects_at_a_future_revision_begins_at_once_and_fails_after_3_s() {
    let fixture = Fixture::with(config(), |builder| builder);
    let current = fixture.put_pod("ns/a");
    fixture.wait_until_fresh();
    let future = |after: i64, timeout| {
        let options = bookmarked(from(current + after), timeout)
            .resource_version_match("NotOlderThan")
            .send_initial_events(true);
        let start = poll_once(fixture.pods.watch(&Scope::All, &options));
        let Poll::Ready(Ok(watch)) = start else {
            panic!("the watch begins at once");
        };
        Events::of(&fixture, Box::pin(watch))
    };
    let (mut never, mut reached) = (future(1000, None), future(1, Some(10)));
    let (mut short, mut removed) = (future(1000, Some(2)), future(1000, None));
    for watch in [&mut never, &mut reached, &mut short, &mut removed] {
        assert!(watch.is_silent());
    }
    let put = fixture.put_pod("ns/b");
    fixture.wait_until_fresh();
    assert_eq!(
        reached.words(3),
        [
            format!("ADDED ns/a@{current}"),
            format!("ADDED ns/b@{put}"),
            format!("BOOKMARK@{put} end")
        ]
    );
    assert_eq!(
        events_by_second(&fixture, &mut short, 2),
        [(2, "end".to_owned())]
    );
    let error = format!(
        "ERROR 504 Timeout: Too large resource version: {}, current: {put}",
        current + 1000
    );
    assert_eq!(
        events_by_second(&fixture, &mut never, 1),
        [(1, error), (1, "end".to_owned())]
    );
    assert!(removed.word().starts_with("ERROR 504"));
    // The timeout counts from the request.
    let after_3_s = events_by_second(&fixture, &mut reached, 7);
    assert_eq!(after_3_s.last(), Some(&(7, "end".to_owned())));
    let mut removed = future(1000, None);
    assert!(removed.is_silent());
    assert!(fixture.wait(fixture.cache.remove(&fixture.pods)));
    fixture.clock.advance(3 * SECOND);
    assert!(removed.word().starts_with("ERROR 504"));
    let timers = fixture.pods.metrics();
    assert_eq!(timers.watchers, 0);
}
