//! Code of the caller that runs inside a call of the engine: measures, wakers, encoders.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use revstore_engine::{Engine, KeyRange, Range, ReadError, WatchOptions, WatchStream};

/// A closure that wrote a key once waited for a lock that its own scan held.
#[test]
fn a_measure_may_use_the_engine() {
    let engine = Engine::builder().build();
    for number in 0..200 {
        engine.put(format!("a/{number:03}"), "1").unwrap();
    }
    let found = Range::of(KeyRange::prefix("a/"));
    let write = |kv: &revstore_engine::KeyValue| {
        let key = String::from_utf8_lossy(kv.key()).replace("a/", "b/");
        engine.put(key, "2").unwrap();
        1
    };
    let (result, measured) = engine.range_measured(&found, write).unwrap();
    assert_eq!((result.kvs.len(), measured), (200, 200));
    let written = engine.range(&Range::of(KeyRange::prefix("b/"))).unwrap();
    assert_eq!(written.kvs.len(), 200);
}

/// Reads that compactions overtake three times are pinned, and a compaction waits for pins: one in
/// the closure once waited for the read that it was called from.
#[test]
fn a_measure_may_compact() {
    let engine = Engine::builder().build();
    for number in 0..5 {
        engine.put(format!("a/{number}"), "1").unwrap();
    }
    let compact = |_: &revstore_engine::KeyValue| {
        let written = engine.put("b", "2").unwrap().revision;
        engine.compact(written).unwrap().run();
        1
    };
    let found = Range::of(KeyRange::prefix("a/"));
    let (result, measured) = engine.range_measured(&found, compact).unwrap();
    assert_eq!((result.kvs.len(), measured), (5, 5));
}

/// A waker that counts its calls, and panics.
struct Panicking(AtomicUsize);

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a waker of the test");
    }
}

struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn waiting_stream(engine: &Engine, waker: &Waker) -> WatchStream {
    let mut stream = engine.watch_stream();
    stream.watch(WatchOptions::of(KeyRange::all())).unwrap();
    let polled = stream.poll_response(&mut Context::from_waker(waker));
    assert!(matches!(polled, Poll::Pending));
    stream
}

/// The streams after it were once not woken, and the put seemed to fail.
#[test]
fn a_waker_that_panics_affects_neither_the_writer_nor_other_streams() {
    let engine = Engine::builder().build();
    let panicking = Arc::new(Panicking(AtomicUsize::new(0)));
    let counting = Arc::new(Counting(AtomicUsize::new(0)));
    let first = waiting_stream(&engine, &counting.clone().into());
    let second = waiting_stream(&engine, &panicking.clone().into());
    let third = waiting_stream(&engine, &counting.clone().into());
    engine.put("k", "v").unwrap();
    assert_eq!(panicking.0.load(Ordering::Relaxed), 1);
    assert_eq!(counting.0.load(Ordering::Relaxed), 2);
    for mut stream in [first, second, third] {
        assert!(stream.try_next().is_some());
    }
}

/// The version stays valid for the closure, whatever happens to its key meanwhile.
#[test]
fn a_read_of_a_version_may_remove_it() {
    let engine = Engine::builder().build();
    for number in 0..300 {
        engine.put(format!("key/{number:03}"), "1").unwrap();
    }
    let value = engine.get_with("key/150", |kv| {
        engine.delete(&KeyRange::prefix("key/")).unwrap();
        for _ in 0..1_000 {
            engine.put("other", "2").unwrap();
        }
        let current = engine.current_revision();
        engine.compact(current).unwrap().run();
        assert_eq!(engine.stats().keys, 1);
        (kv.key().to_vec(), kv.value().to_vec())
    });
    assert_eq!(value, Some((b"key/150".to_vec(), b"1".to_vec())));
    assert_eq!(engine.get_with("key/150", |_| ()), None);
}

#[test]
fn a_read_of_a_version_may_panic() {
    let engine = Engine::builder().build();
    engine.put("key", "1").unwrap();
    let read = std::panic::AssertUnwindSafe(|| engine.get_with("key", |_| panic!("of the test")));
    let unwound: Result<Option<()>, _> = std::panic::catch_unwind(read);
    assert!(unwound.is_err());
    engine.put("key", "2").unwrap();
    assert_eq!(engine.get_with("key", |kv| kv.value()[0]), Some(b'2'));
}

/// A compaction during a visit ends it with an error, before it leaves out a key.
#[test]
fn a_visit_that_is_compacted_leaves_out_no_key() {
    let engine = Engine::builder().build();
    for number in 0..1_000 {
        engine.put(format!("key/{number:04}"), "1").unwrap();
    }
    let at = engine.current_revision();
    engine.delete(&KeyRange::all()).unwrap();
    let next = engine.put("other", "1").unwrap().revision;
    let mut visited = Vec::new();
    let end = engine.visit(&KeyRange::all(), at, |kv| {
        visited.push(kv.key_bytes());
        if visited.len() == 100 {
            engine.compact(next).unwrap().run();
        }
        ControlFlow::<()>::Continue(())
    });
    let compacted = ReadError::Compacted {
        requested: at,
        compacted: next,
    };
    assert_eq!(end, Err(compacted));
    // The step that the compaction met was read before it.
    assert!((100..1_000).contains(&visited.len()));
    for (number, key) in visited.iter().enumerate() {
        assert_eq!(*key, format!("key/{number:04}"));
    }
    let future = engine.visit(&KeyRange::all(), next.next(), |_| ControlFlow::Break(()));
    assert!(matches!(future, Err(ReadError::Future { .. })));
    let first = engine.visit(&KeyRange::all(), next, |kv| {
        ControlFlow::Break(kv.key_bytes())
    });
    assert_eq!(first, Ok(ControlFlow::Break("other".into())));
}
