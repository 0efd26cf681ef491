//! An implementation of `ListWatch` outside of the crates: a collection in a vector of changes. It uses
//! public items only.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use futures_core::future::BoxFuture;
use futures_util::stream;
use pollster::block_on;
use revstore_reflector::{Informer, ListWatch, Notification, Reflector, ReflectorMode};
use revstore_watch_cache::api::{EventStream, Expired, ObjectList};
use revstore_watch_cache::{
    EventType, JsonKind, ListOptions, Object, ObjectRef, RequestError, Revision, WatchEvent,
    WatchOptions,
};

/// All changes of a collection. The change at position n has the revision n + 1.
#[derive(Clone, Debug, Default)]
struct Changes(Arc<Mutex<History>>);

#[derive(Debug, Default)]
struct History {
    changes: Vec<(EventType, Object)>,
    /// The number of changes at the beginning that watches no longer deliver.
    forgotten: usize,
    /// The tasks that wait for a change.
    waiting: Vec<Waker>,
}

impl Changes {
    fn record(&self, event: EventType, name: &str, value: &str) {
        let mut history = self.0.lock().unwrap();
        let revision = Revision(i64::try_from(history.changes.len()).unwrap() + 1);
        let kind = JsonKind::new("v1", "Pod");
        let name = ObjectRef::namespaced("ns", name);
        let object = Object::from_parts(&name, revision, value.to_owned(), &kind);
        history.changes.push((event, object));
        for waker in history.waiting.drain(..) {
            waker.wake();
        }
    }

    fn forget_all(&self) {
        let mut history = self.0.lock().unwrap();
        history.forgotten = history.changes.len();
    }
}

impl ListWatch for Changes {
    /// Returns the whole collection, whatever the limit and the version are.
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
        Box::pin(async move {
            if !options.continue_token.is_empty() || !options.selector.is_empty() {
                return Err(RequestError::BadRequest("not supported".into()));
            }
            let history = self.0.lock().unwrap();
            let mut objects: Vec<Object> = Vec::new();
            for (event, object) in &history.changes {
                objects.retain(|other| other.store_key() != object.store_key());
                if *event != EventType::Deleted {
                    objects.push(object.clone());
                }
            }
            let revision = Revision(i64::try_from(history.changes.len()).unwrap());
            Ok(ObjectList::from_objects(revision, &objects))
        })
    }

    /// Delivers the changes after a version.
    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        Box::pin(async move {
            let version: usize = match options.resource_version.parse() {
                Ok(version) if options.send_initial_events != Some(true) => version,
                _ => return Err(RequestError::BadRequest("not supported".into())),
            };
            if version < self.0.lock().unwrap().forgotten {
                return Err(RequestError::Expired(Expired::Watch));
            }
            let (history, mut next) = (self.0.clone(), version);
            let events = stream::poll_fn(move |context| {
                let mut history = history.lock().unwrap();
                let Some((event, object)) = history.changes.get(next).cloned() else {
                    history.waiting.push(context.waker().clone());
                    return Poll::Pending;
                };
                next += 1;
                Poll::Ready(Some(WatchEvent::unshared(event, object)))
            });
            Ok(Box::pin(events) as EventStream)
        })
    }
}

// Shows WC-530 and WC-502: a source without watch-lists serves both modes.
#[test]
fn wc_530_a_source_outside_of_the_crate_feeds_an_informer() {
    for mode in [ReflectorMode::ListWatch, ReflectorMode::WatchList] {
        let changes = Changes::default();
        let value = r#"{"metadata":{"uid":"u","labels":{"app":"web"}}}"#;
        changes.record(EventType::Added, "a", value);
        changes.record(EventType::Added, "gone", value);
        changes.record(EventType::Deleted, "gone", value);
        changes.forget_all();
        let reflector = Reflector::builder(Arc::new(changes.clone()))
            .mode(mode)
            .build();
        let informer = Informer::builder(reflector).build();
        let handle = informer.handle();
        let mut subscription = handle.subscribe();
        let _running = informer.spawn();
        assert!(block_on(handle.synced()));
        assert_eq!(handle.store().keys(), ["ns/a"]);
        let first = subscription.next_blocking().unwrap();
        assert!(
            matches!(first, Notification::Added { object, initial: true } if object.uid() == "u")
        );
        changes.record(EventType::Modified, "a", "{\"metadata\":{}}");
        let next = subscription.next_blocking().unwrap();
        assert!(
            matches!(&next, Notification::Updated { old, new } if old.label("app") == Some("web")
                && new.to_json() == br#"{"metadata":{"resourceVersion":"4"}}"#),
            "{next:?}"
        );
    }
}
