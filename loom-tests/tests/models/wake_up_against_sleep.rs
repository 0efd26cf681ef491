//! I4: a reader that goes to sleep while an event is delivered is woken.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom_tests::{WakeRecorder, race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

fn model(engine: &Engine) {
    let mut stream = engine.watch_stream();
    stream
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a valid watch");
    let write = |engine: &Engine| {
        engine.put("k", "1").expect("a valid put");
    };
    let recorder = Arc::new(WakeRecorder::default());
    let waker = Waker::from(recorder.clone());
    let read = move |_: &Engine| {
        let asleep = stream.poll_response(&mut Context::from_waker(&waker)) == Poll::Pending;
        (stream, asleep)
    };
    let ((), (_stream, asleep)) = race(engine, write, read);
    assert!(!asleep || recorder.was_woken(), "the reader was not woken");
}

#[test]
fn a_sleeping_reader_is_woken() {
    run_model(model);
}

#[test]
#[should_panic(expected = "the reader was not woken")]
fn registering_the_waker_after_the_last_check_is_detected() {
    run_broken(Fault::RegisterWakerLast, model);
}
