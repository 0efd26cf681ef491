//! The object store: the objects of an informer, with named indexes.
//!
//! Corresponds to `Indexer` of client-go (with `Store` and `ThreadSafeStore`). Users can only read
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use revstore_watch_cache::selector::LabelSelector;
use revstore_watch_cache::{Object, Revision};

use super::delta_queue::FinalState;
use super::informer;
use super::subscription::Notification;

/// A function that returns the values of an object in an index.
pub type IndexFn = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

/// The objects of an informer, by key and by the values of its indexes. Clones are handles to the
/// same store.
///
/// The key of an object is `namespace/name`, or `name` if it has no namespace.
///
/// Only the informer changes the store. Readers see each change, and each replacement of the whole
/// state, either completely or not at all. A reader holds a read lock while it copies references to
/// objects; index functions run without the lock.
///
/// ```
/// use revstore_reflector::{ObjectStore, informer::InformerBuilder};
/// use revstore_watch_cache::Object;
///
/// fn with_app_index(builder: InformerBuilder) -> InformerBuilder {
///     builder.index("app", |object: &Object| {
///         object.label("app").map(str::to_owned).into_iter().collect()
///     })
/// }
///
/// fn web_servers(store: &ObjectStore) -> Vec<String> {
///     store.index_keys("app", "web")
/// }
/// ```
#[derive(Clone)]
pub struct ObjectStore {
    shared: Arc<SharedObjects>,
}

struct SharedObjects {
    functions: BTreeMap<String, IndexFn>,
    /// The objects and their indexes. The lock is held to copy references or to make one change; no
    /// user code runs under it. It is an `RwLock`, because there may be many readers.
    objects: RwLock<IndexedObjects>,
}

#[derive(Default)]
struct IndexedObjects {
    by_key: BTreeMap<String, IndexedObject>,
    /// The keys by name of the index and by value.
    indexes: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    revision: Option<Revision>,
}

/// An object with its values in each index.
pub(crate) struct IndexedObject {
    object: Object,
    /// The name of each index, with the values of the object.
    values: Vec<(String, Vec<String>)>,
}

/// A change of one object in the store.
pub(crate) enum Change {
    Insert(IndexedObject),
    /// Contains the last content of the object.
    Remove(Object),
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl IndexedObjects {
    fn insert(&mut self, new: IndexedObject) -> Option<Object> {
        let key = new.object.store_key();
        let previous = self.remove(&key);
        for (index, values) in &new.values {
            let index = self.indexes.entry(index.clone()).or_default();
            for value in values {
                index.entry(value.clone()).or_default().insert(key.clone());
            }
        }
        self.by_key.insert(key, new);
        previous
    }

    fn remove(&mut self, key: &str) -> Option<Object> {
        let previous = self.by_key.remove(key)?;
        for (index, values) in &previous.values {
            let Some(index) = self.indexes.get_mut(index) else {
                continue;
            };
            for value in values {
                if let Some(keys) = index.get_mut(value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.remove(value);
                    }
                }
            }
        }
        Some(previous.object)
    }

    fn index_keys(&self, index: &str, value: &str) -> impl Iterator<Item = &String> {
        let values = self.indexes.get(index);
        values
            .and_then(|values| values.get(value))
            .into_iter()
            .flatten()
    }
}

impl ObjectStore {
    pub(crate) fn new(functions: BTreeMap<String, IndexFn>) -> Self {
        Self {
            shared: Arc::new(SharedObjects {
                functions,
                objects: RwLock::default(),
            }),
        }
    }

    /// Returns the object with a key: `namespace/name`, or `name`.
    pub fn get(&self, key: &str) -> Option<Object> {
        let objects = self.shared.objects.read();
        objects.by_key.get(key).map(|found| found.object.clone())
    }

    /// Returns all objects, ascending by key.
    pub fn list(&self) -> Vec<Object> {
        let objects = self.shared.objects.read();
        let found = objects.by_key.values();
        found.map(|found| found.object.clone()).collect()
    }

    /// Returns the objects of a namespace, ascending by key. The empty namespace contains the objects
    /// without one.
    pub fn namespace(&self, namespace: &str) -> Vec<Object> {
        let objects = self.shared.objects.read();
        let is_inside = |found: &&IndexedObject| found.object.namespace() == namespace;
        if namespace.is_empty() {
            let found = objects.by_key.values().filter(is_inside);
            return found.map(|found| found.object.clone()).collect();
        }
        let found = objects.by_key.range(format!("{namespace}/")..);
        found
            .map(|(_, found)| found)
            .take_while(is_inside)
            .map(|found| found.object.clone())
            .collect()
    }

    /// Returns the objects with matching labels, ascending by key. Visits all objects: an index is
    /// faster for one value of a label.
    pub fn matching(&self, labels: &LabelSelector) -> Vec<Object> {
        let mut objects = self.list();
        objects.retain(|object| labels.matches(object));
        objects
    }

    /// Returns all keys, ascending.
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.read().by_key.keys().cloned().collect()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.shared.objects.read().by_key.len()
    }

    /// Returns whether the store has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the revision of the newest applied change or bookmark, or `None` before the first
    /// complete state.
    ///
    /// The store contains all changes of earlier revisions. If this revision changed several
    /// objects, some of its changes may not be applied yet.
    // WC-519.
    pub fn revision(&self) -> Option<Revision> {
        self.shared.objects.read().revision
    }

    /// Returns the objects with a value in an index, ascending by key.
    // WC-517, as the next two functions.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Object> {
        let objects = self.shared.objects.read();
        let keys = objects.index_keys(index, value);
        keys.filter_map(|key| objects.by_key.get(key))
            .map(|found| found.object.clone())
            .collect()
    }

    /// Returns the keys of the objects with a value in an index, ascending.
    pub fn index_keys(&self, index: &str, value: &str) -> Vec<String> {
        let objects = self.shared.objects.read();
        objects.index_keys(index, value).cloned().collect()
    }

    /// Returns the values that at least one object has in an index, ascending.
    pub fn list_index_values(&self, index: &str) -> Vec<String> {
        let objects = self.shared.objects.read();
        let values = objects.indexes.get(index);
        values
            .into_iter()
            .flatten()
            .map(|(v, _)| v.clone())
            .collect()
    }

    /// Runs the index functions for an object. Called before a lock is taken, because the functions
    /// are user code (I8).
    pub(crate) fn indexed(&self, object: Object) -> IndexedObject {
        let functions = self.shared.functions.iter();
        let values = functions.map(|(name, function)| (name.clone(), function(&object)));
        IndexedObject {
            values: values.collect(),
            object,
        }
    }

    /// Applies changes and raises the revision, in one step for readers. Returns the notification of
    /// each change, with the object before it. The deletion of an unknown object leads to none.
    pub(crate) fn apply(
        &self,
        changes: Vec<Change>,
        revision: Option<Revision>,
    ) -> Vec<(Notification, Option<Object>)> {
        let mut applied = Vec::with_capacity(changes.len());
        let mut objects = self.shared.objects.write();
        for change in changes {
            match change {
                Change::Insert(new) => {
                    let object = new.object.clone();
                    let old = objects.insert(new);
                    applied.push((informer::applied(old.clone(), object, false), old));
                }
                Change::Remove(last) => {
                    if let Some(old) = objects.remove(&last.store_key()) {
                        let state = FinalState::Known(last);
                        applied.push((Notification::Deleted(state), Some(old)));
                    }
                }
            }
        }
        objects.revision = objects.revision.max(revision);
        applied
    }

    /// Replaces all objects in one step for readers (WC-510).
    pub(crate) fn replace(&self, objects: Vec<IndexedObject>, revision: Revision) {
        let mut new = IndexedObjects {
            revision: Some(revision),
            ..IndexedObjects::default()
        };
        for object in objects {
            new.insert(object);
        }
        let previous = std::mem::replace(&mut *self.shared.objects.write(), new);
        // Freed after the lock is released.
        drop(previous);
    }
}
