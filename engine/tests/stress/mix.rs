//! The mix: threads that write, read, compact and watch one engine at the same time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use revstore_engine::{
    Compare, CompareTarget, Engine, EngineBuilder, KeyRange, LeaseId, ManualClock, Op, Put, Range,
    Relation, Revision, Snapshot, Txn, WatchOptions,
};
use revstore_verify::sync::mpsc::{Receiver, SyncSender, sync_channel};
use revstore_verify::{Options, explore, seed, thread};

use crate::guarantees::{self, Expected};
use crate::history::{Operation, Recorder, Request, Response};
use crate::order;
use crate::random::Random;
use crate::search;
use crate::watched::{Reader, Watched};

/// The number of keys: few, so that threads write the same ones.
const KEYS: usize = 8;
/// The number of leases that keys move between. A revoked lease is replaced by a new one.
const LEASES: usize = 3;
/// The length of a large value. A few of them fill the queue of a watch stream.
const LARGE_BYTES: usize = if cfg!(shuttle) { 1024 } else { 1024 * 1024 };
/// The number of snapshots that a worker has open.
const SNAPSHOTS: usize = 2;
/// The number of operations of a worker between two reads of the slowest reader.
const OPERATIONS_PER_TICK: usize = 16;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) steps: usize,
    pub(crate) compacts: bool,
    pub(crate) large: bool,
    /// Whether the time advances, and leases are renewed, expire and are granted again with the
    /// same ids.
    pub(crate) timed: bool,
}

/// Prints the seed when a test fails.
pub(crate) struct SeedOnPanic(pub(crate) u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// The numbers of operations and events of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    operations: usize,
    revisions: i64,
    events: usize,
    watches: usize,
    /// The number of watches that a compaction has ended.
    ended: usize,
    /// The number of leases with keys that have expired.
    expired: usize,
}

/// The state that the workers share.
struct WorkerShared<'a> {
    recorder: &'a Recorder,
    /// The current leases.
    leases: [AtomicI64; LEASES],
    next_lease: AtomicI64,
}

impl WorkerShared<'_> {
    fn lease(&self, index: usize) -> LeaseId {
        LeaseId::new(self.leases[index].load(Ordering::SeqCst)).expect("never 0")
    }

    /// Grants a lease with a new id.
    fn grant(&self) -> i64 {
        let id = self.next_lease.fetch_add(1, Ordering::SeqCst);
        let lease = LeaseId::new(id).expect("never 0");
        let granted = self.recorder.run(Request::Grant(lease));
        assert_eq!(granted, Response::Granted(true), "the id is free");
        id
    }
}

struct Worker<'a> {
    shared: &'a WorkerShared<'a>,
    mix: Mix,
    name: usize,
    random: Random,
    /// The number of values written, which makes every value unique.
    written: usize,
    /// The revision of the last put of this worker, by key.
    own: HashMap<Bytes, i64>,
    /// The open snapshots of this worker.
    snapshots: Vec<Snapshot>,
}

impl Worker<'_> {
    fn run(&mut self, ticks: &SyncSender<()>) {
        for step in 0..self.mix.steps {
            let request = self.request();
            let response = self.shared.recorder.run(request.clone());
            if let (Request::Put(put), Response::Put { revision, .. }) = (request, response) {
                self.own.insert(put.key, revision);
            }
            if self.random.once_in(6) {
                self.use_snapshot();
            }
            if step % OPERATIONS_PER_TICK == 0 {
                // An error means that the reader is even slower; workers do not wait for it.
                let _ = ticks.try_send(());
            }
        }
    }

    fn request(&mut self) -> Request {
        if self.mix.timed && self.random.once_in(2) {
            return self.lease_request();
        }
        match self.random.below(100) {
            0..36 => Request::Put(self.put()),
            36..42 => Request::Delete(self.range()),
            42..56 => Request::Txn(self.guarded()),
            56..68 => Request::Txn(self.many()),
            68..78 => Request::Range(self.read()),
            78..88 => Request::Range(self.read_past()),
            88..94 => Request::Get(self.key()),
            94..96 => Request::CurrentRevision,
            96..98 if !self.mix.timed => self.revoke(),
            // With a time that advances, what a compaction removes is saved before, so it must exist.
            _ if self.mix.compacts && self.mix.timed => {
                let current = self.shared.recorder.engine.current_revision().0;
                Request::Compact(self.past(60).min(current))
            }
            _ if self.mix.compacts => Request::Compact(self.past(60)),
            _ => Request::Range(self.read_past()),
        }
    }

    /// Opens, reads or drops a snapshot.
    fn use_snapshot(&mut self) {
        let recorder = self.shared.recorder;
        let open = self.snapshots.len();
        match self.random.below(8) {
            _ if open == 0 => self.snapshots.push(recorder.open_snapshot()),
            0 | 1 if open < SNAPSHOTS => self.snapshots.push(recorder.open_snapshot()),
            2 => drop(self.snapshots.swap_remove(self.random.below(open))),
            _ => {
                let keys = match self.random.below(3) {
                    0 => KeyRange::One(self.key()),
                    1 => self.range(),
                    _ => KeyRange::all(),
                };
                recorder.read_snapshot(&self.snapshots[self.random.below(open)], keys);
            }
        }
    }

    fn key(&mut self) -> Bytes {
        format!("k{}", self.random.below(KEYS)).into()
    }

    fn value(&mut self) -> Bytes {
        self.written += 1;
        format!("{}/{}", self.name, self.written).into()
    }

    fn range(&mut self) -> KeyRange {
        match self.random.below(4) {
            0 => KeyRange::within(self.key(), self.key()),
            _ => KeyRange::One(self.key()),
        }
    }

    fn put(&mut self) -> Put {
        if self.mix.large && self.random.once_in(12) {
            let mut value = self.value().to_vec();
            value.resize(LARGE_BYTES, b'.');
            return Put::new("large", value);
        }
        let put = Put::new(self.key(), self.value());
        match self.random.below(8) {
            0 | 1 => put.attached_to(self.shared.lease(self.random.below(LEASES))),
            2 => put.keeping_lease(),
            3 => Put::keeping_value(put.key),
            _ => put,
        }
    }

    /// Returns a transaction that changes a key if a compare of it or of a range holds, and
    /// otherwise reads the key.
    fn guarded(&mut self) -> Txn {
        let key = self.key();
        let (target, relation) = match (self.random.below(3), self.own.get(&key)) {
            (0, _) => (CompareTarget::CreateRevision(0), Relation::Equal),
            (1, Some(own)) => (CompareTarget::ModRevision(*own), Relation::Equal),
            _ => (CompareTarget::Version(1), Relation::Greater),
        };
        let then = if self.random.once_in(4) {
            Op::Delete(KeyRange::One(key.clone()))
        } else {
            Op::Put(Put::new(key.clone(), self.value()))
        };
        // A compare over a range is evaluated before the transaction excludes other writers.
        let keys = match self.random.below(3) {
            0 => KeyRange::prefix("k"),
            1 => KeyRange::within(self.key(), self.key()),
            _ => KeyRange::One(key.clone()),
        };
        Txn::new()
            .when([Compare::new(keys, target, relation)])
            .and_then([then, Op::Range(self.read())])
            .or_else([Op::Range(Range::of(KeyRange::One(key)))])
    }

    /// Returns a transaction that writes several keys, some of them twice, and reads between the
    /// writes.
    fn many(&mut self) -> Txn {
        let mut ops = vec![Op::Range(self.read())];
        for _ in 0..=self.random.below(4) {
            ops.push(Op::Put(Put::new(self.key(), self.value())));
        }
        ops.push(Op::Range(self.read()));
        if self.random.once_in(3) {
            ops.push(Op::Delete(self.range()));
        }
        if self.random.once_in(3) {
            let lease = self.random.below(LEASES);
            let put = Put::new(self.key(), self.value());
            ops.push(Op::Put(put.attached_to(self.shared.lease(lease))));
        }
        if self.random.once_in(3) {
            ops.push(Op::Range(self.read_past()));
        }
        Txn::new().and_then(ops)
    }

    fn read(&mut self) -> Range {
        let keys = match self.random.below(3) {
            0 => KeyRange::all(),
            1 => KeyRange::prefix("k"),
            _ => self.range(),
        };
        let range = Range::of(keys);
        match self.random.below(4) {
            0 => range.limit(self.random.below(KEYS)),
            1 => range.count_only(),
            _ => range,
        }
    }

    fn read_past(&mut self) -> Range {
        let at = self.past(40);
        self.read().at(Revision(at))
    }

    /// Returns a revision near the current one, sometimes above it.
    fn past(&mut self, back: i64) -> i64 {
        let current = self.shared.recorder.engine.current_revision().0;
        (current + 2 - self.random.below_i64(back)).max(1)
    }

    /// Returns a request for one of a few leases, whose ids are used again, or advances the time.
    fn lease_request(&mut self) -> Request {
        let lease = self.shared.lease(self.random.below(LEASES));
        match self.random.below(8) {
            // One worker only.
            0..4 if self.name == 0 => Request::Advance,
            0..2 => Request::Grant(lease),
            2 => Request::KeepAlive(lease),
            3 if self.random.once_in(3) => Request::Revoke(lease),
            _ => Request::Put(Put::new(self.key(), self.value()).attached_to(lease)),
        }
    }

    fn revoke(&mut self) -> Request {
        let lease = &self.shared.leases[self.random.below(LEASES)];
        // Replaced first, so that no other worker revokes it.
        let old = lease.swap(self.shared.grant(), Ordering::SeqCst);
        Request::Revoke(LeaseId::new(old).expect("never 0"))
    }
}

/// Watches from the current revision on, and reads without delay.
fn read_live(recorder: &Recorder, seed: u64) -> Vec<Watched> {
    let mut random = Random::new(seed, 100);
    let mut reader = Reader::new(recorder);
    reader.watch(WatchOptions::of(KeyRange::all()).with_prev_kv());
    reader.watch(WatchOptions::of(KeyRange::prefix("k")).without_puts());
    reader.watch(WatchOptions::of(KeyRange::one("k0")).without_deletes());
    loop {
        if random.once_in(3) {
            reader.request_progress();
        }
        if !reader.wait() {
            return reader.finish();
        }
    }
}

/// Watches from the first revision on, and resumes often, like a client with a bad connection.
fn read_resuming(recorder: &Recorder, seed: u64) -> Vec<Watched> {
    let mut random = Random::new(seed, 101);
    let mut reader = Reader::new(recorder);
    let past = WatchOptions::of(KeyRange::all()).from(Revision(1));
    let ids = [
        reader.watch(past.clone()),
        reader.watch(past.with_prev_kv()),
    ];
    while reader.wait() {
        if random.once_in(6) {
            reader.resume(ids[random.below(ids.len())]);
        }
        if random.once_in(6) {
            reader.request_progress();
        }
    }
    reader.finish()
}

/// Creates watches with future start revisions.
fn read_future(recorder: &Recorder, seed: u64) -> Vec<Watched> {
    let mut random = Random::new(seed, 102);
    let mut reader = Reader::new(recorder);
    for _ in 0..60 {
        let current = recorder.engine.current_revision().0;
        let start = Revision(current + random.below_i64(40));
        reader.watch(WatchOptions::of(KeyRange::all()).from(start));
        for _ in 0..40 {
            reader.wait();
        }
        reader.request_progress();
    }
    reader.finish()
}

/// Reads one response per tick, which is slower than the writers, and the remaining ones at the
/// end.
fn read_slowly(recorder: &Recorder, ticks: &Receiver<()>) -> Vec<Watched> {
    let mut reader = Reader::new(recorder);
    reader.watch(WatchOptions::of(KeyRange::all()));
    reader.watch(WatchOptions::of(KeyRange::one("large")));
    while ticks.recv().is_ok() {
        reader.poll();
        reader.request_progress();
    }
    reader.finish()
}

/// Runs a mix and validates the recorded history. Each schedule has other operations.
pub(crate) fn run(mut mix: Mix, builder: EngineBuilder) -> Outcome {
    mix.seed = mix.seed.wrapping_add(seed().wrapping_mul(1_000_003));
    let _seed = SeedOnPanic(mix.seed);
    let clock = ManualClock::new();
    let engine = builder.clock(clock.clone()).build();
    let recorder = Recorder::with_clock(engine, mix.timed.then_some(clock));
    let shared = WorkerShared {
        recorder: &recorder,
        leases: [const { AtomicI64::new(0) }; LEASES],
        next_lease: AtomicI64::new(1),
    };
    for lease in &shared.leases {
        lease.store(shared.grant(), Ordering::SeqCst);
    }
    let watched = thread::scope(|scope| {
        let (recorder, shared, seed) = (&recorder, &shared, mix.seed);
        let (tick, ticks) = sync_channel(4);
        let readers = [
            scope.spawn(move || read_live(recorder, seed)),
            scope.spawn(move || read_resuming(recorder, seed)),
            scope.spawn(move || read_future(recorder, seed)),
            scope.spawn(move || read_slowly(recorder, &ticks)),
        ];
        let workers: Vec<_> = (0..mix.workers)
            .map(|name| {
                let tick = tick.clone();
                let mut worker = Worker {
                    shared,
                    mix,
                    name,
                    random: Random::new(seed, name),
                    written: 0,
                    own: HashMap::new(),
                    snapshots: Vec::new(),
                };
                scope.spawn(move || worker.run(&tick))
            })
            .collect();
        drop(tick);
        let workers: Vec<_> = workers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        // Also if a worker panicked, because the readers wait for the end.
        recorder.end();
        for worker in workers {
            worker.expect("a worker does not panic");
        }
        let read = readers.into_iter().map(thread::ScopedJoinHandle::join);
        read.flat_map(|watched| watched.expect("a reader does not panic"))
            .collect::<Vec<_>>()
    });
    validate(&recorder, &watched)
}

/// Validates the operations and the watches of a recorder.
pub(crate) fn validate(recorder: &Recorder, watched: &[Watched]) -> Outcome {
    let history = recorder.history();
    let model = order::check(&history).unwrap_or_else(|violation| panic!("{violation}"));
    let revisions = model.revision();
    let compacted = recorder.engine.compacted_revision();
    let compacted = compacted.map_or(0, |revision| revision.0);
    let expected = Expected { model, compacted };
    for watched in watched {
        guarantees::check(watched, &expected).unwrap_or_else(|violation| panic!("{violation}"));
    }
    let is_expiry = |operation: &&Operation| matches!(operation.request, Request::Expire { .. });
    Outcome {
        expired: history.iter().filter(is_expiry).count(),
        operations: history.len(),
        revisions,
        events: watched.iter().map(|watched| watched.events().count()).sum(),
        watches: watched.len(),
        ended: watched
            .iter()
            .filter(|watched| watched.compacted().is_some())
            .count(),
    }
}

/// The options of an engine whose time stands still.
pub(crate) fn builder() -> EngineBuilder {
    Engine::builder().clock(ManualClock::new())
}

/// Runs a test: once on threads of the system. Under shuttle it runs with schedules that are always
/// the same, and with those that the environment selects.
pub(crate) fn repeat(test: impl Fn() + Send + Sync + 'static) {
    if cfg!(shuttle) {
        let test = Arc::new(test);
        for options in [Options::new().seed(1).executions(50), Options::new()] {
            let test = test.clone();
            eprintln!("{}", explore(&options, move || test()));
        }
    } else {
        explore(&Options::new().executions(1), test);
    }
}

/// Runs several mixes, and prints their outcomes. Returns the sum.
fn run_all(mixes: impl IntoIterator<Item = Mix>) -> Outcome {
    let total = Arc::new(Mutex::new(Outcome::default()));
    for mix in mixes {
        let total = total.clone();
        repeat(move || {
            let outcome = run(mix, builder());
            eprintln!("{mix:?}: {outcome:?}");
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.operations += outcome.operations;
            total.events += outcome.events;
            total.watches += outcome.watches;
            total.ended += outcome.ended;
            total.expired += outcome.expired;
            total.revisions += outcome.revisions;
        });
    }
    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut total)
}

/// The number of workers of a mix. Shuttle needs fewer operations for as many interleavings.
const WORKERS: usize = if cfg!(shuttle) { 3 } else { 4 };
/// The number of operations of a worker.
const STEPS: usize = if cfg!(shuttle) { 40 } else { 300 };

#[test]
fn a_mix_without_compaction_is_linearizable_and_its_watches_keep_their_guarantees() {
    let mix = |seed| Mix {
        seed,
        workers: WORKERS,
        steps: STEPS,
        compacts: false,
        large: false,
        timed: false,
    };
    let total = run_all([1, 2, 3].map(mix));
    assert_eq!(total.ended, 0, "nothing was compacted");
    let operations = 3 * WORKERS * STEPS;
    assert!(
        total.operations > operations && total.events > operations,
        "{total:?}"
    );
}

#[test]
fn a_mix_with_compaction_is_linearizable_and_its_watches_keep_their_guarantees() {
    let mix = |seed| Mix {
        seed,
        workers: WORKERS,
        steps: STEPS,
        compacts: true,
        large: false,
        timed: false,
    };
    run_all([4, 5, 6].map(mix));
}

#[test]
fn a_mix_with_values_that_overflow_the_queues_loses_no_events() {
    let mix = |seed| Mix {
        seed,
        workers: 3,
        steps: STEPS,
        compacts: false,
        large: true,
        timed: false,
    };
    run_all([7, 8].map(mix));
}

#[test]
fn a_mix_in_which_leases_expire_and_ids_are_used_again_is_linearizable() {
    let mix = |seed| Mix {
        seed,
        workers: WORKERS,
        steps: STEPS,
        compacts: seed % 2 == 0,
        large: false,
        timed: true,
    };
    let total = run_all([9, 10, 11, 12].map(mix));
    assert!(total.expired > 0, "no lease expired: {total:?}");
}

#[test]
fn a_search_without_revisions_finds_a_linearization() {
    for seed in 0..60 {
        repeat(move || search_small(seed));
    }
}

/// Runs a few operations of three threads, and searches a linearization of them.
fn search_small(seed: u64) {
    let seed = seed.wrapping_add(revstore_verify::seed().wrapping_mul(1_000_003));
    let _seed = SeedOnPanic(seed);
    let recorder = Recorder::new(builder().build());
    let few = [Bytes::from("a"), Bytes::from("b")];
    thread::scope(|scope| {
        for thread in 0..3 {
            let (few, recorder) = (&few, &recorder);
            scope.spawn(move || {
                let mut random = Random::new(seed, thread);
                for step in 0..5 {
                    let value = format!("{thread}/{step}");
                    recorder.run(small_request(&mut random, few, value));
                }
            });
        }
    });
    let history = recorder.history();
    order::check(&history).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(search::is_linearizable(&history), "{history:?}");
}

fn small_request(random: &mut Random, keys: &[Bytes], value: String) -> Request {
    let key = keys[random.below(keys.len())].clone();
    match random.below(6) {
        0 => Request::Put(Put::new(key, value)),
        1 => Request::Delete(KeyRange::One(key)),
        2 => Request::Get(key),
        3 => Request::Range(Range::of(KeyRange::all())),
        4 => Request::Txn(
            Txn::new()
                .when([Compare::absent(key.clone())])
                .and_then([Op::Put(Put::new(key.clone(), value))])
                .or_else([Op::Delete(KeyRange::One(key))]),
        ),
        _ => {
            let put = |key: &Bytes| Op::Put(Put::new(key.clone(), value.clone()));
            Request::Txn(Txn::new().and_then(keys.iter().map(put)))
        }
    }
}
