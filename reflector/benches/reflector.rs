//! Costs of an informer over a source in memory: events and relists.
//!
//! `cargo bench -p revstore-reflector`. The last line is the memory of a stored object.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use futures_core::future::BoxFuture;
use futures_util::stream;
use parking_lot::Mutex;
use revstore_reflector::{Informer, InformerHandle, ListWatch, Reflector, Subscription};
use revstore_watch_cache::api::{EventStream, Expired, ObjectList};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::{
    EventType, JsonKind, ListOptions, Object, RequestError, Revision, WatchEvent, WatchOptions,
};

const OBJECTS: usize = 100_000;
const EVENTS: usize = 10_000;

/// Returns the JSON of a pod of about 1 KiB.
fn json(number: usize, revision: i64) -> String {
    let padding = "x".repeat(800);
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{number:06}","namespace":"ns-{}","uid":"uid-{number}","resourceVersion":"{revision}","labels":{{"app":"a{}"}}}},"spec":{{"nodeName":"n{}","padding":"{padding}"}}}}"#,
        number % 100,
        number % 1000,
        number % 5000,
    )
}

fn object(number: usize, revision: i64) -> Object {
    let kind = JsonKind::new("v1", "Pod");
    // Without the spare capacity of the text.
    let json = json(number, revision).into_bytes().into_boxed_slice();
    Object::from_json(json, &kind).expect("the JSON is a pod")
}

/// A source whose list and events are in memory.
#[derive(Debug, Default)]
struct Source {
    objects: Mutex<Vec<Object>>,
    events: Arc<Mutex<VecDeque<WatchEvent>>>,
}

impl ListWatch for Source {
    fn list(&self, _: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
        let list = ObjectList::from_objects(Revision(1), &self.objects.lock());
        Box::pin(async { Ok(list) })
    }

    fn watch(&self, _: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        let events = self.events.clone();
        // The benchmark polls the informer when there are events, so no waker is kept.
        let next = move |_: &mut Context<'_>| match events.lock().pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None => Poll::Pending,
        };
        Box::pin(async move { Ok(Box::pin(stream::poll_fn(next)) as EventStream) })
    }
}

/// An informer with its source and subscriptions.
struct Setup {
    source: Arc<Source>,
    clock: ManualClock,
    handle: InformerHandle,
    run: Pin<Box<dyn Future<Output = ()>>>,
    subscriptions: Vec<Subscription>,
}

impl Setup {
    fn new(objects: Vec<Object>, subscriptions: usize) -> Self {
        let source = Arc::new(Source::default());
        *source.objects.lock() = objects;
        let clock = ManualClock::new();
        let reflector = Reflector::builder(source.clone())
            .clock(Arc::new(clock.clone()))
            .seed(1)
            .build();
        let informer = Informer::builder(reflector)
            .index("app", |pod: &Object| {
                pod.label("app").map(str::to_owned).into_iter().collect()
            })
            .build();
        let handle = informer.handle();
        let mut setup = Self {
            source,
            clock,
            subscriptions: (0..subscriptions).map(|_| handle.subscribe()).collect(),
            handle,
            run: Box::pin(informer.run()),
        };
        setup.poll();
        setup.drain();
        setup
    }

    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        assert!(self.run.as_mut().poll(&mut context).is_pending());
    }

    fn drain(&mut self) {
        for subscription in &mut self.subscriptions {
            while subscription.try_next().is_some() {}
        }
    }
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reflector/events");
    group.throughput(Throughput::Elements(EVENTS as u64));
    for subscriptions in [0, 1, 10] {
        let mut setup = Setup::new((0..EVENTS).map(|n| object(n, 1)).collect(), subscriptions);
        let changes: Vec<Object> = (0..EVENTS).map(|n| object(n, 2)).collect();
        let queued = setup.source.events.clone();
        group.bench_function(format!("{subscriptions}-subscriptions"), |bencher| {
            bencher.iter_batched(
                || {
                    let modified =
                        |object: &Object| WatchEvent::unshared(EventType::Modified, object.clone());
                    queued.lock().extend(changes.iter().map(modified));
                },
                |()| {
                    setup.poll();
                    setup.drain();
                },
                BatchSize::PerIteration,
            );
        });
        assert_eq!(setup.handle.store().len(), EVENTS);
    }
    group.finish();
}

/// Objects from JSON, as a source over HTTP creates them.
fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reflector/decode");
    let (text, kind) = (json(1, 1), JsonKind::new("v1", "Pod"));
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("object", |bencher| {
        bencher.iter(|| Object::from_json(text.clone(), &kind));
    });
    group.finish();
}

fn relist(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reflector/relist");
    group.sample_size(10);
    group.throughput(Throughput::Elements(OBJECTS as u64));
    let before = resident_bytes();
    let objects: Vec<Object> = (0..OBJECTS).map(|n| object(n, 1)).collect();
    let created = resident_bytes();
    let mut setup = Setup::new(objects, 1);
    let stored = resident_bytes();
    group.bench_function("100000-objects", |bencher| {
        bencher.iter(|| {
            let gone = WatchEvent::Error(RequestError::Expired(Expired::Watch));
            setup.source.events.lock().push_back(gone);
            setup.poll();
            // The pause after the error.
            setup.clock.advance(Duration::from_secs(120));
            setup.poll();
            setup.drain();
        });
    });
    assert_eq!(setup.handle.store().len(), OBJECTS);
    group.finish();
    let each = |bytes: u64| bytes / OBJECTS as u64;
    eprintln!(
        "memory of an object with {} bytes of JSON: {} bytes, in the store and an index {} more",
        json(1, 1).len(),
        each(created.saturating_sub(before)),
        each(stored.saturating_sub(created)),
    );
}

/// Returns the resident memory of the process; 0 where it is unknown.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

criterion::criterion_group!(benches, relist, events, decode);
criterion::criterion_main!(benches);
