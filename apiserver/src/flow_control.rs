//! The flow schemas and priority levels of a server: it creates those that are missing, and gives those that it keeps their
//! specifications again. It has no priority levels itself, so nothing depends on them but clients.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use revstore_watch_cache::api::ObjectRef;
use revstore_watch_cache::registry::{DeleteRequest, JsonObject, WriteRequest};
use revstore_watch_cache::{CacheWatcher, ListOptions, RequestError, Scope, WatchOptions};

use crate::bootstrap::together;
use crate::builtin::FlowObject;
use crate::builtin::edit;
use crate::catalog::{Catalog, Resource, Stored};
use crate::http::Front;
use crate::verbs::{Tracker, decoded};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The kinds and the names of their collections.
const KINDS: [(&str, &str); 2] = [
    ("PriorityLevelConfiguration", "prioritylevelconfigurations"),
    ("FlowSchema", "flowschemas"),
];
/// The manager of the fields, as in kube-apiserver.
const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
/// The pause after changes were made, by the clock of the system, so that servers that suggest different specifications
/// do not change them all the time. kube-apiserver looks once in this time.
const PAUSE: Duration = Duration::from_secs(60);
/// The pause after an error of the store.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// One kind of object, and the objects that there are.
struct Collection {
    kind: &'static str,
    resource: Arc<Resource>,
    stored: Arc<Stored>,
}

/// Creates the objects that are missing, and changes and deletes those that differ. Returns whether there were any.
///
/// # Errors
/// The store fails.
pub(crate) async fn ensure(catalog: &Catalog, now: &str) -> Result<bool, RequestError> {
    let mut changes = Vec::new();
    let mut collections = Vec::new();
    for collection in Collection::all(catalog) {
        let objects = collection.objects().await?;
        collections.push((collection, objects));
    }
    // Flow schemas name priority levels, which exist before them.
    for (collection, objects) in &collections {
        let expected = FlowObject::all().iter();
        let expected = expected.filter(|expected| expected.kind() == collection.kind);
        let writes = expected.map(|expected| collection.ensure(expected, objects, now));
        changes.append(&mut together(writes).await?);
    }
    for (collection, objects) in &collections {
        let deletions = objects.iter().map(|it| collection.delete_unknown(it));
        changes.append(&mut together(deletions).await?);
    }
    Ok(changes.contains(&true))
}

/// Keeps the objects until the cache stops.
pub(crate) async fn keep(front: Arc<Front>) {
    loop {
        let mut watchers = match watch(&front.catalog).await {
            Ok(watchers) => watchers,
            Err(RequestError::Stopped) => return,
            Err(_) => {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
        };
        if watchers.is_empty() {
            return;
        }
        loop {
            match ensure(&front.catalog, &front.now()).await {
                Ok(true) => tokio::time::sleep(PAUSE).await,
                Ok(false) => {}
                Err(RequestError::Stopped) => return,
                Err(_) => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            }
            if !next(&mut watchers).await {
                break;
            }
        }
    }
}

/// Watches what changes from now on.
async fn watch(catalog: &Catalog) -> Result<Vec<CacheWatcher>, RequestError> {
    let mut watchers = Vec::new();
    for Collection { stored, .. } in Collection::all(catalog) {
        let options = ListOptions::default();
        let now = stored.cache.list(&Scope::All, &options).await?.revision;
        let options = WatchOptions::default().resource_version(now.to_string());
        watchers.push(stored.cache.watch(&Scope::All, &options).await?);
    }
    Ok(watchers)
}

/// Waits until an object changes. Returns `false` at the end of a watch.
async fn next(watchers: &mut [CacheWatcher]) -> bool {
    poll_fn(|context| {
        let mut is_ready = false;
        for watcher in watchers.iter_mut() {
            while let Poll::Ready(event) = Pin::new(&mut *watcher).poll_next(context) {
                if event.is_none() {
                    return Poll::Ready(false);
                }
                is_ready = true;
            }
        }
        if is_ready {
            Poll::Ready(true)
        } else {
            Poll::Pending
        }
    })
    .await
}

impl Collection {
    /// Returns those that are served.
    fn all(catalog: &Catalog) -> impl Iterator<Item = Self> {
        KINDS.into_iter().filter_map(|(kind, plural)| {
            let resource = catalog.find(GROUP, "v1", plural).ok()?;
            let stored = resource.stored.clone()?;
            Some(Self {
                kind,
                resource,
                stored,
            })
        })
    }

    /// Returns the objects that can be read.
    async fn objects(&self) -> Result<Vec<JsonObject>, RequestError> {
        let options = ListOptions::default();
        let listed = self.stored.cache.list(&Scope::All, &options).await?;
        let mut objects = Vec::new();
        for object in listed.items.readable() {
            objects.push(decoded(&self.resource, &self.stored, &object?)?);
        }
        Ok(objects)
    }

    fn tracker(&self, now: &str) -> Tracker<'_> {
        Tracker::of_server(&self.resource, "", now.to_owned()).managed_by(MANAGER)
    }

    /// Creates an object that is not among those that there are, or gives it its specification again.
    async fn ensure(
        &self,
        expected: &FlowObject,
        objects: &[JsonObject],
        now: &str,
    ) -> Result<bool, RequestError> {
        let mut objects = objects.iter();
        match objects.find(|object| name(object) == expected.name()) {
            None => self.create(expected, now).await,
            Some(object) => self.revise(expected, object, now).await,
        }
    }

    async fn create(&self, expected: &FlowObject, now: &str) -> Result<bool, RequestError> {
        let mut object = expected.object().clone();
        self.resource.rules.conform(&mut object)?;
        self.tracker(now).track(None, &mut object);
        let request = WriteRequest::default();
        match self.stored.store.create("", object, &request).await {
            Ok(_) => Ok(true),
            // Another server was faster, or the object cannot be read.
            Err(RequestError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn revise(
        &self,
        expected: &FlowObject,
        object: &JsonObject,
        now: &str,
    ) -> Result<bool, RequestError> {
        if expected.revised(object).is_none() {
            return Ok(false);
        }
        let tracker = self.tracker(now);
        let change = |old: Option<&JsonObject>| {
            let old = old.cloned().unwrap_or_default();
            let Some(mut new) = expected.revised(&old) else {
                return Ok(old);
            };
            tracker.track(Some(&old), &mut new);
            Ok(new)
        };
        let reference = ObjectRef::cluster(expected.name());
        let request = WriteRequest::default();
        let store = &self.stored.store;
        match store.update_with(&reference, &request, change).await {
            Ok(_) => Ok(true),
            // It was deleted meanwhile.
            Err(RequestError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object that says that a server keeps it, but that no server knows any more.
    async fn delete_unknown(&self, object: &JsonObject) -> Result<bool, RequestError> {
        let name = name(object);
        let mut known = FlowObject::all().iter();
        if known.any(|known| known.kind() == self.kind && known.name() == name)
            || !FlowObject::says_kept(object)
        {
            return Ok(false);
        }
        let reference = ObjectRef::cluster(name);
        let request = DeleteRequest::default();
        match self.stored.store.delete(&reference, &request).await {
            Ok(_) => Ok(true),
            Err(RequestError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn name(object: &JsonObject) -> &str {
    edit::text_at(object, &["metadata", "name"])
}
