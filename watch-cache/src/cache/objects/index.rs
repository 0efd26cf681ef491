//! Indexes over the objects of a resource, by a field or a label.

use bytes::Bytes;
use std::sync::Arc;

use crate::cache::objects::tree::Item;
use crate::encode::object::Entry;
use crate::selector::{FieldPlace, Filter};

/// What objects are found by besides their names (WC-126).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// The value of a selectable field.
    Field(String),
    /// The value of a label.
    Label(String),
}

/// An index with its place found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndexPlace {
    Field(FieldPlace),
    Label(String),
}

impl IndexPlace {
    pub(crate) fn value<'a>(&self, entry: &'a Entry) -> Option<&'a str> {
        match self {
            Self::Field(place) => entry.field(*place),
            Self::Label(key) => entry.label(key),
        }
    }

    pub(crate) fn wanted<'a>(&self, filter: &'a Filter) -> Option<&'a str> {
        match self {
            Self::Field(place) => filter.wanted_field(*place),
            Self::Label(key) => filter.wanted_label(key),
        }
    }
}

/// An entry at its place in an index: value, a zero byte, key.
#[derive(Clone, Debug)]
pub(crate) struct Indexed {
    place: Bytes,
    pub(crate) entry: Arc<Entry>,
}

impl Indexed {
    pub(crate) fn new(value: &str, entry: Arc<Entry>) -> Self {
        let place = Self::place(value, entry.key());
        Self { place, entry }
    }

    pub(crate) fn place(value: &str, key: &[u8]) -> Bytes {
        [value.as_bytes(), &[0], key].concat().into()
    }
}

impl Item for Indexed {
    fn key(&self) -> &[u8] {
        &self.place
    }
}
