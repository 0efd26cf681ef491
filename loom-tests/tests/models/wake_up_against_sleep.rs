//! I4: a reader that goes to sleep while an event comes in is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use loom_tests::{race, run_broken, run_model};
use revstore_engine::{Engine, Fault, KeyRange, WatchOptions};

/// Notes that it was woken. Not part of the model: it is looked at when all threads have ended.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn model(engine: &Engine) {
    let mut stream = engine.watch_stream();
    stream
        .watch(WatchOptions::of(KeyRange::all()))
        .expect("a legal watch");
    let write = |engine: &Engine| {
        engine.put("k", "1").expect("a legal put");
    };
    let bell = Arc::new(Bell::default());
    let ring = Waker::from(bell.clone());
    let read = move |_: &Engine| {
        let asleep = stream.poll_response(&mut Context::from_waker(&ring)) == Poll::Pending;
        (stream, asleep)
    };
    let ((), (_stream, asleep)) = race(engine, write, read);
    assert!(
        !asleep || bell.0.load(Ordering::SeqCst),
        "nobody woke the reader"
    );
}

#[test]
fn nobody_sleeps_through_an_event() {
    run_model(model);
}

#[test]
#[should_panic(expected = "nobody woke the reader")]
fn saying_whom_to_wake_after_the_last_look_is_found() {
    run_broken(Fault::WakerLate, model);
}
