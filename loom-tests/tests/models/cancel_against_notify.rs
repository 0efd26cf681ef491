//! WA-20: once a watch is cancelled it says nothing, whatever is on its way.

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions, WatchResponse};

fn model(engine: &Engine) {
    let mut stream = engine.watch_stream();
    let doomed = stream
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a legal watch")
        .id;
    let write = |engine: &Engine| {
        engine.put("k", "1").expect("a legal put");
    };
    let cancel = move |_: &Engine| {
        assert!(stream.cancel(doomed));
        // The next watch takes the place of the cancelled one in the hub.
        let next = stream
            .watch(WatchOptions::of(KeyRange::all()))
            .expect("a legal watch");
        (stream, next)
    };
    let ((), (mut stream, next)) = race(engine, write, cancel);
    let mut seen = 0;
    while let Some(response) = stream.try_next() {
        let WatchResponse::Events { id, .. } = response else {
            panic!("only events")
        };
        assert_ne!(id, doomed, "a cancelled watch spoke");
        seen += 1;
    }
    assert_eq!(seen, usize::from(next.revision.0 == 1));
}

#[test]
fn a_cancelled_watch_is_silent() {
    run_model(model);
}

#[test]
#[should_panic(expected = "a cancelled watch spoke")]
fn telling_what_was_queued_is_found() {
    run_broken(Fault::TellCancelled, model);
}
