//! A watch cache whose feeder runs on the measuring thread, and an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream as _;
use pollster::block_on;
use revstore_engine::{Engine, ManualClock};
use revstore_watch_cache::cache::{ObjectIndex, Readiness};
use revstore_watch_cache::{
    CacheWatcher, EngineSource, JsonKind, ResourceCache, ResourceConfig, Scope, Selector,
    WatchCache, WatchOptions,
};

/// An allocator that counts the bytes in use and their maximum.
struct Counting;

pub(crate) static IN_USE: AtomicUsize = AtomicUsize::new(0);
pub(crate) static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged to the system allocator; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller fulfills the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfills the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A waker that counts its calls.
#[derive(Default)]
pub(crate) struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cache whose feeder runs on the measuring thread.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) pods: ResourceCache,
    feeder: Pin<Box<dyn Future<Output = ()>>>,
    next: u64,
}

pub(crate) fn pod(name: u64, node: &str) -> String {
    format!(
        "{{\"metadata\":{{\"name\":\"pod-{name}\",\"uid\":\"{name:032}\",\"labels\":{{\"app\":\"web\"}}}},\
         \"spec\":{{\"nodeName\":\"{node}\"}},\"status\":{{\"phase\":\"Running\",\"text\":\"{name:064}\"}}}}"
    )
}

impl Bench {
    pub(crate) fn new(objects: u64) -> Self {
        let engine = Engine::builder().clock(ManualClock::new()).build();
        for name in 0..objects {
            let (namespace, node) = (name % 100, format!("node-{}", name % 1000));
            let key = format!("/registry/pods/ns{namespace:02}/pod-{name:06}");
            engine.put(key, pod(name, &node)).expect("the put succeeds");
        }
        Self::over(engine)
    }

    pub(crate) fn over(engine: Engine) -> Self {
        let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]);
        let config = ResourceConfig::namespaced(kind, "pods", "/registry/pods")
            .index(ObjectIndex::Field("spec.nodeName".into()));
        Self::of(engine, config)
    }

    pub(crate) fn of(engine: Engine, config: ResourceConfig) -> Self {
        let source = Arc::new(EngineSource::new(engine.clone()));
        let clock = Arc::new(ManualClock::new());
        let (cache, feeder) = WatchCache::builder(source).clock(clock).build();
        let pods = cache.add(config).expect("the resource is valid");
        let mut bench = Self {
            engine,
            pods,
            feeder: Box::pin(feeder.run()),
            next: 0,
        };
        while bench.pods.readiness() != Readiness::Ready {
            bench.feed();
        }
        bench
    }

    pub(crate) fn feed(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        assert!(self.feeder.as_mut().poll(&mut context).is_pending());
    }

    /// Polls the feeder until the cache has all writes; one poll applies a bounded number of batches.
    pub(crate) fn catch_up(&mut self) {
        let current = self.engine.current_revision().0.unsigned_abs();
        while self.pods.metrics().resource_version < current {
            self.feed();
        }
    }

    /// Writes a pod on the node that the matching watchers select.
    pub(crate) fn write(&mut self) {
        self.next += 1;
        let key = format!("/registry/pods/hot/pod-{:06}", self.next % 64);
        self.engine
            .put(key, pod(self.next, "hot-node"))
            .expect("the put succeeds");
    }

    /// Returns pending watchers: `matching` of the node that is written, and `others` of idle nodes.
    pub(crate) fn watchers(
        &self,
        matching: usize,
        others: usize,
        waker: &Waker,
    ) -> Vec<CacheWatcher> {
        let node = |number: usize| {
            if number < matching {
                "hot-node".to_owned()
            } else {
                format!("quiet-{number}")
            }
        };
        let mut watchers: Vec<CacheWatcher> = (0..matching + others)
            .map(|number| self.watch(&format!("spec.nodeName={}", node(number))))
            .collect();
        for watcher in &mut watchers {
            assert!(
                Pin::new(watcher)
                    .poll_next(&mut Context::from_waker(waker))
                    .is_pending()
            );
        }
        watchers
    }

    pub(crate) fn watch(&self, fields: &str) -> CacheWatcher {
        let options = WatchOptions::default()
            .resource_version(self.engine.current_revision().to_string())
            .allow_bookmarks(true)
            .selector(Selector::parse("", fields).expect("the selector is valid"));
        block_on(self.pods.watch(&Scope::All, &options)).expect("the cache is ready")
    }
}

/// Encodes all ready events of a watcher, until it is pending. Returns their size in bytes.
pub(crate) fn drain(watcher: &mut CacheWatcher, waker: &Waker) -> usize {
    let mut bytes = 0;
    let mut context = Context::from_waker(waker);
    while let Poll::Ready(Some(event)) = Pin::new(&mut *watcher).poll_next(&mut context) {
        bytes += watcher.encode(&event).len();
    }
    bytes
}

pub(crate) fn print_line(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("stderr can be written");
}
