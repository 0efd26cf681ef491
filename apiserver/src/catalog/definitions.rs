//! The definitions of custom resources take effect: their names are accepted, their resources are served, and their
//! objects are deleted with them.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use revstore_watch_cache::api::ObjectRef;
use revstore_watch_cache::registry::{JsonObject, WriteRequest};
use revstore_watch_cache::{
    CacheWatcher, ListOptions, RequestError, ResourceCache, Scope, WatchCache, WatchOptions,
};

use crate::catalog::{Catalog, Group, Origin, Resource, Stored, Version, custom};
use crate::custom::definition::{
    self, Change, Definition, Instances, Progress, accept_names, change, establish,
    finish_deletion, priority, report_approval,
};
use crate::http::Front;
use crate::verbs::{Tracker, decoded};

/// The pause after an error of the store.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A resource that is served.
#[derive(Debug)]
struct Served {
    definition: Arc<Definition>,
    cache: ResourceCache,
    resources: Vec<Arc<Resource>>,
}

impl Served {
    /// Returns the resource of the version in which objects are stored, for which no webhook is needed, or another one if
    /// that is not served.
    fn storage_resource(&self) -> Option<&Arc<Resource>> {
        let version = self.definition.storage_version();
        let mut resources = self.resources.iter();
        let found = resources
            .find(|resource| version.is_some_and(|stored| stored.name == resource.names.version));
        found.or_else(|| self.resources.first())
    }
}

/// The state of the loop.
#[derive(Debug, Default)]
struct Definitions {
    served: BTreeMap<String, Served>,
    /// The objects of definitions whose deletion waits for finalizers.
    waiting: Vec<CacheWatcher>,
}

/// Follows the definitions until the cache stops.
pub(crate) async fn serve_definitions(front: Arc<Front>) {
    let Ok(resource) = front
        .catalog
        .find(definition::GROUP, "v1", definition::PLURAL)
    else {
        return;
    };
    let Some(stored) = resource.stored.clone() else {
        return;
    };
    let mut definitions = Definitions::default();
    loop {
        let mut watcher = match watch(&stored.cache).await {
            Ok(watcher) => watcher,
            Err(RequestError::Stopped) => return,
            Err(_) => {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
        };
        loop {
            if definitions
                .reconcile(&front, &resource, &stored)
                .await
                .is_err()
            {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            if !next(&mut watcher, &mut definitions.waiting).await {
                break;
            }
        }
    }
}

/// Watches what changes from now on. The definitions that exist are read by the first round: among initial events one
/// that cannot be decoded would end the watch again and again.
async fn watch(cache: &ResourceCache) -> Result<CacheWatcher, RequestError> {
    let now = cache.list(&Scope::All, &ListOptions::default()).await?;
    let options = WatchOptions::default().resource_version(now.revision.to_string());
    cache.watch(&Scope::All, &options).await
}

/// Waits until a definition or one of the objects changes. Returns `false` at the end of the watch.
async fn next(watcher: &mut CacheWatcher, waiting: &mut [CacheWatcher]) -> bool {
    poll_fn(|context| {
        let mut is_ready = false;
        while let Poll::Ready(event) = Pin::new(&mut *watcher).poll_next(context) {
            if event.is_none() {
                return Poll::Ready(false);
            }
            is_ready = true;
        }
        for objects in waiting.iter_mut() {
            while let Poll::Ready(event) = Pin::new(&mut *objects).poll_next(context) {
                is_ready = true;
                if event.is_none() {
                    break;
                }
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

impl Definitions {
    /// Does what follows from the definitions as they are now.
    async fn reconcile(
        &mut self,
        front: &Front,
        resource: &Resource,
        stored: &Stored,
    ) -> Result<(), RequestError> {
        let status = stored.status.as_ref().unwrap_or(&stored.store);
        let mut all = list(resource, stored).await?;
        let now = front.now();
        let tracker = Tracker::of_server(resource, "status", now.clone());
        for decide in [report_approval, accept_names] {
            let decided = decide(&all, &now);
            if !decided.is_empty() {
                for definition in decided {
                    write(status, &tracker, &all, definition).await?;
                }
                all = list(resource, stored).await?;
            }
        }
        let mut known = BTreeMap::new();
        for object in &all {
            if let Ok(parsed) = Definition::parse(object) {
                known.insert(parsed.name.clone(), (Arc::new(parsed), object));
            }
        }
        // One definition that cannot be served does not keep the others from it.
        let mut failed = None;
        let names: Vec<String> = self.served.keys().chain(known.keys()).cloned().collect();
        for name in names {
            // The paths of a built-in group are those of its own resources.
            let after = known.get(&name).map(|(definition, _)| definition);
            let after = after.filter(|definition| !is_builtin(&front.catalog, &definition.group));
            let applied = self.apply(front, &name, after).await;
            failed = applied.err().or(failed);
        }
        for (definition, object) in known.values() {
            // As in kube-apiserver, a definition in a built-in group is established, although nothing serves it.
            let served = self.served.get(&definition.name);
            let is_ready = served.is_some_and(|served| served.definition.is_same(definition))
                || is_builtin(&front.catalog, &definition.group);
            if is_ready && let Some(established) = establish(object, &now) {
                write(status, &tracker, &all, established).await?;
            }
        }
        self.waiting.clear();
        let terminating = known
            .values()
            .filter(|(definition, _)| definition.terminating);
        for (definition, _) in terminating {
            let finished = self
                .finish(&front.storage.cache, status, &definition.name, &now)
                .await;
            failed = finished.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Serves a resource, changes how it is served, or withdraws it.
    async fn apply(
        &mut self,
        front: &Front,
        name: &str,
        after: Option<&Arc<Definition>>,
    ) -> Result<(), RequestError> {
        let before = self.served.get(name);
        let what = change(
            before.map(|served| &*served.definition),
            after.map(|it| &**it),
        );
        let storage = &front.storage;
        let config = |definition: &Definition| {
            let version = definition
                .storage_version()
                .map_or("", |version| &*version.name);
            let names = custom::names(definition, version);
            let fields: Vec<String> = definition
                .selectable_fields()
                .iter()
                .map(|field| (*field).to_owned())
                .collect();
            storage.config(&names, definition.namespaced, &fields)
        };
        let cache = match (what, before, after) {
            (Change::Withdraw, Some(_), _) => {
                self.withdraw(front, name).await;
                return Ok(());
            }
            (Change::Replace, Some(_), Some(definition)) => {
                self.withdraw(front, name).await;
                storage.cache.add(config(definition))?
            }
            (Change::Serve, _, Some(definition)) => storage.cache.add(config(definition))?,
            (Change::Refresh, Some(served), _) => served.cache.clone(),
            (Change::EndWatches, Some(served), _) => served.cache.next_series(),
            (Change::Reconfigure, Some(served), Some(definition)) => {
                storage
                    .cache
                    .reconfigure(&served.cache, config(definition))
                    .await?
            }
            _ => return Ok(()),
        };
        let Some(definition) = after else {
            return Ok(());
        };
        cache.wait_until_ready().await?;
        let served = Served {
            resources: custom::build(definition, &cache, storage, &front.webhooks),
            definition: definition.clone(),
            cache: cache.clone(),
        };
        self.served.insert(name.to_owned(), served);
        self.publish(&front.catalog);
        // Clients whose watches end find what was published.
        cache.end_earlier_series();
        Ok(())
    }

    /// Serves a resource no longer.
    async fn withdraw(&mut self, front: &Front, name: &str) {
        if let Some(served) = self.served.remove(name) {
            self.publish(&front.catalog);
            front.storage.cache.remove(&served.cache).await;
        }
    }

    /// Puts the served resources into the catalog.
    fn publish(&self, catalog: &Catalog) {
        catalog.change(|groups| {
            groups.retain(|_, group| group.origin == Origin::Builtin);
            for served in self.served.values() {
                let name = &served.definition.group;
                let group = groups.entry(name.clone()).or_insert_with(|| Group {
                    origin: Origin::Custom,
                    versions: Vec::new(),
                });
                for resource in &served.resources {
                    let version = &resource.names.version;
                    let position = group
                        .versions
                        .iter()
                        .position(|known| known.name == *version);
                    let position = position.unwrap_or_else(|| {
                        group.versions.push(Version {
                            name: version.clone(),
                            resources: BTreeMap::new(),
                        });
                        group.versions.len() - 1
                    });
                    let resources = &mut group.versions[position].resources;
                    resources.insert(resource.names.plural.clone(), resource.clone());
                }
                group
                    .versions
                    .sort_by(|one, other| priority::compare(&other.name, &one.name));
            }
        });
    }

    /// Goes on with the deletion of a definition.
    async fn finish(
        &mut self,
        cache: &WatchCache,
        status: &revstore_watch_cache::registry::ObjectStore,
        name: &str,
        now: &str,
    ) -> Result<(), RequestError> {
        let served = self.served.get(name);
        let stored = served.and_then(Served::storage_resource);
        let stored = stored.and_then(|resource| resource.stored.clone());
        let instances = stored.as_ref().map(|stored| Instances {
            cache: &stored.cache,
            store: &stored.store,
        });
        // Only changes after this lead to another round: the objects that are there would at once.
        let before = cache.revision();
        let progress = finish_deletion(status, name, instances, now).await?;
        if let (Progress::Waiting(_), Some(stored)) = (progress, &stored) {
            let options = WatchOptions::default().resource_version(before.to_string());
            self.waiting
                .push(stored.cache.watch(&Scope::All, &options).await?);
        }
        Ok(())
    }
}

/// Returns whether a group is built in.
fn is_builtin(catalog: &Catalog, group: &str) -> bool {
    let groups = catalog.groups();
    groups
        .get(group)
        .is_some_and(|group| group.origin == Origin::Builtin)
}

/// Returns all definitions, in the order in which they were created.
pub(crate) async fn list(
    resource: &Resource,
    stored: &Stored,
) -> Result<Vec<JsonObject>, RequestError> {
    let listed = stored
        .cache
        .list(&Scope::All, &ListOptions::default())
        .await?;
    let mut objects = Vec::new();
    // What cannot be read defines nothing, and does not keep the rest from it.
    for object in listed.items.readable() {
        let object = object?;
        objects.push((
            object.create_revision(),
            decoded(resource, stored, &object)?,
        ));
    }
    objects.sort_by_key(|(created, _)| *created);
    Ok(objects.into_iter().map(|(_, object)| object).collect())
}

/// Writes the status of a definition, unless it has changed meanwhile: then its change leads to another round.
async fn write(
    status: &revstore_watch_cache::registry::ObjectStore,
    tracker: &Tracker<'_>,
    all: &[JsonObject],
    mut definition: JsonObject,
) -> Result<(), RequestError> {
    let name = definition["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let mut all = all.iter();
    if let Some(live) = all.find(|live| live["metadata"]["name"] == name.as_str()) {
        tracker.track(Some(live), &mut definition);
    }
    let reference = ObjectRef::cluster(name);
    match status
        .update(&reference, definition, &WriteRequest::default())
        .await
    {
        Ok(_) | Err(RequestError::Conflict { .. } | RequestError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
