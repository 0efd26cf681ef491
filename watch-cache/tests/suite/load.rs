//! Loads beside the feed (WC-116).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::future::BoxFuture;
use pollster::block_on;
use revstore_engine::{Engine, KeyRange, Op, Put, Txn};
use revstore_watch_cache::cache::Readiness;
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::source::{
    BatchStream, ConditionalWrite, ListPage, ListRequest, Source, SourceError, WatchRequest,
    WriteOutcome,
};
use revstore_watch_cache::{
    CacheWatcher, EventType, JsonKind, Object, RequestError, ResourceCache, ResourceConfig,
    Revision, Scope, WatchCache, WatchEvent,
};

use crate::list::CountingKind;
use crate::support::{InterruptibleSource, at, describe, from, poll_once, run_until_idle};

const SECOND: Duration = Duration::from_secs(1);
const OBJECT: &str = "{\"metadata\":{}}";

/// A source over an engine. A test can delay its lists and its watches, and let its lists fail.
#[derive(Debug)]
pub(crate) struct GatedSource {
    inner: Arc<InterruptibleSource>,
    gate: Arc<Mutex<Gate>>,
    lists: AtomicUsize,
    has_no_progress: AtomicBool,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: bool,
    /// Whether watches deliver nothing.
    holds_watches: bool,
    waiting: Vec<Waker>,
    error: Option<SourceError>,
}

impl GatedSource {
    pub(crate) fn new(engine: &Engine) -> Arc<Self> {
        Arc::new(Self {
            inner: InterruptibleSource::new(engine.clone()),
            gate: Arc::default(),
            lists: AtomicUsize::new(0),
            has_no_progress: AtomicBool::new(false),
        })
    }

    /// Sets whether lists wait, after they have read the store.
    pub(crate) fn close(&self, is_closed: bool) {
        let mut gate = self.gate.lock().unwrap();
        gate.is_closed = is_closed;
        gate.waiting.drain(..).for_each(Waker::wake);
    }

    /// Sets whether watches deliver nothing.
    pub(crate) fn hold_watches(&self, holds_watches: bool) {
        let mut gate = self.gate.lock().unwrap();
        gate.holds_watches = holds_watches;
        gate.waiting.drain(..).for_each(Waker::wake);
    }

    fn fail(&self, error: Option<SourceError>) {
        self.gate.lock().unwrap().error = error;
    }

    pub(crate) fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }
}

impl Source for GatedSource {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        self.inner.current_revision()
    }
    fn requests_progress(&self) -> bool {
        !self.has_no_progress.load(Ordering::Relaxed)
    }
    fn replacements(&self) -> u64 {
        self.inner.replacements()
    }
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        Box::pin(async move {
            self.lists.fetch_add(1, Ordering::Relaxed);
            let page = self.inner.list(request).await;
            std::future::poll_fn(|context| {
                let mut gate = self.gate.lock().unwrap();
                if gate.is_closed {
                    gate.waiting.push(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
            match &self.gate.lock().unwrap().error {
                Some(error) => Err(error.clone()),
                None => page,
            }
        })
    }
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(async move {
            let mut batches = self.inner.watch(request).await?;
            let gate = self.gate.clone();
            let next = move |context: &mut Context<'_>| {
                let mut gate = gate.lock().unwrap();
                if gate.holds_watches {
                    gate.waiting.push(context.waker().clone());
                    return Poll::Pending;
                }
                batches.as_mut().poll_next(context)
            };
            Ok(Box::pin(futures_util::stream::poll_fn(next)) as BatchStream)
        })
    }
    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        self.inner.write(write)
    }
}

/// A cache over a gated source, whose feeder runs only when a test polls it.
pub(crate) struct GatedCache {
    pub(crate) engine: Engine,
    pub(crate) source: Arc<GatedSource>,
    pub(crate) clock: ManualClock,
    cache: WatchCache,
    // An executor may move the task between threads.
    feeder: Pin<Box<dyn Future<Output = ()> + Send>>,
    decoded: Arc<AtomicU64>,
}

impl GatedCache {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let source = GatedSource::new(&engine);
        let (cache, feeder) = WatchCache::builder(source.clone())
            .clock(Arc::new(clock.clone()))
            .build();
        Self {
            engine,
            source,
            clock,
            cache,
            feeder: Box::pin(feeder.run()),
            decoded: Arc::default(),
        }
    }

    pub(crate) fn add(&self, resource: &str) -> ResourceCache {
        let kind = CountingKind {
            inner: JsonKind::new("v1", "Thing"),
            decoded: self.decoded.clone(),
        };
        let prefix = format!("/registry/{resource}");
        let config = ResourceConfig::namespaced(kind, resource, &prefix);
        self.cache.add(config).unwrap()
    }

    pub(crate) fn put(&self, key: &str) -> i64 {
        let put = self.engine.put(format!("/registry/{key}"), OBJECT);
        put.unwrap().revision.0
    }

    pub(crate) fn fill(&self, resource: &str, objects: usize) {
        for number in 0..objects {
            self.put(&format!("{resource}/ns/o{number:05}"));
        }
    }

    /// Polls the feeder once.
    fn poll(&mut self) {
        assert!(poll_once(&mut self.feeder).is_pending());
    }

    pub(crate) fn run(&mut self) {
        assert!(run_until_idle(&mut self.feeder).is_pending());
    }

    /// Polls the feeder until a resource is ready. Returns the number of polls.
    fn run_until_ready(&mut self, resource: &ResourceCache) -> usize {
        for polls in 0..1_000_000 {
            if resource.readiness() == Readiness::Ready {
                return polls;
            }
            self.poll();
        }
        panic!("the resource is not loaded: {:?}", resource.readiness());
    }

    fn keys(resource: &ResourceCache) -> Vec<String> {
        let list = block_on(resource.list(&Scope::All, &at("0"))).unwrap();
        let objects = list.into_objects().unwrap();
        objects.iter().map(Object::store_key).collect()
    }
}

fn watch(resource: &ResourceCache, revision: Revision) -> CacheWatcher {
    let options = from(revision).allow_bookmarks(true);
    block_on(resource.watch(&Scope::All, &options)).unwrap()
}

#[test]
fn wc_116_events_of_a_resource_are_delivered_while_another_one_loads() {
    let mut cache = GatedCache::new();
    let pods = cache.add("pods");
    cache.run();
    cache.fill("secrets", 5000);
    cache.run();
    let mut watch = watch(&pods, cache.cache.revision());
    let secrets = cache.add("secrets");
    let mut polls = 0;
    while secrets.readiness() != Readiness::Ready {
        let before = cache.decoded.load(Ordering::Relaxed);
        let revision = cache.put("pods/ns/a");
        cache.poll();
        cache.poll();
        let event = watch
            .try_next()
            .expect("the event is delivered after one step of the load");
        assert_eq!(event.revision(), Some(Revision(revision)));
        let list = block_on(pods.list(&Scope::All, &at(revision))).unwrap();
        assert_eq!(list.revision.0, revision);
        let decoded = cache.decoded.load(Ordering::Relaxed) - before;
        assert!(decoded <= 17, "one poll decoded {decoded} objects");
        polls += 1;
    }
    assert!(polls >= 5000 / 16);
    assert_eq!(GatedCache::keys(&secrets).len(), 5000);
    let list = block_on(secrets.list(&Scope::All, &at("0"))).unwrap();
    assert_eq!(list.revision, cache.cache.revision());
    assert_eq!(pods.metrics().initializations, 1);
}

#[test]
fn wc_116_a_large_object_is_a_step_of_its_own() {
    let mut cache = GatedCache::new();
    let pods = cache.add("pods");
    cache.run();
    let large = format!("{{\"metadata\":{{}},\"data\":\"{}\"}}", "x".repeat(3 << 19));
    for number in 0..10 {
        let key = format!("/registry/secrets/ns/{number}");
        cache.engine.put(key, large.clone()).unwrap();
    }
    cache.run();
    let secrets = cache.add("secrets");
    while secrets.readiness() != Readiness::Ready {
        let before = cache.decoded.load(Ordering::Relaxed);
        cache.poll();
        assert!(cache.decoded.load(Ordering::Relaxed) - before <= 1);
    }
    assert_eq!(GatedCache::keys(&secrets).len(), 10);
    assert_eq!(pods.readiness(), Readiness::Ready);
}

#[test]
fn wc_116_loads_run_side_by_side_and_small_resources_are_ready_first() {
    let mut cache = GatedCache::new();
    cache.fill("aaa", 3000);
    cache.fill("bbb", 3000);
    cache.fill("small", 10);
    let large = [cache.add("aaa"), cache.add("bbb")];
    let small = cache.add("small");
    assert!(cache.run_until_ready(&small) < 10);
    assert!(
        large
            .iter()
            .all(|large| large.readiness() != Readiness::Ready)
    );
    let first = cache.run_until_ready(&large[0]);
    let second = cache.run_until_ready(&large[1]);
    assert!(
        second < first / 4,
        "{first} and {second} polls: they take turns"
    );
    assert_eq!(GatedCache::keys(&large[1]).len(), 3000);
}

#[test]
fn wc_116_a_failed_load_is_repeated_from_its_page_and_delays_no_other_resource() {
    let mut cache = GatedCache::new();
    let pods = cache.add("pods");
    cache.run();
    cache.fill("secrets", 1000);
    let secrets = cache.add("secrets");
    (0..20).for_each(|_| cache.poll());
    cache.source.fail(Some(SourceError::Compacted));
    cache.run();
    let lists = cache.source.lists();
    let Readiness::Pending { cause, .. } = secrets.readiness() else {
        panic!("expected a pending resource, got {:?}", secrets.readiness());
    };
    assert_eq!(cause.unwrap(), "required revision has been compacted");
    assert_eq!(secrets.metrics().initialization_errors, 1);
    let mut watch = watch(&pods, cache.cache.revision());
    let revision = cache.put("pods/ns/a");
    // A change of a key that was read, and one of a key that was not.
    cache
        .engine
        .delete(&KeyRange::one("/registry/secrets/ns/o00000"))
        .unwrap();
    cache
        .engine
        .delete(&KeyRange::one("/registry/secrets/ns/o00999"))
        .unwrap();
    cache.run();
    assert_eq!(
        watch.try_next().unwrap().revision(),
        Some(Revision(revision))
    );
    cache.source.fail(None);
    cache.run();
    assert_eq!(cache.source.lists(), lists, "the load pauses");
    cache.clock.advance(SECOND);
    cache.run();
    assert_eq!(secrets.readiness(), Readiness::Ready);
    assert_eq!(GatedCache::keys(&secrets).len(), 998);
    assert!(
        cache.source.lists() - lists < 10,
        "the load does not begin again"
    );
}

#[test]
fn wc_116_a_load_continues_when_the_watch_of_the_source_breaks() {
    let mut cache = GatedCache::new();
    let pods = cache.add("pods");
    cache.run();
    cache.fill("secrets", 1000);
    cache.run();
    let mut open = watch(&pods, cache.cache.revision());
    let secrets = cache.add("secrets");
    (0..20).for_each(|_| cache.poll());
    let decoded = cache.decoded.load(Ordering::Relaxed);
    assert!(decoded > 100);
    let failure = SourceError::Unavailable("no route".into());
    cache.source.inner.interrupt(&failure);
    cache.run();
    // Changes that the broken watch did not deliver, of keys that were read and that were not.
    cache.put("secrets/ns/o00000");
    cache
        .engine
        .delete(&KeyRange::one("/registry/secrets/ns/o00001"))
        .unwrap();
    cache
        .engine
        .delete(&KeyRange::one("/registry/secrets/ns/o00998"))
        .unwrap();
    let newest = cache.put("pods/ns/a");
    cache.clock.advance(SECOND);
    cache.run();
    assert_eq!(secrets.readiness(), Readiness::Ready);
    assert_eq!(open.try_next().unwrap().revision(), Some(Revision(newest)));
    let list = block_on(secrets.list(&Scope::All, &at("0"))).unwrap();
    assert_eq!((list.revision.0, list.items.count()), (newest, 998));
    assert!(
        cache.decoded.load(Ordering::Relaxed) < 1100,
        "no page is decoded twice"
    );
}

#[test]
fn wc_316_a_store_that_is_replaced_during_a_load_is_loaded_again() {
    for revision in [100, 9000] {
        let mut cache = GatedCache::new();
        let pods = cache.add("pods");
        cache.run();
        cache.fill("secrets", 1000);
        cache.run();
        let mut open = watch(&pods, cache.cache.revision());
        let secrets = cache.add("secrets");
        (0..20).for_each(|_| cache.poll());
        let restored = Engine::builder()
            .start_revision(Revision(revision))
            .unwrap()
            .build();
        restored
            .put("/registry/secrets/ns/restored", OBJECT)
            .unwrap();
        cache.source.inner.replace(restored, true);
        // A page that was read from the new store may arrive before the watch ends.
        cache.run();
        cache.clock.advance(SECOND);
        cache.run();
        cache.clock.advance(SECOND);
        cache.run();
        assert_eq!(secrets.readiness(), Readiness::Ready);
        assert_eq!(GatedCache::keys(&secrets), ["ns/restored"]);
        assert_eq!(GatedCache::keys(&pods), [""; 0]);
        let event = describe(&open.try_next().unwrap());
        assert!(
            event.starts_with("ERROR 410 the store was replaced"),
            "{event}"
        );
    }
}

#[test]
fn wc_116_a_load_does_not_wait_for_progress_that_a_source_does_not_report() {
    for has_no_progress in [false, true] {
        let mut cache = GatedCache::new();
        cache.add("pods");
        cache.run();
        let has_none = &cache.source.has_no_progress;
        has_none.store(has_no_progress, Ordering::Relaxed);
        cache.source.hold_watches(true);
        let watermark = cache.cache.revision();
        cache.fill("secrets", 100);
        let secrets = cache.add("secrets");
        cache.run();
        if has_no_progress {
            assert_eq!(secrets.readiness(), Readiness::Ready);
            assert_eq!(
                GatedCache::keys(&secrets),
                [""; 0],
                "the objects at {watermark}"
            );
        } else {
            assert_ne!(secrets.readiness(), Readiness::Ready);
        }
        assert_eq!(cache.cache.revision(), watermark);
        cache.source.hold_watches(false);
        cache.run();
        assert_eq!(GatedCache::keys(&secrets).len(), 100);
    }
}

#[test]
fn wc_104_a_stop_ends_a_load() {
    for is_closed in [false, true] {
        let mut cache = GatedCache::new();
        cache.fill("secrets", 1000);
        let secrets = cache.add("secrets");
        (0..20).for_each(|_| cache.poll());
        cache.source.close(is_closed);
        cache.poll();
        cache.cache.stop();
        assert!(run_until_idle(&mut cache.feeder).is_ready());
        assert_eq!(secrets.readiness(), Readiness::Stopped);
    }
}

#[test]
fn wc_116_a_page_is_read_again_after_too_many_changes() {
    let mut cache = GatedCache::new();
    let pods = cache.add("pods");
    cache.run();
    cache.fill("secrets", 10);
    cache.run();
    cache.source.close(true);
    let secrets = cache.add("secrets");
    cache.run();
    let lists = cache.source.lists();
    cache
        .engine
        .delete(&KeyRange::one("/registry/secrets/ns/o00003"))
        .unwrap();
    for number in 0..5000 {
        cache.put(&format!("secrets/ns/o{:05}", number % 3));
    }
    cache.run();
    cache.source.close(false);
    cache.run();
    assert_eq!(cache.source.lists(), lists + 1);
    assert_eq!(GatedCache::keys(&secrets).len(), 9);
    assert!(
        cache.decoded.load(Ordering::Relaxed) < 5000,
        "the changes are dropped"
    );
    assert_eq!(pods.readiness(), Readiness::Ready);
}

#[test]
fn wc_116_a_reload_delivers_no_bookmark_above_events_that_it_withholds() {
    let mut cache = GatedCache::new();
    let pods = cache.add("pods");
    let secrets = cache.add("secrets");
    cache.fill("secrets", 100);
    cache.run();
    let mut open = watch(&secrets, cache.cache.revision());
    assert!(open.try_next().is_none());
    cache.source.close(true);
    cache.source.inner.interrupt(&SourceError::Compacted);
    cache.run();
    cache.put("secrets/ns/new");
    let revision = cache.put("pods/ns/a");
    cache.run();
    cache.clock.advance(61 * SECOND);
    assert!(open.try_next().is_none());
    let ended = poll_once(std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(Pin::new(&mut open), context)
    }));
    assert!(matches!(ended, Poll::Ready(None)), "the watch has ended");
    // The revision goes on, and requests for the resource wait for its load.
    assert_eq!(cache.cache.revision(), Revision(revision));
    let error = block_on(secrets.list(&Scope::All, &at("0"))).unwrap_err();
    assert!(matches!(error, RequestError::NotReady { .. }));
    assert_ne!(pods.readiness(), Readiness::Ready);
    cache.source.close(false);
    cache.run();
    assert_eq!(GatedCache::keys(&secrets).len(), 101);
    assert_eq!(GatedCache::keys(&pods).len(), 1);
}

/// The objects of a resource with their revisions, by key.
type State = BTreeMap<String, i64>;

/// Random writes to three resources beside their loads, compared with a plain map per revision.
struct Model {
    cache: GatedCache,
    random: fastrand::Rng,
    resources: Vec<(String, ResourceCache)>,
    /// The state of all resources after each revision.
    states: BTreeMap<i64, State>,
    watchers: Vec<ModelWatcher>,
}

struct ModelWatcher {
    resource: usize,
    watch: CacheWatcher,
    state: State,
    revision: i64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let cache = GatedCache::new();
        let mut states = BTreeMap::new();
        states.insert(1, State::new());
        let has_no_progress = &cache.source.has_no_progress;
        has_no_progress.store(random.bool(), Ordering::Relaxed);
        let mut model = Self {
            resources: Vec::new(),
            states,
            watchers: Vec::new(),
            random: random.fork(),
            cache,
        };
        for _ in 0..random.usize(..300) {
            model.write();
        }
        model
    }

    /// Writes or deletes up to three keys in one revision.
    fn write(&mut self) {
        let (_, state) = self.states.last_key_value().unwrap();
        let mut state = state.clone();
        let mut operations = BTreeMap::new();
        for _ in 0..self.random.usize(1..=3) {
            let resource = ["a", "b", "c", "other"][self.random.usize(..4)];
            let key = format!("/registry/{resource}/ns/o{:03}", self.random.usize(..150));
            operations.insert(key, self.random.u8(..3) > 0);
        }
        let changes = |(key, is_put): &(String, bool)| *is_put || state.contains_key(key);
        let operations: Vec<_> = operations.into_iter().filter(changes).collect();
        if operations.is_empty() {
            return;
        }
        let op = |(key, is_put): &(String, bool)| match is_put {
            true => Op::Put(Put::new(key.clone(), OBJECT)),
            false => Op::Delete(KeyRange::one(key.clone())),
        };
        let txn = Txn::new().and_then(operations.iter().map(op));
        let revision = self.cache.engine.txn(&txn).unwrap().revision.0;
        for (key, is_put) in operations {
            if is_put {
                state.insert(key, revision);
            } else {
                state.remove(&key);
            }
        }
        self.states.insert(revision, state);
    }

    /// Returns the objects of a resource at a revision, as `ns/name`.
    fn state_at(&self, resource: usize, revision: i64) -> State {
        let (_, state) = self.states.range(..=revision).next_back().unwrap();
        let prefix = format!("/registry/{}/", self.resources[resource].0);
        let of_resource =
            |(key, at): (&String, &i64)| key.strip_prefix(&prefix).map(|key| (key.to_owned(), *at));
        state.iter().filter_map(of_resource).collect()
    }

    fn step(&mut self) {
        match self.random.u32(..1000) {
            0..450 => self.write(),
            450..750 => self.cache.poll(),
            750..850 => self.read_watchers(),
            850..870 => self.cache.source.close(true),
            870..900 => self.cache.source.close(false),
            900..905 if self.resources.len() < 3 => {
                let name = ["a", "b", "c"][self.resources.len()];
                self.resources.push((name.into(), self.cache.add(name)));
            }
            905..915 => {
                let failure = SourceError::Unavailable("no route".into());
                self.cache.source.inner.interrupt(&failure);
            }
            915..920 => self.cache.source.inner.interrupt(&SourceError::Compacted),
            920..930 => {
                let failed = SourceError::Unavailable("no quorum".into());
                let fails = self.random.bool();
                self.cache.source.fail(fails.then_some(failed));
            }
            930..940 => {
                let current = self.cache.engine.current_revision();
                if let Ok(compaction) = self.cache.engine.compact(current) {
                    compaction.run();
                }
            }
            965..980 => self.cache.clock.advance(SECOND * self.random.u32(1..20)),
            940..945 => self.cache.source.hold_watches(true),
            945..955 => self.cache.source.hold_watches(false),
            955..965 => {
                for resource in 0..self.resources.len() {
                    self.check_list(resource);
                }
            }
            _ => self.open_watcher(),
        }
    }

    /// A resource that is ready is exactly at the watermark.
    fn check_list(&self, resource: usize) -> Option<(i64, State)> {
        let (name, cache) = &self.resources[resource];
        if cache.readiness() != Readiness::Ready {
            return None;
        }
        let list = block_on(cache.list(&Scope::All, &at("0"))).unwrap();
        assert_eq!(list.revision, self.cache.cache.revision());
        let revision = list.revision.0;
        let objects = list.into_objects().unwrap();
        let state: State = objects
            .iter()
            .map(|object| (object.store_key(), object.revision().0))
            .collect();
        assert_eq!(
            state,
            self.state_at(resource, revision),
            "{name} at {revision}"
        );
        Some((revision, state))
    }

    fn open_watcher(&mut self) {
        if self.resources.is_empty() || self.watchers.len() > 8 {
            return;
        }
        let resource = self.random.usize(..self.resources.len());
        if let Some((current, _)) = self.check_list(resource) {
            let oldest = self.resources[resource].1.metrics().oldest_watchable as i64 - 1;
            let revision = self.random.i64(oldest..=current);
            let state = self.state_at(resource, revision);
            let watch = watch(&self.resources[resource].1, Revision(revision));
            self.watchers.push(ModelWatcher {
                resource,
                watch,
                state,
                revision,
            });
        }
    }

    /// Reads all ready events: no event is missing or repeated, and every bookmark is complete.
    fn read_watchers(&mut self) {
        let mut watchers = std::mem::take(&mut self.watchers);
        watchers.retain_mut(|watcher| self.read(watcher));
        self.watchers = watchers;
    }

    fn read(&self, watcher: &mut ModelWatcher) -> bool {
        loop {
            let next = poll_once(std::future::poll_fn(|context| {
                futures_core::Stream::poll_next(Pin::new(&mut watcher.watch), context)
            }));
            let event = match next {
                Poll::Pending => break,
                Poll::Ready(None) => return false,
                Poll::Ready(Some(event)) => event,
            };
            match event {
                WatchEvent::Object { event, object, .. } => {
                    let revision = object.revision().0;
                    assert!(revision >= watcher.revision, "{event:?} at {revision}");
                    watcher.revision = revision;
                    let key = object.store_key();
                    let before = if event == EventType::Deleted {
                        watcher.state.remove(&key)
                    } else {
                        watcher.state.insert(key, revision)
                    };
                    assert_eq!(before.is_some(), event != EventType::Added);
                    assert!(before.is_none_or(|before| before < revision));
                }
                WatchEvent::Bookmark { revision, .. } => {
                    assert!(revision.0 >= watcher.revision);
                    watcher.revision = revision.0;
                    let expected = self.state_at(watcher.resource, revision.0);
                    assert_eq!(watcher.state, expected, "the bookmark {revision}");
                }
                WatchEvent::Error(error) => panic!("{error}"),
            }
        }
        let revision = self.cache.cache.revision().0;
        assert_eq!(watcher.state, self.state_at(watcher.resource, revision));
        true
    }

    /// Lets all loads end, and checks all resources.
    fn finish(&mut self) {
        self.cache.source.close(false);
        self.cache.source.hold_watches(false);
        self.cache.source.fail(None);
        for _ in 0..4 {
            self.cache.clock.advance(SECOND);
            self.cache.run();
        }
        self.read_watchers();
        let current = self.cache.engine.current_revision();
        assert_eq!(self.cache.cache.revision(), current);
        for resource in 0..self.resources.len() {
            assert!(self.check_list(resource).is_some(), "the resource is ready");
        }
    }
}

// Shows INV-1, INV-4 and T-45.
#[test]
fn wc_116_loads_beside_random_writes_lose_and_repeat_no_event() {
    let (mut ready, mut loads) = (0, 0);
    for seed in 0..30 {
        // Printed if the test fails.
        println!("seed {seed}");
        let mut model = Model::new(seed);
        for _ in 0..1500 {
            model.step();
        }
        model.finish();
        ready += model.resources.len();
        let metrics = model.resources.iter().map(|(_, cache)| cache.metrics());
        loads += metrics.map(|metrics| metrics.initializations).sum::<u64>();
    }
    assert!(
        ready > 50 && loads > 100,
        "{ready} resources, {loads} loads"
    );
}
