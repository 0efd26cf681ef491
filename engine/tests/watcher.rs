//! Watchers that wait for a limited time, that are closed, or that have a predicate.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_core::Stream;
use revstore_engine::{
    Engine, Event, KeyRange, ManualClock, Op, Put, Revision, Txn, WatchEnd, WatchOptions,
    WatchResponse, Watcher,
};

const HOUR: Duration = Duration::from_secs(3600);

fn all() -> WatchOptions {
    WatchOptions::of(KeyRange::all())
}

/// Returns the keys of the events that are available now, a list for each batch.
fn keys(watcher: &mut Watcher) -> Vec<Vec<String>> {
    let mut batches = Vec::new();
    while let Some(batch) = watcher.try_next() {
        let key = |event: &Event| String::from_utf8_lossy(event.kv.key()).into_owned();
        batches.push(batch.unwrap().events.iter().map(key).collect());
    }
    batches
}

#[test]
fn a_limited_wait_ends_with_an_event() {
    let engine = Engine::builder().build();
    let mut watcher = engine.watch(all()).unwrap();
    engine.put("a", "").unwrap();
    assert!(watcher.next_timeout(Duration::ZERO).is_some());
    assert!(watcher.next_timeout(Duration::ZERO).is_none());
    thread::scope(|scope| {
        scope.spawn(|| engine.put("b", "").unwrap());
        let batch = watcher.next_timeout(HOUR).unwrap().unwrap();
        assert_eq!(batch.events[0].kv.key(), b"b");
    });
}

#[test]
fn a_limited_wait_ends_when_the_clock_of_the_system_passes_it() {
    let engine = Engine::builder().build();
    let mut watcher = engine.watch(all()).unwrap();
    let (limit, before) = (Duration::from_millis(20), Instant::now());
    assert!(watcher.next_timeout(limit).is_none());
    assert!(before.elapsed() >= limit);
    // The watch goes on.
    engine.put("a", "").unwrap();
    assert!(watcher.next_timeout(Duration::MAX).is_some());
}

#[test]
fn a_limited_wait_ends_when_another_thread_advances_the_clock() {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    let watchers: Vec<_> = (0..3).map(|_| engine.watch(all()).unwrap()).collect();
    thread::scope(|scope| {
        let readers: Vec<_> = watchers
            .into_iter()
            .map(|mut watcher| scope.spawn(move || watcher.next_timeout(HOUR)))
            .collect();
        while readers.iter().any(|reader| !reader.is_finished()) {
            clock.advance(HOUR / 4);
            thread::yield_now();
        }
        for reader in readers {
            assert_eq!(reader.join().unwrap(), None);
        }
    });
}

#[test]
fn a_limited_wait_returns_the_end_of_the_watch_once() {
    let engine = Engine::builder().build();
    for _ in 0..3 {
        engine.put("a", "").unwrap();
    }
    engine.compact(Revision(4)).unwrap().run();
    let mut watcher = engine.watch(all().from(Revision(2))).unwrap();
    let compacted = Revision(4);
    let end = Some(Err(WatchEnd::Compacted { compacted }));
    assert_eq!(watcher.next_timeout(HOUR), end);
    assert_eq!(watcher.next_timeout(HOUR), None);
}

/// A waker that counts its calls, and panics if it has to.
#[derive(Default)]
struct Counting {
    calls: AtomicUsize,
    panics: bool,
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "a waker of the test");
    }
}

#[test]
fn a_limited_wait_of_a_task_wakes_the_task_that_polled_last() {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    let tasks: [Arc<Counting>; 2] = Default::default();
    let wakers = tasks.clone().map(Waker::from);
    let calls = || {
        tasks
            .each_ref()
            .map(|task| task.calls.load(Ordering::Relaxed))
    };
    let mut watcher = engine.watch(all()).unwrap();
    let mut next = Box::pin(watcher.next_within(HOUR));
    for waker in &wakers {
        let mut context = Context::from_waker(waker);
        assert!(next.as_mut().poll(&mut context).is_pending());
        assert!(next.as_mut().poll(&mut context).is_pending());
    }
    clock.advance(HOUR / 2);
    assert_eq!(calls(), [0, 0]);
    clock.advance(HOUR / 2);
    assert_eq!(calls(), [0, 1]);
    let mut context = Context::from_waker(&wakers[0]);
    assert_eq!(next.as_mut().poll(&mut context), Poll::Ready(None));
    drop(next);
    // A future that was dropped leaves no deadline.
    let mut next = Box::pin(watcher.next_within(HOUR));
    assert!(next.as_mut().poll(&mut context).is_pending());
    drop(next);
    clock.advance(2 * HOUR);
    assert_eq!(calls(), [0, 1]);
}

#[test]
fn a_waker_that_panics_at_its_deadline_affects_no_other_reader() {
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    let wakers = [false, true, false].map(|panics| {
        let calls = AtomicUsize::new(0);
        Arc::new(Counting { calls, panics })
    });
    let mut watchers = [(); 3].map(|()| engine.watch(all()).unwrap());
    let waits: Vec<_> = watchers
        .iter_mut()
        .zip(&wakers)
        .map(|(watcher, waker)| {
            let waker = Waker::from(waker.clone());
            let mut next = Box::pin(watcher.next_within(HOUR));
            let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            next
        })
        .collect();
    clock.advance(HOUR);
    let calls = wakers
        .each_ref()
        .map(|waker| waker.calls.load(Ordering::Relaxed));
    assert_eq!(calls, [1, 1, 1]);
    drop(waits);
}

#[test]
fn a_closed_watch_costs_nothing_and_returns_nothing() {
    let engine = Engine::builder().build();
    engine.put("a", "").unwrap();
    let mut watcher = engine.watch(all().from(Revision(1))).unwrap();
    engine.put("b", "").unwrap();
    watcher.close();
    assert_eq!(engine.stats().watches, 0);
    engine.put("c", "").unwrap();
    watcher.request_progress();
    assert!(watcher.try_next().is_none());
    assert!(watcher.next_blocking().is_none());
    assert!(watcher.next_timeout(HOUR).is_none());
    assert!(watcher.iter().next().is_none());
    let mut context = Context::from_waker(Waker::noop());
    let polled = pin!(&mut watcher).poll_next(&mut context);
    assert_eq!(polled, Poll::Ready(None));
    watcher.close();
    watcher.closer().close();
}

#[test]
fn another_thread_can_close_a_watch_whose_reader_waits() {
    let engine = Engine::builder().build();
    for limit in [None, Some(HOUR)] {
        let mut watcher = engine.watch(all()).unwrap();
        let closer = watcher.closer();
        let reader = thread::spawn(move || match limit {
            None => watcher.next_blocking(),
            Some(limit) => watcher.next_timeout(limit),
        });
        closer.clone().close();
        assert_eq!(reader.join().unwrap(), None);
        closer.close();
        assert_eq!(engine.stats().watches, 0);
    }
}

/// Queued batches are dropped at once, and the watch is not catching up any more.
#[test]
fn a_watch_that_was_closed_elsewhere_keeps_no_events() {
    let engine = Engine::builder().build();
    engine.put("a", "").unwrap();
    let mut watcher = engine.watch(all().from(Revision(2))).unwrap();
    engine.put("a", "").unwrap();
    watcher.closer().close();
    for _ in 0..20_000 {
        engine.put("a", "").unwrap();
    }
    assert!(watcher.try_next().is_none());
    assert_eq!(engine.stats().watches, 0);
    assert!(watcher.next_blocking().is_none());
}

#[test]
fn a_predicate_leaves_out_events_and_empty_batches() {
    let engine = Engine::builder().build();
    let put = |key: &'static str, value: &'static str| Op::Put(Put::new(key, value));
    engine
        .txn(&Txn::new().and_then([put("a", "1"), put("b", "2")]))
        .unwrap();
    engine.put("a", "3").unwrap();
    let changed = |event: &Event| {
        let previous = event.prev_kv.as_ref();
        previous.is_none_or(|previous| previous.value() != event.kv.value())
    };
    let options = all()
        .from(Revision(2))
        .with_prev_kv()
        .with_predicate(changed);
    let mut watcher = engine.watch(options.clone()).unwrap();
    assert_eq!(keys(&mut watcher), [["a", "b", "a"]]);
    engine.put("a", "3").unwrap();
    assert!(keys(&mut watcher).is_empty());
    engine
        .txn(&Txn::new().and_then([put("a", "3"), put("b", "3")]))
        .unwrap();
    engine.delete(&KeyRange::all()).unwrap();
    assert_eq!(keys(&mut watcher), [vec!["b"], vec!["a", "b"]]);
    assert_eq!(options, options.clone());
    assert_ne!(options, all().from(Revision(2)).with_prev_kv());
}

/// An event that the predicate accepts is the one that other watches share.
#[test]
fn a_predicate_that_accepts_all_events_shares_their_encoding() {
    struct Number;
    let engine = Engine::builder().build();
    let mut plain = engine.watch(all()).unwrap();
    let mut watcher = engine.watch(all().with_predicate(|_| true)).unwrap();
    engine.put("a", "").unwrap();
    let first = plain.try_next().unwrap().unwrap().events;
    let encoded = first.encoded::<Number>(|_| "1".into()).unwrap().clone();
    let second = watcher.try_next().unwrap().unwrap().events;
    assert_eq!(second.encoded::<Number>(|_| unreachable!()), Some(&encoded));
}

#[test]
fn a_predicate_may_use_the_engine_and_delays_nobody() {
    let engine = Engine::builder().build();
    let inside = engine.clone();
    let logged = move |event: &Event| {
        if event.kv.key() != b"log" {
            inside.put("log", event.kv.key_bytes()).unwrap();
        }
        true
    };
    let mut watcher = engine.watch(all().with_predicate(logged)).unwrap();
    engine.put("a", "").unwrap();
    assert_eq!(keys(&mut watcher), [["a"], ["log"]]);
    assert_eq!(engine.get("log").unwrap().value(), b"a");
}

#[test]
fn a_panic_of_a_predicate_reaches_its_reader_only_and_loses_no_event() {
    let engine = Engine::builder().build();
    for key in ["a", "b"] {
        engine.put(key, "").unwrap();
    }
    let panics = Arc::new(AtomicBool::new(true));
    let calls = Arc::new(AtomicUsize::new(0));
    let (shared, counted) = (panics.clone(), calls.clone());
    let predicate = move |_: &Event| {
        counted.fetch_add(1, Ordering::Relaxed);
        assert!(!shared.load(Ordering::Relaxed), "a panic of the test");
        true
    };
    let mut stream = engine.watch_stream();
    let other = stream.watch(all()).unwrap().id;
    let id = stream
        .watch(all().from(Revision(2)).with_predicate(predicate))
        .unwrap()
        .id;
    // Creating the watch has read the log, but has not called the predicate.
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    engine.put("c", "").unwrap();
    for _ in 0..3 {
        let read = catch_unwind(AssertUnwindSafe(|| stream.try_next()));
        assert!(read.is_err());
    }
    panics.store(false, Ordering::Relaxed);
    let mut seen = Vec::new();
    while let Some(response) = stream.try_next() {
        let WatchResponse::Events { id, events, .. } = response else {
            panic!("only events are expected");
        };
        seen.extend(events.iter().map(|event| (id, event.kv.key_bytes())));
    }
    let of = |id| {
        let keys = seen.iter().filter(move |(of, _)| *of == id);
        keys.map(|(_, key)| key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of(id), ["a", "b", "c"]);
    assert_eq!(of(other), ["c"]);
    // A watch whose predicate has panicked can be cancelled.
    panics.store(true, Ordering::Relaxed);
    engine.put("d", "").unwrap();
    let read = |stream: &mut revstore_engine::WatchStream| {
        catch_unwind(AssertUnwindSafe(|| stream.try_next()))
    };
    while read(&mut stream).is_ok() {}
    assert!(stream.cancel(id));
    assert!(matches!(read(&mut stream), Ok(None)));
}
