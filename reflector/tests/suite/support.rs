//! A fixture (one resource over the engine, raw and cached) and helpers that the tests share.

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

/// The longest wait of a test before it fails; reached only when something is broken.
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
    ResourceConfig::namespaced("", "pods", PODS)
        .kind(kind)
        .index(ObjectIndex::Field("spec.nodeName".into()))
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
        let pods = cache.add(config.clone()).expect("the only resource");
        let raw = RawStore::new(source, config, Arc::new(clock.clone()));
        let feeder = feeder.spawn();
        block_on(pods.wait_until_ready()).expect("a running cache");
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

    /// Runs a future to its end, which must come within [`LIMIT`]: a wait in vain fails the test
    /// instead of blocking it.
    #[expect(clippy::unused_self, reason = "reads better at the calls")]
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        within(LIMIT, future).expect("the future completes within the limit")
    }

    /// Waits until the cache has all changes that were written.
    pub(crate) fn settle(&self) {
        let current = self.engine.current_revision();
        let is_fresh = |_| self.wait(self.pods.wait_until_fresh(current)).is_ok();
        assert!((0..20).any(is_fresh), "the cache does not reach {current}");
    }

    /// Writes an object and returns the revision.
    pub(crate) fn put(&self, key: &str, value: String) -> i64 {
        let put = self.engine.put(format!("{PODS}/{key}"), value);
        put.expect("a put").revision.0
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
        let deleted = self.engine.delete(&KeyRange::one(format!("{PODS}/{key}")));
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

/// Returns the JSON of a pod with a label `app` and a node, each left out if empty. `key` is
/// `namespace/name`.
pub(crate) fn pod(key: &str, app: &str, node: &str) -> String {
    let (_, name) = key.split_once('/').expect("a namespace and a name");
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

/// The limits of a window of at most `events_max` events.
pub(crate) fn short_window(events_max: usize) -> WindowLimits {
    WindowLimits::default().events_max(events_max)
}

/// A source over an engine whose watches a test can end, and whose engine it can replace.
#[derive(Debug)]
pub(crate) struct InterruptibleSource {
    /// Guards the engine and its watches. Held for one read or change.
    present: Mutex<PresentEngine>,
}

#[derive(Debug)]
struct PresentEngine {
    source: EngineSource,
    watches: Vec<Arc<Interrupt>>,
    replacements: u64,
}

/// The way to end one watch of a [`InterruptibleSource`] source.
#[derive(Debug, Default)]
struct Interrupt {
    error: Mutex<Option<SourceError>>,
    waker: AtomicWaker,
}

impl InterruptibleSource {
    pub(crate) fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self {
            present: Mutex::new(PresentEngine {
                source: EngineSource::new(engine),
                watches: Vec::new(),
                replacements: 0,
            }),
        })
    }

    /// Ends all open watches with an error.
    pub(crate) fn interrupt(&self, error: &SourceError) {
        let watches = std::mem::take(&mut self.present.lock().unwrap().watches);
        for watch in watches {
            *watch.error.lock().unwrap() = Some(error.clone());
            watch.waker.wake();
        }
    }

    /// Replaces the engine and ends all watches, as a restart of the store does. With `is_reported`
    /// the source counts the replacement; otherwise only the revision of the new engine shows it.
    pub(crate) fn replace(&self, engine: Engine, is_reported: bool) {
        {
            let mut present = self.present.lock().unwrap();
            present.source = EngineSource::new(engine);
            present.replacements += u64::from(is_reported);
        }
        self.interrupt(&SourceError::Unavailable("the connection is lost".into()));
    }

    fn source(&self) -> EngineSource {
        self.present.lock().unwrap().source.clone()
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
        self.present.lock().unwrap().replacements
    }
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        Box::pin(async move { self.source().list(request).await })
    }
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(async move {
            let interrupt = Arc::new(Interrupt::default());
            let source = {
                let mut present = self.present.lock().unwrap();
                // The stream of an ended watch has dropped its handle.
                present.watches.retain(|watch| Arc::strong_count(watch) > 1);
                present.watches.push(interrupt.clone());
                present.source.clone()
            };
            let mut batches = source.watch(request).await?;
            let next = move |context: &mut Context<'_>| {
                interrupt.waker.register(context.waker());
                match interrupt.error.lock().unwrap().clone() {
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
