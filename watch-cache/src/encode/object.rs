//! Objects in the cache: stored bytes and what was read out of them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::keys::KeyLayout;
use crate::cache::objects::tree::Item;
use crate::encode::kind::{Attributes, Kind, Undecodable};
use crate::selector::FieldPlace;
use crate::source::Stored;

/// What an entry costs beside its key and value, about: itself, its labels and fields, and its
/// places in the tree.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 320;

/// One version of one object. It never changes; whoever holds it shares it.
///
/// Keeps the stored bytes, not a decoded tree (WC-141), and shares them with the engine (WC-148).
pub struct Entry {
    stored: Stored,
    /// Where the resource's prefix ends in the key.
    prefix_len: usize,
    /// Where the name begins in the key.
    name_at: usize,
    attributes: Result<Attributes, Undecodable>,
}

impl Entry {
    pub(crate) fn read(stored: Stored, kind: &dyn Kind, layout: &KeyLayout) -> Self {
        Self {
            prefix_len: layout.prefix().len().min(stored.key.len()),
            name_at: layout.name_offset(&stored.key),
            attributes: attributes(&stored.value, kind),
            stored,
        }
    }

    fn with_value(&self, value: Bytes, kind: &dyn Kind) -> Self {
        Self {
            prefix_len: self.prefix_len,
            name_at: self.name_at,
            attributes: attributes(&value, kind),
            stored: Stored {
                value,
                ..self.stored.clone()
            },
        }
    }

    /// The key in the store.
    pub fn key(&self) -> &[u8] {
        &self.stored.key
    }

    /// The bytes in the store, without a resource version.
    pub fn value(&self) -> &[u8] {
        &self.stored.value
    }

    /// The same, shared.
    pub fn value_bytes(&self) -> Bytes {
        self.stored.value.clone()
    }

    /// The revision that wrote this version.
    pub fn mod_revision(&self) -> Revision {
        self.stored.mod_revision
    }

    /// The revision in which the object's present life began.
    pub fn create_revision(&self) -> Revision {
        self.stored.create_revision
    }

    /// The namespace, from the key; empty if it has none or is no text.
    pub fn namespace(&self) -> &str {
        let end = self.name_at.saturating_sub(1).max(self.prefix_len);
        let bytes = &self.stored.key[self.prefix_len..end];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The name, from the key; empty if it is no text.
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.stored.key[self.name_at..]).unwrap_or_default()
    }

    /// What was read out of the bytes; nothing if they could not be read.
    pub fn attributes(&self) -> Option<&Attributes> {
        self.attributes.as_ref().ok()
    }

    /// Why the bytes could not be read, if so.
    pub fn fault(&self) -> Option<&Undecodable> {
        self.attributes.as_ref().err()
    }

    /// The uid; empty if there is none.
    pub fn uid(&self) -> &str {
        self.attributes().map_or("", |attributes| &attributes.uid)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = &self.attributes()?.labels;
        let at = labels
            .binary_search_by(|(known, _)| (**known).cmp(key))
            .ok()?;
        Some(&labels[at].1)
    }

    pub(crate) fn field(&self, place: FieldPlace) -> Option<&str> {
        match place {
            FieldPlace::Name => Some(self.name()),
            FieldPlace::Namespace => Some(self.namespace()),
            FieldPlace::Extra(at) => self.attributes()?.fields.get(at)?.as_deref(),
        }
    }

    /// Bytes of key and value.
    pub(crate) fn stored_bytes(&self) -> u64 {
        (self.stored.key.len() + self.stored.value.len()) as u64
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.stored.key.len() + self.stored.value.len() + ENTRY_OVERHEAD_BYTES
    }
}

fn attributes(value: &[u8], kind: &dyn Kind) -> Result<Attributes, Undecodable> {
    kind.extract(value).map(|mut attributes| {
        attributes.labels.sort_unstable();
        attributes.labels.shrink_to_fit();
        attributes
    })
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.stored.key)
            .field("mod_revision", &self.stored.mod_revision.0)
            .field("value_len", &self.stored.value.len())
            .finish_non_exhaustive()
    }
}

/// An object as one client is to see it: an entry, and the resource version to show.
///
/// The two differ only in a DELETED event, whose object carries the revision of the deletion
/// (WC-351); the entry itself is shared and stays as it is.
#[derive(Clone, Debug)]
pub struct Object {
    entry: Arc<Entry>,
    revision: Revision,
}

impl Object {
    /// The entry as it was written.
    pub fn new(entry: Arc<Entry>) -> Self {
        let revision = entry.mod_revision();
        Self { entry, revision }
    }

    /// The entry, shown with another revision.
    pub(crate) fn shown_at(entry: Arc<Entry>, revision: Revision) -> Self {
        Self { entry, revision }
    }

    /// The same object with other bytes, which `kind` reads as it does those of the store. Key and
    /// revisions stay.
    #[must_use]
    pub fn with_value(&self, value: impl Into<Bytes>, kind: &dyn Kind) -> Self {
        Self {
            entry: Arc::new(self.entry.with_value(value.into(), kind)),
            revision: self.revision,
        }
    }

    /// The resource version to show.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The shared entry.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// `namespace/name`, or `name` (WC-510).
    pub fn store_key(&self) -> String {
        match self.namespace() {
            "" => self.name().to_owned(),
            namespace => format!("{namespace}/{}", self.name()),
        }
    }
}

impl Deref for Object {
    type Target = Entry;
    fn deref(&self) -> &Entry {
        &self.entry
    }
}

/// Makes entries of stored bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) layout: KeyLayout,
}

impl Reader {
    pub(crate) fn read(&self, stored: Stored) -> Arc<Entry> {
        Arc::new(Entry::read(stored, &*self.kind, &self.layout))
    }
}

impl Item for Arc<Entry> {
    fn key(&self) -> &[u8] {
        Entry::key(self)
    }
}
