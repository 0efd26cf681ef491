//! Indexes over the objects of a resource, by the value of a field or of a label.

use std::sync::Arc;

use bytes::Bytes;

use crate::cache::objects::tree::Item;
use crate::encode::object::StoredObject;
use crate::selector::{ObjectFilter, ResolvedField};

/// An attribute of objects by which a resource is indexed, in addition to namespace and name.
// WC-126.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectIndex {
    /// The value of the selectable field with this path.
    Field(String),
    /// The value of the label with this key.
    Label(String),
}

/// An [`ObjectIndex`] with the location of its field resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedIndex {
    Field(ResolvedField),
    Label(String),
}

impl ResolvedIndex {
    /// Returns the indexed value of `object`.
    pub(crate) fn value<'a>(&self, object: &'a StoredObject) -> Option<&'a str> {
        match self {
            Self::Field(field) => object.field(*field),
            Self::Label(key) => object.label(key),
        }
    }

    /// Returns the one value that `filter` requires of the indexed attribute, if it requires one.
    pub(crate) fn required_value<'a>(&self, filter: &'a ObjectFilter) -> Option<&'a str> {
        match self {
            Self::Field(field) => filter.required_field(*field),
            Self::Label(key) => filter.required_label(key),
        }
    }
}

/// An item of an index tree: an object under the key `<value> 0x00 <object key>`.
#[derive(Clone, Debug)]
pub(crate) struct IndexItem {
    index_key: Bytes,
    pub(crate) object: Arc<StoredObject>,
}

impl IndexItem {
    pub(crate) fn new(value: &str, object: Arc<StoredObject>) -> Self {
        let index_key = Self::index_key(value, object.key());
        Self { index_key, object }
    }

    pub(crate) fn index_key(value: &str, key: &[u8]) -> Bytes {
        [value.as_bytes(), &[0], key].concat().into()
    }
}

impl Item for IndexItem {
    fn key(&self) -> &[u8] {
        &self.index_key
    }
}
