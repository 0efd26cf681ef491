//! The fixture of the tests (one resource over the engine or a server, raw and cached) and their
//! helpers.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::task::AtomicWaker;
use pollster::block_on;
use revstore_engine::Engine;
use revstore_tests::poll;
use revstore_watch_cache::api::{
    DeleteOptions, EventStream, ObjectList, Storage, Update, UpdateOptions,
};
use revstore_watch_cache::cache::{FeederThread, ObjectIndex, WindowLimits};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::source::{
    BatchStream, ConditionalWrite, ListPage, ListRequest, RawStore, Source, SourceError,
    WatchRequest, WriteOutcome,
};
use revstore_watch_cache::{
    EngineSource, JsonKind, ListOptions, Object, ObjectRef, RequestError, ResourceCache,
    ResourceConfig, Revision, Scope, Selector, WatchCache, WatchEvent, WatchOptions,
};

pub(crate) const PODS: &str = "/registry/pods";

/// The runtime of a source that needs one.
#[cfg(feature = "etcd")]
type Runtime = tokio::runtime::Runtime;
#[cfg(not(feature = "etcd"))]
#[derive(Debug)]
pub(crate) enum Runtime {}

/// A new store with one resource, pods, indexed by node.
pub(crate) struct Fixture {
    pub(crate) over: Over,
    pub(crate) source: Arc<dyn Source>,
    /// The engine, unless the data is in another process.
    pub(crate) engine: Option<Engine>,
    /// The clock of the engine, and of the cache if the engine is its source.
    pub(crate) clock: ManualClock,
    pub(crate) cache: WatchCache,
    pub(crate) pods: ResourceCache,
    pub(crate) raw: RawStore,
    _feeder: Option<FeederThread>,
    #[cfg(feature = "etcd")]
    server: Option<etcd::Server>,
    /// The last field, because the other fields must be dropped before it.
    runtime: Option<Runtime>,
}

/// The source of a fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The engine in this process.
    Engine,
    /// Our server, through a client of etcd.
    #[cfg(feature = "etcd")]
    Server,
    /// A real etcd.
    #[cfg(feature = "etcd")]
    Etcd,
}

/// The store that a test uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Raw,
    Cached,
}

pub(crate) fn config() -> ResourceConfig {
    let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName", "status.phase"]);
    ResourceConfig::namespaced(kind, "pods", PODS).index(ObjectIndex::Field("spec.nodeName".into()))
}

/// Runs a test over every available source, each time with a new fixture.
pub(crate) fn over_all(test: impl Fn(&Fixture)) {
    test(&Fixture::new());
    #[cfg(feature = "etcd")]
    for over in [Over::Server, Over::Etcd] {
        if let Some(fixture) = Fixture::over(over) {
            test(&fixture);
        }
    }
}

/// Runs a test on the raw store and on the cache, over every available source, each time with a new
/// fixture.
pub(crate) fn on_both(test: impl Fn(&Fixture, &dyn Storage, Side)) {
    for side in [Side::Raw, Side::Cached] {
        over_all(|fixture| {
            // Printed if the test fails.
            println!("{side:?} over {:?}", fixture.over);
            test(fixture, fixture.store(side), side);
        });
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(config(), |builder| builder)
    }

    /// Returns a fixture over the engine with the given configurations of resource and cache.
    pub(crate) fn with(
        config: ResourceConfig,
        set_up: impl FnOnce(
            revstore_watch_cache::cache::WatchCacheBuilder,
        ) -> revstore_watch_cache::cache::WatchCacheBuilder,
    ) -> Self {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let source: Arc<dyn Source> = Arc::new(EngineSource::new(engine.clone()));
        let builder = WatchCache::builder(source.clone()).clock(Arc::new(clock.clone()));
        let (cache, feeder) = set_up(builder).build();
        let pods = cache
            .add(config.clone())
            .expect("the resource does not overlap with another one");
        let raw = RawStore::new(source.clone(), config, Arc::new(clock.clone()));
        let feeder = feeder.spawn();
        block_on(pods.wait_until_ready()).expect("the cache is not stopped");
        Self {
            over: Over::Engine,
            source,
            engine: Some(engine),
            clock,
            cache,
            pods,
            raw,
            _feeder: Some(feeder),
            #[cfg(feature = "etcd")]
            server: None,
            runtime: None,
        }
    }

    /// Returns whether the source answers at once and the cache uses the manual clock.
    pub(crate) fn is_in_process(&self) -> bool {
        self.over == Over::Engine
    }

    pub(crate) fn store(&self, side: Side) -> &dyn Storage {
        match side {
            Side::Raw => &self.raw,
            Side::Cached => &self.pods,
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the fixture has an engine")
    }

    /// Runs a future to completion. Panics after [`poll::LIMIT`], so that a test fails instead of
    /// blocking forever.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let output = match &self.runtime {
            None => within(poll::LIMIT, future),
            #[cfg(feature = "etcd")]
            Some(runtime) => runtime.block_on(async {
                let output = tokio::time::timeout(poll::LIMIT, future).await;
                output.ok()
            }),
            #[cfg(not(feature = "etcd"))]
            Some(runtime) => match *runtime {},
        };
        output.expect("the future completes within the limit")
    }

    /// Waits until the cache has all writes. Over a network, one wait of the cache ends after 3 s of
    /// real time (WC-131), which a busy machine may exceed; the helper repeats it 20 times.
    pub(crate) fn wait_until_fresh(&self) {
        let current = self.wait(self.source.current_revision());
        let current = current.expect("the source is available");
        let is_fresh = |_| self.wait(self.pods.wait_until_fresh(current)).is_ok();
        assert!((0..20).any(is_fresh), "the cache does not reach {current}");
    }

    pub(crate) fn put(&self, key: &str, value: String) -> i64 {
        let value = Bytes::from(value);
        let update = move |_: Option<&Object>| Ok(Update::new(value.clone()));
        let options = UpdateOptions::default().create_if_missing(true);
        let object = object(key);
        let written = self
            .raw
            .guaranteed_update(&object, &options, Box::new(update));
        self.wait(written).expect("the write succeeds").revision().0
    }

    /// Writes a pod with a value that differs from all previous ones, because an unchanged value
    /// would create no revision (WC-204).
    pub(crate) fn put_pod(&self, key: &str) -> i64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pod = pod(key, "", "");
        self.put(
            key,
            pod.replace("\"spec\":{", &format!("\"spec\":{{\"n\":{number}")),
        )
    }

    /// Writes a pod while a request is being processed. Returns whether that is possible.
    pub(crate) fn put_meanwhile(&self, key: &str, value: &str) -> bool {
        let Some(engine) = &self.engine else {
            return false;
        };
        engine
            .put(format!("{PODS}/{key}"), Bytes::from(value.to_owned()))
            .expect("the put succeeds");
        true
    }

    pub(crate) fn delete(&self, key: &str) -> i64 {
        let (object, options) = (object(key), DeleteOptions::default());
        let deleted = self.raw.delete(&object, &options, Box::new(|_| Ok(())));
        self.wait(deleted)
            .expect("the deletion succeeds")
            .revision()
            .0
    }

    /// Writes an object of another resource.
    pub(crate) fn put_elsewhere(&self) -> i64 {
        let secrets = ResourceConfig::namespaced(
            JsonKind::new("v1", "Secret"),
            "secrets",
            "/registry/secrets",
        );
        let clock = Arc::new(self.clock.clone());
        let store = RawStore::new(self.source.clone(), secrets, clock);
        let object = ObjectRef::namespaced("ns", format!("s{}", self.current()));
        let value = Bytes::from_static(b"{\"metadata\":{}}");
        self.wait(store.create(&object, value, None))
            .expect("the object is created")
            .revision()
            .0
    }

    pub(crate) fn current(&self) -> i64 {
        self.wait(self.source.current_revision())
            .expect("the source is available")
            .0
    }

    pub(crate) fn compact(&self, revision: i64) {
        match &self.engine {
            Some(engine) => {
                let compaction = engine.compact(Revision(revision));
                compaction.expect("the revision can be compacted").run();
            }
            #[cfg(feature = "etcd")]
            None => self
                .server
                .as_ref()
                .expect("the fixture has a server")
                .compact(
                    self.runtime.as_ref().expect("the fixture has a runtime"),
                    revision,
                ),
            #[cfg(not(feature = "etcd"))]
            None => unreachable!("without the feature there is only the engine"),
        }
    }

    pub(crate) fn list(
        &self,
        store: &dyn Storage,
        scope: &Scope,
        options: &ListOptions,
    ) -> Result<Page, RequestError> {
        self.wait(store.list(scope, options)).and_then(Page::of)
    }

    pub(crate) fn watch(
        &self,
        store: &dyn Storage,
        scope: &Scope,
        options: &WatchOptions,
    ) -> Events<'_> {
        Events {
            fixture: self,
            stream: self
                .wait(store.watch(scope, options))
                .expect("the options are valid"),
        }
    }
}

/// A collected list, with its objects as `ns/name@revision`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) revision: i64,
    pub(crate) items: Vec<String>,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<u64>,
}

impl Page {
    fn of(list: ObjectList) -> Result<Self, RequestError> {
        let (revision, token) = (list.revision.0, list.continue_token.clone());
        let remaining = list.remaining_item_count;
        let items = list.into_objects()?.iter().map(word).collect();
        Ok(Self {
            revision,
            items,
            token,
            remaining,
        })
    }
}

/// Returns `ns/name@revision`.
fn word(object: &Object) -> String {
    format!("{}@{}", object.store_key(), object.revision())
}

/// A watch, with its events as `ADDED ns/name@revision`.
pub(crate) struct Events<'a> {
    fixture: &'a Fixture,
    pub(crate) stream: EventStream,
}

impl<'a> Events<'a> {
    pub(crate) fn of(fixture: &'a Fixture, stream: EventStream) -> Self {
        Self { fixture, stream }
    }

    pub(crate) fn next(&mut self) -> Option<WatchEvent> {
        let stream = &mut self.stream;
        let next = std::future::poll_fn(|context| stream.as_mut().poll_next(context));
        self.fixture.wait(next)
    }

    pub(crate) fn word(&mut self) -> String {
        self.next()
            .map_or_else(|| "end".into(), |event| describe(&event))
    }

    pub(crate) fn words(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.word()).collect()
    }

    /// Returns whether no event is ready.
    pub(crate) fn is_silent(&mut self) -> bool {
        poll_once(std::future::poll_fn(|context| {
            self.stream.as_mut().poll_next(context)
        }))
        .is_pending()
    }
}

pub(crate) fn describe(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Object { event, object, .. } => {
            format!("{} {}", event.as_str(), word(object))
        }
        WatchEvent::Bookmark {
            revision,
            initial_events_end,
        } => {
            let end = if *initial_events_end { " end" } else { "" };
            format!("BOOKMARK@{revision}{end}")
        }
        WatchEvent::Error(error) => format!("ERROR {} {error}", error.code()),
    }
}

/// Runs a future on this thread. Returns `None` if it does not complete within `limit` of real time.
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
    let mut future = Box::pin(future);
    Pin::new(&mut future)
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future until it does not wake itself any more, as an executor without other tasks does.
pub(crate) fn run_until_idle<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(flag.clone());
    let mut context = Context::from_waker(&waker);
    while flag.0.swap(false, Ordering::Relaxed) {
        let polled = Pin::new(&mut *future).poll(&mut context);
        if polled.is_ready() {
            return polled;
        }
    }
    Poll::Pending
}

/// Polls a future, advances the clock by `time`, and polls it again; it must complete then.
pub(crate) fn after<F: Future>(clock: &ManualClock, time: Duration, future: F) -> F::Output {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
        return output;
    }
    clock.advance(time);
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is still pending after {time:?}"),
    }
}

/// Parses `ns/name`.
pub(crate) fn object(key: &str) -> ObjectRef {
    let (namespace, name) = key
        .split_once('/')
        .expect("the key has a namespace and a name");
    ObjectRef::namespaced(namespace, name)
}

/// Returns the JSON of a pod, with a label `app` and a node unless they are empty.
pub(crate) fn pod(key: &str, app: &str, node: &str) -> String {
    let name = object(key).name;
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

pub(crate) fn selector(labels: &str, fields: &str) -> Selector {
    Selector::parse(labels, fields).expect("the selector is valid")
}

pub(crate) fn namespace(name: &str) -> Scope {
    Scope::Namespace(name.into())
}

pub(crate) fn from(version: impl ToString) -> WatchOptions {
    WatchOptions::default().resource_version(version.to_string())
}

pub(crate) fn at(version: impl ToString) -> ListOptions {
    ListOptions::default().resource_version(version.to_string())
}

pub(crate) fn exact(version: impl ToString) -> ListOptions {
    at(version).resource_version_match("Exact")
}

/// Returns the limits of a window with at most `events_max` events.
pub(crate) fn short_window(events_max: usize) -> WindowLimits {
    WindowLimits::default().events_max(events_max)
}

/// A source over an engine. A test can end its watches and replace its engine.
#[derive(Debug)]
pub(crate) struct InterruptibleSource {
    state: Mutex<CurrentEngine>,
}

#[derive(Debug)]
struct CurrentEngine {
    source: EngineSource,
    watches: Vec<Arc<OpenWatch>>,
    replacements: u64,
}

/// An open watch of a [`InterruptibleSource`].
#[derive(Debug, Default)]
struct OpenWatch {
    end: Mutex<Option<SourceError>>,
    waker: AtomicWaker,
}

impl InterruptibleSource {
    pub(crate) fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(CurrentEngine {
                source: EngineSource::new(engine),
                watches: Vec::new(),
                replacements: 0,
            }),
        })
    }

    /// Ends all open watches with an error.
    pub(crate) fn interrupt(&self, error: &SourceError) {
        let watches = std::mem::take(
            &mut self
                .state
                .lock()
                .expect("no thread panicked while it held the lock")
                .watches,
        );
        for watch in watches {
            *watch
                .end
                .lock()
                .expect("no thread panicked while it held the lock") = Some(error.clone());
            watch.waker.wake();
        }
    }

    /// Replaces the engine and ends all watches, as a restart of a server does. The source counts the
    /// replacement if `is_reported` is set; otherwise only the revision of the new engine shows it.
    pub(crate) fn replace(&self, engine: Engine, is_reported: bool) {
        {
            let mut state = self
                .state
                .lock()
                .expect("no thread panicked while it held the lock");
            state.source = EngineSource::new(engine);
            state.replacements += u64::from(is_reported);
        }
        self.interrupt(&SourceError::Unavailable("the connection is lost".into()));
    }

    fn source(&self) -> EngineSource {
        self.state
            .lock()
            .expect("no thread panicked while it held the lock")
            .source
            .clone()
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
        self.state
            .lock()
            .expect("no thread panicked while it held the lock")
            .replacements
    }
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        Box::pin(async move { self.source().list(request).await })
    }
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(async move {
            let watch = Arc::new(OpenWatch::default());
            let source = {
                let mut state = self
                    .state
                    .lock()
                    .expect("no thread panicked while it held the lock");
                // Removes watches that have been dropped.
                state.watches.retain(|watch| Arc::strong_count(watch) > 1);
                state.watches.push(watch.clone());
                state.source.clone()
            };
            let mut batches = source.watch(request).await?;
            let next = move |context: &mut Context<'_>| {
                watch.waker.register(context.waker());
                match watch
                    .end
                    .lock()
                    .expect("no thread panicked while it held the lock")
                    .clone()
                {
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

#[cfg(feature = "etcd")]
mod etcd {
    //! Fixtures over our server and over a real etcd 3.5.

    use std::sync::{Arc, OnceLock};

    use etcd_client::Client;
    use revstore_engine::SystemClock;
    use revstore_tests::server::etcd::Etcd;
    use revstore_tests::server::{Endpoint as _, Options};
    use revstore_tests::tools::{self, Tool};
    use revstore_watch_cache::WatchCache;
    use revstore_watch_cache::clock::ManualClock;
    use revstore_watch_cache::source::{EtcdOptions, EtcdSource, RawStore, Source};

    use super::{Fixture, Over, config};

    pub(super) struct Server {
        process: Process,
        url: String,
        client: Client,
    }

    /// A server, which stops when it is dropped.
    enum Process {
        Ours(revstore::Server),
        Real(#[expect(dead_code, reason = "the server stops on drop")] Etcd),
    }

    /// Returns whether a real etcd is available; prints a message once if not.
    fn is_available() -> bool {
        static FOUND: OnceLock<bool> = OnceLock::new();
        *FOUND.get_or_init(|| tools::available("the watch cache over etcd", &[Tool::Etcd]))
    }

    impl Server {
        fn of_etcd(runtime: &super::Runtime) -> Option<Self> {
            if !is_available() {
                return None;
            }
            let etcd = Etcd::start(&Options::default()).expect("etcd starts");
            let url = format!("http://{}", etcd.address());
            Some(Self::new(runtime, &url, Process::Real(etcd)))
        }

        fn of_ours(runtime: &super::Runtime, clock: ManualClock) -> Self {
            let server = revstore::Server::builder().clock(clock).start();
            let server = server.expect("our server starts");
            let url = server.endpoint().to_owned();
            Self::new(runtime, &url, Process::Ours(server))
        }

        fn new(runtime: &super::Runtime, url: &str, process: Process) -> Self {
            let client = runtime.block_on(Client::connect([url], None));
            Self {
                process,
                url: url.to_owned(),
                client: client.expect("the client connects"),
            }
        }

        pub(super) fn compact(&self, runtime: &super::Runtime, revision: i64) {
            let mut kv = self.client.kv_client();
            let compacted = runtime.block_on(kv.compact(revision, None));
            compacted.expect("the revision can be compacted");
        }
    }

    impl Fixture {
        /// Returns a fixture over a server, if it is available.
        pub(super) fn over(over: Over) -> Option<Self> {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("the runtime starts");
            let clock = ManualClock::new();
            let server = match over {
                Over::Etcd => Server::of_etcd(&runtime)?,
                _ => Server::of_ours(&runtime, clock.clone()),
            };
            // Requests over a network take real time.
            let time = Arc::new(SystemClock::new());
            let options = EtcdOptions::new([&server.url]);
            let source = EtcdSource::new(&options, time.clone()).expect("the options are valid");
            let source: Arc<dyn Source> = Arc::new(source);
            let (cache, feeder) = WatchCache::builder(source.clone())
                .clock(time.clone())
                // The tests expect the errors of the raw store at once.
                .compaction_interval(std::time::Duration::ZERO)
                .build();
            let pods = cache
                .add(config())
                .expect("the resource does not overlap with another one");
            let raw = RawStore::new(source.clone(), config(), time);
            runtime.spawn(feeder.run());
            let ready = runtime.block_on(pods.wait_until_ready());
            ready.expect("the cache is not stopped");
            let engine = match &server.process {
                Process::Ours(server) => Some(server.engine()),
                Process::Real(_) => None,
            };
            Some(Self {
                over,
                source,
                engine,
                clock,
                cache,
                pods,
                raw,
                _feeder: None,
                server: Some(server),
                runtime: Some(runtime),
            })
        }
    }
}
