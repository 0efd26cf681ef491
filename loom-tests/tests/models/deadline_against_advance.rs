//! A reader that waits for a limited time is woken when the clock passes the limit.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom_tests::{WakeRecorder, race};
use revstore_engine::{Clock, Engine, Fault, KeyRange, ManualClock, Timed, WatchOptions};
use revstore_verify::{Options, explore};

const LIMIT: Duration = Duration::from_secs(5);

/// A flag that threads wait for.
#[derive(Debug, Default)]
struct Flag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn set(&self, to: bool) {
        *self.is_set.lock().expect("loom ends the model at a panic") = to;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let ended = "loom ends the model at a panic";
        let mut is_set = self.is_set.lock().expect(ended);
        while !*is_set {
            is_set = self.changed.wait(is_set).expect(ended);
        }
    }
}

/// A clock that reports when its time was read. Otherwise the reader could begin to wait after the
/// last advance.
#[derive(Clone, Debug)]
struct ObservedClock {
    manual: ManualClock,
    was_read: Arc<Flag>,
}

impl Clock for ObservedClock {
    fn now(&self) -> Duration {
        let now = self.manual.now();
        self.was_read.set(true);
        now
    }

    fn follow(&self, timed: Weak<dyn Timed>) {
        self.manual.follow(timed);
    }

    fn recheck(&self) {
        self.manual.recheck();
    }
}

fn model(fault: Option<Fault>) {
    explore(&Options::new(), move || {
        let clock = ObservedClock {
            manual: ManualClock::new(),
            was_read: Arc::new(Flag::default()),
        };
        let engine = Engine::builder().clock(clock.clone());
        let engine = match fault {
            Some(fault) => engine.fault(fault),
            None => engine,
        };
        let engine = engine.build();
        // The engine has read the clock when it was built.
        clock.was_read.set(false);
        let mut watcher = engine
            .watch(WatchOptions::of(KeyRange::all()))
            .expect("a valid watch");
        let advanced = Arc::new(Flag::default());
        let has_advanced = advanced.clone();
        let advance = move |_: &Engine| {
            clock.was_read.wait();
            clock.manual.advance(LIMIT);
            advanced.set(true);
        };
        let recorder = Arc::new(WakeRecorder::default());
        let waker = Waker::from(recorder.clone());
        let read = move |_: &Engine| {
            let mut next = watcher.next_within(LIMIT);
            let mut context = Context::from_waker(&waker);
            let polled = Pin::new(&mut next).poll(&mut context);
            assert!(matches!(polled, Poll::Pending | Poll::Ready(None)));
            if polled.is_pending() {
                has_advanced.wait();
                assert!(recorder.was_woken(), "the reader was not woken");
            }
        };
        race(&engine, advance, read);
    });
}

#[test]
fn a_reader_is_woken_at_its_deadline() {
    model(None);
}

#[test]
#[should_panic(expected = "the reader was not woken")]
fn adding_the_deadline_after_reading_the_clock_is_detected() {
    model(Some(Fault::AddDeadlineLast));
}
