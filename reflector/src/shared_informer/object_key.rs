//! The key of an object in a store, as the key of a map.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

use revstore_watch_cache::Object;

/// An object that is equal to all objects with the same key. Keeps the object instead of a copy of its
/// key, so it suits maps that live shortly.
#[derive(Clone, Debug)]
pub(super) struct ObjectKey(Object);

impl ObjectKey {
    pub(super) fn of(object: &Object) -> Self {
        Self(object.clone())
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        self.0.store_key_str()
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.store_key_str() == other.0.store_key_str()
    }
}

impl Eq for ObjectKey {}

impl Hash for ObjectKey {
    /// As that of the key, which `Borrow` requires.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.store_key_str().hash(state);
    }
}
