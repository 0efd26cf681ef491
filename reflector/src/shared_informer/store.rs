//! The object store: the objects of an informer, with named indexes.
//!
//! Corresponds to `Indexer` of client-go (with `Store` and `ThreadSafeStore`). Users can only read
//! it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use revstore_watch_cache::selector::LabelSelector;
use revstore_watch_cache::{Object, Revision};

use super::delta_queue::FinalState;
use super::indexed_objects::{IndexedObject, IndexedObjects, NewObject};
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
    /// The functions of the indexes, ascending by name.
    functions: Vec<(String, IndexFn)>,
    /// The objects and their indexes. The lock is held to copy references or to make one change; no
    /// user code runs under it. It is an `RwLock`, because there may be many readers.
    objects: RwLock<IndexedObjects>,
}

/// A change of one object in the store.
pub(crate) enum Change {
    Insert(NewObject),
    /// Contains the last content of the object.
    Remove(Object),
}

/// All contents of a store.
pub(crate) struct StoreState(IndexedObjects);

/// The state after a list, with its differences from the state before.
pub(crate) struct Replacement {
    pub(crate) state: StoreState,
    /// The objects of the list, ascending by key, each with the one that it replaces.
    pub(crate) listed: Vec<(Object, Option<Object>)>,
    /// The objects that are not in the list, ascending by key.
    pub(crate) lost: Vec<Object>,
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl ObjectStore {
    pub(crate) fn new(functions: BTreeMap<String, IndexFn>) -> Self {
        Self {
            shared: Arc::new(SharedObjects {
                objects: RwLock::new(IndexedObjects::new(functions.len())),
                functions: functions.into_iter().collect(),
            }),
        }
    }

    /// Returns the position of an index.
    fn index(&self, name: &str) -> Option<usize> {
        let functions = &self.shared.functions;
        functions.iter().position(|(known, _)| known == name)
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
        let first = format!("{namespace}/");
        let from = (Bound::Included(&*first), Bound::Unbounded);
        let found = objects.by_key.range::<str, _>(from);
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
        let objects = self.shared.objects.read();
        objects.by_key.keys().map(ToString::to_string).collect()
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
        self.read_index(index, value, |objects, key| {
            let found = objects.by_key.get(key);
            found.map(|found| found.object.clone())
        })
    }

    /// Returns the keys of the objects with a value in an index, ascending.
    pub fn index_keys(&self, index: &str, value: &str) -> Vec<String> {
        self.read_index(index, value, |_, key| Some(key.to_string()))
    }

    /// Returns the values that at least one object has in an index, ascending.
    pub fn list_index_values(&self, index: &str) -> Vec<String> {
        let Some(position) = self.index(index) else {
            return Vec::new();
        };
        let objects = self.shared.objects.read();
        let values = objects.indexes[position].keys();
        values.map(ToString::to_string).collect()
    }

    /// Returns what `read` returns for the keys of a value, ascending by key.
    fn read_index<T>(
        &self,
        index: &str,
        value: &str,
        read: impl Fn(&IndexedObjects, &Arc<str>) -> Option<T>,
    ) -> Vec<T> {
        let Some(position) = self.index(index) else {
            return Vec::new();
        };
        let objects = self.shared.objects.read();
        let keys = objects.indexes[position].get(value).into_iter().flatten();
        keys.filter_map(|key| read(&objects, key)).collect()
    }

    /// Runs the index functions for an object. Called before a lock is taken, because the functions
    /// are user code (I8).
    pub(crate) fn indexed(&self, object: Object) -> NewObject {
        let functions = (0..).zip(&self.shared.functions);
        let values = functions.flat_map(|(position, (_, function))| {
            let values = function(&object).into_iter();
            values.map(move |value| (position, value))
        });
        NewObject {
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
                    if let Some(old) = objects.remove(last.store_key_str()) {
                        let state = FinalState::Known(last);
                        applied.push((Notification::Deleted(state), Some(old)));
                    }
                }
            }
        }
        objects.revision = objects.revision.max(revision);
        applied
    }

    /// Prepares the state after a list, as of a revision. The caller is the only one who changes the
    /// store.
    pub(crate) fn replacement(&self, mut listed: Vec<Object>, revision: Revision) -> Replacement {
        // API servers list by key. Of several objects with one key, the last one counts.
        if !listed.is_sorted_by(|a, b| a.store_key_str() <= b.store_key_str()) {
            listed.sort_by_cached_key(Object::store_key);
        }
        listed.dedup_by(|next, kept| {
            let is_same = next.store_key_str() == kept.store_key_str();
            if is_same {
                std::mem::swap(next, kept);
            }
            is_same
        });
        let previous: Vec<(Arc<str>, Object)> = {
            let objects = self.shared.objects.read();
            let known = objects.by_key.iter();
            known
                .map(|(key, known)| (key.clone(), known.object.clone()))
                .collect()
        };
        let mut previous = previous.into_iter().peekable();
        let mut changes = Vec::with_capacity(listed.len());
        let mut lost = Vec::new();
        let state = listed.into_iter().map(|object| {
            let key = object.store_key_str();
            while let Some((_, other)) = previous.next_if(|(known, _)| **known < *key) {
                lost.push(other);
            }
            let known = previous.next_if(|(known, _)| **known == *key);
            let (key, old) = match known {
                Some((key, old)) => (key, Some(old)),
                None => (key.into(), None),
            };
            changes.push((object.clone(), old));
            (key, self.indexed(object))
        });
        let state = IndexedObjects::of_list(state, self.shared.functions.len(), revision);
        lost.extend(previous.map(|(_, object)| object));
        Replacement {
            state: StoreState(state),
            listed: changes,
            lost,
        }
    }

    /// Replaces all objects in one step for readers (WC-510). Returns the previous state, which the
    /// caller frees after it has released its locks.
    pub(crate) fn replace(&self, state: StoreState) -> StoreState {
        let mut objects = self.shared.objects.write();
        StoreState(std::mem::replace(&mut *objects, state.0))
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use revstore_watch_cache::{JsonKind, ObjectRef};

    use super::*;

    fn object(name: usize, labels: &str, revision: i64) -> Object {
        let json = format!(r#"{{"metadata":{{"labels":{{"values":"{labels}"}}}}}}"#);
        let name = ObjectRef::namespaced(format!("ns{}", name % 3), format!("o{name}"));
        Object::from_parts(&name, Revision(revision), json, &JsonKind::new("v1", "Pod"))
    }

    /// Returns the words of a label, each as a value.
    fn words(object: &Object) -> Vec<String> {
        let words = object.label("values").unwrap_or_default().split('-');
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    fn store() -> ObjectStore {
        let words: IndexFn = Arc::new(words);
        let first: IndexFn = Arc::new(|object| self::words(object).into_iter().take(1).collect());
        ObjectStore::new(BTreeMap::from([
            ("words".to_owned(), words),
            ("first".to_owned(), first),
        ]))
    }

    /// Checks all reads against a store that was filled with the same objects one by one.
    fn assert_consistent(store: &ObjectStore, expected: &BTreeMap<String, Object>) {
        let shown = |objects: Vec<Object>| -> Vec<_> {
            let shown = objects.iter().map(|o| (o.store_key(), o.revision()));
            shown.collect()
        };
        assert_eq!(
            shown(store.list()),
            shown(expected.values().cloned().collect())
        );
        let mut by_value: BTreeMap<(&str, String), Vec<Object>> = BTreeMap::new();
        for object in expected.values() {
            let mut all = words(object);
            if let Some(first) = all.first() {
                let entry = by_value.entry(("first", first.clone()));
                entry.or_default().push(object.clone());
            }
            all.sort();
            all.dedup();
            for word in all {
                let entry = by_value.entry(("words", word));
                entry.or_default().push(object.clone());
            }
        }
        for index in ["first", "words"] {
            let values = by_value.keys().filter(|(known, _)| *known == index);
            let values: Vec<_> = values.map(|(_, value)| value.clone()).collect();
            assert_eq!(store.list_index_values(index), values);
        }
        for ((index, value), objects) in by_value {
            let keys: Vec<_> = objects.iter().map(Object::store_key).collect();
            assert_eq!(store.index_keys(index, &value), keys);
            assert_eq!(shown(store.by_index(index, &value)), shown(objects));
        }
        assert!(store.by_index("other", "a").is_empty());
        assert!(store.list_index_values("other").is_empty());
    }

    // Shows WC-517: no value, one, several, and one twice.
    #[test]
    fn wc_517_indexes_follow_changes_and_replacements() {
        const LABELS: [&str; 7] = ["", "a", "b", "a-b", "b-a", "a-a", "c-b-a"];
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let (store, mut expected) = (store(), BTreeMap::new());
            for revision in 1..60 {
                let mut next = || {
                    let labels = random.choice(LABELS).unwrap_or_default();
                    object(random.usize(..12), labels, revision)
                };
                let (first, second) = (next(), next());
                match random.usize(..9) {
                    0 => {
                        // In no order, and possibly with an object twice.
                        let listed = vec![first, second];
                        let before = std::mem::take(&mut expected);
                        for object in &listed {
                            expected.insert(object.store_key(), object.clone());
                        }
                        let replacement = store.replacement(listed, Revision(revision));
                        let lost = before.keys().filter(|key| !expected.contains_key(*key));
                        assert!(
                            lost.eq(replacement
                                .lost
                                .iter()
                                .map(Object::store_key)
                                .collect::<Vec<_>>()
                                .iter())
                        );
                        for (new, old) in &replacement.listed {
                            let known = before.get(new.store_key_str()).map(Object::revision);
                            assert_eq!(old.as_ref().map(Object::revision), known);
                        }
                        assert_eq!(replacement.listed.len(), expected.len());
                        store.replace(replacement.state);
                    }
                    1..=3 => {
                        let changes = vec![Change::Remove(first.clone())];
                        let removed = expected.remove(&first.store_key());
                        let applied = store.apply(changes, Some(Revision(revision)));
                        assert_eq!(applied.len(), usize::from(removed.is_some()));
                    }
                    _ => {
                        let changes = vec![Change::Insert(store.indexed(first.clone()))];
                        let old = expected.insert(first.store_key(), first);
                        let applied = store.apply(changes, Some(Revision(revision)));
                        let found = applied[0].1.as_ref().map(Object::revision);
                        assert_eq!(found, old.map(|old| old.revision()));
                    }
                }
                assert_consistent(&store, &expected);
            }
        }
    }
}
