//! T-64: a model test of informers against the engine.
//!
//! Writers are random; some informers lose their connections or are slow; the store compacts, loses
//! connections, or is replaced. At each revision an informer's store must equal the engine's state at
//! that revision, and at the end the stores of all informers must equal the newest state.
//!
//! The first test runs on one thread, in an order that the seed determines, so that a failure can be
//! repeated. The second test runs the same parts on several threads.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures_core::future::BoxFuture;
use pollster::block_on;
use revstore_engine::{Engine, KeyRange, Op, Put, Range, Revision, Txn};
use revstore_reflector::{
    Delivery, FinalState, Informer, InformerHandle, ListWatch, Notification, Reflector,
    ReflectorMode, StorageListWatch, Subscription,
};
use revstore_watch_cache::api::{EventStream, Expired, ObjectList, Storage};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::source::{RawStore, SourceError};
use revstore_watch_cache::{
    ListOptions, RequestError, ResourceCache, Scope, Selector, WatchCache, WatchOptions,
};

use crate::support::{Fixture, InterruptibleSource, PODS, config, pod, poll_once, short_window};

/// The number of times that each situation occurred. A situation that never occurred is untested.
type Coverage = BTreeMap<&'static str, u64>;

/// The situations that must occur in the runs of all seeds together.
const REQUIRED: [&str; 21] = [
    "put",
    "deletion",
    "revision of several keys",
    "revision of another resource",
    "expiry of a lease",
    "compaction",
    "closed connection",
    "refused request",
    "watch position evicted from the window",
    "watch from a revision before the window",
    "watch from a compacted revision",
    "feed interrupted",
    "feed reloaded",
    "store replaced by an older state",
    "store replaced by a newer revision",
    "watch ended by a replaced store",
    "bookmark",
    "initial state repeated",
    "watch repeated",
    "missed deletion",
    "consistency check",
];

/// Returns the pods of the engine at a revision: key and mod revision. `None` if it is compacted.
fn engine_state(engine: &Engine, revision: Revision) -> Option<BTreeMap<String, i64>> {
    let range = Range::of(KeyRange::prefix(format!("{PODS}/"))).at(revision);
    let found = engine.range(&range).ok()?;
    let key = |key: &[u8]| String::from_utf8(key[PODS.len() + 1..].to_vec()).unwrap();
    let pods = found.kvs.iter();
    Some(
        pods.map(|kv| (key(kv.key()), kv.mod_revision().0))
            .collect(),
    )
}

/// Returns the pods of an informer's store: key and mod revision.
fn informer_state(handle: &InformerHandle) -> BTreeMap<String, i64> {
    let objects = handle.store().list();
    objects
        .iter()
        .map(|object| (object.store_key(), object.revision().0))
        .collect()
}

/// A copy of the collection that is built from notifications only.
#[derive(Default)]
struct Replica {
    pods: BTreeMap<String, i64>,
    missed_deletions: u64,
}

impl Replica {
    fn apply(&mut self, notification: &Notification) {
        match notification {
            Notification::Added { object, .. } => {
                let before = self.pods.insert(object.store_key(), object.revision().0);
                assert!(before.is_none(), "the pod is new");
            }
            Notification::Updated { old, new } => {
                let before = self.pods.insert(new.store_key(), new.revision().0);
                assert_eq!(
                    before,
                    Some(old.revision().0),
                    "the old object is the one in the replica"
                );
            }
            Notification::Deleted(state) => {
                let known = self.pods.remove(&state.object().store_key());
                assert!(known.is_some(), "the pod exists");
                let is_missed = matches!(state, FinalState::Unknown(_));
                self.missed_deletions += u64::from(is_missed);
            }
        }
    }
}

/// A connection that a test can close. Events that are already queued are still delivered, because
/// the events of one revision are written in one flush (WC-343), and a closed connection never
/// splits a revision.
#[derive(Debug)]
struct Connection {
    inner: StorageListWatch,
    /// The number of times the connection was closed. A watch that was started before the last time
    /// ends.
    closes: Arc<AtomicU64>,
    /// Whether the next request fails.
    refuses: Arc<AtomicBool>,
}

impl Connection {
    fn check(&self) -> Result<(), RequestError> {
        if self.refuses.swap(false, Ordering::Relaxed) {
            return Err(RequestError::Internal("connection refused".into()));
        }
        Ok(())
    }
}

impl ListWatch for Connection {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
        Box::pin(async move {
            self.check()?;
            self.inner.list(options).await
        })
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        Box::pin(async move {
            self.check()?;
            let mut events = self.inner.watch(options).await?;
            let (closes, known) = (self.closes.clone(), self.closes.load(Ordering::Relaxed));
            let next = move |context: &mut std::task::Context<'_>| {
                let next = events.as_mut().poll_next(context);
                let is_closed = closes.load(Ordering::Relaxed) != known;
                if next.is_pending() && is_closed {
                    return Poll::Ready(None);
                }
                next
            };
            Ok(Box::pin(futures_util::stream::poll_fn(next)) as EventStream)
        })
    }
}

/// The errors that an informer reported.
type Failures = Arc<Mutex<Vec<RequestError>>>;

/// Returns how the subscription of a client delivers.
fn delivery(client: u64) -> Delivery {
    if client % 4 == 1 {
        Delivery::Merged
    } else {
        Delivery::InOrder
    }
}

/// An informer with its connection, one subscription, and the replica built from it.
struct Client {
    handle: InformerHandle,
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
    subscription: Subscription,
    replica: Replica,
    closes: Arc<AtomicU64>,
    refuses: Arc<AtomicBool>,
    failures: Failures,
    /// Whether the informer is polled rarely.
    is_slow: bool,
    /// The number of initial states that were received before the store was replaced.
    states_before: u64,
}

impl Client {
    fn new(number: u64, storage: Arc<dyn Storage>, clock: &ManualClock, seed: u64) -> Self {
        let (closes, refuses) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let connection = Connection {
            inner: StorageListWatch::new(storage, Scope::All, Selector::default()),
            closes: closes.clone(),
            refuses: refuses.clone(),
        };
        let mode = if number.is_multiple_of(2) {
            ReflectorMode::ListWatch
        } else {
            ReflectorMode::WatchList
        };
        let reflector = Reflector::builder(Arc::new(connection))
            .clock(Arc::new(clock.clone()))
            .seed(seed * 100 + number)
            .mode(mode)
            .build();
        let failures = Failures::default();
        let reported = failures.clone();
        let informer = Informer::builder(reflector)
            .on_error(move |error| reported.lock().unwrap().push(error.clone()))
            .build();
        let handle = informer.handle();
        Self {
            subscription: handle.subscribe_with(delivery(number)),
            handle,
            run: Box::pin(informer.run()),
            replica: Replica::default(),
            closes,
            refuses,
            failures,
            is_slow: number % 3 == 1,
            states_before: 0,
        }
    }

    fn states_received(&self) -> u64 {
        self.handle.metrics().list_seconds.count
    }

    /// Returns the revision of the informer's store, if its objects are from the current engine.
    fn revision(&self) -> Option<Revision> {
        let is_from_current_engine = self.states_received() > self.states_before;
        self.handle
            .store()
            .revision()
            .filter(|_| is_from_current_engine)
    }

    fn poll(&mut self) {
        assert!(poll_once(&mut self.run).is_pending());
    }

    /// Applies all queued notifications to the replica.
    fn update_replica(&mut self, trace: &mut DefaultHasher) {
        while let Some(notification) = self.subscription.try_next() {
            self.replica.apply(&notification);
        }
        self.replica.pods.hash(trace);
    }
}

/// A state to which the store may be restored: revision, keys and values.
type Backup = (Revision, Vec<(Vec<u8>, Vec<u8>)>);

/// The state of the single-threaded model test.
struct Simulation {
    random: Rng,
    clock: ManualClock,
    engine: Engine,
    backup: Backup,
    source: Arc<InterruptibleSource>,
    pods: ResourceCache,
    feeder: Pin<Box<dyn Future<Output = ()>>>,
    clients: Vec<Client>,
    coverage: Coverage,
    trace: DefaultHasher,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder()
            .clock(clock.clone())
            .start_revision(Revision(1000))
            .unwrap()
            .build();
        let source = InterruptibleSource::new(engine.clone());
        let (cache, feeder) = WatchCache::builder(source.clone())
            .clock(Arc::new(clock.clone()))
            .seed(seed)
            .build();
        let config = config().window(short_window(60));
        let pods = cache.add(config.clone()).unwrap();
        let raw = RawStore::new(source.clone(), config, Arc::new(clock.clone()));
        let client = |number: u64| {
            let storage: Arc<dyn Storage> = if number < 4 {
                Arc::new(pods.clone())
            } else {
                Arc::new(raw.clone())
            };
            Client::new(number, storage, &clock, seed)
        };
        let clients = (0..6).map(client).collect();
        Self {
            random: Rng::with_seed(seed),
            backup: (Revision(1000), Vec::new()),
            clients,
            engine,
            clock,
            source,
            pods,
            feeder: Box::pin(feeder.run()),
            coverage: Coverage::new(),
            trace: DefaultHasher::new(),
        }
    }

    fn record(&mut self, situation: &'static str) {
        *self.coverage.entry(situation).or_default() += 1;
    }

    fn poll_feeder(&mut self) {
        assert!(poll_once(&mut self.feeder).is_pending());
    }

    fn key(&mut self) -> String {
        format!("ns{}/p{}", self.random.u64(..3), self.random.u64(..30))
    }

    fn write(&mut self) {
        let key = self.key();
        let stored = format!("{PODS}/{key}");
        match self.random.u64(..12) {
            0..=2 => {
                let deleted = self.engine.delete(&KeyRange::one(stored)).unwrap();
                if !deleted.deleted.is_empty() {
                    self.record("deletion");
                }
            }
            3 => {
                self.engine
                    .put(format!("/registry/other/{key}"), "{}")
                    .unwrap();
                self.record("revision of another resource");
            }
            4 => {
                let keys: std::collections::BTreeSet<_> = (0..3).map(|_| self.key()).collect();
                let put =
                    |key: &String| Op::Put(Put::new(format!("{PODS}/{key}"), pod(key, "", "")));
                let txn = Txn::new().and_then(keys.iter().map(put));
                self.engine.txn(&txn).unwrap();
                self.record("revision of several keys");
            }
            5 => {
                let lease = self.engine.grant(None, 10).unwrap().id;
                let put = Put::new(stored, pod(&key, "", "")).attached_to(lease);
                self.engine.put_with(&put).unwrap();
            }
            number => {
                let app = if number % 2 == 0 { "web" } else { "db" };
                self.engine.put(stored, pod(&key, app, "")).unwrap();
                self.record("put");
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        let before = self.engine.leases().len();
        self.clock.advance(by);
        if self.engine.leases().len() < before {
            self.record("expiry of a lease");
        }
    }

    fn back_up(&mut self) {
        let range = Range::of(KeyRange::all());
        let found = self.engine.range(&range).unwrap();
        let pairs = found.kvs.iter();
        self.backup = (
            found.revision,
            pairs
                .map(|kv| (kv.key().to_vec(), kv.value().to_vec()))
                .collect(),
        );
    }

    /// Replaces the engine with one that has the contents of the last backup, either at the revision
    /// of the backup or 500 revisions ahead of the current revision.
    ///
    /// Before the replacement all informers have an open watch. Otherwise a client without a
    /// connection could later resume from a revision that the new store has also reached, and could
    /// not be distinguished from a client of the new store (WC-316).
    fn replace(&mut self, is_ahead: bool) {
        self.converge();
        let (revision, pairs) = self.backup.clone();
        let current = self.engine.current_revision();
        let start = if is_ahead {
            Revision(current.0 + 500)
        } else {
            revision
        };
        // The puts below raise the revision to `start`.
        let written = i64::try_from(pairs.len()).unwrap();
        let engine = Engine::builder()
            .clock(self.clock.clone())
            .start_revision(Revision(start.0 - written))
            .unwrap()
            .build();
        for (key, value) in pairs {
            engine.put(key, value).unwrap();
        }
        let known = self.pods.metrics().replacements;
        self.engine = engine.clone();
        self.source.replace(engine, is_ahead);
        self.record(if is_ahead {
            "store replaced by a newer revision"
        } else {
            "store replaced by an older state"
        });
        while self.pods.metrics().replacements == known {
            self.advance(Duration::from_secs(1));
            self.poll_feeder();
        }
        // All watches are open, and all of them end before any other step.
        for client in &mut self.clients {
            client.states_before = client.states_received();
            client.poll();
        }
    }

    /// Runs all parts until every informer has the newest revision, and compares their contents.
    fn converge(&mut self) {
        let key = format!("{PODS}/ns0/last");
        let last = self
            .engine
            .put(key, pod("ns0/last", "", ""))
            .unwrap()
            .revision;
        for _ in 0..10_000 {
            self.poll_feeder();
            for at in 0..self.clients.len() {
                self.poll_and_compare(at);
            }
            let is_current = |client: &Client| client.revision() == Some(last);
            if self.clients.iter().all(is_current) {
                break;
            }
            self.advance(Duration::from_secs(1));
            if self.engine.current_revision() > last {
                // A lease expired and deleted its keys.
                return self.converge();
            }
        }
        let expected = engine_state(&self.engine, last).unwrap();
        for client in &mut self.clients {
            assert_eq!(informer_state(&client.handle), expected);
            client.update_replica(&mut self.trace);
            assert_eq!(client.replica.pods, expected, "the replica");
        }
    }

    /// Polls one informer, then compares its store with the engine at the revision of the store.
    fn poll_and_compare(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.poll();
        let Some(revision) = client.revision() else {
            return;
        };
        if let Some(expected) = engine_state(&self.engine, revision) {
            assert_eq!(informer_state(&client.handle), expected, "at {revision}");
            self.record("state compared");
        }
    }

    fn step(&mut self) {
        let at = usize::try_from(self.random.u64(..self.clients.len() as u64)).unwrap();
        match self.random.u64(..1000) {
            0..400 => self.write(),
            400..600 => self.poll_feeder(),
            600..800 => {
                if !self.clients[at].is_slow || self.random.u64(..25) == 0 {
                    self.poll_and_compare(at);
                }
            }
            800..870 => self.clients[at].update_replica(&mut self.trace),
            870..910 => {
                let seconds = self.random.u64(..15);
                self.advance(Duration::from_secs(seconds));
            }
            910..930 => {
                let current = self.engine.current_revision();
                if let Ok(compaction) = self.engine.compact(current) {
                    compaction.run();
                    self.record("compaction");
                }
            }
            930..955 => {
                self.clients[at].closes.fetch_add(1, Ordering::Relaxed);
                self.record("closed connection");
            }
            955..970 => self.clients[at].refuses.store(true, Ordering::Relaxed),
            970..977 => {
                let error = SourceError::Unavailable("the connection is lost".into());
                self.source.interrupt(&error);
                self.record("feed interrupted");
            }
            977..980 => {
                self.source.interrupt(&SourceError::Compacted);
                self.record("feed reloaded");
            }
            980..997 => self.back_up(),
            997..999 => self.replace(false),
            _ => self.replace(true),
        }
    }

    /// Runs `steps` random steps. Returns the situations that occurred, and a digest of all states
    /// of the replicas.
    fn run(mut self, steps: usize) -> (Coverage, u64) {
        for _ in 0..steps {
            self.step();
        }
        self.converge();
        // INV-2: the cache equals the engine.
        let report = block_on(self.pods.check_consistency()).unwrap();
        assert!(report.is_consistent());
        let metrics = self.pods.metrics();
        assert_eq!(metrics.consistency_checks_failed, 0);
        let terminated = metrics.terminated_watchers;
        for (situation, count) in [
            ("watch position evicted from the window", terminated),
            (
                "watch from a revision before the window",
                metrics.expired_window - terminated,
            ),
            ("watch ended by a replaced store", metrics.expired_replaced),
            ("bookmark", metrics.bookmarks_sent),
            ("consistency check", metrics.consistency_checks_passed - 1),
        ] {
            *self.coverage.entry(situation).or_default() += count;
        }
        for client in &self.clients {
            let counted = client.handle.metrics();
            let failures = client.failures.lock().unwrap();
            let compacted =
                |error: &&RequestError| **error == RequestError::Expired(Expired::Watch);
            let refused = |error: &&RequestError| error.to_string().contains("refused");
            for (situation, count) in [
                ("initial state repeated", counted.lists - 1),
                (
                    "watch repeated",
                    counted.watches.saturating_sub(counted.lists),
                ),
                ("missed deletion", client.replica.missed_deletions),
                (
                    "watch from a compacted revision",
                    failures.iter().filter(compacted).count() as u64,
                ),
                (
                    "refused request",
                    failures.iter().filter(refused).count() as u64,
                ),
            ] {
                *self.coverage.entry(situation).or_default() += count;
            }
        }
        (self.coverage, self.trace.finish())
    }
}

#[test]
fn t_64_informers_equal_the_engine_at_each_revision_and_at_the_end() {
    let mut all = Coverage::new();
    for seed in 1..=4 {
        println!("seed {seed}");
        let (coverage, trace) = Simulation::new(seed).run(4000);
        if seed == 1 {
            let again = Simulation::new(seed).run(4000);
            assert_eq!(
                again,
                (coverage.clone(), trace),
                "the seed determines the run"
            );
        }
        for (situation, count) in coverage {
            *all.entry(situation).or_default() += count;
        }
    }
    println!("{all:#?}");
    for situation in REQUIRED {
        assert!(
            all.get(situation).is_some_and(|count| *count > 0),
            "the situation never occurred: {situation}"
        );
    }
    assert!(all["state compared"] > 1000, "{all:?}");
}

#[test]
fn t_64_on_threads_informers_equal_the_engine_at_the_end() {
    for seed in 1..=4 {
        let fixture = Fixture::with(config().window(short_window(60)));
        let engine = fixture.engine().clone();
        let mut clients = Vec::new();
        // Every second subscription delivers no notification before all writes are done.
        let written = Arc::new(Barrier::new(4));
        for number in 0..6_u64 {
            let storage: Arc<dyn Storage> = if number % 3 == 2 {
                Arc::new(fixture.raw.clone())
            } else {
                Arc::new(fixture.pods.clone())
            };
            let Client {
                handle,
                mut run,
                mut subscription,
                closes,
                ..
            } = Client::new(number, storage, &fixture.clock, seed);
            let slow = (number % 2 == 1).then(|| written.clone());
            let follower = std::thread::spawn(move || {
                let mut replica = Replica::default();
                if let Some(written) = slow {
                    written.wait();
                    assert!(
                        delivery(number) != Delivery::Merged || subscription.len() <= 3 * 30 + 1,
                        "at most one notification per pod"
                    );
                }
                while let Some(notification) = subscription.next_blocking() {
                    replica.apply(&notification);
                }
                replica.pods
            });
            let running = std::thread::spawn(move || block_on(&mut run));
            clients.push((handle, running, follower, closes));
        }
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let engine = &engine;
                scope.spawn(move || {
                    let mut random = Rng::with_seed(seed * 1000 + writer);
                    for _ in 0..600 {
                        let key = format!("ns{}/p{}", random.u64(..3), random.u64(..30));
                        let stored = format!("{PODS}/{key}");
                        match random.u64(..4) {
                            0 => drop(engine.delete(&KeyRange::one(stored)).unwrap()),
                            _ => drop(engine.put(stored, pod(&key, "", "")).unwrap()),
                        }
                    }
                });
            }
            scope.spawn(|| {
                let mut random = Rng::with_seed(seed);
                for round in 0..60 {
                    // Pauses of reflectors end, bookmarks become due, revisions are compacted.
                    fixture.clock.advance(Duration::from_secs(random.u64(..20)));
                    clients[round % clients.len()]
                        .3
                        .fetch_add(1, Ordering::Relaxed);
                    let current = engine.current_revision();
                    if random.u64(..3) == 0
                        && let Ok(compaction) = engine.compact(current)
                    {
                        compaction.run();
                    }
                    std::thread::yield_now();
                }
            });
        });
        written.wait();
        let last = engine
            .put(format!("{PODS}/ns0/last"), pod("ns0/last", "", ""))
            .unwrap()
            .revision;
        let expected = engine_state(&engine, last).unwrap();
        for (handle, running, follower, _) in clients {
            while handle
                .store()
                .revision()
                .is_none_or(|revision| revision < last)
            {
                fixture.clock.advance(Duration::from_secs(60));
                std::thread::yield_now();
            }
            assert_eq!(informer_state(&handle), expected, "seed {seed}");
            handle.stop();
            running.join().unwrap();
            let replica = follower.join().unwrap();
            assert_eq!(replica, expected, "the replica, seed {seed}");
        }
    }
}
