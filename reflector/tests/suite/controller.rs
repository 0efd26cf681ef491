//! Controllers: actions, failures, panics, workers and the end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use revstore_reflector::controller::ReconcileError;
use revstore_reflector::{Action, Controller, WorkQueue};
use revstore_watch_cache::clock::ManualClock;

use crate::support::poll_once;

/// A queue on a manual clock.
fn queue() -> (ManualClock, WorkQueue<&'static str>) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(Arc::new(clock.clone())).build();
    (clock, queue)
}

#[test]
fn a_key_is_reconciled_again_after_an_error_a_panic_and_a_requested_time() {
    let (clock, queue) = queue();
    let calls = Arc::new(AtomicUsize::new(0));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let (counted, reported) = (calls.clone(), errors.clone());
    let controller = Controller::new(queue.clone(), move |key: &str| {
        let call = counted.fetch_add(1, Ordering::Relaxed);
        assert_eq!(key, "a");
        assert!(call != 1, "a panic of the closure, which the test expects");
        async move {
            match call {
                0 => Err("refused"),
                2 => panic!("a panic of the future, which the test expects"),
                3 => Ok(Action::Requeue),
                4 => Ok(Action::RequeueAfter(Duration::from_secs(60))),
                _ => Ok(Action::Done),
            }
        }
    })
    .on_error(move |key, error: &ReconcileError<&str>| {
        reported.lock().unwrap().push(format!("{key}: {error}"));
        panic!("a panic of the handler, which the test expects");
    });
    let mut run = Box::pin(controller.run());
    queue.add("a");
    assert!(poll_once(&mut run).is_pending());
    for (pause, total) in [(5, 2), (10, 3), (20, 4), (40, 5), (60_000, 6)] {
        clock.advance(Duration::from_millis(pause - 1));
        assert!(poll_once(&mut run).is_pending());
        assert_eq!(calls.load(Ordering::Relaxed), total - 1);
        clock.advance(Duration::from_millis(1));
        assert!(poll_once(&mut run).is_pending());
        assert_eq!(calls.load(Ordering::Relaxed), total);
    }
    assert_eq!(queue.retries(&"a"), 0, "success resets the pauses");
    assert_eq!(
        *errors.lock().unwrap(),
        [
            "a: refused",
            "a: the reconciliation panicked: a panic of the closure, which the test expects",
            "a: the reconciliation panicked: a panic of the future, which the test expects",
        ]
    );
    queue.shut_down();
    assert!(poll_once(&mut run).is_ready());
}

#[test]
fn a_key_that_changes_while_it_is_reconciled_is_reconciled_again() {
    let (_, queue) = queue();
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, adder) = (calls.clone(), queue.clone());
    let controller = Controller::new(queue.clone(), move |key| {
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            adder.add(key);
            adder.add(key);
            adder.shut_down();
        }
        async { Ok::<_, String>(Action::Done) }
    });
    queue.add("a");
    assert!(poll_once(controller.workers(3).run()).is_ready());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn workers_run_at_the_same_time_and_never_for_one_key() {
    let queue: WorkQueue<usize> = WorkQueue::new();
    let both = Arc::new(Barrier::new(2));
    let busy: Arc<Mutex<HashMap<usize, usize>>> = Arc::default();
    let (barrier, shared) = (both.clone(), busy.clone());
    let threads = Controller::new(queue.clone(), move |key| {
        let (barrier, busy) = (barrier.clone(), shared.clone());
        async move {
            let calls = {
                let mut busy = busy.lock().unwrap();
                *busy.entry(key).or_default() += 1;
                busy[&key]
            };
            if calls == 1 {
                // Returns only when two workers have come here, with different keys.
                barrier.wait();
            }
            Ok::<_, String>(Action::Done)
        }
    })
    .workers(2)
    .spawn();
    queue.add(0);
    queue.add(1);
    queue.add(0);
    drop(threads);
    let calls = busy.lock().unwrap();
    assert_eq!(calls.len(), 2);
    assert!(queue.is_shut_down() && queue.is_empty());
}
