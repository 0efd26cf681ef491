//! The work queue, against a plain model and with threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use pollster::block_on;
use revstore_reflector::WorkQueue;
use revstore_reflector::work_queue::{Claim, RateLimits};
use revstore_watch_cache::clock::{Clock as _, ManualClock};

use crate::support::poll_once;

fn queue(clock: &ManualClock) -> WorkQueue<u8> {
    WorkQueue::builder().clock(Arc::new(clock.clone())).build()
}

fn take<K: Clone + Eq + std::hash::Hash + Send>(queue: &WorkQueue<K>) -> Option<Claim<K>> {
    match poll_once(queue.next()) {
        Poll::Ready(claim) => claim,
        Poll::Pending => None,
    }
}

/// What a work queue does, as plain as possible: lists that are searched.
#[derive(Default)]
struct Model {
    queue: VecDeque<u8>,
    /// The keys that were added while they are processed.
    again: BTreeSet<u8>,
    processing: BTreeSet<u8>,
    delayed: BTreeMap<u8, Duration>,
    adds: u64,
}

impl Model {
    fn add(&mut self, key: u8) {
        if self.processing.contains(&key) {
            self.adds += u64::from(self.again.insert(key));
        } else if !self.queue.contains(&key) {
            self.adds += 1;
            self.queue.push_back(key);
        }
    }

    fn done(&mut self, key: u8) {
        self.processing.remove(&key);
        if self.again.remove(&key) {
            self.queue.push_back(key);
        }
    }

    fn add_after(&mut self, key: u8, due: Duration) {
        let time = self.delayed.entry(key).or_insert(due);
        *time = due.min(*time);
    }

    /// Adds the keys that are due, in the order of their times.
    fn advance(&mut self, now: Duration) {
        let mut due: Vec<(Duration, u8)> = self.delayed.iter().map(|(k, t)| (*t, *k)).collect();
        due.retain(|(time, _)| *time <= now);
        due.sort_unstable();
        for (_, key) in due {
            self.delayed.remove(&key);
            self.add(key);
        }
    }
}

#[test]
fn random_operations_equal_a_plain_model() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let clock = ManualClock::new();
        let (queue, mut model) = (queue(&clock), Model::default());
        let mut claims: Vec<Claim<u8>> = Vec::new();
        for step in 0..random.u32(20..300) {
            let key = random.u8(0..6);
            match random.u8(0..10) {
                0..3 => {
                    queue.add(key);
                    model.add(key);
                }
                3..5 => {
                    // Times are unique, so that their order is.
                    let delay = Duration::from_millis(u64::from(random.u8(1..50)) * 1_000)
                        + Duration::from_micros(u64::from(step));
                    queue.add_after(key, delay);
                    model.add_after(key, clock.now() + delay);
                }
                5..8 => {
                    let taken = take(&queue);
                    assert_eq!(taken.as_deref(), model.queue.front(), "seed {seed}");
                    if let Some(key) = model.queue.pop_front() {
                        assert!(model.processing.insert(key), "one worker for each key");
                    }
                    claims.extend(taken);
                }
                8 if !claims.is_empty() => {
                    let claim = claims.swap_remove(random.usize(..claims.len()));
                    model.done(*claim);
                    drop(claim);
                }
                _ => {
                    clock.advance(Duration::from_secs(random.u64(0..10)));
                    model.advance(clock.now());
                }
            }
            let metrics = queue.metrics();
            assert_eq!(
                (metrics.depth, metrics.delayed, metrics.adds),
                (model.queue.len(), model.delayed.len(), model.adds),
                "seed {seed}"
            );
        }
        // What was added is handed out after a shutdown, what was to be added later is not.
        queue.shut_down();
        queue.add(100);
        queue.add_after(101, Duration::from_secs(1));
        clock.advance(Duration::from_secs(100));
        let mut drained = Box::pin(queue.drained());
        while !(claims.is_empty() && model.queue.is_empty()) {
            assert!(poll_once(&mut drained).is_pending(), "seed {seed}");
            if let Some(claim) = claims.pop() {
                model.done(*claim);
            }
            let taken = take(&queue);
            assert_eq!(taken.as_deref().copied(), model.queue.pop_front());
            model.processing.extend(taken.as_deref());
            claims.extend(taken);
        }
        assert!(poll_once(&mut drained).is_ready(), "seed {seed}");
        assert!(matches!(poll_once(queue.next()), Poll::Ready(None)));
    }
}

#[test]
fn keys_after_failures_wait_for_their_pause_on_the_clock() {
    let clock = ManualClock::new();
    let queue = queue(&clock);
    for (failures, pause) in [(0, 5), (1, 10), (2, 20)] {
        assert_eq!(queue.retries(&7), failures);
        queue.add_rate_limited(7);
        clock.advance(Duration::from_millis(pause - 1));
        assert!(queue.is_empty());
        clock.advance(Duration::from_millis(1));
        assert_eq!(take(&queue).as_deref(), Some(&7));
    }
    queue.forget(&7);
    assert_eq!(queue.retries(&7), 0);
    assert_eq!(queue.metrics().retries, 3);
    queue.add_after(7, Duration::MAX);
    queue.add_after(7, Duration::ZERO);
    assert_eq!(queue.len(), 1, "no delay is an addition");
}

#[test]
fn times_in_the_queue_and_of_the_work_are_measured() {
    let clock = ManualClock::new();
    let queue = queue(&clock);
    queue.add(1);
    clock.advance(Duration::from_secs(3));
    let claim = take(&queue).unwrap();
    queue.add(2);
    let other = take(&queue).unwrap();
    clock.advance(Duration::from_secs(2));
    let metrics = queue.metrics();
    assert_eq!(
        (
            metrics.unfinished.as_secs(),
            metrics.longest_running.as_secs()
        ),
        (4, 2)
    );
    drop((claim, other));
    let metrics = queue.metrics();
    assert_eq!(
        (metrics.queue_seconds.count, metrics.queue_seconds.sum),
        (2, 3.0)
    );
    assert_eq!(
        (metrics.work_seconds.count, metrics.work_seconds.sum),
        (2, 4.0)
    );
    assert!(metrics.unfinished.is_zero());
}

#[test]
fn a_worker_that_was_woken_and_gives_up_wakes_another_one() {
    let queue = queue(&ManualClock::new());
    let mut first = Box::pin(queue.next());
    assert!(poll_once(&mut first).is_pending());
    let second = std::thread::scope(|scope| {
        let waiting = Arc::new(AtomicUsize::new(0));
        let worker = {
            let (queue, waiting) = (queue.clone(), waiting.clone());
            scope.spawn(move || {
                let mut next = Box::pin(queue.next());
                assert!(poll_once(&mut next).is_pending());
                waiting.store(1, Ordering::Release);
                block_on(next).map(|claim| *claim)
            })
        };
        while waiting.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        // The key wakes the worker that waited first, which never takes it.
        queue.add(9);
        drop(first);
        worker.join().unwrap()
    });
    assert_eq!(second, Some(9));
}

#[test]
fn workers_on_threads_process_each_key_after_its_last_addition_and_never_twice_at_a_time() {
    const KEYS: usize = 16;
    let limits = RateLimits::default().bucket(0.0, 0);
    let queue: WorkQueue<usize> = WorkQueue::builder().limits(limits).build();
    let latest: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let seen: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let busy: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(claim) = block_on(queue.next()) {
                    assert_eq!(busy[*claim].swap(1, Ordering::AcqRel), 0, "twice at a time");
                    seen[*claim].store(latest[*claim].load(Ordering::Acquire), Ordering::Relaxed);
                    std::thread::yield_now();
                    busy[*claim].store(0, Ordering::Release);
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                let (queue, latest) = (&queue, &latest);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(seed);
                    for _ in 0..5_000 {
                        let key = random.usize(..KEYS);
                        latest[key].fetch_add(1, Ordering::AcqRel);
                        match random.u8(0..20) {
                            0 => queue.add_after(key, Duration::from_micros(random.u64(0..500))),
                            1 => queue.add_rate_limited(key),
                            _ => queue.add(key),
                        }
                        queue.forget(&key);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        // Those that are delayed are lost by the shutdown.
        (0..KEYS).for_each(|key| queue.add(key));
        block_on(queue.drained());
    });
    for key in 0..KEYS {
        let [latest, seen] = [&latest, &seen].map(|all| all[key].load(Ordering::Acquire));
        assert_eq!(latest, seen, "key {key}");
    }
}
