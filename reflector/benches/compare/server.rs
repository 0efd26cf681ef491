//! A list and watch of pods over HTTP/1.1, from a watch cache: as much of an API server as reflectors
//! need.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use http::{Request, Response, header};
use http_body_util::{Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use revstore_engine::{Engine, ManualClock};
use revstore_watch_cache::api::{CollectionOptions, Query};
use revstore_watch_cache::cache::{FeederThread, ObjectIndex, WindowLimits};
use revstore_watch_cache::{
    CacheWatcher, EngineSource, JsonKind, ListOptions, RequestError, ResourceCache, ResourceConfig,
    Scope, WatchCache, WatchEvent, WatchOptions,
};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::BoxError;

/// What the server has done. All counts grow, except that of open watches.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) lists: AtomicU64,
    pub(crate) listed_objects: AtomicU64,
    pub(crate) list_bytes: AtomicU64,
    pub(crate) watches: AtomicU64,
    /// The watches that were not possible, or have ended, because of 410.
    pub(crate) expired: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) bookmarks: AtomicU64,
    pub(crate) watch_bytes: AtomicU64,
    /// The watches that have not ended.
    pub(crate) open: AtomicU64,
}

/// A server on a port of loopback.
pub(crate) struct Server {
    shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    engine: Engine,
    clock: ManualClock,
    cut: watch::Sender<()>,
    // Dropped in this order: the tasks, then the cache.
    runtime: Runtime,
    _feeder: FeederThread,
}

struct Shared {
    pods: ResourceCache,
    counters: Counters,
    /// Whether watches that ask for bookmarks receive them.
    bookmarks: bool,
    cut: watch::Receiver<()>,
}

type Body = Either<Full<Bytes>, StreamBody<WatchBody>>;

fn add(counter: &AtomicU64, count: u64) {
    // Relaxed: counts that order nothing.
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Returns the JSON of a pod of about 1 KiB, without its resource version.
fn pod(node: usize, number: usize, change: u64) -> String {
    let padding = "x".repeat(800);
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{node}-{number}","namespace":"ns-{}","uid":"uid-{node}-{number}","labels":{{"app":"a{number}"}}}},"spec":{{"nodeName":"node-{node}","padding":"{padding}"}},"status":{{"change":"{change}"}}}}"#,
        node % 100
    )
}

impl Server {
    /// Starts a server with pods on each node, whose cache keeps `window` events.
    pub(crate) fn start(
        nodes: usize,
        pods_per_node: usize,
        window: usize,
        bookmarks: bool,
    ) -> Result<Self, BoxError> {
        let clock = ManualClock::new();
        let engine = Engine::builder().clock(clock.clone()).build();
        let source = Arc::new(EngineSource::new(engine.clone()));
        let (cache, feeder) = WatchCache::builder(source)
            .clock(Arc::new(clock.clone()))
            .build();
        let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]);
        let config = ResourceConfig::namespaced(kind, "pods", "/registry/pods")
            .window(WindowLimits::default().events_max(window))
            .index(ObjectIndex::Field("spec.nodeName".into()));
        let pods = cache.add(config)?;
        let feeder = feeder.spawn();
        let (cut, receiver) = watch::channel(());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let server = Self {
            address: listener.local_addr()?,
            shared: Arc::new(Shared {
                pods,
                counters: Counters::default(),
                bookmarks,
                cut: receiver,
            }),
            engine,
            clock,
            cut,
            runtime,
            _feeder: feeder,
        };
        for node in 0..nodes {
            for number in 0..pods_per_node {
                server.write(node, number, 0)?;
            }
        }
        pollster::block_on(server.shared.pods.wait_until_ready())?;
        let shared = server.shared.clone();
        server.runtime.spawn(accept(listener, shared));
        Ok(server)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Writes a pod.
    pub(crate) fn write(&self, node: usize, number: usize, change: u64) -> Result<(), BoxError> {
        let key = format!("/registry/pods/ns-{}/pod-{node}-{number}", node % 100);
        self.engine.put(key, pod(node, number, change))?;
        Ok(())
    }

    pub(crate) fn advance_clock(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Ends all watches with their connections.
    pub(crate) fn cut_connections(&self) {
        self.cut.send_replace(());
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) -> Result<(), io::Error> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let shared = shared.clone();
        let service = service_fn(move |request| respond(shared.clone(), request));
        // Ends with the client or with a cut.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
    }
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, http::Error> {
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let result = match CollectionOptions::from_query(&query) {
        Ok(CollectionOptions::List(options)) => list(&shared, &options).await,
        Ok(CollectionOptions::Watch(options)) => watch(&shared, options).await,
        Err(error) => Err(error),
    };
    let (code, body) = match result {
        Ok(body) => (200, body),
        Err(error) => {
            add(&shared.counters.expired, u64::from(error.is_expired()));
            let status = error.status();
            (status.code, Either::Left(Full::from(status.to_json())))
        }
    };
    Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
}

async fn list(shared: &Shared, options: &ListOptions) -> Result<Body, RequestError> {
    let list = shared.pods.list(&Scope::All, options).await?;
    let token = list.continue_token.unwrap_or_default();
    let mut body = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{}","continue":"{token}"}},"items":["#,
        list.revision
    )
    .into_bytes();
    for (number, object) in list.items.enumerate() {
        if number > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&shared.pods.encode_object(&object?));
        add(&shared.counters.listed_objects, 1);
    }
    body.extend_from_slice(b"]}");
    add(&shared.counters.lists, 1);
    add(&shared.counters.list_bytes, body.len() as u64);
    Ok(Either::Left(Full::from(body)))
}

async fn watch(shared: &Arc<Shared>, mut options: WatchOptions) -> Result<Body, RequestError> {
    options.allow_bookmarks &= shared.bookmarks;
    let mut cut = shared.cut.clone();
    cut.mark_unchanged();
    let watcher = shared.pods.watch(&Scope::All, &options).await?;
    add(&shared.counters.watches, 1);
    add(&shared.counters.open, 1);
    Ok(Either::Right(StreamBody::new(WatchBody {
        watcher,
        shared: shared.clone(),
        cut: Box::pin(async move { drop(cut.changed().await) }),
        is_open: true,
    })))
}

/// The events of a watch.
struct WatchBody {
    watcher: CacheWatcher,
    shared: Arc<Shared>,
    cut: BoxFuture<'static, ()>,
    is_open: bool,
}

impl WatchBody {
    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            // Relaxed: as in `add`.
            self.shared.counters.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        self.close();
    }
}

impl Stream for WatchBody {
    type Item = Result<Frame<Bytes>, io::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let body = self.get_mut();
        if body.is_open && body.cut.as_mut().poll(context).is_ready() {
            body.close();
            // hyper then closes the connection.
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        }
        let event = match Pin::new(&mut body.watcher).poll_next(context) {
            Poll::Ready(Some(event)) => event,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        };
        let counters = &body.shared.counters;
        match &event {
            WatchEvent::Object { .. } => add(&counters.events, 1),
            WatchEvent::Bookmark { .. } => add(&counters.bookmarks, 1),
            WatchEvent::Error(error) => {
                add(&counters.expired, u64::from(error.is_expired()));
            }
        }
        let frame = body.watcher.encode(&event);
        add(&counters.watch_bytes, frame.len() as u64);
        if matches!(event, WatchEvent::Error(_)) {
            body.close();
        }
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}
