//! A reader of automatic compactions that goes to sleep while one starts is woken.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom_tests::{WakeRecorder, race};
use revstore_engine::{AutoCompaction, Engine, Fault, ManualClock};
use revstore_verify::{Options, explore};

fn model(fault: Option<Fault>) {
    explore(&Options::new(), move || {
        let policy = AutoCompaction::Revisions {
            keep: 0,
            every: AutoCompaction::DEFAULT_INTERVAL,
        };
        let engine = Engine::builder().clock(ManualClock::new());
        let engine = match fault {
            Some(fault) => engine.fault(fault),
            None => engine,
        };
        let engine = engine.auto_compaction(policy).build();
        let mut compactions = engine.auto_compactions().expect("a policy");
        let recorder = Arc::new(WakeRecorder::default());
        let waker = Waker::from(recorder.clone());
        let read = move |_: &Engine| {
            let polled = compactions.poll_step(&mut Context::from_waker(&waker));
            (compactions, polled == Poll::Pending)
        };
        let ((), (_compactions, asleep)) = race(&engine, Engine::auto_compact, read);
        assert!(!asleep || recorder.was_woken(), "the reader was not woken");
    });
}

#[test]
fn a_sleeping_reader_is_woken() {
    model(None);
}

#[test]
#[should_panic(expected = "the reader was not woken")]
fn registering_the_waker_after_the_last_look_is_detected() {
    model(Some(Fault::RegisterWakerLast));
}
