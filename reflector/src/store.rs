//! The objects that an informer knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use revstore_watch_cache::{Object, Revision};

/// Says under which values an object is found.
pub type IndexFn = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

/// The objects that an informer knows, by `namespace/name`, and by the values of its indexes
/// (WC-510, WC-517). Clones are handles on the same store.
///
/// A reader sees each change, and each replacement of everything, as a whole. It holds a lock
/// while it copies handles out, and never runs an index function under it.
///
/// ```
/// use revstore_reflector::{Object, Store, informer::InformerBuilder};
///
/// fn by_app(informer: InformerBuilder) -> InformerBuilder {
///     informer.index("app", |object: &Object| {
///         object.label("app").map(str::to_owned).into_iter().collect()
///     })
/// }
///
/// fn web_servers(store: &Store) -> Vec<String> {
///     store.index_keys("app", "web")
/// }
/// ```
#[derive(Clone)]
pub struct Store {
    inner: Arc<Shared>,
}

struct Shared {
    functions: BTreeMap<String, IndexFn>,
    /// Guards the contents. Held to copy handles, or to make one change.
    contents: RwLock<Contents>,
}

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Indexed>,
    /// Index, value, keys.
    indexes: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    revision: Option<Revision>,
}

/// An object with the values that the index functions gave for it.
pub(crate) struct Indexed {
    object: Object,
    /// Index and values.
    values: Vec<(String, Vec<String>)>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Contents {
    fn insert(&mut self, new: Indexed) -> Option<Object> {
        let key = new.object.store_key();
        let old = self.remove(&key);
        for (index, values) in &new.values {
            let index = self.indexes.entry(index.clone()).or_default();
            for value in values {
                index.entry(value.clone()).or_default().insert(key.clone());
            }
        }
        self.objects.insert(key, new);
        old
    }

    fn remove(&mut self, key: &str) -> Option<Object> {
        let old = self.objects.remove(key)?;
        for (index, values) in &old.values {
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
        Some(old.object)
    }
}

impl Store {
    pub(crate) fn new(functions: BTreeMap<String, IndexFn>) -> Self {
        Self {
            inner: Arc::new(Shared {
                functions,
                contents: RwLock::default(),
            }),
        }
    }

    /// Asks the index functions about an object: before any lock is taken (I8).
    pub(crate) fn indexed(&self, object: Object) -> Indexed {
        let functions = self.inner.functions.iter();
        let values = functions.map(|(name, function)| (name.clone(), function(&object)));
        Indexed {
            values: values.collect(),
            object,
        }
    }

    /// The object of a key: `namespace/name`, or `name`.
    pub fn get(&self, key: &str) -> Option<Object> {
        self.inner
            .contents
            .read()
            .objects
            .get(key)
            .map(|held| held.object.clone())
    }

    /// All objects, by key.
    pub fn list(&self) -> Vec<Object> {
        let contents = self.inner.contents.read();
        contents
            .objects
            .values()
            .map(|held| held.object.clone())
            .collect()
    }

    /// All keys.
    pub fn keys(&self) -> Vec<String> {
        self.inner.contents.read().objects.keys().cloned().collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.contents.read().objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The revision of the newest change in the store, or the newest one that nothing changed up to
    /// (WC-519). The store has everything before it; a revision that changed several objects comes into
    /// the store object by object.
    pub fn revision(&self) -> Option<Revision> {
        self.inner.contents.read().revision
    }

    /// The objects with a value in an index.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Object> {
        let contents = self.inner.contents.read();
        let keys = contents
            .indexes
            .get(index)
            .and_then(|values| values.get(value));
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| contents.objects.get(key).map(|held| held.object.clone()))
            .collect()
    }

    /// The keys of the objects with a value in an index.
    pub fn index_keys(&self, index: &str, value: &str) -> Vec<String> {
        let contents = self.inner.contents.read();
        let keys = contents
            .indexes
            .get(index)
            .and_then(|values| values.get(value));
        keys.into_iter().flatten().cloned().collect()
    }

    /// The values that some object has in an index.
    pub fn list_index_values(&self, index: &str) -> Vec<String> {
        let contents = self.inner.contents.read();
        let values = contents
            .indexes
            .get(index)
            .into_iter()
            .flat_map(BTreeMap::keys);
        values.cloned().collect()
    }

    /// Puts an object in; returns the one it replaced. There is one writer.
    pub(crate) fn insert(&self, new: Indexed) -> Option<Object> {
        self.inner.contents.write().insert(new)
    }

    pub(crate) fn remove(&self, key: &str) -> Option<Object> {
        self.inner.contents.write().remove(key)
    }

    /// WC-510: everything anew, in one step for readers.
    pub(crate) fn replace(&self, objects: Vec<Indexed>, revision: Revision) {
        let mut fresh = Contents {
            revision: Some(revision),
            ..Contents::default()
        };
        for object in objects {
            fresh.insert(object);
        }
        let old = std::mem::replace(&mut *self.inner.contents.write(), fresh);
        drop(old);
    }

    pub(crate) fn set_revision(&self, revision: Revision) {
        let mut contents = self.inner.contents.write();
        contents.revision = contents.revision.max(Some(revision));
    }
}
