//! T-64: random writers, informers that are cut off or slow, a store that compacts, breaks off or is
//! replaced; in the end every informer has what the engine has, and so it has on the way.
//!
//! Everything runs on one thread, in an order that the seed decides: a failing seed fails again. A
//! second test runs the same parts on threads of their own.

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
    FinalState, Informer, InformerHandle, ListWatch, Notification, Reflector, ReflectorMode,
    StorageListWatch, Subscription,
};
use revstore_watch_cache::{
    EventStream, Expired, List, ListOptions, ManualClock, Random, RawStore, RequestError,
    ResourceCache, Scope, Selector, SourceError, Storage, WatchCache, WatchOptions,
};

use crate::support::{Fixture, Fragile, PODS, config, next_blocking, pod, poll_once, short_window};

/// What happened, and how often: a check that never met something has not checked it.
type Coverage = BTreeMap<&'static str, u64>;

/// What all seeds together must have met.
const MET: [&str; 21] = [
    "put",
    "deletion",
    "revision of several keys",
    "revision of another resource",
    "expiry of a lease",
    "compaction",
    "cut connection",
    "refused request",
    "watch that fell out of the window",
    "watch from before the window",
    "watch from before a compaction",
    "feed cut off",
    "feed loaded again",
    "store that went back",
    "store that went ahead",
    "watch told of a replaced store",
    "bookmark",
    "state told again",
    "watch begun again",
    "deletion that was missed",
    "consistency check",
];

/// The pods of the engine at one revision: key and mod revision.
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

fn informer_state(handle: &InformerHandle) -> BTreeMap<String, i64> {
    let objects = handle.store().list();
    objects
        .iter()
        .map(|object| (object.store_key(), object.revision().0))
        .collect()
}

/// A handler's own copy, made of nothing but notifications.
#[derive(Default)]
struct Copy {
    pods: BTreeMap<String, i64>,
    missed_deletions: u64,
}

impl Copy {
    fn take(&mut self, notification: &Notification) {
        match notification {
            Notification::Added { object, .. } => {
                let before = self.pods.insert(object.store_key(), object.revision().0);
                assert!(before.is_none(), "added twice");
            }
            Notification::Updated { old, new } => {
                let before = self.pods.insert(new.store_key(), new.revision().0);
                assert_eq!(before, Some(old.revision().0), "from what the handler knew");
            }
            Notification::Deleted(tombstone) => {
                let known = self.pods.remove(&tombstone.object().store_key());
                assert!(known.is_some(), "deleted what nobody added");
                let is_missed = matches!(tombstone, FinalState::Unknown(_));
                self.missed_deletions += u64::from(is_missed);
            }
        }
    }
}

/// A connection that can be cut. What was on its way then still arrives: revisions are not torn
/// apart, as they are written in one flush (WC-343).
#[derive(Debug)]
struct Connection {
    inner: StorageListWatch,
    /// Counts cuts; a watch of an earlier one ends.
    cuts: Arc<AtomicU64>,
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
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<List, RequestError>> {
        Box::pin(async move {
            self.check()?;
            self.inner.list(options).await
        })
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        Box::pin(async move {
            self.check()?;
            let mut events = self.inner.watch(options).await?;
            let (cuts, begun) = (self.cuts.clone(), self.cuts.load(Ordering::Relaxed));
            let next = move |context: &mut std::task::Context<'_>| {
                let next = events.as_mut().poll_next(context);
                let is_cut = cuts.load(Ordering::Relaxed) != begun;
                if next.is_pending() && is_cut {
                    return Poll::Ready(None);
                }
                next
            };
            Ok(Box::pin(futures_util::stream::poll_fn(next)) as EventStream)
        })
    }
}

/// What an informer was told went wrong.
type Failures = Arc<Mutex<Vec<RequestError>>>;

struct Client {
    handle: InformerHandle,
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
    subscription: Subscription,
    copy: Copy,
    cuts: Arc<AtomicU64>,
    refuses: Arc<AtomicBool>,
    failures: Failures,
    /// Looks rarely.
    is_slow: bool,
    /// States that it was told before the present store came.
    told_before: u64,
}

impl Client {
    fn new(number: u64, storage: Arc<dyn Storage>, clock: &ManualClock, seed: u64) -> Self {
        let (cuts, refuses) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let connection = Connection {
            inner: StorageListWatch::new(storage, Scope::All, Selector::default()),
            cuts: cuts.clone(),
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
        let heard = failures.clone();
        let informer = Informer::builder(reflector)
            .on_error(move |error| heard.lock().unwrap().push(error.clone()))
            .build();
        let handle = informer.handle();
        Self {
            subscription: handle.subscribe(),
            handle,
            run: Box::pin(informer.run()),
            copy: Copy::default(),
            cuts,
            refuses,
            failures,
            is_slow: number % 3 == 1,
            told_before: 0,
        }
    }

    fn states_told(&self) -> u64 {
        self.handle.metrics().list_seconds.count
    }

    /// The revision of its store, if what it knows is of the present store.
    fn revision(&self) -> Option<Revision> {
        let is_of_this_store = self.states_told() > self.told_before;
        self.handle.store().revision().filter(|_| is_of_this_store)
    }

    fn poll(&mut self) {
        assert!(poll_once(&mut self.run).is_pending());
    }

    fn hear(&mut self, trace: &mut DefaultHasher) {
        while let Some(notification) = self.subscription.try_next() {
            self.copy.take(&notification);
        }
        self.copy.pods.hash(trace);
    }
}

/// A state of the store that it may be restored to: its revision, keys and values.
type Backup = (Revision, Vec<(Vec<u8>, Vec<u8>)>);

struct World {
    random: Rng,
    clock: ManualClock,
    engine: Engine,
    backup: Backup,
    source: Arc<Fragile>,
    pods: ResourceCache,
    feeder: Pin<Box<dyn Future<Output = ()>>>,
    clients: Vec<Client>,
    coverage: Coverage,
    trace: DefaultHasher,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder()
            .clock(clock.clone())
            .start_revision(Revision(1000))
            .build();
        let source = Fragile::new(engine.clone());
        let (cache, feeder) = WatchCache::builder(source.clone())
            .clock(Arc::new(clock.clone()))
            .random(Random::seeded(seed))
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

    fn met(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    fn feed(&mut self) {
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
                let deleted = self.engine.delete(&KeyRange::one(stored));
                if !deleted.deleted.is_empty() {
                    self.met("deletion");
                }
            }
            3 => {
                self.engine
                    .put(format!("/registry/other/{key}"), "{}")
                    .unwrap();
                self.met("revision of another resource");
            }
            4 => {
                let keys: std::collections::BTreeSet<_> = (0..3).map(|_| self.key()).collect();
                let put =
                    |key: &String| Op::Put(Put::new(format!("{PODS}/{key}"), pod(key, "", "")));
                let success = keys.iter().map(put).collect();
                let txn = Txn {
                    success,
                    ..Txn::default()
                };
                self.engine.txn(&txn).unwrap();
                self.met("revision of several keys");
            }
            5 => {
                let lease = self.engine.grant(None, 10).unwrap().id;
                let put = Put::new(stored, pod(&key, "", "")).attached_to(lease);
                self.engine.put_with(&put).unwrap();
            }
            number => {
                let app = if number % 2 == 0 { "web" } else { "db" };
                self.engine.put(stored, pod(&key, app, "")).unwrap();
                self.met("put");
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        let before = self.engine.leases().len();
        self.clock.advance(by);
        if self.engine.leases().len() < before {
            self.met("expiry of a lease");
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

    /// Puts another store in the place of this one: an earlier state of it, at that revision, or far
    /// ahead.
    ///
    /// Before that every informer watches: who has no connection then, and comes back with a revision
    /// that the new store has reached as well, cannot be told from its own clients (WC-316).
    fn replace(&mut self, is_ahead: bool) {
        self.converge();
        let (revision, pairs) = self.backup.clone();
        let current = self.engine.current_revision();
        let start = if is_ahead {
            Revision(current.0 + 500)
        } else {
            revision
        };
        // Nothing of what the new store has may be newer than it says.
        let written = i64::try_from(pairs.len()).unwrap();
        let engine = Engine::builder()
            .clock(self.clock.clone())
            .start_revision(Revision(start.0 - written))
            .build();
        for (key, value) in pairs {
            engine.put(key, value).unwrap();
        }
        let known = self.pods.metrics().replacements;
        self.engine = engine.clone();
        self.source.replace(engine, is_ahead);
        self.met(if is_ahead {
            "store that went ahead"
        } else {
            "store that went back"
        });
        while self.pods.metrics().replacements == known {
            self.advance(Duration::from_secs(1));
            self.feed();
        }
        // All connections were open, so all are told before anything else happens.
        for client in &mut self.clients {
            client.told_before = client.states_told();
            client.poll();
        }
    }

    /// Lets everybody catch up. The store has nothing that it has not told by then.
    fn converge(&mut self) {
        let key = format!("{PODS}/ns0/last");
        let last = self
            .engine
            .put(key, pod("ns0/last", "", ""))
            .unwrap()
            .revision;
        for _ in 0..10_000 {
            self.feed();
            for at in 0..self.clients.len() {
                self.look(at);
            }
            let is_there = |client: &Client| client.revision() == Some(last);
            if self.clients.iter().all(is_there) {
                break;
            }
            self.advance(Duration::from_secs(1));
            if self.engine.current_revision() > last {
                // A lease expired meanwhile.
                return self.converge();
            }
        }
        let expected = engine_state(&self.engine, last).unwrap();
        for client in &mut self.clients {
            assert_eq!(informer_state(&client.handle), expected);
            client.hear(&mut self.trace);
            assert_eq!(client.copy.pods, expected, "a handler's copy");
        }
    }

    /// One informer gets a turn; what it has then is what the engine had at its revision.
    fn look(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.poll();
        let Some(revision) = client.revision() else {
            return;
        };
        if let Some(expected) = engine_state(&self.engine, revision) {
            assert_eq!(informer_state(&client.handle), expected, "at {revision}");
            self.met("state compared");
        }
    }

    fn step(&mut self) {
        let at = usize::try_from(self.random.u64(..self.clients.len() as u64)).unwrap();
        match self.random.u64(..1000) {
            0..400 => self.write(),
            400..600 => self.feed(),
            600..800 => {
                if !self.clients[at].is_slow || self.random.u64(..25) == 0 {
                    self.look(at);
                }
            }
            800..870 => self.clients[at].hear(&mut self.trace),
            870..910 => {
                let seconds = self.random.u64(..15);
                self.advance(Duration::from_secs(seconds));
            }
            910..930 => {
                let current = self.engine.current_revision();
                if let Ok(compaction) = self.engine.compact(current) {
                    compaction.run();
                    self.met("compaction");
                }
            }
            930..955 => {
                self.clients[at].cuts.fetch_add(1, Ordering::Relaxed);
                self.met("cut connection");
            }
            955..970 => self.clients[at].refuses.store(true, Ordering::Relaxed),
            970..977 => {
                let why = SourceError::Unavailable("the connection is lost".into());
                self.source.cut(&why);
                self.met("feed cut off");
            }
            977..980 => {
                self.source.cut(&SourceError::Compacted);
                self.met("feed loaded again");
            }
            980..997 => self.back_up(),
            997..999 => self.replace(false),
            _ => self.replace(true),
        }
    }

    /// What the run met, and a digest of everything that handlers saw.
    fn run(mut self, steps: usize) -> (Coverage, u64) {
        for _ in 0..steps {
            self.step();
        }
        self.converge();
        // INV-2: the cache is what the engine is, also by its own account.
        let report = block_on(self.pods.check_consistency()).unwrap();
        assert!(report.is_consistent());
        let metrics = self.pods.metrics();
        assert_eq!(metrics.consistency_checks_failed, 0);
        let terminated = metrics.terminated_watchers;
        for (what, count) in [
            ("watch that fell out of the window", terminated),
            (
                "watch from before the window",
                metrics.expired_window - terminated,
            ),
            ("watch told of a replaced store", metrics.expired_replaced),
            ("bookmark", metrics.bookmarks_sent),
            ("consistency check", metrics.consistency_checks_passed - 1),
        ] {
            *self.coverage.entry(what).or_default() += count;
        }
        for client in &self.clients {
            let counted = client.handle.metrics();
            let failures = client.failures.lock().unwrap();
            let compacted =
                |error: &&RequestError| **error == RequestError::Expired(Expired::Watch);
            let refused = |error: &&RequestError| error.to_string().contains("refused");
            for (what, count) in [
                ("state told again", counted.lists - 1),
                (
                    "watch begun again",
                    counted.watches.saturating_sub(counted.lists),
                ),
                ("deletion that was missed", client.copy.missed_deletions),
                (
                    "watch from before a compaction",
                    failures.iter().filter(compacted).count() as u64,
                ),
                (
                    "refused request",
                    failures.iter().filter(refused).count() as u64,
                ),
            ] {
                *self.coverage.entry(what).or_default() += count;
            }
        }
        (self.coverage, self.trace.finish())
    }
}

#[test]
fn t_64_every_informer_is_equal_to_the_engine_on_the_way_and_in_the_end() {
    let mut all = Coverage::new();
    for seed in 1..=4 {
        println!("seed {seed}");
        let (coverage, trace) = World::new(seed).run(4000);
        if seed == 1 {
            let again = World::new(seed).run(4000);
            assert_eq!(
                again,
                (coverage.clone(), trace),
                "the seed decides everything"
            );
        }
        for (what, count) in coverage {
            *all.entry(what).or_default() += count;
        }
    }
    println!("{all:#?}");
    for what in MET {
        assert!(
            all.get(what).is_some_and(|count| *count > 0),
            "never met: {what}"
        );
    }
    assert!(all["state compared"] > 1000, "{all:?}");
}

#[test]
fn t_64_on_threads_every_informer_ends_equal_to_the_engine() {
    for seed in 1..=4 {
        let fixture = Fixture::with(config().window(short_window(60)));
        let engine = fixture.engine().clone();
        let mut clients = Vec::new();
        // Every other handler takes nothing before all is written.
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
                cuts,
                ..
            } = Client::new(number, storage, &fixture.clock, seed);
            let slow = (number % 2 == 1).then(|| written.clone());
            let follower = std::thread::spawn(move || {
                let mut copy = Copy::default();
                if let Some(written) = slow {
                    written.wait();
                    assert!(subscription.len() <= 3 * 30 + 1, "one for each pod");
                }
                while let Some(notification) = next_blocking(&mut subscription) {
                    copy.take(&notification);
                }
                copy.pods
            });
            let running = std::thread::spawn(move || block_on(&mut run));
            clients.push((handle, running, follower, cuts));
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
                            0 => drop(engine.delete(&KeyRange::one(stored))),
                            _ => drop(engine.put(stored, pod(&key, "", "")).unwrap()),
                        }
                    }
                });
            }
            scope.spawn(|| {
                let mut random = Rng::with_seed(seed);
                for round in 0..60 {
                    // Pauses of reflectors end, watches get bookmarks, the past is forgotten.
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
            let copy = follower.join().unwrap();
            assert_eq!(copy, expected, "a handler's copy, seed {seed}");
        }
    }
}
