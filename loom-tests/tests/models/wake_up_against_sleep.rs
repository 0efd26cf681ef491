//! I4: a reader that goes to sleep while an event is delivered is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

/// A waker that records its wake-up. Loom does not explore the flag, which is read after all
/// threads have ended.
#[derive(Default)]
struct WakeRecorder(AtomicBool);

impl Wake for WakeRecorder {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

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
    assert!(
        !asleep || recorder.0.load(Ordering::SeqCst),
        "the reader was not woken"
    );
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
