//! The work queue: the keys of objects that need to be processed, each once at a time.
//!
//! Corresponds to the package `workqueue` of client-go. `keys.rs` has the sets of keys, `claims.rs` the
//! workers that wait, `rate_limit.rs` the pauses of keys.

mod claims;
mod keys;
mod rate_limit;
/// The lock of the queue. Loom models replace it.
mod sync {
    pub(crate) use parking_lot::Mutex;
}

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter};
use revstore_watch_cache::clock::{Clock, DueWork, PendingWork, SystemClock, Timed};

use crate::metrics::{HistogramSnapshot, counter, histogram};
use claims::{Claims, Waiting, Wakes};
use keys::Added;
use rate_limit::RateLimiter;
pub use rate_limit::RateLimits;

/// The upper bounds of the buckets of durations, in seconds: 10 ns to 1,000 s, as client-go's.
const DURATION_BOUNDS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1_000.0,
];

/// A queue of keys that need to be processed. Clones are handles to the same queue.
///
/// - A key that is added several times before it is taken is in the queue once, at its first position.
/// - A key that was taken is processed until its [`Claim`] is dropped. If it is added meanwhile, it is
///   queued again after that, so that no two workers process it at the same time, and no change is
///   missed.
/// - [`add_after`](Self::add_after) adds a key later, [`add_rate_limited`](Self::add_rate_limited)
///   after a pause that grows with each failure.
/// - A queue that was shut down refuses further keys and hands out the others.
///
/// The queue contains each key at most once, and it has no other limit: its size is at most the number
/// of different keys. Additions wake one waiting worker; no user code runs under the locks.
///
/// ```
/// use pollster::block_on;
/// use revstore_reflector::WorkQueue;
///
/// let queue = WorkQueue::new();
/// queue.add("ns/a");
/// queue.add("ns/b");
/// queue.add("ns/a");
/// let claim = block_on(queue.next()).unwrap();
/// assert_eq!((*claim, queue.len()), ("ns/a", 1));
/// queue.add("ns/a");
/// assert_eq!(queue.len(), 1, "ns/a is being processed");
/// drop(claim);
/// assert_eq!(queue.len(), 2);
/// ```
pub struct WorkQueue<K: Send + 'static> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    clock: Arc<dyn Clock>,
    claims: Claims<K>,
    /// The keys to add later. The lock is held to add or remove some; no task is woken under it.
    delayed: Mutex<Delayed<K>>,
    /// The lock is held for one computation.
    limiter: Mutex<RateLimiter<K>>,
    /// How delayed keys are listed as pending work, if they are.
    listing: OnceLock<Listing<K>>,
    counters: Counters,
}

/// Keys that are added later, each at most once.
struct Delayed<K> {
    by_time: BTreeMap<(Duration, u64), K>,
    by_key: HashMap<K, (Duration, u64)>,
    next_number: u64,
    is_closed: bool,
    /// The keys that the clock has added, until they are processed: it waits for them.
    due: HashSet<K>,
}

/// The kind and the ids of keys in lists of pending work.
struct Listing<K> {
    kind: &'static str,
    id: Box<dyn Fn(&K) -> String + Send + Sync>,
}

struct Counters {
    adds: IntCounter,
    retries: IntCounter,
    queue_seconds: Histogram,
    work_seconds: Histogram,
}

/// A key that a worker processes, created by [`WorkQueue::next`]. Dropping it ends the processing, also
/// if the worker panics; the key is then queued again if it was added meanwhile.
#[must_use = "dropping it ends the processing of the key"]
pub struct Claim<K: Clone + Eq + Hash + Send + 'static> {
    queue: WorkQueue<K>,
    key: K,
}

/// A snapshot of the metrics of a work queue. The fields are read one after the other, not atomically.
///
/// The documentation of a field names the metric of client-go to which it corresponds.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorkQueueMetrics {
    /// `workqueue_depth`: number of keys in the queue.
    pub depth: usize,
    /// The number of keys that are added later.
    pub delayed: usize,
    /// `workqueue_adds_total`: number of additions, without those of keys that were queued anyway.
    pub adds: u64,
    /// `workqueue_retries_total`: number of additions after a pause.
    pub retries: u64,
    /// `workqueue_queue_duration_seconds`: time of keys in the queue.
    pub queue_seconds: HistogramSnapshot,
    /// `workqueue_work_duration_seconds`: time of the processing of keys.
    pub work_seconds: HistogramSnapshot,
    /// `workqueue_unfinished_work_seconds`: time for which the keys that are being processed have
    /// been, in total.
    pub unfinished: Duration,
    /// `workqueue_longest_running_processor_seconds`: the longest of these times.
    pub longest_running: Duration,
}

/// The configuration of a [`WorkQueue`], created by [`WorkQueue::builder`].
#[derive(Debug)]
#[must_use = "`build` creates the queue"]
pub struct WorkQueueBuilder {
    clock: Option<Arc<dyn Clock>>,
    limits: RateLimits,
}

impl WorkQueueBuilder {
    /// Sets the clock. The default is a separate [`SystemClock`].
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// Sets the limits of additions after failures.
    pub fn limits(self, limits: RateLimits) -> Self {
        Self { limits, ..self }
    }

    /// Creates the queue.
    pub fn build<K: Clone + Eq + Hash + Send + 'static>(self) -> WorkQueue<K> {
        let shared = Arc::new(Shared {
            clock: self.clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            claims: Claims::new(),
            delayed: Mutex::new(Delayed {
                by_time: BTreeMap::new(),
                by_key: HashMap::new(),
                next_number: 0,
                is_closed: false,
                due: HashSet::new(),
            }),
            listing: OnceLock::new(),
            limiter: Mutex::new(RateLimiter::new(self.limits)),
            counters: Counters {
                adds: counter("workqueue_adds_total"),
                retries: counter("workqueue_retries_total"),
                queue_seconds: histogram("workqueue_queue_duration_seconds", &DURATION_BOUNDS),
                work_seconds: histogram("workqueue_work_duration_seconds", &DURATION_BOUNDS),
            },
        });
        let follower: Arc<dyn Timed> = shared.clone();
        shared.clock.follow(Arc::downgrade(&follower));
        WorkQueue { shared }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> WorkQueue<K> {
    /// Creates a queue with the default limits, on the clock of the system.
    #[expect(
        clippy::new_without_default,
        reason = "a queue starts the thread of a clock"
    )]
    pub fn new() -> Self {
        WorkQueueBuilder {
            clock: None,
            limits: RateLimits::default(),
        }
        .build()
    }

    /// Adds a key, unless it is in the queue.
    pub fn add(&self, key: K) {
        let now = self.shared.clock.now();
        self.shared.add(key, now).wake();
    }

    /// Adds a key after a delay. If it is already to be added later, the earlier time applies.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            self.add(key);
            return;
        }
        let due = self.shared.clock.now().saturating_add(delay);
        if self.shared.delayed.lock().insert(key, due) {
            self.shared.counters.retries.inc();
            self.shared.clock.recheck_at(due);
        }
    }

    /// Lists the keys that are to be added later as pending work of the clock, as this kind and with these ids. Later calls
    /// have no effect.
    pub fn list_pending(
        &self,
        kind: &'static str,
        id: impl Fn(&K) -> String + Send + Sync + 'static,
    ) {
        let id = Box::new(id);
        let _ = self.shared.listing.set(Listing { kind, id });
    }

    /// Adds a key after the pause of the limits ([`RateLimits`]).
    pub fn add_rate_limited(&self, key: K) {
        let now = self.shared.clock.now();
        let pause = self.shared.limiter.lock().pause(&key, now);
        self.add_after(key, pause);
    }

    /// Resets the pauses of a key, which was processed successfully.
    pub fn forget(&self, key: &K) {
        self.shared.limiter.lock().forget(key);
    }

    /// Returns how often a key was added with [`add_rate_limited`](Self::add_rate_limited) since it was
    /// last forgotten.
    pub fn retries(&self, key: &K) -> u32 {
        self.shared.limiter.lock().additions(key)
    }

    /// Waits for a key, and takes it. Returns `None` if the queue was shut down and all its keys are
    /// processed.
    ///
    /// The future can be dropped at any time without losing a key.
    pub async fn next(&self) -> Option<Claim<K>> {
        let mut worker = Worker {
            shared: &self.shared,
            waiting: Waiting::default(),
        };
        let (key, queued) = poll_fn(|context| {
            let clock = &self.shared.clock;
            let claims = &self.shared.claims;
            claims.poll_take(&mut worker.waiting, || clock.now(), context)
        })
        .await?;
        let counters = &self.shared.counters;
        counters.queue_seconds.observe(queued.as_secs_f64());
        Some(Claim {
            queue: self.clone(),
            key,
        })
    }

    /// Refuses further keys, also those that were to be added later. The keys in the queue are still
    /// handed out, and so is a key that was added while it was processed; then
    /// [`next`](Self::next) returns `None`.
    pub fn shut_down(&self) {
        self.shared.delayed.lock().close();
        self.shared.claims.close().wake();
    }

    /// Shuts the queue down, and waits until all its keys are processed.
    pub async fn drained(&self) {
        self.shut_down();
        poll_fn(|context| self.shared.claims.poll_drained(context)).await;
    }

    /// Returns whether the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared.claims.read(keys::Keys::is_closed)
    }

    /// Returns the number of keys in the queue, without those that are processed or added later.
    pub fn len(&self) -> usize {
        self.shared.claims.read(keys::Keys::len)
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a snapshot of the metrics.
    pub fn metrics(&self) -> WorkQueueMetrics {
        let Shared {
            clock,
            claims,
            delayed,
            counters,
            ..
        } = &*self.shared;
        let now = clock.now();
        let (unfinished, longest_running) = claims.read(|keys| keys.unfinished(now));
        WorkQueueMetrics {
            depth: self.len(),
            delayed: delayed.lock().by_key.len(),
            adds: counters.adds.get(),
            retries: counters.retries.get(),
            queue_seconds: HistogramSnapshot::of(&counters.queue_seconds),
            work_seconds: HistogramSnapshot::of(&counters.work_seconds),
            unfinished,
            longest_running,
        }
    }
}

impl WorkQueue<()> {
    /// Returns the builder of a queue. Its method `build` chooses the type of the keys.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use revstore_reflector::WorkQueue;
    /// use revstore_watch_cache::clock::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// let queue = WorkQueue::builder().clock(Arc::new(clock.clone())).build();
    /// queue.add_after("ns/a", Duration::from_secs(5));
    /// assert!(queue.is_empty());
    /// clock.advance(Duration::from_secs(5));
    /// assert_eq!(queue.len(), 1);
    /// ```
    pub fn builder() -> WorkQueueBuilder {
        WorkQueueBuilder {
            clock: None,
            limits: RateLimits::default(),
        }
    }
}

impl<K: Send + 'static> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("len", &self.len())
            .field("is_shut_down", &self.is_shut_down())
            .finish_non_exhaustive()
    }
}

/// A worker in [`WorkQueue::next`]. When the future is dropped, a wake-up is passed on.
struct Worker<'a, K: Clone + Eq + Hash> {
    shared: &'a Shared<K>,
    waiting: Waiting,
}

impl<K: Clone + Eq + Hash> Drop for Worker<'_, K> {
    fn drop(&mut self) {
        self.shared.claims.leave(&mut self.waiting).wake();
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Deref for Claim<K> {
    type Target = K;
    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash + Send + fmt::Debug + 'static> fmt::Debug for Claim<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.key).finish()
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Drop for Claim<K> {
    fn drop(&mut self) {
        let Shared {
            clock,
            claims,
            counters,
            ..
        } = &*self.queue.shared;
        let (processed, wakes) = claims.done(&self.key, clock.now());
        counters.work_seconds.observe(processed.as_secs_f64());
        self.queue.shared.delayed.lock().due.remove(&self.key);
        wakes.wake();
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    fn add(&self, key: K, now: Duration) -> Wakes {
        let (added, wakes) = self.claims.add(key, now);
        if added != Added::Ignored {
            self.counters.adds.inc();
        }
        wakes
    }
}

impl<K: Clone + Eq + Hash> Delayed<K> {
    /// Records a key. Returns whether it was accepted at this time: the queue is open, and the key is
    /// not to be added earlier.
    fn insert(&mut self, key: K, due: Duration) -> bool {
        let known = self.by_key.get(&key).copied();
        if self.is_closed || known.is_some_and(|(time, _)| time <= due) {
            return false;
        }
        if let Some(known) = known {
            self.by_time.remove(&known);
        }
        let position = (due, self.next_number);
        self.next_number += 1;
        self.by_time.insert(position, key.clone());
        self.by_key.insert(key, position);
        true
    }

    /// Removes the keys that are due.
    fn take_due(&mut self, now: Duration) -> Vec<K> {
        let mut due = Vec::new();
        while let Some(entry) = self.by_time.first_entry()
            && entry.key().0 <= now
        {
            let key = entry.remove();
            self.by_key.remove(&key);
            due.push(key.clone());
            self.due.insert(key);
        }
        due
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.by_time.clear();
        self.by_key.clear();
        self.due.clear();
    }
}

impl<K> fmt::Debug for Shared<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash + Send> Timed for Shared<K> {
    fn next_due(&self) -> Option<Duration> {
        let delayed = self.delayed.lock();
        delayed.by_time.first_key_value().map(|((due, _), _)| *due)
    }

    fn run_due(self: Arc<Self>) {
        let now = self.clock.now();
        let due = self.delayed.lock().take_due(now);
        for key in due {
            self.add(key, now).wake();
        }
    }

    fn pending(&self, max: usize) -> PendingWork {
        let Some(Listing { kind, id }) = self.listing.get() else {
            return PendingWork::default();
        };
        let delayed = self.delayed.lock();
        let work = delayed.by_time.iter().take(max);
        let work = work.map(|((due, _), key)| DueWork {
            due: *due,
            kind,
            id: id(key),
        });
        PendingWork {
            work: work.collect(),
            more: delayed.by_time.len().saturating_sub(max) as u64,
        }
    }

    fn is_settled(&self) -> bool {
        self.delayed.lock().due.is_empty()
    }
}
