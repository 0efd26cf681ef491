//! The wakers of the server and of the work queue: a task that goes to sleep while another thread has something for it
//! is woken, and then sees it.
//!
//! The files of the server and of the reflector are compiled into this crate, over atomics and locks that loom explores. What one thread
//! has for the other is a cell of loom, which reports a read that is not ordered after the write. Each broken twin
//! weakens what a waker relies on.
#![cfg(loom)]

#[expect(dead_code, reason = "models do not use all of the queue")]
#[path = "../../../reflector/src/work_queue/claims.rs"]
mod claims;
#[expect(dead_code, reason = "models do not use all of the queue")]
#[path = "../../../reflector/src/work_queue/keys.rs"]
mod keys;
#[path = "../../../grpc/src/node/signal.rs"]
mod signal;
mod sync;
#[path = "../../../host/src/net/task_waker.rs"]
mod task_waker;
#[path = "../../../grpc/src/node/wake_filter.rs"]
mod wake_filter;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use claims::{Claims, Waiting};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use loom_tests::WakeRecorder;
use revstore_verify::{Options, explore};
use signal::{Signal, Waiter};
use sync::Weakened;
use task_waker::TaskWaker;
use wake_filter::WakeFilter;

/// Explores a model, with something weakened or nothing.
fn run(weakened: Option<Weakened>, model: fn()) {
    explore(&Options::new(), move || {
        sync::WEAKENED.set(weakened);
        model();
    });
}

/// Data that one thread writes before it wakes the other one.
struct Work(UnsafeCell<u32>);

// SAFETY: loom reports accesses that are not ordered.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

impl Work {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn provide(&self) {
        // SAFETY: loom ends the model if it is not the only access.
        self.0.with_mut(|value| unsafe { *value = 1 });
    }

    fn check(&self) {
        // SAFETY: as in `provide`.
        assert_eq!(self.0.with(|value| unsafe { *value }), 1);
    }
}

/// A task waits for a signal, in two polls with different wakers.
fn a_signal() {
    let signal = Arc::new(Signal::new());
    let work = Arc::new(Work::new());
    let raiser = {
        let (signal, work) = (signal.clone(), work.clone());
        thread::spawn(move || {
            work.provide();
            signal.raise();
        })
    };
    let mut waiter = Waiter::new(signal);
    let recorders = [(); 2].map(|()| Arc::new(WakeRecorder::default()));
    let is_asleep = recorders.iter().all(|recorder| {
        let waker = Waker::from(recorder.clone());
        waiter.poll(&Context::from_waker(&waker)).is_pending()
    });
    if !is_asleep {
        work.check();
    }
    raiser.join().expect("loom ends the model");
    assert!(
        !is_asleep || recorders[1].was_woken(),
        "the task was not woken"
    );
    let last = waiter.poll(&Context::from_waker(Waker::noop()));
    assert!(last.is_ready());
}

/// A connection's task runs rounds until there is nothing to do. A request, on another thread, ends.
fn a_connection() {
    let waker = Arc::new(TaskWaker::default());
    // Whether the request has ended is not ordered by itself; the waker orders it.
    let has_ended = Arc::new(AtomicBool::new(false));
    let request = {
        let (waker, has_ended) = (Waker::from(waker.clone()), has_ended.clone());
        thread::spawn(move || {
            has_ended.store(true, Ordering::Relaxed);
            waker.wake();
        })
    };
    let recorder = Arc::new(WakeRecorder::default());
    waker.register(&Waker::from(recorder.clone()));
    let is_asleep = loop {
        waker.start_round();
        if has_ended.load(Ordering::Relaxed) {
            break false;
        }
        if waker.sleep() {
            break true;
        }
    };
    request.join().expect("loom ends the model");
    assert!(!is_asleep || recorder.was_woken(), "the task was not woken");
}

/// A task polls a source through a filter, for reasons of its own too. Another thread has something in the source.
fn a_filter() {
    let filter = Arc::new(WakeFilter::new());
    let has_item = Arc::new(AtomicBool::new(false));
    let source_waker = Arc::new(std::sync::Mutex::new(None::<Waker>));
    let recorder = Arc::new(WakeRecorder::default());
    let task = Waker::from(recorder.clone());
    let mut context = Context::from_waker(&task);
    let poll = |context: &mut Context<'_>| {
        filter.poll(context, |context| {
            *source_waker.lock().expect("not poisoned") = Some(context.waker().clone());
            if has_item.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            Poll::Pending
        })
    };
    assert!(poll(&mut context).is_pending(), "nothing is there yet");
    let waker = source_waker.lock().expect("not poisoned").take();
    let producer = {
        let has_item = has_item.clone();
        thread::spawn(move || {
            has_item.store(true, Ordering::Relaxed);
            waker.expect("registered").wake();
        })
    };
    // The task is woken for another reason, and has another waker then.
    let second = Arc::new(WakeRecorder::default());
    let task = Waker::from(second.clone());
    let is_asleep = poll(&mut Context::from_waker(&task)).is_pending();
    producer.join().expect("loom ends the model");
    assert!(!is_asleep || second.was_woken(), "the task was not woken");
    let is_asleep = is_asleep && poll(&mut Context::from_waker(&task)).is_pending();
    assert!(!is_asleep, "the source was not polled");
}

/// Takes a key of a work queue without waiting.
fn poll_take(claims: &Claims<u32>, waiting: &mut Waiting, waker: &Waker) -> Poll<u32> {
    let context = Context::from_waker(waker);
    let taken = claims.poll_take(waiting, || Duration::ZERO, &context);
    taken.map(|taken| taken.expect("the queue is open").0)
}

/// Adds a key on another thread, for work that is provided before. The flag, which orders nothing, lets loom switch
/// threads also where the lock of a broken twin does not.
fn add_on_thread(
    claims: &Arc<Claims<u32>>,
    work: &Arc<Work>,
    flag: &Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let (claims, work, flag) = (claims.clone(), work.clone(), flag.clone());
    thread::spawn(move || {
        work.provide();
        claims.add(7, Duration::ZERO).1.wake();
        flag.store(true, Ordering::Relaxed);
    })
}

/// A worker takes a key that another thread adds.
fn a_worker() {
    let (claims, work) = (Arc::new(Claims::new()), Arc::new(Work::new()));
    let flag = Arc::new(AtomicBool::new(false));
    let adder = add_on_thread(&claims, &work, &flag);
    let recorder = Arc::new(WakeRecorder::default());
    let mut waiting = Waiting::default();
    flag.load(Ordering::Relaxed);
    let taken = poll_take(&claims, &mut waiting, &Waker::from(recorder.clone()));
    if taken.is_ready() {
        work.check();
    }
    adder.join().expect("loom ends the model");
    let is_asleep = taken.is_pending();
    assert!(!is_asleep || recorder.was_woken(), "the task was not woken");
    assert!(!is_asleep || poll_take(&claims, &mut waiting, Waker::noop()) == Poll::Ready(7));
}

/// Two workers wait. One of them ends while a key is added.
fn a_worker_that_ends() {
    let claims = Arc::new(Claims::new());
    let recorders = [(); 2].map(|()| Arc::new(WakeRecorder::default()));
    let [mut first, mut second] = [Waiting::default(), Waiting::default()];
    assert!(poll_take(&claims, &mut first, &Waker::from(recorders[0].clone())).is_pending());
    assert!(poll_take(&claims, &mut second, &Waker::from(recorders[1].clone())).is_pending());
    let adder = {
        let claims = claims.clone();
        thread::spawn(move || claims.add(7, Duration::ZERO).1.wake())
    };
    if !sync::is_weakened(Weakened::Leave) {
        claims.leave(&mut first).wake();
    }
    adder.join().expect("loom ends the model");
    assert!(recorders[1].was_woken(), "the task was not woken");
}

/// A key is added while it is processed. It is processed again, after that.
fn a_key_that_changes() {
    let (claims, work) = (Arc::new(Claims::new()), Arc::new(Work::new()));
    claims.add(7, Duration::ZERO).1.wake();
    let mut waiting = Waiting::default();
    assert_eq!(
        poll_take(&claims, &mut waiting, Waker::noop()),
        Poll::Ready(7)
    );
    let flag = Arc::new(AtomicBool::new(false));
    let adder = add_on_thread(&claims, &work, &flag);
    let recorder = Arc::new(WakeRecorder::default());
    let other = poll_take(&claims, &mut waiting, &Waker::from(recorder.clone()));
    assert!(other.is_pending(), "the key is processed twice at a time");
    flag.load(Ordering::Relaxed);
    claims.done(&7, Duration::ZERO).1.wake();
    let again = poll_take(&claims, &mut waiting, &Waker::from(recorder.clone()));
    if again.is_ready() {
        work.check();
    }
    adder.join().expect("loom ends the model");
    assert!(
        again.is_ready() || recorder.was_woken(),
        "the task was not woken"
    );
}

#[test]
fn a_worker_that_waits_for_a_key_is_woken() {
    run(None, a_worker);
}

#[test]
fn a_worker_is_woken_if_another_one_ends() {
    run(None, a_worker_that_ends);
}

#[test]
fn a_key_that_changes_is_processed_again() {
    run(None, a_key_that_changes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_queue_without_a_lock_is_detected() {
    run(Some(Weakened::Lock), a_worker);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_queue_without_a_lock_is_detected_by_a_key_that_changes() {
    run(Some(Weakened::Lock), a_key_that_changes);
}

#[test]
#[should_panic(expected = "the task was not woken")]
fn a_worker_that_ends_without_leaving_is_detected() {
    run(Some(Weakened::Leave), a_worker_that_ends);
}

#[test]
fn a_task_that_waits_for_a_signal_is_woken() {
    run(None, a_signal);
}

#[test]
fn the_task_of_a_connection_is_woken() {
    run(None, a_connection);
}

#[test]
fn a_task_with_a_filtered_source_is_woken() {
    run(None, a_filter);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_signal_without_release_is_detected() {
    run(Some(Weakened::Release), a_signal);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_signal_without_acquire_is_detected() {
    run(Some(Weakened::Acquire), a_signal);
}

#[test]
#[should_panic(expected = "the task was not woken")]
fn a_signal_without_a_lock_is_detected() {
    run(Some(Weakened::Lock), a_signal);
}

#[test]
#[should_panic(expected = "the task was not woken")]
fn a_connection_that_forgets_a_wake_up_is_detected() {
    run(Some(Weakened::Sleep), a_connection);
}

#[test]
#[should_panic(expected = "the task was not woken")]
fn a_connection_without_acquire_is_detected() {
    run(Some(Weakened::Acquire), a_connection);
}

#[test]
#[should_panic(expected = "the source was not polled")]
fn a_filter_without_release_is_detected() {
    run(Some(Weakened::Release), a_filter);
}

#[test]
#[should_panic(expected = "the source was not polled")]
fn a_filter_without_acquire_is_detected() {
    run(Some(Weakened::Acquire), a_filter);
}
