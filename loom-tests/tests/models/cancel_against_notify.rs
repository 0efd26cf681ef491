//! WA-20: a cancelled watch delivers nothing, also if a commit notifies it at the same time.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions, WatchResponse};

fn model(engine: &Engine) {
    let mut stream = engine.watch_stream();
    let cancelled = stream
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a valid watch")
        .id;
    let write = |engine: &Engine| {
        engine.put("k", "1").expect("a valid put");
    };
    let cancel = move |_: &Engine| {
        assert!(stream.cancel(cancelled));
        // The next watch gets the index of the cancelled one in the hub.
        let next = stream
            .watch(WatchOptions::of(KeyRange::all()))
            .expect("a valid watch");
        (stream, next)
    };
    let ((), (mut stream, next)) = race(engine, write, cancel);
    let mut seen = 0;
    while let Some(response) = stream.try_next() {
        let WatchResponse::Events { id, .. } = response else {
            panic!("expected events, got {response:?}")
        };
        assert_ne!(id, cancelled, "a response to a cancelled watch");
        seen += 1;
    }
    assert_eq!(seen, usize::from(next.revision.0 == 1));
}

#[test]
fn a_cancelled_watch_delivers_nothing() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a response to a cancelled watch")]
fn delivering_queued_events_is_detected() {
    run_broken(Fault::DeliverCancelled, model);
}
