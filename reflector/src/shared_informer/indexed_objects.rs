//! The contents of a store: objects by key, and the keys by the values of each index.
//!
//! The map of objects and the indexes share the text of each key, and objects share the text of each
//! value with its index. A change of an object that keeps its values changes no index.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use revstore_watch_cache::{Object, Revision};

/// An object, with the values that the index functions have returned for it.
pub(crate) struct NewObject {
    pub(super) object: Object,
    /// The position of each index, with a value of the object.
    pub(super) values: Vec<(u32, String)>,
}

#[derive(Default)]
pub(super) struct IndexedObjects {
    pub(super) by_key: BTreeMap<Arc<str>, IndexedObject>,
    /// The indexes, in the order of their functions.
    pub(super) indexes: Vec<Index>,
    pub(super) revision: Option<Revision>,
}

/// The keys of the objects with each value.
pub(super) type Index = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

pub(super) struct IndexedObject {
    pub(super) object: Object,
    values: IndexValues,
}

/// The position of each index, with a value of the object. Most objects have one, which needs no
/// allocation.
enum IndexValues {
    One([(u32, Arc<str>); 1]),
    /// None, or more than one.
    Other(Box<[(u32, Arc<str>)]>),
}

impl IndexValues {
    fn as_slice(&self) -> &[(u32, Arc<str>)] {
        match self {
            Self::One(value) => value,
            Self::Other(values) => values,
        }
    }

    fn are(&self, values: &[(u32, String)]) -> bool {
        let known = self
            .as_slice()
            .iter()
            .map(|(index, value)| (index, &**value));
        known.eq(values.iter().map(|(index, value)| (index, &**value)))
    }
}

impl FromIterator<(u32, Arc<str>)> for IndexValues {
    fn from_iter<I: IntoIterator<Item = (u32, Arc<str>)>>(values: I) -> Self {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::One([value]),
            (first, second) => Self::Other(first.into_iter().chain(second).chain(values).collect()),
        }
    }
}

impl IndexedObjects {
    pub(super) fn new(indexes: usize) -> Self {
        Self {
            by_key: BTreeMap::new(),
            indexes: (0..indexes).map(|_| Index::new()).collect(),
            revision: None,
        }
    }

    /// Creates the contents after a list. The objects ascend by key, each key once.
    pub(super) fn of_list(
        objects: impl IntoIterator<Item = (Arc<str>, NewObject)>,
        indexes: usize,
        revision: Revision,
    ) -> Self {
        let mut keys: Vec<HashMap<Arc<str>, Vec<Arc<str>>>> = vec![HashMap::new(); indexes];
        let objects: Vec<_> = objects
            .into_iter()
            .map(|(key, new)| {
                let values = new.values.into_iter().map(|(position, value)| {
                    let keys = &mut keys[position as usize];
                    let value = match keys.get_key_value(&*value) {
                        Some((known, _)) => known.clone(),
                        None => value.into(),
                    };
                    keys.entry(value.clone()).or_default().push(key.clone());
                    (position, value)
                });
                let values = values.collect();
                let object = new.object;
                (key, IndexedObject { object, values })
            })
            .collect();
        // Sets of ascending keys are built in one step, and without free space.
        let index = |keys: HashMap<_, Vec<_>>| {
            let keys = keys.into_iter();
            keys.map(|(value, keys)| (value, keys.into_iter().collect()))
                .collect()
        };
        Self {
            by_key: objects.into_iter().collect(),
            indexes: keys.into_iter().map(index).collect(),
            revision: Some(revision),
        }
    }

    /// Adds the key of an object to its indexes.
    fn indexed(&mut self, key: &Arc<str>, new: NewObject) -> IndexedObject {
        let values = new.values.into_iter().map(|(position, value)| {
            let index = &mut self.indexes[position as usize];
            let value = match index.get_key_value(&*value) {
                Some((known, _)) => known.clone(),
                None => value.into(),
            };
            index.entry(value.clone()).or_default().insert(key.clone());
            (position, value)
        });
        IndexedObject {
            values: values.collect(),
            object: new.object,
        }
    }

    /// Adds or replaces an object. Returns the previous one.
    pub(super) fn insert(&mut self, new: NewObject) -> Option<Object> {
        if let Some(known) = self.by_key.get_mut(new.object.store_key_str())
            && known.values.are(&new.values)
        {
            return Some(mem::replace(&mut known.object, new.object));
        }
        let (key, previous) = match self.remove_entry(new.object.store_key_str()) {
            Some((key, previous)) => (key, Some(previous)),
            None => (new.object.store_key_str().into(), None),
        };
        let object = self.indexed(&key, new);
        self.by_key.insert(key, object);
        previous
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, key: &str) -> Option<Object> {
        self.remove_entry(key).map(|(_, object)| object)
    }

    fn remove_entry(&mut self, key: &str) -> Option<(Arc<str>, Object)> {
        let (key, previous) = self.by_key.remove_entry(key)?;
        for (position, value) in previous.values.as_slice() {
            let index = &mut self.indexes[*position as usize];
            if let Some(keys) = index.get_mut(value) {
                keys.remove(&key);
                if keys.is_empty() {
                    index.remove(value);
                }
            }
        }
        Some((key, previous.object))
    }
}
