//! The fixture of the tests (one resource over the engine, raw and cached) and their helpers.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_core::future::BoxFuture;
use futures_util::task::AtomicWaker;
use pollster::block_on;
use revstore_engine::{Engine, KeyRange};
use revstore_watch_cache::cache::{FeederThread, ObjectIndex, WindowLimits};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::source::{
    BatchStream, ConditionalWrite, ListPage, ListRequest, RawStore, Source, SourceError,
    WatchRequest, WriteOutcome,
};
use revstore_watch_cache::{
    EngineSource, JsonKind, ResourceCache, ResourceConfig, Revision, WatchCache,
};

/// The time after which a waiting test fails.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const PODS: &str = "/registry/pods";

/// An engine with one resource, pods, indexed by node, and both stores over it.
pub(crate) struct Fixture {
    engine: Engine,
    /// The clock of engine, cache and raw store.
    pub(crate) clock: ManualClock,
    pub(crate) pods: ResourceCache,
    pub(crate) raw: RawStore,
    _feeder: FeederThread,
}

pub(crate) fn config() -> ResourceConfig {
    let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName", "status.phase"]);
    ResourceConfig::namespaced(kind, "pods", PODS).index(ObjectIndex::Field("spec.nodeName".into()))
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: ResourceConfig) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let source: Arc<dyn Source> = Arc::new(EngineSource::new(engine.clone()));
        let (cache, feeder) = WatchCache::builder(source.clone())
            .clock(Arc::new(clock.clone()))
            .build();
        let pods = cache
            .add(config.clone())
            .expect("the resource does not overlap with another one");
        let raw = RawStore::new(source, config, Arc::new(clock.clone()));
        let feeder = feeder.spawn();
        block_on(pods.wait_until_ready()).expect("the cache is not stopped");
        Self {
            engine,
            clock,
            pods,
            raw,
            _feeder: feeder,
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs a future to completion. Panics after [`LIMIT`], so that a test fails instead of blocking
    /// forever.
    #[expect(clippy::unused_self, reason = "all helpers are methods of the fixture")]
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        within(LIMIT, future).expect("the future completes within the limit")
    }

    /// Waits until the cache has all changes that were written.
    pub(crate) fn wait_until_fresh(&self) {
        let current = self.engine.current_revision();
        let is_fresh = |_| self.wait(self.pods.wait_until_fresh(current)).is_ok();
        assert!((0..20).any(is_fresh), "the cache does not reach {current}");
    }

    /// Writes an object and returns the revision.
    pub(crate) fn put(&self, key: &str, value: String) -> i64 {
        let put = self.engine.put(format!("{PODS}/{key}"), value);
        put.expect("the put succeeds").revision.0
    }

    /// Writes a pod without labels whose content differs from all previous ones.
    pub(crate) fn put_pod(&self, key: &str) -> i64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pod = pod(key, "", "");
        self.put(
            key,
            pod.replace("\"spec\":{", &format!("\"spec\":{{\"n\":{number}")),
        )
    }

    pub(crate) fn delete(&self, key: &str) {
        let deleted = self
            .engine
            .delete(&KeyRange::one(format!("{PODS}/{key}")))
            .unwrap();
        assert_eq!(deleted.deleted.len(), 1, "{key} exists");
    }

    pub(crate) fn current(&self) -> i64 {
        self.engine.current_revision().0
    }
}

/// Runs a future on this thread; returns `None` if it does not complete within `limit` of real time.
fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let deadline = Instant::now() + limit;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = deadline.checked_duration_since(Instant::now())?;
        thread::park_timeout(left);
    }
}

pub(crate) fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the JSON of a pod, with a label `app` and a node unless they are empty. `key` is
/// `namespace/name`.
pub(crate) fn pod(key: &str, app: &str, node: &str) -> String {
    let (_, name) = key
        .split_once('/')
        .expect("the key has a namespace and a name");
    let labels = if app.is_empty() {
        String::new()
    } else {
        format!("\"app\":\"{app}\"")
    };
    let spec = if node.is_empty() {
        String::new()
    } else {
        format!("\"nodeName\":\"{node}\"")
    };
    format!(
        "{{\"metadata\":{{\"name\":\"{name}\",\"uid\":\"uid-{name}\",\"labels\":{{{labels}}}}},\
         \"spec\":{{{spec}}}}}"
    )
}

/// Returns the limits of a window with at most `events_max` events.
pub(crate) fn short_window(events_max: usize) -> WindowLimits {
    WindowLimits::default().events_max(events_max)
}

/// A source over an engine. A test can end its watches and replace its engine.
#[derive(Debug)]
pub(crate) struct InterruptibleSource {
    /// The lock is held for one read or change.
    current: Mutex<CurrentEngine>,
}

#[derive(Debug)]
struct CurrentEngine {
    source: EngineSource,
    watches: Vec<Arc<OpenWatch>>,
    replacements: u64,
}

/// An open watch of an [`InterruptibleSource`].
#[derive(Debug, Default)]
struct OpenWatch {
    error: Mutex<Option<SourceError>>,
    waker: AtomicWaker,
}

impl InterruptibleSource {
    pub(crate) fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self {
            current: Mutex::new(CurrentEngine {
                source: EngineSource::new(engine),
                watches: Vec::new(),
                replacements: 0,
            }),
        })
    }

    /// Ends all open watches with an error.
    pub(crate) fn interrupt(&self, error: &SourceError) {
        let watches = std::mem::take(&mut self.current.lock().unwrap().watches);
        for watch in watches {
            *watch.error.lock().unwrap() = Some(error.clone());
            watch.waker.wake();
        }
    }

    /// Replaces the engine and ends all watches, as a restart of the store does. The source
    /// counts the replacement if `is_reported` is set; otherwise only the revision of the new engine
    /// shows it.
    pub(crate) fn replace(&self, engine: Engine, is_reported: bool) {
        {
            let mut current = self.current.lock().unwrap();
            current.source = EngineSource::new(engine);
            current.replacements += u64::from(is_reported);
        }
        self.interrupt(&SourceError::Unavailable("the connection is lost".into()));
    }

    fn source(&self) -> EngineSource {
        self.current.lock().unwrap().source.clone()
    }
}

impl Source for InterruptibleSource {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        Box::pin(async move { self.source().current_revision().await })
    }
    fn oldest_revision(&self) -> Option<Revision> {
        self.source().oldest_revision()
    }
    fn replacements(&self) -> u64 {
        self.current.lock().unwrap().replacements
    }
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        Box::pin(async move { self.source().list(request).await })
    }
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(async move {
            let open_watch = Arc::new(OpenWatch::default());
            let source = {
                let mut current = self.current.lock().unwrap();
                // Removes watches that have been dropped.
                current.watches.retain(|watch| Arc::strong_count(watch) > 1);
                current.watches.push(open_watch.clone());
                current.source.clone()
            };
            let mut batches = source.watch(request).await?;
            let next = move |context: &mut Context<'_>| {
                open_watch.waker.register(context.waker());
                match open_watch.error.lock().unwrap().clone() {
                    Some(error) => Poll::Ready(Some(Err(error))),
                    None => batches.as_mut().poll_next(context),
                }
            };
            Ok(Box::pin(futures_util::stream::poll_fn(next)) as BatchStream)
        })
    }
    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(async move { self.source().write(write).await })
    }
}
