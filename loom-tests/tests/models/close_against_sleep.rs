//! A reader that goes to sleep while its watch is closed is woken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use loom_tests::{WakeRecorder, race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

fn model(engine: &Engine) {
    let mut watcher = engine
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a valid watch");
    let closer = watcher.closer();
    let recorder = Arc::new(WakeRecorder::default());
    let waker = Waker::from(recorder.clone());
    let close = move |_: &Engine| closer.close();
    let read = move |_: &Engine| {
        let mut next = watcher.next_within(Duration::MAX);
        let polled = Pin::new(&mut next).poll(&mut Context::from_waker(&waker));
        (watcher, polled.is_pending())
    };
    let ((), (mut watcher, asleep)) = race(engine, close, read);
    assert!(!asleep || recorder.was_woken(), "the reader was not woken");
    assert!(watcher.next_blocking().is_none());
    assert_eq!(engine.stats().watches, 0);
}

#[test]
fn a_reader_of_a_closed_watch_is_woken() {
    run_model(model);
}

#[test]
#[should_panic(expected = "the reader was not woken")]
fn checking_before_registering_the_waker_is_detected() {
    run_broken(Fault::CheckClosedFirst, model);
}
