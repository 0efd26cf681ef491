//! An informer over a source in memory.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::stream;
use parking_lot::Mutex;
use revstore_reflector::{Informer, InformerHandle, ListWatch, Reflector, Subscription};
use revstore_watch_cache::api::{EventStream, Expired, ObjectList};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::{
    EventType, JsonKind, ListOptions, Object, RequestError, Revision, WatchEvent, WatchOptions,
};

/// Returns the JSON of a pod of about 1 KiB.
pub(crate) fn json(number: usize, revision: i64) -> String {
    let padding = "x".repeat(800);
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{number:06}","namespace":"ns-{}","uid":"uid-{number}","resourceVersion":"{revision}","labels":{{"app":"a{}"}}}},"spec":{{"nodeName":"n{}","padding":"{padding}"}}}}"#,
        number % 100,
        number % 1000,
        number % 5000,
    )
}

/// Returns the numbers of pods in the order of their keys, in which API servers list them.
pub(crate) fn by_key(count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_by_cached_key(|number| format!("ns-{}/pod-{number:06}", number % 100));
    numbers
}

pub(crate) fn object(number: usize, revision: i64) -> Object {
    let kind = JsonKind::new("v1", "Pod");
    // Without the spare capacity of the text.
    let json = json(number, revision).into_bytes().into_boxed_slice();
    Object::from_json(json, &kind).expect("the JSON is a pod")
}

/// A source whose list and events are in memory.
#[derive(Debug, Default)]
pub(crate) struct Source {
    objects: Mutex<Vec<Object>>,
    events: Arc<Mutex<VecDeque<WatchEvent>>>,
}

impl Source {
    /// Adds changes of objects to the events of the watch.
    pub(crate) fn push(&self, changes: &[Object]) {
        let modified = |object: &Object| WatchEvent::unshared(EventType::Modified, object.clone());
        self.events.lock().extend(changes.iter().map(modified));
    }
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

/// An informer with its source and subscriptions, all on one thread.
pub(crate) struct Setup {
    pub(crate) source: Arc<Source>,
    clock: ManualClock,
    handle: InformerHandle,
    run: Pin<Box<dyn Future<Output = ()>>>,
    subscriptions: Vec<Subscription>,
}

impl Setup {
    /// Creates an informer, and delivers the objects to its subscriptions.
    pub(crate) fn new(objects: Vec<Object>, subscriptions: usize) -> Self {
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
        setup.deliver();
        setup
    }

    /// Returns the number of objects in the store.
    pub(crate) fn len(&self) -> usize {
        self.handle.store().len()
    }

    /// Ends the watch with 410, so that the next delivery begins with a list.
    pub(crate) fn expire(&mut self) {
        let gone = WatchEvent::Error(RequestError::Expired(Expired::Watch));
        self.source.events.lock().push_back(gone);
        self.poll();
        // The pause after the error.
        self.clock.advance(Duration::from_secs(120));
    }

    /// Runs the informer until it waits, and reads its subscriptions. Returns the number of
    /// notifications.
    pub(crate) fn deliver(&mut self) -> usize {
        self.poll();
        let mut delivered = 0;
        for subscription in &mut self.subscriptions {
            delivered += std::iter::from_fn(|| subscription.try_next()).count();
        }
        delivered
    }

    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        assert!(self.run.as_mut().poll(&mut context).is_pending());
    }
}
