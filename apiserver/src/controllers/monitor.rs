//! The resources that controllers follow: an informer over the watch cache for each, begun and ended with the resource.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::RwLock;
use revstore_reflector::{
    Delivery, EventHandler, FinalState, Informer, InformerHandle, Reflector, StorageListWatch,
};
use revstore_watch_cache::clock::Clock;
use revstore_watch_cache::{Object, Scope, Selector};
use tokio::task::JoinSet;

use super::client::escaped;
use crate::catalog::{Catalog, Resource, Stored};
use crate::http::Front;

/// The group and the plural of a resource.
pub(super) type Key = (String, String);

/// A resource as controllers use it: in one of its versions.
#[derive(Debug)]
pub(super) struct Monitored {
    pub(super) resource: Arc<Resource>,
    pub(super) stored: Arc<Stored>,
    pub(super) namespaced: bool,
    pub(super) key: Key,
}

impl Monitored {
    /// Returns whether it is the resource with this group and plural.
    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.key.0 == group && self.key.1 == plural
    }

    /// Returns the path of a collection.
    pub(super) fn collection_path(&self, namespace: &str) -> String {
        let names = &self.resource.names;
        let root = match names.group.as_str() {
            "" => format!("/api/{}", names.version),
            group => format!("/apis/{group}/{}", names.version),
        };
        if self.namespaced {
            let namespace = escaped(namespace);
            format!("{root}/namespaces/{namespace}/{}", names.plural)
        } else {
            format!("{root}/{}", names.plural)
        }
    }

    /// Returns the path of an object.
    pub(super) fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection_path(namespace), escaped(name))
    }
}

/// A change of an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// The object is new, or has a new version.
    Set(&'a Object),
    /// The object is gone. This is a version of it.
    Gone(&'a Object),
    /// The object may be gone: if it exists, it is observed again.
    Doubted(&'a Object),
}

impl<'a> Change<'a> {
    pub(super) fn object(self) -> &'a Object {
        match self {
            Self::Set(object) | Self::Gone(object) | Self::Doubted(object) => object,
        }
    }
}

/// What learns of changes. It is called at least once after each change, with the newest version or a later one.
pub(super) trait Observer: Send + Sync + 'static {
    /// Returns whether the observer learns of the changes of a resource.
    fn wants(&self, resource: &Monitored) -> bool;

    /// Takes notice of a change. Must not wait.
    fn observe(&self, resource: &Arc<Monitored>, change: Change<'_>);

    /// Takes notice of a resource that exists from now on, and can be found. Must not wait.
    fn appear(&self, _resource: &Arc<Monitored>) {}
}

/// The resources that are followed.
#[derive(Default)]
pub(super) struct Monitors {
    /// Held for one look or change.
    known: RwLock<BTreeMap<Key, Arc<Monitored>>>,
}

/// A resource that is followed.
struct Running {
    monitored: Arc<Monitored>,
    handle: InformerHandle,
    /// Ends with the value.
    _tasks: JoinSet<()>,
}

impl Monitors {
    /// Returns a resource that exists.
    pub(super) fn find(&self, group: &str, plural: &str) -> Option<Arc<Monitored>> {
        let key = (group.to_owned(), plural.to_owned());
        self.known.read().get(&key).cloned()
    }

    /// Returns the resource of a kind in any version of a group.
    pub(super) fn of_kind(&self, group: &str, kind: &str) -> Option<Arc<Monitored>> {
        let known = self.known.read();
        let mut known = known.values();
        known
            .find(|it| it.key.0 == group && it.resource.names.kind == kind)
            .cloned()
    }

    /// Returns all resources that exist.
    pub(super) fn all(&self) -> Vec<Arc<Monitored>> {
        self.known.read().values().cloned().collect()
    }

    /// Takes over the resources of the catalog as they are now.
    pub(super) fn refresh(&self, catalog: &Catalog) {
        *self.known.write() = resources(catalog);
    }

    /// Follows the resources of a server for ever.
    pub(super) async fn follow(
        self: Arc<Self>,
        front: Arc<Front>,
        observers: Vec<Arc<dyn Observer>>,
        clock: Arc<dyn Clock>,
    ) {
        let catalog = &front.catalog;
        let mut running: BTreeMap<Key, Running> = BTreeMap::new();
        loop {
            let mut changed = pin!(catalog.changed().notified());
            // From now on no change is missed.
            changed.as_mut().enable();
            self.refresh(catalog);
            let known = self.known.read().clone();
            running.retain(|key, running| {
                let now = known.get(key);
                let is_same = now
                    .is_some_and(|now| now.stored.cache.is_same(&running.monitored.stored.cache));
                if !is_same {
                    running.end(&observers, now.is_none());
                }
                is_same
            });
            for (key, monitored) in known {
                let wanted: Vec<_> = observers
                    .iter()
                    .filter(|observer| observer.wants(&monitored))
                    .cloned()
                    .collect();
                if !wanted.is_empty() && !running.contains_key(&key) {
                    for observer in &wanted {
                        observer.appear(&monitored);
                    }
                    running.insert(key, Running::start(monitored, wanted, &clock));
                }
            }
            changed.await;
        }
    }
}

/// Returns whether the objects of a resource are stored as those of another group.
fn is_of_other_group(resource: &Resource) -> bool {
    (
        resource.names.group.as_str(),
        resource.names.plural.as_str(),
    ) == ("events.k8s.io", "events")
}

/// Returns the resources with objects that can be watched and deleted, each in the version in which it is stored, as far
/// as that is served.
fn resources(catalog: &Catalog) -> BTreeMap<Key, Arc<Monitored>> {
    let mut found: BTreeMap<Key, Arc<Monitored>> = BTreeMap::new();
    for group in catalog.groups().values() {
        let versions = group.versions.iter();
        for resource in versions.flat_map(|version| version.resources.values()) {
            let Some(stored) = &resource.stored else {
                continue;
            };
            let has = |verb: &str| resource.verbs.iter().any(|known| known == verb);
            let key = (resource.names.group.clone(), resource.names.plural.clone());
            // Objects that are stored in another group belong to that one. Of versions of one group one is watched, which is
            // the preferred one.
            if is_of_other_group(resource) || !["list", "watch", "delete"].into_iter().all(has) {
                continue;
            }
            let is_storage = resource.rules.definition().is_some_and(|definition| {
                let version = definition.storage_version();
                version.is_some_and(|version| version.name == resource.names.version)
            });
            if is_storage || !found.contains_key(&key) {
                let monitored = Monitored {
                    resource: resource.clone(),
                    stored: stored.clone(),
                    namespaced: resource.namespaced,
                    key: key.clone(),
                };
                found.insert(key, Arc::new(monitored));
            }
        }
    }
    found
}

impl Running {
    fn start(
        monitored: Arc<Monitored>,
        observers: Vec<Arc<dyn Observer>>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let storage = Arc::new(monitored.stored.cache.clone());
        let source = StorageListWatch::new(storage, Scope::All, Selector::default());
        // The clock of the server, which tests may move, wakes no watch of the server itself.
        let source = source.without_timers();
        let reflector = Reflector::builder(Arc::new(source)).clock(clock.clone());
        let informer = Informer::builder(reflector.build()).build();
        let handle = informer.handle();
        let handler = Handler {
            monitored: monitored.clone(),
            observers,
        };
        let subscription = handle.subscribe_with(Delivery::Merged);
        let mut tasks = JoinSet::new();
        tasks.spawn(informer.run());
        tasks.spawn(subscription.run(handler));
        Self {
            monitored,
            handle,
            _tasks: tasks,
        }
    }

    /// Tells the observers that all objects are gone with the resource, or may be gone.
    fn end(&self, observers: &[Arc<dyn Observer>], is_gone: bool) {
        let monitored = &self.monitored;
        let wanted = observers.iter().filter(|it| it.wants(monitored));
        let objects = self.handle.store().list();
        for observer in wanted {
            for object in &objects {
                let change = if is_gone {
                    Change::Gone(object)
                } else {
                    Change::Doubted(object)
                };
                observer.observe(monitored, change);
            }
        }
    }
}

/// Passes the changes of one resource to the observers.
struct Handler {
    monitored: Arc<Monitored>,
    observers: Vec<Arc<dyn Observer>>,
}

impl Handler {
    fn pass(&self, change: Change<'_>) {
        for observer in &self.observers {
            observer.observe(&self.monitored, change);
        }
    }
}

impl EventHandler for Handler {
    fn on_add(&mut self, object: &Object, _: bool) {
        self.pass(Change::Set(object));
    }

    fn on_update(&mut self, old: &Object, new: &Object) {
        // An object that was deleted and created again.
        if old.uid() != new.uid() {
            self.pass(Change::Gone(old));
        }
        self.pass(Change::Set(new));
    }

    fn on_delete(&mut self, state: &FinalState) {
        self.pass(Change::Gone(state.object()));
    }
}
